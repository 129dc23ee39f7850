# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU memory on a real GPU. Each test is skipped if its program or NIC is missing."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from pathlib import Path

import numpy
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import survey
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import gpu, launch
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import wire
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.endpoints import Endpoint
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    GPU,
    Half,
    Options,
    Perftest,
    Programs,
    VerifyRequest,
    figures,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.unit import programs
from tests.waiting import until

DEVICE = Path("/dev/nvidia0")
PROGRAM = "roles/mpi_stack/files/allreduce.py"
PERFTEST = os.environ.get("CUDA_PERFTEST", "ib_write_bw")
NCCL_TESTS = os.environ.get("NCCL_TESTS", "all_reduce_perf")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not DEVICE.exists(), reason=f"no NVIDIA GPU: {DEVICE} does not exist"),
]


def rail() -> Endpoint:
    """Return the first active NIC with its first RoCE v2 GID, or skip the test."""
    for port in survey().ports:
        gid = next((entry.index for entry in port.gids if entry.type == "RoCE v2"), None)
        if port.pci and "ACTIVE" in port.port_state and gid is not None:
            return Endpoint(port.netdev, port.name, port.port, gid, software=False)
    pytest.skip("no active RoCE NIC")


def test_a_nic_writes_from_gpu_to_gpu_memory() -> None:
    """Write from the first GPU to itself through the loopback of one NIC."""
    request = VerifyRequest(
        "run1",
        "here",
        host_settings(read_contract({})),
        exchanges=(GPU,),
        options=Options(duration_s=1, cuda_perftest=PERFTEST),
    )
    perftest = Perftest.of(request, True, commands.run)
    if perftest.problem:
        pytest.skip(f"{perftest.problem}; CUDA_PERFTEST names another program")
    half = Half("rail0", "127.0.0.1", "here", "127.0.0.1", 18515, 0)
    both = Programs(request, half, rail(), perftest)
    there, here = both.server(GPU, half.port, {}), both.client(GPU, half.port, {})
    with subprocess.Popen(there.argv, env={**os.environ, **there.env}) as server:
        try:
            until(lambda: half.port in wire.ports_open(), "the server listens", 30)
            done = commands.run(list(here.argv), check=False, timeout_s=60, env=here.env)
        finally:
            server.terminate()  # `timeout` forwards the signal
    assert done.rc == 0, done.stdout + done.stderr
    assert figures(GPU, done.stdout)["gbits_s"] > 1


def test_mpi_reduces_gpu_memory() -> None:
    memory = programs.program(PROGRAM).GpuMemory(numpy, 0)
    here = numpy.arange(1 << 20, dtype="float64")
    assert (memory.get(memory.put(here)) == here).all()
    if not commands.find_program("mpirun"):
        pytest.skip("GPU memory can be read and written; the rest needs mpirun")
    info = commands.run(["ompi_info", "--parsable", "--all"], check=False).stdout
    if "mpi_built_with_cuda_support:value:true" not in info:
        pytest.skip("GPU memory can be read and written; Open MPI was built without CUDA")
    spec = {"sizes": [4, 1 << 20], "combinations": 4, "iterations": 2, "iterations_large": 2}
    more = {"large": 65536, "warmup": 1, "rail_bytes": 0, "time_limit_s": 60, "gpu": True}
    argv = ["mpirun", "--allow-run-as-root", "-np", "1", "python3"]
    argv += [str(programs.ROOT / PROGRAM), "--run-id", uuid.uuid4().hex]
    argv += ["--spec", json.dumps({**spec, **more})]
    done = commands.run(argv, check=False, timeout_s=90)
    records = [record for record in map(launch.record, done.stdout.splitlines()) if record]
    assert launch.of_the_end(records, "wrong_results", None) == 0, done.stderr


def test_output_of_nccl_tests_is_parsed() -> None:
    if not commands.find_program(NCCL_TESTS):
        pytest.skip(f"{NCCL_TESTS} is not installed; NCCL_TESTS names another program")
    argv = [NCCL_TESTS, "-b", "1048576", "-e", "4194304", "-f", "2", "-g", "1"]
    result = gpu.read_nccl(commands.run(argv, timeout_s=120).stdout)
    assert result["ranks"] == 1
    assert result["wrong"] == 0
    assert [row["bytes"] for row in result["by_size"]] == [1 << 20, 1 << 21, 1 << 22]
    assert result["busbw_gbytes_s"] is not None
