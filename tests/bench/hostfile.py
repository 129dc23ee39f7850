#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How long the hostfile of 100, 1,000 and 10,000 nodes takes, and /etc/hosts of one host with them.

Each figure is a run of the project's own playbook on one launcher: the model compiled, the
directory built, the module sent and run, files replaced, everything read back, every name resolved.
The launcher is this machine in namespaces of its own with a copy of /etc, hence root; nothing
outside changes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests.bench.inventory import RAILS, SIZES, model  # noqa: E402
from tests.nodes import Nodes  # noqa: E402

LIMIT_RATIO = 1.5
"""Processor seconds per node beyond those of 100: at 10,000 at most this times that at 1,000."""

PRIVATE_ETC = "BAREMETAL_MPI_ROCE_BENCH_ETC"


def enter_namespaces() -> None:
    """Start again with mounts and a host name of our own, unless that is where we are."""
    if PRIVATE_ETC in os.environ:
        return
    if os.geteuid() != 0:
        raise SystemExit("hostfile: needs root, to give itself an /etc/hosts of 10,000 nodes")
    with tempfile.TemporaryDirectory(prefix="bench-hostfile-") as folder:
        shutil.copytree("/etc", f"{folder}/etc", symlinks=True)
        unshare = ["unshare", "--mount", "--uts", "--propagation", "private"]
        done = subprocess.run(
            [*unshare, sys.executable, *sys.argv],
            env={**os.environ, PRIVATE_ETC: f"{folder}/etc"},
            check=False,
        )
    raise SystemExit(done.returncode)


class Took(NamedTuple):
    """Seconds by the clock, and of processors, which do not depend on what else runs here."""

    clock: float
    processor: float


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def layer(name: str, inventory: Path) -> Took:
    """What one layer of the site takes on its launcher, which is this machine."""
    here = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    begin, used = time.monotonic(), processor_seconds()
    Nodes(inventory).play(
        f"playbooks/{name}.yml",
        *("--limit=launcher01", f"--extra-vars={json.dumps(here)}"),
        environment={"BAREMETAL_MPI_ROCE_REPORTS": f"{os.environ[PRIVATE_ETC]}/reports"},
    )
    return Took(time.monotonic() - begin, processor_seconds() - used)


def measure(nodes: int, folder: Path) -> tuple[Took, Took]:
    """What the hosts table and the hostfile of `nodes` nodes take, both looked at."""
    inventory = folder / str(nodes) / "cluster.yml"
    inventory.parent.mkdir()
    inventory.write_text(model(nodes), encoding="utf-8")
    hosts_file, hostfile = Path("/etc/hosts"), Path("/etc/baremetal-mpi-roce/hostfile")
    hosts_file.write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")
    names = layer("names", inventory)
    hosts = layer("hostfile", inventory)
    rails = hosts_file.read_text(encoding="utf-8").count("-rail")
    slots = hostfile.read_text(encoding="utf-8").count(f" slots={RAILS} ")
    if (rails, slots) != (nodes * RAILS, nodes):
        raise SystemExit(f"hostfile_{nodes}: {rails} rails and {slots} hosts in the files")
    return names, hosts


def main() -> int:
    enter_namespaces()
    subprocess.run(["mount", "--bind", os.environ[PRIVATE_ETC], "/etc"], check=True)
    took: dict[int, Took] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for nodes in SIZES:
            names, took[nodes] = measure(nodes, folder)
            print(f"hostfile_{nodes}: {took[nodes].clock:.1f} s")
            print(
                f"hosts_table_{nodes}: {names.clock:.1f} s (one host, {RAILS + 1} names a node)",
                flush=True,
            )
    start, few, many = (took[nodes].processor for nodes in SIZES)
    ratio = ((many - start) / (SIZES[2] - SIZES[0])) / ((few - start) / (SIZES[1] - SIZES[0]))
    print(
        f"hostfile_linearity: {ratio:.2f} ratio (processor time a node at {SIZES[2]} to "
        f"{SIZES[1]}; limit {LIMIT_RATIO:g})"
    )
    return 1 if ratio > LIMIT_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
