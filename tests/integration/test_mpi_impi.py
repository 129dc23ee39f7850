# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Intel MPI instead of the distribution's, and back: refused, installed, used by smoke and jobs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import mpi_source
from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MPI, HOSTFILE, RUN = "playbooks/mpi.yml", "playbooks/hostfile.yml", "playbooks/run.yml"
SMOKE = ("site.yml", "--tags", "smoke")
VERSION, MPI4PY = "2021.18.1", "4.1.1"
PROGRAM = """\
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
print("rank", world.rank, "sum", world.allreduce(world.rank), os.environ["WORD"], flush=True)
if sys.argv[1:] and world.rank == int(sys.argv[1]):
    print("enough of it", file=sys.stderr, flush=True)
    os._exit(3)
world.Barrier()
"""
LEFT = "pgrep -fa 'mpirun|mpiexec|hydra|mpi-job-test' | grep -v pgrep; ls /dev/shm | grep -i mpi"


@pytest.fixture(scope="module")
def with_impi(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """The nodes with Intel MPI in their model. Afterwards they have the distribution's again."""
    wheels = tmp_path_factory.mktemp("wheels")
    mpi_source.download(wheels, f"impi-rt=={VERSION}", f"mpi4py=={MPI4PY}")
    [wheel] = wheels.glob("impi_rt-*.whl")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def change(model: dict[str, Any]) -> None:
        impi = {"version": VERSION, "sha256": sha256}
        mpi = {"provider": "impi", "impi": impi, "mpi4py": MPI4PY}
        model.setdefault("software", {})["mpi"] = mpi

    changed = nodes.changed(tmp_path_factory.mktemp("impi"), change)
    (changed.inventory / "wheels").symlink_to(wheels)
    yield changed
    nodes.play(MPI)
    nodes.play(HOSTFILE)


def job(nodes: Nodes, folder: Path, *arguments: str, expect: int = 0) -> str:
    source = folder / "mpi-job-test.py"
    source.write_text(PROGRAM, encoding="utf-8")
    variables = {
        "mpi_job_files": [{"src": str(source), "dest": "/var/tmp/mpi-job-test.py"}],
        "mpi_job_environment": {"WORD": "two words"},
        "mpi_job_program": ["python3", "/var/tmp/mpi-job-test.py", *arguments],
        "mpi_job_mapping": "node",
    }
    return nodes.play(RUN, "--extra-vars", json.dumps(variables), expect=expect).output


def test_a_wheel_of_another_checksum_stops_before_anything_changes(with_impi: Nodes) -> None:
    wrong = {"version": VERSION, "sha256": "0" * 64}

    def change(model: dict[str, Any]) -> None:
        model["software"]["mpi"]["impi"] = wrong

    other = with_impi.changed(with_impi.inventory.parent / "wrong", change)
    run = other.play(MPI, expect=2)
    assert run.total("changed") == 0 and run.total("failed") == len(run.recap)
    assert "which is not in software.mpi" in run.output


def test_it_is_installed_and_a_second_run_changes_nothing(with_impi: Nodes) -> None:
    run = with_impi.play(MPI)
    assert run.failed("mpi") == []
    fabric = {check["found"] for check in run.checks("mpi") if check["name"] == "mpi_fabric"}
    assert fabric == {"mlx"}
    with_impi.play(HOSTFILE)
    assert with_impi.play(MPI).total("changed") == with_impi.play(HOSTFILE).total("changed") == 0


def test_the_smoke_test_runs_over_it(with_impi: Nodes) -> None:
    run = with_impi.play(*SMOKE)
    assert run.failed("smoke") == []
    found = with_impi.as_user("node03", "command -v mpirun")
    assert found.startswith(f"/opt/baremetal-mpi-roce/impi-{VERSION}-")


def test_a_job_uses_it_and_a_failed_rank_is_named(with_impi: Nodes, tmp_path: Path) -> None:
    slots = [int(with_impi.of(host)["cluster_slots"]) for host in with_impi.group("compute")]
    output = job(with_impi, tmp_path)
    total = sum(range(sum(slots)))
    ranks = re.findall(rf"\[(\d+)\] rank (\d+) sum {total} two words", output)
    assert sorted(int(rank) for rank, again in ranks if rank == again) == list(range(sum(slots)))
    output = job(with_impi, tmp_path, "5", expect=2)
    assert "rank 5 failed first" in output and "[5] enough of it" in output
    hosts = with_impi.group("compute", "launcher")
    assert {host: with_impi.on(host).run(LEFT).stdout for host in hosts} == dict.fromkeys(hosts, "")


def test_the_way_back_leaves_nothing(nodes: Nodes, with_impi: Nodes) -> None:
    nodes.play(MPI)
    nodes.play(HOSTFILE)
    node = nodes.on("node01")
    assert not node.file("/opt/baremetal-mpi-roce").listdir()
    text = node.file("/etc/baremetal-mpi-roce/mpi.env").content_string
    assert not re.search("I_MPI|FI_|impi", text)
    assert node.check_output("sh -lc 'mpirun --version'").startswith("mpirun (Open MPI)")
    assert nodes.play(MPI, "--limit=node01").total("changed") == 0
    assert nodes.play(*SMOKE).failed("smoke") == []
