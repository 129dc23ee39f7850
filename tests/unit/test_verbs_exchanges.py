# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs of both ends, their arguments and output; GPU memory over each rail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    Function,
    Gid,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import (
    ends,
    evaluation,
    exchanges,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.endpoints import Endpoint
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    GPU,
    Half,
    Options,
    OutputError,
    Programs,
    VerifyRequest,
    figures,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.wire import Witness
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import parts

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
    found = figures("write_bw", text("write_bw.txt"))
    assert found == {"bytes": 65536, "iterations": 1220, "path_mtu": 4096, "gbits_s": 0.63}
    found = figures("write_lat", text("write_lat.txt"))
    times = {"median_us": 1986.36, "p99_us": 6408.71}
    assert found == {"bytes": 2, "iterations": 1000, "path_mtu": 4096, **times}


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


HELP = (
    "      --use_cuda=<cuda device id> Use CUDA specific device for GPUDirect RDMA testing\n"
    "      --use_cuda_dmabuf Use CUDA DMA-BUF for GPUDirect RDMA testing\n"
    "      --bind_source_ip Source IP\n"
)
GID = Gid(3, "::ffff:10.3.0.1", "RoCE v2", "rail3")
RAIL = RdmaDevice("rail", "mlx5_3", 1, "rail3", port_state="ACTIVE", gids=(GID,))
WITHOUT = Machine(ports=(RAIL,))
WITH = replace(
    WITHOUT, functions={"0000:60:00.0": Function("0000:60:00.0", "10de", "3182", "0302")}
)


def perftest(tmp_path: Path, text: str = HELP) -> str:
    """A fake program with this help."""
    program = tmp_path / "ib_write_bw"
    program.write_text(f"#!/bin/sh\ncat <<'EOT'\n{text}EOT\n")
    program.chmod(0o755)
    return str(program)


def request(program: str, gpu: Optional[int] = 5, **options: Any) -> VerifyRequest:
    half = Half("rail3", "10.3.0.1", "node02", "10.3.0.2", 18515, gpu)
    return VerifyRequest(
        "run1",
        "node01",
        host_settings(read_contract({})),
        drives=(half,),
        serves=(half,),
        exchanges=(GPU,),
        options=Options(cuda_perftest=program, **{"min_gpu_write_share": 0.9, **options}),
        speeds_gbps={"rail3": 200.0},
    )


class Program:
    """Fake perftest."""

    def __init__(self, printed: str = "gpu_write_bw.txt", rc: int = 0) -> None:
        self.printed, self.rc = (DATA / printed).read_text(), rc
        self.ran: list[tuple[tuple[str, ...], Mapping[str, str]]] = []

    def __call__(self, argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float) -> Result:
        self.ran.append((argv, env))
        return Result(argv, self.rc, self.printed, "")


def drive(
    asked: VerifyRequest, program: Program, machine: Machine = WITH, unserved: Optional[str] = None
) -> Check:
    if unserved:
        asked = replace(asked, unserved={"node02": {f"rail3 {GPU}": unserved}})
    pairs = ends.drive(
        asked,
        machine,
        commands.run,
        client=program,
        watching=lambda _how: Witness({"kernel": False}),
    )
    for pair in pairs:  # test_verbs_evaluation tests counters of a NIC
        for result in pair["exchanges"].values():
            result["iterations"] = 0
    (check,) = [one for one in evaluation.driven(asked, pairs) if one.name == GPU]
    return check


def served(
    asked: VerifyRequest, machine: Machine = WITH
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Servers of the rail, and the reasons for missing ones."""
    found, problems = ends.endpoints_of(asked, machine)
    (rail,) = ends.plan_of(asked, found, problems, machine, commands.run)["rails"]
    return rail["servers"], problems


def test_the_rails_gpu_is_used_by_dmabuf(tmp_path: Path) -> None:
    path, program = perftest(tmp_path), Program()
    drive(request(path), program)
    ((argv, env),) = program.ran
    assert " ".join(argv[argv.index(path) :]) == (
        f"{path} -d mlx5_3 -i 1 -x 3 --tclass=106 -p 18515 -F -s 65536 -q 8 -D 2 --report_gbits "
        "--use_cuda=5 --use_cuda_dmabuf --bind_source_ip=10.3.0.1 10.3.0.2"
    )
    assert env == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    (server,), problems = served(request(path))
    assert problems == {} and server["env"] == env
    assert server["argv"][-3:] == argv[-4:-1]

    path = perftest(tmp_path, "--use_cuda=<cuda device id>\n")
    drive(request(path, cuda_dmabuf=False), program)
    argv, _env = program.ran[-1]
    assert "--use_cuda=5" in argv and "--use_cuda_dmabuf" not in argv, "nvidia_peermem"


@pytest.mark.parametrize(("share", "status"), [(0.9, OK), (0.91, FAILED), (None, NOT_APPLICABLE)])
def test_a_figure_has_its_share_of_the_line_rate(
    tmp_path: Path, share: Optional[float], status: str
) -> None:
    check = drive(request(perftest(tmp_path), min_gpu_write_share=share), Program())
    assert check.status == status
    assert check.found == "181.5 Gb/s (90.7% of 200 Gb/s)"
    assert "ACS" in check.reason or status != FAILED


@pytest.mark.parametrize(
    ("gpu", "machine", "reason"),
    [(None, WITH, "rail3 has no GPU at both ends in the model"), (5, WITHOUT, "node01 has no GPU")],
)
def test_without_a_gpu_it_is_not_applicable(
    tmp_path: Path, gpu: Optional[int], machine: Machine, reason: str
) -> None:
    program = Program()
    asked = request("/nowhere/ib_write_bw", gpu)
    # The peer lacks one as well, which adds no second reason.
    check = drive(asked, program, machine, "node02 has no GPU")
    assert (check.name, check.status, check.reason) == ("gpu_write_bw", NOT_APPLICABLE, reason)
    assert (check.subject, program.ran) == ("rail3 -> node02", [])
    assert served(asked, machine) == ([], {} if gpu is None else {f"rail3 {GPU}": reason})
    asked = replace(asked, exchanges=("ucx", GPU))
    assert drive(asked, Program(rc=1), machine).status == NOT_APPLICABLE, "after a failure as well"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "not found"),
        ("  --bind_source_ip Source IP\n", "was built without CUDA"),
        ("  --use_cuda=<cuda device id>\n", "without dma-buf"),
    ],
)
def test_a_perftest_without_cuda_fails_with_a_remedy(
    tmp_path: Path, text: Optional[str], problem: str
) -> None:
    program = Program()
    path = perftest(tmp_path, text) if text is not None else str(tmp_path / "ib_write_bw")
    asked = request(path)
    check = drive(asked, program)
    assert (check.status, program.ran) == (FAILED, [])
    assert check.reason.startswith(path) and problem in check.reason
    assert "rdma_verify_cuda_perftest" in check.reason
    servers, problems = served(asked)
    assert servers == [] and problem in problems[f"rail3 {GPU}"]
    there = drive(request(perftest(tmp_path)), Program(), WITH, problems[f"rail3 {GPU}"])
    assert there.reason == f"node02 cannot serve it: {problems[f'rail3 {GPU}']}"


def test_an_unconfigured_perftest_with_cuda_is_not_applicable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perftest(tmp_path, "  --bind_source_ip Source IP\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    here = drive(request("ib_write_bw"), Program())
    perftest(tmp_path)
    there = drive(request("ib_write_bw"), Program(), WITH, "not found")
    assert (here.status, there.status) == (NOT_APPLICABLE, NOT_APPLICABLE)
    assert "ib_write_bw was built without" in here.reason
    assert there.reason.endswith("serve it: not found")


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ((DATA / "gpu_no_mr.txt").read_text(), ("MR with error=14", "peermem", "kernel")),
        ("DMA-BUF is not supported on this GPU\n", ("DMA-BUF is not", "peermem", "kernel")),
        ("cuMemGetHandleForAddressRange error=801\n", ("error=801", "peermem", "kernel")),
        ("cuInit(0) returned 802\n", ("cuInit(0) returned 802", "nvidia-smi")),
        ("Couldn't connect to 10.3.0.2:18515\n", ("Couldn't connect", "ping -I rail3")),
    ],
)
def test_what_goes_wrong_is_said_with_its_remedy(
    tmp_path: Path, printed: str, words: Sequence[str]
) -> None:
    program = Program(rc=1)
    program.printed = f"initializing CUDA\n{printed}"
    check = drive(request(perftest(tmp_path)), program)
    assert check.status == FAILED
    assert [word for word in words if word not in check.reason] == []


def test_a_pair_knows_the_gpu_of_each_end() -> None:
    def entry(name: str, *gpus: Optional[int]) -> dict[str, Any]:
        rails = [
            {"interface": f"rail{k}", "address": "a", "gpu": gpu} for k, gpu in enumerate(gpus)
        ]
        return {"name": name, "role": "compute", "rails": rails}

    found = parts([entry("node01", 0, 1), entry("node02", 4, None)], ["node01", "node02"], 18515)
    assert [half.gpu for half in found["node01"].drives] == [0, None]
    assert [half.gpu for half in found["node01"].serves] == [0, None]
    assert {half.rail: half.gpu for half in found["node02"].drives} == {"rail0": 4, "rail1": None}
