#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measure one node more in clusters of two sizes, by the command that playbooks/model.yml prints.

Answers of hosts are canned (tests/bench/controller.py), and switches are left out. Hosts and
executions must be the same for every size. Exits with 1 if they are not, or the run takes too long.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (  # noqa: E402
    read,
    versions,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.changes import (  # noqa: E402
    compare,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import (  # noqa: E402
    model_changes,
)

from tests.bench.controller import TAGS, Cost, measure  # noqa: E402
from tests.bench.inventory import model  # noqa: E402

SIZES = (50, 1_000)
LIMIT_CPU_S = 60.0
"""CPU seconds of the controller for one node in addition to 1,000."""


def concerned(nodes: int) -> tuple[list[str], int]:
    """Hosts and groups that one node more concerns, and the number of switches among them."""
    texts = (model(each).replace(f"bench{each}", "bench") for each in (nodes, nodes + 1))
    old, new = (versions.compiled(read("cluster.yml", text)) for text in texts)
    changes = compare(old, new)
    return model_changes.concerned(changes), len(changes.ports)


def added(nodes: int) -> tuple[Cost, int]:
    words, switches = concerned(nodes)
    # A switch needs a session, which canned answers do not replace.
    limit = ":".join([*words[: len(words) - switches], "localhost"])
    with tempfile.TemporaryDirectory(prefix="bench-one-more-") as folder:
        return measure(nodes + 1, TAGS, Path(folder), limit=limit), switches


def main() -> int:
    over, first = False, None
    for nodes in SIZES:
        cost, switches = added(nodes)
        executions = sum(count for count, _size in cost.sent.values())
        found = len(cost.hosts), executions, switches
        first = first or found
        over |= found != first or cost.cpu_s > LIMIT_CPU_S
        print(
            f"one_more_{nodes}: {found[0]} hosts and {switches} switches touched, {executions} "
            f"executions, {cost.cpu_s:.0f} CPU s (limit {LIMIT_CPU_S:g} s), {cost.wall_s:.0f} s, "
            f"{cost.mb:.0f} MB",
            flush=True,
        )
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
