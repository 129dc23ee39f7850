# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The programs of both ends: what they are told, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import exchanges
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.endpoints import Endpoint
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    Effort,
    Features,
    OutputError,
    Programs,
    figures,
)

DATA = Path(__file__).parent / "data/verbs"
ENDPOINT = Endpoint("rail3", "mlx5_3", 1, 5, software=False, numa=0)
NEW = Features(json=True, bind="--bind_source_ip")
EFFORT = Effort()
MPI = {"UCX_TLS": "rc,ud,sm,self", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_3:1"}


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def programs(address: str, known: Features = NEW, effort: Effort = EFFORT) -> Programs:
    return Programs(ENDPOINT, address, 98, effort, known)


def client(name: str, known: Features = NEW, cpus: str = "", **effort: int) -> exchanges.Command:
    here = programs("10.3.0.1", known, Effort(**effort))
    return here.client(name, 18527, MPI, "10.3.0.2", "/tmp/r", cpus)


def server(name: str, **effort: int) -> exchanges.Command:
    return programs("10.3.0.2", NEW, Effort(**effort)).server(name, 18527, MPI, 600)


@pytest.mark.parametrize("name", exchanges.PERFTEST)
def test_both_ends_are_told_the_same_and_nothing_is_left_to_choose(name: str) -> None:
    near, far = client(name).argv, server(name).argv
    told = ["-d", "mlx5_3", "-i", "1", "-x", "5", "--tclass=98", "-p", "18527"]
    start = near.index("-d")
    assert list(near[start : start + len(told)]) == told
    amount = near[start : near.index("--bind_source_ip=10.3.0.1")]
    assert amount == far[far.index("-d") : far.index("--bind_source_ip=10.3.0.2")]
    assert near[-1] == "10.3.0.2"
    assert far[-1].startswith("--bind")


@pytest.mark.parametrize("name", exchanges.PROGRAMS)
def test_every_program_ends_by_itself(name: str) -> None:
    assert client(name).argv[:3] == ("timeout", "--kill-after=5", "32")
    assert server(name).argv[:3] == ("timeout", "--kill-after=5", "600")


def test_ucx_gets_the_environment_of_the_node_and_one_rail_of_it() -> None:
    for command in (client("ucx"), server("ucx")):
        assert command.env == {"UCX_TLS": "rc,ud,sm,self", "UCX_NET_DEVICES": "mlx5_3:1"}
        assert not any("98" in word for word in command.argv)
    assert client("write_bw").env == {}
    assert client("write_bw", cpus="0-55").argv[3:6] == ("taskset", "--cpu-list", "0-55")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--out_json_file=<file>  --bind_source_ip  Source IP", Features(True, "--bind_source_ip")),
        ("--out_json_file=<file>  --source_ip  Source IP", Features(True, "--source_ip")),
        ("-d, --ib-dev=<dev>", Features(False, "")),
    ],
)
def test_what_perftest_can_do_is_read_from_its_help(text: str, wanted: Features) -> None:
    def run(argv: Sequence[str], **_options: object) -> Result:
        return Result(tuple(argv), 0, text, "")

    assert exchanges.perftest_features(exchanges.PERFTEST, run) == wanted


def test_an_old_perftest_is_not_told_what_it_does_not_know() -> None:
    argv = client("write_bw", Features(json=False, bind="")).argv
    assert not [word for word in argv if "json" in word or "source_ip" in word]


