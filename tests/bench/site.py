#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time a second, unchanged run of site.yml on 4 virtual nodes and their launcher.

The nodes are those of ./demo. If they are not running, they are created and afterwards removed.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.nodes import Nodes  # noqa: E402

LIMIT_S = 60.0


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
    finally:
        if not running:
            nodes.state(present=False)
    return int(second.seconds > LIMIT_S or second.total("changed") > 0 or most > limit)


if __name__ == "__main__":
    sys.exit(main())
