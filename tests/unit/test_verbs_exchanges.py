# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of both ends: arguments, and parsers of their output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import exchanges
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.endpoints import Endpoint
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    Half,
    Options,
    OutputError,
    Programs,
    VerifyRequest,
    figures,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

DATA = Path(__file__).parent / "data/verbs"
ENDPOINT = Endpoint("rail3", "mlx5_3", 1, 5, software=False, numa=0)
PERFTEST = exchanges.Perftest("--bind_source_ip", "--bind_source_ip")
SETTINGS = host_settings(read_contract({}))
MPI = {"UCX_TLS": "rc,ud,sm,self", "UCX_NET_DEVICES": "mlx5_0:1,mlx5_3:1"}


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def programs(address: str, peer: str, **options: int) -> Programs:
    request = VerifyRequest("run1", "node01", SETTINGS, options=Options(**options))
    return Programs(request, Half("rail3", address, "node02", peer, 18527), ENDPOINT, PERFTEST)


def client(name: str, cpus: str = "", **options: int) -> exchanges.Command:
    return programs("10.3.0.1", "10.3.0.2", **options).client(name, 18527, MPI, cpus)


def server(name: str, **options: int) -> exchanges.Command:
    return programs("10.3.0.2", "10.3.0.1", **options).server(name, 18527, MPI)


@pytest.mark.parametrize("name", exchanges.PERFTEST)
def test_both_ends_get_equal_arguments(name: str) -> None:
    near, far = client(name).argv, server(name).argv
    given = ["-d", "mlx5_3", "-i", "1", "-x", "5", f"--tclass={SETTINGS.traffic_class}"]
    start = near.index("-d")
    assert list(near[start : start + len(given)]) == given
    amount = near[start : near.index("--bind_source_ip=10.3.0.1")]
    assert amount == far[far.index("-d") : far.index("--bind_source_ip=10.3.0.2")]
    assert near[-1] == "10.3.0.2"
    assert far[-1].startswith("--bind")


@pytest.mark.parametrize("name", exchanges.PROGRAMS)
def test_every_program_ends_by_itself(name: str) -> None:
    assert client(name).argv[:3] == ("timeout", "--kill-after=5", "32")
    assert server(name).argv[:3] == ("timeout", "--kill-after=5", "600")


def test_ucx_gets_the_nodes_environment_and_one_rail() -> None:
    for command in (client("ucx"), server("ucx")):
        assert command.env == {"UCX_TLS": "rc,ud,sm,self", "UCX_NET_DEVICES": "mlx5_3:1"}
        assert not any("tclass" in word for word in command.argv)
    assert client("write_bw").env == {}
    assert client("write_bw", cpus="0-55").argv[3:6] == ("taskset", "--cpu-list", "0-55")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--out_json_file=<file>  --bind_source_ip  Source IP", "--bind_source_ip"),
        ("--out_json_file=<file>  --source_ip  Source IP", "--source_ip"),
        ("-d, --ib-dev=<dev>", ""),
    ],
)
def test_capabilities_of_perftest_come_from_its_help(text: str, wanted: str) -> None:
    def run(argv: Sequence[str], **_options: object) -> Result:
        return Result(tuple(argv), 0, text, "")

    found = exchanges.Perftest.of(VerifyRequest("run1", "node01", SETTINGS), False, run)
    assert found == exchanges.Perftest(wanted)


def test_the_table_that_every_version_prints_is_read() -> None:
    """Recorded on Soft-RoCE."""
    assert figures("write_bw", text("write_bw.txt")) == {
        "bytes": 65536,
        "iterations": 1220,
        "path_mtu": 4096,
        "peak_gbits_s": None,
        "gbits_s": 0.63,
        "messages_s": pytest.approx(1205),
    }
    found = figures("write_lat", text("write_lat.txt"))
    assert found.pop("deviation_us") > 0
    assert found == {
        "bytes": 2,
        "iterations": 1000,
        "path_mtu": 4096,
        "min_us": 135.15,
        "median_us": 1986.36,
        "average_us": 2143.13,
        "p99_us": 6408.71,
        "max_us": 8001.55,
    }


HEADING = " #bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]\n"


@pytest.mark.parametrize(
    "printed",
    [
        "",
        HEADING.replace("Gb", "MiB") + " 65536 1 2 3 4\n",
        HEADING,
        HEADING + " 65536 5 2 3\n",
        HEADING + " 65536 5 2 fast 1\n",
    ],
)
def test_a_table_without_figures_is_an_error(printed: str) -> None:
    with pytest.raises(OutputError, match="ib_write_bw"):
        figures("write_bw", printed)


@pytest.mark.parametrize("value", ["0.000000", "inf", "nan", "-nan"])
def test_what_cannot_be_a_figure_is_none(value: str) -> None:
    assert figures("write_bw", text("write_bw.txt").replace("0.63", value))["gbits_s"] is None
    printed = text("write_lat.txt").replace("1986.36", value)
    assert figures("write_lat", printed)["median_us"] is None


def test_ucx_prints_its_figures_separated_by_commas() -> None:
    printed = text("ucx.csv")
    found = figures("ucx", printed)
    assert found == {"iterations": 200, "gbits_s": 61.614577}
    with pytest.raises(OutputError, match="no figures"):
        figures("ucx", "Failed to connect")


def test_error_lines_are_selected() -> None:
    shown = exchanges.error_lines(text("ucx-abort.txt"))
    assert "unhandled timeout" in shown
    assert "libc.so" not in shown
    assert exchanges.error_lines("\n \n") == "it printed nothing"


@pytest.mark.parametrize(("duration_s", "length"), [(60, ("-D", "60")), (0, ("-n", "1000"))])
def test_bandwidth_lasts_a_time_or_a_number_of_messages(
    duration_s: int, length: tuple[str, str]
) -> None:
    for command in (
        client("send_bw", duration_s=duration_s),
        server("send_bw", duration_s=duration_s),
    ):
        argv = command.argv
        assert argv[argv.index(length[0]) + 1] == length[1]
        assert len({"-D", "-n"} & set(argv)) == 1
