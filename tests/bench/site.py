#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time unchanged runs of site.yml on 4 virtual nodes and their launcher, and in turns with them the
floor: as many empty plays as site.yml had layers, each with one module that does nothing.

The nodes are those of ./demo. If they are not running, they are created and afterwards removed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nodes import Nodes  # noqa: E402

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


def main() -> int:
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
        floors, sites = [], []
        with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:
            empty = Path(folder) / "empty.yml"
            empty.write_text(FLOOR * PLAYS, encoding="utf-8")
            for _turn in range(TURNS):
                floors.append(nodes.play(str(empty)).seconds)
                sites.append(nodes.play("site.yml"))
        second = min(sites, key=lambda run: run.seconds)
        most = second.report["remote_module_executions"]["most_on_a_compute_node"]
        ratio = second.seconds / min(floors)
        changed = second.total("changed")
        print(f"site_{size}: {second.seconds:.1f} s (limit {LIMIT_S:g} s)")
        print(f"site_{size}_floor: {min(floors):.1f} s for {PLAYS} empty plays")
        print(f"site_{size}_ratio: {ratio:.2f} (limit {LIMIT_RATIO:g})")
        print(f"site_{size}_changed: {changed} tasks (limit 0)")
        print(f"site_{size}_executions: {most} on a compute node (limit {LIMIT_EXECUTIONS})")
    finally:
        if not running:
            nodes.state(present=False)
    over = second.seconds > LIMIT_S or ratio > LIMIT_RATIO or most > LIMIT_EXECUTIONS
    return int(over or changed > 0)


if __name__ == "__main__":
    sys.exit(main())
