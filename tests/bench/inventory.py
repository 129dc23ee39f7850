#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time and memory of `ansible-inventory --list` for 100, 1,000 and 10,000 nodes of 8 rails.

Prints each figure beside its limit, and exits with 1 when one is broken. The cluster is whole:
leaves in sets of 8 for 256 nodes, 32 spines, both ends of every cable in the inventory.

Time is by the clock, less what the kernel says the process waited for a CPU that others used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SIZES = (100, 1_000, 10_000)
RAILS = 8
NODES_PER_SET = 256

LIMIT_SECONDS = 15.0
LIMIT_GIB = 2.0
LIMIT_RATIO = 1.5
"""What a node takes at 10,000, the start of Ansible left out: at most this times that at 1,000."""

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: bench{nodes}
management: {{subnet: 10.0.0.0/16}}
nodes:
  count: {nodes}
  name: node{{:05d}}
  management_first: 10.0.1.0
  nodes_per_rack: 8
  rack: r{{:04d}}
gpus:
  count: {rails}
  numa: [0, 0, 0, 0, 1, 1, 1, 1]
rails:
  count: {rails}
  speed_gbps: 800
  pci: [{pci}]
addresses: {{pool: 100.64.0.0/10, prefix: 23}}
leaves:
  count: {leaves}
  name: leaf{{:04d}}
  management_first: 10.0.64.1
  ports: 288
  nodes_per_set: {nodes_per_set}
spines: {{count: 32, management_first: 10.0.80.1, ports: 512}}
launcher: {{name: launcher01, management: 10.0.0.10}}
storage: [{{name: storage01, management: 10.0.0.20}}]
"""


class Measured(NamedTuple):
    seconds: float
    waited: float
    gib: float


def model(nodes: int) -> str:
    return MODEL.format(
        nodes=nodes,
        rails=RAILS,
        leaves=-(-nodes // NODES_PER_SET) * RAILS,
        nodes_per_set=NODES_PER_SET,
        pci=", ".join(f"0000:{0x11 + 0x10 * rail:02x}:00.0" for rail in range(RAILS)),
    )


def measure(nodes: int, directory: Path) -> Measured:
    """Run the real program on a generated model; its output must have every node and rail."""
    source = directory / str(nodes) / "cluster.yml"
    source.parent.mkdir()
    source.write_text(model(nodes), encoding="utf-8")
    output = directory / f"{nodes}.json"
    beside = Path(sys.executable).with_name("ansible-inventory")
    program = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if program is None:
        raise SystemExit("ansible-inventory is not installed: run ./test once")
    begin = time.monotonic()
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [program, "-i", str(source), "--list"],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
            stdout=stream,
        )
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.monotonic() - begin
        waited = waited_for_cpu(process.pid)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"inventory_{nodes}: ansible-inventory failed")
    hostvars = json.loads(output.read_text(encoding="utf-8"))["_meta"]["hostvars"]
    rails = sum(len(variables.get("cluster_rails", [])) for variables in hostvars.values())
    if rails != nodes * RAILS:
        raise SystemExit(f"inventory_{nodes}: {rails} rails in the output, not {nodes * RAILS}")
    return Measured(seconds - waited, waited, usage.ru_maxrss / 2**20)


def waited_for_cpu(pid: int) -> float:
    """Seconds that an ended, not yet reaped process was ready to run and had to wait."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> int:
    measured: dict[int, Measured] = {}
    with tempfile.TemporaryDirectory() as directory:
        start = measure(1, Path(directory)).seconds
        for nodes in SIZES:
            measured[nodes] = seconds, waited, gib = measure(nodes, Path(directory))
            notes = [f"limit {LIMIT_SECONDS:g} s", f"{1000 * seconds / nodes:.2f} ms a node"]
            if waited > 0.05:
                notes.append(f"{waited:.1f} s more waiting for a busy CPU")
            print(f"inventory_{nodes}: {seconds:.1f} s ({'; '.join(notes)})")
            print(f"inventory_{nodes}_memory: {gib:.2f} GiB (limit {LIMIT_GIB:g} GiB)", flush=True)
    few, many = ((measured[nodes].seconds - start) / nodes for nodes in (SIZES[-2], SIZES[-1]))
    print(
        f"inventory_linearity: {many / few:.2f} ratio "
        f"(time a node at {SIZES[-1]} to that at {SIZES[-2]}; limit {LIMIT_RATIO:g})"
    )
    broken = any(one.seconds > LIMIT_SECONDS or one.gib > LIMIT_GIB for one in measured.values())
    return 1 if broken or many / few > LIMIT_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