def test_reports_of_both_kinds_are_read() -> None:
    """Both recorded on Soft-RoCE, by the versions they are named after."""
    assert figures("write_bw", text("write_bw-4.5.json"), "") == {
        "bytes": 65536,
        "iterations": 1220,
        "path_mtu": 4096,
        "gbits_s": 0.63,
        "messages_s": pytest.approx(1205),
        "read_from": "lines",
    }
    assert figures("write_bw", text("write_bw-24.01.json"), "") == {
        "bytes": 65536,
        "iterations": 514,
        "path_mtu": 4096,
        "gbits_s": 0.26,
        "messages_s": pytest.approx(495),
        "read_from": "json",
    }
    assert figures("write_lat", text("write_lat-4.5.json"), "") == {
        "bytes": 2,
        "iterations": 1000,
        "path_mtu": 4096,
        "min_us": 135.15,
        "median_us": 1986.36,
        "average_us": 2143.13,
        "p99_us": 6408.71,
        "max_us": 8001.55,
        "read_from": "lines",
    }
    assert figures("write_lat", text("write_lat-24.01.json"), "")["median_us"] == 194.49


@pytest.mark.parametrize("name", ["write_bw", "write_lat"])
def test_where_there_is_no_report_the_table_is_read(name: str) -> None:
    by_table = figures(name, None, text(f"{name}.txt"))
    by_report = figures(name, text(f"{name}-4.5.json"), "")
    assert by_table.pop("read_from") == "table"
    del by_report["read_from"]
    assert by_table == pytest.approx(by_report)


@pytest.mark.parametrize(
    ("report", "printed"),
    [
        (None, ""),
        (
            None,
            " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]\n 65536 1 2 3 4\n",
        ),
        (
            None,
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n",
        ),
        ("", ""),
        ("{}", ""),
        ('{"test_info": {"Mtu": 4096}, "results": {"MsgSize": 65536}}', ""),
        (
            '{"test_info": {"Mtu": 1024}, "results": {"MsgSize": 8, "n_iterations": 5, '
            '"BW_average": "fast", "MsgRate": 1}}',
            "",
        ),
    ],
)
def test_a_report_without_its_figure_is_an_error_and_never_zero(
    report: str | None, printed: str
) -> None:
    with pytest.raises(OutputError, match=r"perftest|ib_write_bw"):
        figures("write_bw", report, printed)


@pytest.mark.parametrize("value", ["0.000000", "inf", "nan", "-nan"])
def test_what_cannot_be_a_figure_is_none(value: str) -> None:
    report = text("write_bw-4.5.json").replace("0.63", value)
    assert figures("write_bw", report, "")["gbits_s"] is None
    report = text("write_lat-24.01.json").replace("194.49", value)
    assert figures("write_lat", report, "")["median_us"] is None


def test_ucx_prints_its_figures_separated_by_commas() -> None:
    printed = text("ucx.csv")
    found = figures("ucx", None, printed)
    assert found == {"iterations": 200, "gbits_s": 61.614577, "read_from": "csv"}
    with pytest.raises(OutputError, match="no figures"):
        figures("ucx", None, "Failed to connect")


def test_of_all_that_was_printed_the_telling_lines_are_shown() -> None:
    printed = text("ucx-abort.txt")
    told = exchanges.telling(printed)
    assert "unhandled timeout" in told
    assert "libc.so" not in told
    assert exchanges.telling("Couldn't connect to 10.0.0.2:19009\n") == (
        "Couldn't connect to 10.0.0.2:19009"
    )
    assert exchanges.telling("\n \n") == "it printed nothing"


@pytest.mark.parametrize(("seconds", "limit", "ends"), [(60, 30, 90), (2, 120, 120), (2, 5, 32)])
def test_no_client_is_ended_while_it_still_measures(seconds: int, limit: int, ends: int) -> None:
    assert Effort(seconds=seconds, limit_s=limit).ends_s == ends


@pytest.mark.parametrize(("seconds", "length"), [(60, ("-D", "60")), (0, ("-n", "1000"))])
def test_bandwidth_lasts_a_time_or_a_number_of_messages(
    seconds: int, length: tuple[str, str]
) -> None:
    for command in (client("send_bw", seconds=seconds), server("send_bw", seconds=seconds)):
        argv = command.argv
        assert argv[argv.index(length[0]) + 1] == length[1]
        assert len({"-D", "-n"} & set(argv)) == 1
