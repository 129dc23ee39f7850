# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Intel MPI: command line, hostfile, and the rank that failed first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import hostfile
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import (
    RAIL_BIND,
    RunPlan,
    command,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job.plan import Job, prepare
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job.run import last_lines
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (
    LaunchNode,
    as_listed,
)

FILES = Path(__file__).parents[2] / "roles/mpi_stack/files"
NODES = (
    LaunchNode("node01", 2, ("rail0",), networks=("10.0.0.0/24",), by_rank=(("rail0",),)),
    LaunchNode("node02", 3, ("rail0",), networks=("10.0.1.0/24",), by_rank=(("rail0",),)),
)


def wanted(folder: Path, **given: object) -> Job:
    fixed = {"program": ("train", "x y"), "user": "mpi", "run_id": "0123456789ab"}
    paths = {"directory": folder / "1", "hostfile": Path("/hosts")}
    return Job(**{"nodes": NODES, **fixed, **paths, "launcher": HYDRA, **given})


def test_ranks_of_the_smoke_test_get_their_nodes_environment() -> None:
    plan = RunPlan(NODES, "tcp", launcher=HYDRA, parameters=(("I_MPI_DEBUG", "3"),))
    argv = command(plan, "hosts", "run7", 9)
    started = " ".join(argv[: argv.index("/usr/bin/python3")])
    assert started == (
        "env BAREMETAL_RUN_ID=run7 mpirun -genv I_MPI_DEBUG 3 -machinefile hosts -n 5 "
        f"-genv I_MPI_PIN 0 -genvnone {RAIL_BIND}"
    )
    assert plan.hostfile() == "node01:2\nnode02:3\n"
    by_rail = command(plan.rail_runs[0], "hosts", "run7", 9)
    assert by_rail[6:9] == ["-genv", "FI_PROVIDER", "tcp"], "its own TCP where UCX does not bind"


def test_a_rankfile_is_refused() -> None:
    with pytest.raises(PlanError, match="mpi_smoke_rankfile"):
        RunPlan(NODES, "tcp", launcher=HYDRA, rankfile="/r")


@pytest.mark.parametrize(
    ("mapping", "options", "hosts"),
    [
        ("gpu", "-genv I_MPI_PIN 0", "node01:2\nnode02:3\n"),
        ("core", "-genv I_MPI_PIN_DOMAIN core", "node01:2\nnode02:3\n"),
        ("node", "-genv I_MPI_PIN 0", "node01:1\nnode02:1\nnode01:1\nnode02:1\nnode02:1\n"),
    ],
)
def test_a_job_is_mapped_by_options_or_by_its_hostfile(
    tmp_path: Path, mapping: str, options: str, hosts: str
) -> None:
    environment = {"A": "1", "B": "secret"}
    one = wanted(tmp_path, mapping=mapping, environment=environment, work_directory="/w")
    words = f"env BAREMETAL_RUN_ID=0123456789ab mpirun -machinefile {tmp_path}/1/hostfile -n 5"
    words += f" -prepend-rank -print-all-exitcodes {options} -wdir /w -genvlist A,B"
    bind = [RAIL_BIND] if mapping == "gpu" else []
    assert one.command(NODES) == [*words.split(), *bind, "train", "x y"]
    prepare(one, NODES, os.getuid(), os.getgid())
    assert (tmp_path / "1/hostfile").read_text(encoding="utf-8") == hosts


def test_the_hostfile_must_have_the_launchers_syntax(tmp_path: Path) -> None:
    members = hostfile.Membership(
        tuple(hostfile.HostfileNode(node.name, "", {"slots": node.slots}) for node in NODES), ()
    )
    path = tmp_path / "hostfile"
    path.write_text(hostfile.render(members, HYDRA.hostfile_format))
    listed, differences = as_listed(NODES, path, HYDRA)
    assert [node.address for node in listed] == ["node01", "node02"] and differences == []
    assert "not of the format openmpi" in as_listed(NODES, path)[1][0]
    path.write_text(hostfile.render(members, OPEN_MPI.hostfile_format))
    assert "not of the format intelmpi" in as_listed(NODES, path, HYDRA)[1][0]
    path.unlink()
    assert "No such file" in as_listed(NODES, path)[1][0]


# Recorded from Intel MPI 2021.18.1.
STATUS = """\
[0] step 20
[3] ValueError: loss is nan
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   RANK 2 PID 23342 RUNNING AT node02
=   KILLED BY SIGNAL: 9 (Killed)
[mpiexec@launcher01] Exit codes: [node01:0] 9,9
[node02:0] 9,256,9
"""
KILLED = """\
[2] step 20
=   RANK 2 PID 19276 RUNNING AT node02
=   KILLED BY SIGNAL: 9 (Killed)
[mpiexec@launcher01] Exit codes: [node01:0] 15,9
[node02:0] 9,9,9
"""
ABORTED = """\
[4] out of memory
[4] Abort(7) on node 4 (rank 4 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 7)
[mpiexec@launcher01] Exit codes: [node01:0] 9,9
[node02:0] 1792,1792,1792
"""


@pytest.mark.parametrize(
    ("output", "mapping", "rank", "line"),
    [
        (STATUS, "gpu", 3, "[3] ValueError: loss is nan"),
        (STATUS, "node", 3, "[3] ValueError: loss is nan"),
        (STATUS.replace("9,256,9", "9,9,256"), "node", 4, ""),
        (KILLED, "gpu", 2, "[2] step 20"),
        (ABORTED, "gpu", 4, "[4] out of memory"),
    ],
)
def test_the_rank_that_failed_first_speaks(output: str, mapping: str, rank: int, line: str) -> None:
    """Hydra's message names ranks that Hydra killed; after MPI_Abort all ranks of a node have the
    same status."""
    found, lines = last_lines(wanted(Path("/jobs"), mapping=mapping), NODES, output, 255)
    assert found == rank and (not line or lines[0] == line)
    named = [each for each in lines if "RUNNING AT" in each]
    assert named == (["=   RANK 2 PID 19276 RUNNING AT node02"] if output == KILLED else [])


def test_programs_of_hydra_read_the_profile(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    (tmp_path / "ssh").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BAREMETAL_RUN_ID": "run7"}
    argv = ["sh", str(FILES / "hydra-ssh"), "-q", "-x", "node01", "/opt/bin/proxy", "--port", "1"]
    done = subprocess.run(argv, env=path, check=True, capture_output=True, text=True)
    *options, host, script = done.stdout.splitlines()
    assert host == "node01"
    profile, start = script.split("; ")
    assert profile == ". /etc/profile.d/baremetal-mpi-roce.sh"
    assert start == "BAREMETAL_RUN_ID=run7 exec /opt/bin/proxy --port 1"
    path["MPI_ROCE_MODULE"] = "/etc/x/impi-1"
    done = subprocess.run(argv, env=path, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == f"export MPI_ROCE_MODULE=/etc/x/impi-1; {script}"
    assert "BatchMode=yes" in options
    assert not [word for word in options if "hostkey" in word.lower()], "host keys are verified"
