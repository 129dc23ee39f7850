#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time unchanged runs of site.yml on 4 virtual nodes and their launcher, and in turns with them the
floor: as many empty plays as site.yml had layers, each with one module that does nothing.

The limit of the ratio is for a run without the allreduce, whose 32 ranks of Python share the cores
of this machine: that is no cost of Ansible.

The nodes are those of ./demo. If they are not running, they are created and afterwards removed.

`./test --bench site 4 32` instead times the first run, an unchanged one, verify.yml and one node
more, on clusters of that many nodes with one rail and one rank each, created one after the other.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nodes import Nodes, Run  # noqa: E402

LIMIT_S, LIMIT_RATIO, LIMIT_EXECUTIONS = 60.0, 1.5, 5
TURNS = 3
PLAYS = 13
FLOOR = """\
- hosts: compute:launcher:storage
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.ping:
"""


def small(model: dict[str, Any], count: int) -> None:
    """`count` nodes with one rail, one leaf and no spines, in other networks than the demo."""
    model["name"] = "virtual-small"
    model["management"]["subnet"] = "10.253.0.0/24"
    model["nodes"].update(count=count, management_first="10.253.0.11", nodes_per_rack=8, slots=1)
    model["nodes"]["cpu"] = {"sockets": 1, "cores": 1, "threads": 1, "memory_mb": 512}
    model["gpus"] = {"count": 1}
    model["rails"]["count"] = 1
    model["addresses"]["pool"] = "10.153.0.0/16"
    of_leaf = {"count": 1, "nodes_per_set": count, "system": "sonic", "asic": "spectrum4"}
    model["leaves"].update(of_leaf, management_first="10.253.0.101")
    del model["spines"]
    model["launcher"]["management"] = "10.253.0.10"
    model["storage"][0]["management"] = "10.253.0.9"
    model["filesystems"][0]["source"] = "10.253.0.9:/srv/checkpoints"


def grown(nodes: Nodes) -> Run:
    """One node more, by site.yml without a limit."""
    with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:

        def more(model: dict[str, Any]) -> None:
            model["nodes"]["count"] += 1
            model["leaves"]["nodes_per_set"] += 1

        larger = nodes.changed(Path(folder), more)
        larger.state(present=True)
        return larger.play("site.yml", "--diff")


def sizes(counts: list[int]) -> int:
    """First run, unchanged run, verify.yml and one node more at each number of nodes."""
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:
            demo = Nodes(ROOT / "inventories/virtual")
            nodes = demo.changed(Path(folder), partial(small, count=count))
            try:
                show(count, "start of the nodes", nodes.state(present=True))
                show(count, "first", nodes.play("site.yml"))
                unchanged = nodes.play("site.yml")
                show(count, "unchanged", unchanged)
                show(count, "verify", nodes.play("playbooks/verify.yml"))
                more = grown(nodes)
                show(count, "one node more", more)
                files = more.output.count("\n+++ after")
                print(f"nodes_{count}_more: {len(more.hosts_with('changed'))} hosts, {files} files")
            finally:
                nodes.state(present=False)
        if unchanged.total("changed"):
            return 1
    return 0


def show(count: int, what: str, run: Run) -> None:
    counted = run.report.get("remote_module_executions", {}).get("most_on_a_compute_node")
    executions = f", {counted} executions on a compute node" if counted else ""
    print(
        f"nodes_{count}: {what}: {run.seconds:.1f} s, {run.seconds / count:.2f} s a node, "
        f"{run.total('changed')} tasks changed{executions}",
        flush=True,
    )


def ratio() -> int:
    nodes = Nodes(ROOT / "inventories/virtual")
    size = len(nodes.group("compute"))
    running = nodes.ssh_config.exists()
    try:
        nodes.state(present=True)
        first = nodes.play("site.yml")
        print(
            f"site_{size}_before: {first.seconds:.1f} s (changed {first.total('changed')})",
            flush=True,
        )
        floors, plain, sites = [], [], []
        with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:
            empty = Path(folder) / "empty.yml"
            empty.write_text(FLOOR * PLAYS, encoding="utf-8")
            for _turn in range(TURNS):
                floors.append(nodes.play(str(empty)).seconds)
                plain.append(nodes.play("site.yml", "--skip-tags=smoke").seconds)
                sites.append(nodes.play("site.yml"))
        second = min(sites, key=lambda run: run.seconds)
        most = second.report["remote_module_executions"]["most_on_a_compute_node"]
        to_floor = min(plain) / min(floors)
        changed = second.total("changed")
        whole = second.seconds / min(floors)
        print(f"site_{size}: {second.seconds:.1f} s (limit {LIMIT_S:g} s)")
        print(f"site_{size}_without_smoke: {min(plain):.1f} s")
        print(f"site_{size}_floor: {min(floors):.1f} s for {PLAYS} empty plays")
        print(f"site_{size}_ratio: {to_floor:.2f} (limit {LIMIT_RATIO:g}), {whole:.2f} with smoke")
        print(f"site_{size}_changed: {changed} tasks (limit 0)")
        print(f"site_{size}_executions: {most} on a compute node (limit {LIMIT_EXECUTIONS})")
    finally:
        if not running:
            nodes.state(present=False)
    over = second.seconds > LIMIT_S or to_floor > LIMIT_RATIO or most > LIMIT_EXECUTIONS
    return int(over or changed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", type=int, nargs="*", metavar="COUNT", help="numbers of nodes")
    counts = parser.parse_args().counts
    return sizes(counts) if counts else ratio()


if __name__ == "__main__":
    sys.exit(main())
