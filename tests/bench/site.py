#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time a second, unchanged run of site.yml on 4 virtual nodes and their launcher.

The time is compared with its limit and with 60 empty module calls on the same nodes, which show the
overhead of Ansible. The nodes are those of ./demo. If they are not running, they are created and
afterwards removed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nodes import Nodes, Run  # noqa: E402

LIMIT_S = 60.0
CALLS = 60
PINGS = """\
- name: Empty module calls
  hosts: compute
  gather_facts: false
  become: true
  tasks:
"""


def pings(nodes: Nodes) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-site-") as folder:
        playbook = Path(folder) / "pings.yml"
        playbook.write_text(PINGS + "    - ansible.builtin.ping:\n" * CALLS, encoding="utf-8")
        return nodes.play(str(playbook))


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
        second = nodes.play("site.yml")
        executions = second.report["remote_module_executions"]
        most, limit = executions["most_on_a_compute_node"], executions["limit_per_compute_node"]
        print(f"site_{size}: {second.seconds:.1f} s (limit {LIMIT_S:g} s)", flush=True)
        print(f"site_{size}_changed: {second.total('changed')} tasks (limit 0)")
        print(
            f"site_{size}_executions: {most} modules (on one compute node; limit {limit})",
            flush=True,
        )
        empty = pings(nodes)
        print(
            f"site_{size}_pings: {empty.seconds:.1f} s ({CALLS} empty module calls on {size} nodes)"
        )
        ratio = second.seconds / empty.seconds
        print(f"site_{size}_ratio: {ratio:.2f} (site.yml to {CALLS} empty calls)")
    finally:
        if not running:
            nodes.state(present=False)
    return int(second.seconds > LIMIT_S or second.total("changed") > 0 or most > limit)


if __name__ == "__main__":
    sys.exit(main())
