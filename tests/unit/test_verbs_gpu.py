# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU memory over each rail: `gpu_write_bw`, or the reason why it is not measured."""

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
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import ends, evaluation
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    GPU,
    Half,
    Options,
    VerifyRequest,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.wire import Witness
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import parts

DATA = Path(__file__).parent / "data/verbs"
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
        f"{path} -d mlx5_3 -i 1 -x 3 --tclass=106 -p 18515 -F -s 65536 -q 4 -D 2 --report_gbits "
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
    assert there.reason.endswith("node02 cannot serve it: not found")


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
    assert [half.gpu for half in found["node02"].drives] == [4, None]
