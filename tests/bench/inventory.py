#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure CPU time and memory of the inventory for 100, 1,000 and 10,000 nodes with 8 rails.

`ansible compute --list-hosts` parses the model, which is complete: leaves in sets of 8 for 256
nodes, 32 spines, and both ends of every cable. `playbooks/model.yml` compares all variables of all
hosts with it. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = (100, 1_000, 10_000)
RAILS = 8
NODES_PER_SET = 256

LIMIT_PARSE_SECONDS = 3.0
LIMIT_MODEL_SECONDS = 6.0
LIMIT_GIB = 2.0
LIMIT_LINEARITY = 1.5
"""Ratio of the parse time per node at 10,000 nodes to that at 1,000, without Ansible's start."""

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


def model(nodes: int) -> str:
    return MODEL.format(
        nodes=nodes,
        rails=RAILS,
        leaves=-(-nodes // NODES_PER_SET) * RAILS,
        nodes_per_set=NODES_PER_SET,
        pci=", ".join(f"0000:{0x11 + 0x10 * rail:02x}:00.0" for rail in range(RAILS)),
    )


def run(directory: Path, program: str, *arguments: str) -> tuple[float, float, list[str]]:
    """CPU seconds, GiB and words of a program of Ansible."""
    argv, output = [Path(sys.executable).with_name(program), *arguments], directory / "output"
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "BAREMETAL_MPI_ROCE_REPORTS": str(directory / "reports"),
    }
    with output.open("wb") as stream:
        process = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=stream)
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    words = output.read_text(encoding="utf-8").split()
    if process.returncode:
        raise SystemExit(f"{program} {' '.join(arguments)}: {' '.join(words)[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20, words


def parse(nodes: int, directory: Path) -> tuple[float, float]:
    """CPU seconds and GiB of `--list-hosts` of a generated model, which must list every node."""
    source = directory / str(nodes) / "cluster.yml"
    source.parent.mkdir()
    source.write_text(model(nodes), encoding="utf-8")
    seconds, gib, words = run(directory, "ansible", "compute", "-i", str(source), "--list-hosts")
    if len(words) != nodes + 2:
        raise SystemExit(f"parse_{nodes}: {len(words) - 2} hosts in the output, not {nodes}")
    return seconds, gib


def main() -> int:
    broken = False
    with tempfile.TemporaryDirectory() as name:
        start, _gib = parse(1, Path(name))
        each = []
        for nodes in SIZES:
            seconds, gib = parse(nodes, Path(name))
            each.append((seconds - start) / nodes)
            print(f"parse_{nodes}: {seconds:.1f} s (limit {LIMIT_PARSE_SECONDS:g} s)")
            print(f"inventory_{nodes}_memory: {gib:.2f} GiB (limit {LIMIT_GIB:g} GiB)", flush=True)
            broken |= seconds > LIMIT_PARSE_SECONDS or gib > LIMIT_GIB
            source = str(Path(name) / str(nodes) / "cluster.yml")
            seconds, _gib, _words = run(
                Path(name), "ansible-playbook", "-i", source, "playbooks/model.yml"
            )
            print(f"model_{nodes}: {seconds:.1f} s (limit {LIMIT_MODEL_SECONDS:g} s)", flush=True)
            broken |= seconds > LIMIT_MODEL_SECONDS
    ratio = each[-1] / each[-2]
    print(f"parse_linearity: {ratio:.2f} ratio (limit {LIMIT_LINEARITY:g})")
    return int(broken or ratio > LIMIT_LINEARITY)


if __name__ == "__main__":
    sys.exit(main())
