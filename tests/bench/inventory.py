#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure time and memory of the inventory for 100, 1,000 and 10,000 nodes with 8 rails.

`ansible compute --list-hosts` parses the model; `ansible-inventory --list` also dumps it. Most of
the time of a dump is spent in Ansible, so each dump is compared with that of a YAML inventory with
the same groups, hosts and variables.

Prints each figure with its limit, and exits with 1 if one is exceeded. The model is complete:
leaves in sets of 8 for 256 nodes, 32 spines, and both ends of every cable.

Times are wall-clock times minus the time spent waiting for a CPU, as counted by the kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SIZES = (100, 1_000, 10_000)
RAILS = 8
NODES_PER_SET = 256

LIMIT_PARSE_SECONDS = 5.0
LIMIT_DUMP_RATIO = 1.0
"""Ratio of the dump of the model to the dump of the equivalent YAML inventory."""
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


class Measured(NamedTuple):
    seconds: float
    waited: float
    gib: float

    def shown(self, nodes: int) -> str:
        more = f" and {self.waited:.1f} s waiting for a CPU" if self.waited > 0.05 else ""
        return f"{self.seconds:.1f} s{more}, {1000 * self.seconds / nodes:.2f} ms per node"


def model(nodes: int) -> str:
    return MODEL.format(
        nodes=nodes,
        rails=RAILS,
        leaves=-(-nodes // NODES_PER_SET) * RAILS,
        nodes_per_set=NODES_PER_SET,
        pci=", ".join(f"0000:{0x11 + 0x10 * rail:02x}:00.0" for rail in range(RAILS)),
    )


def measure(program: str, arguments: Sequence[str], output: Path) -> Measured:
    """Run one of Ansible's programs with its standard output in a file."""
    sibling = Path(sys.executable).with_name(program)
    path = str(sibling) if sibling.exists() else shutil.which(program)
    if path is None:
        raise SystemExit(f"{program} is not installed: run ./test once")
    begin = time.monotonic()
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [path, *arguments],
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
        raise SystemExit(f"{program} {' '.join(arguments)} failed")
    return Measured(seconds - waited, waited, usage.ru_maxrss / 2**20)


def parse(nodes: int, directory: Path) -> Measured:
    """Measure `--list-hosts` of a generated model, which must list every node."""
    source = directory / str(nodes) / "cluster.yml"
    source.parent.mkdir()
    source.write_text(model(nodes), encoding="utf-8")
    output = directory / "hosts"
    measured = measure("ansible", ["compute", "-i", str(source), "--list-hosts"], output)
    listed = output.read_text(encoding="utf-8").split()[2:]
    if len(listed) != nodes:
        raise SystemExit(f"parse_{nodes}: {len(listed)} hosts in the output, not {nodes}")
    return measured


def dump(nodes: int, directory: Path) -> tuple[Measured, Measured]:
    """Measure `--list` of the model and of the equivalent YAML inventory; outputs must be equal."""
    source = directory / str(nodes) / "cluster.yml"
    exported, ours, theirs = (directory / name for name in ("exported", "ours", "theirs"))
    first = measure("ansible-inventory", ["-i", str(source), "--list"], ours)
    measure("ansible-inventory", ["-i", str(source), "--list", "--export"], exported)
    plain = directory / f"{nodes}.yml"
    plain.write_text(json.dumps(as_yaml(json.loads(exported.read_bytes()))), encoding="utf-8")
    second = measure("ansible-inventory", ["-i", str(plain), "--list"], theirs)
    hostvars, same = (json.loads(path.read_bytes())["_meta"]["hostvars"] for path in (ours, theirs))
    if hostvars != same:
        raise SystemExit(f"dump_{nodes}: the variables of both inventories differ")
    rails = sum(len(variables.get("cluster_rails", [])) for variables in hostvars.values())
    if rails != nodes * RAILS:
        raise SystemExit(f"dump_{nodes}: {rails} rails in the output, not {nodes * RAILS}")
    return first, second


def as_yaml(exported: dict[str, Any]) -> dict[str, Any]:
    """Convert an exported inventory to the format of the inventory plugin `yaml`."""
    hostvars = exported.pop("_meta")["hostvars"]
    groups = {
        name: {
            "hosts": dict.fromkeys(group.get("hosts", ())),
            "children": dict.fromkeys(group.get("children", ())),
            "vars": group.get("vars", {}),
        }
        for name, group in exported.items()
    }
    groups["all"]["hosts"] = hostvars
    return groups


def waited_for_cpu(pid: int) -> float:
    """Seconds that a terminated but unreaped process spent waiting for a CPU."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> int:
    parsed: dict[int, Measured] = {}
    broken = False
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        start = parse(1, directory).seconds
        for nodes in SIZES:
            parsed[nodes] = parse_cost = parse(nodes, directory)
            print(f"parse_{nodes}: {parse_cost.shown(nodes)} (limit {LIMIT_PARSE_SECONDS:g} s)")
            ours, theirs = dump(nodes, directory)
            ratio = ours.seconds / theirs.seconds
            print(f"dump_{nodes}: {ours.shown(nodes)}; from YAML {theirs.shown(nodes)}")
            print(f"dump_{nodes}_ratio: {ratio:.2f} (limit {LIMIT_DUMP_RATIO:g})")
            gib = max(parse_cost.gib, ours.gib)
            print(f"inventory_{nodes}_memory: {gib:.2f} GiB (limit {LIMIT_GIB:g} GiB)", flush=True)
            broken |= parse_cost.seconds > LIMIT_PARSE_SECONDS or gib > LIMIT_GIB
            broken |= ratio > LIMIT_DUMP_RATIO
    few, many = ((parsed[nodes].seconds - start) / nodes for nodes in (SIZES[-2], SIZES[-1]))
    print(
        f"parse_linearity: {many / few:.2f} ratio "
        f"(time per node at {SIZES[-1]} to that at {SIZES[-2]}; limit {LIMIT_LINEARITY:g})"
    )
    return 1 if broken or many / few > LIMIT_LINEARITY else 0


if __name__ == "__main__":
    sys.exit(main())
