#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time to judge every link of a fabric once nodes and switches were read, for three sizes.

Every end keeps the contract, as a site has it day by day. Exits with 1 when a figure is over its
limit, or a link of the largest fabric takes longer than one of the smallest.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from tests.unit.link_fabric import Fabric  # noqa: E402

SIZES = ((40, 8, 5.0), (400, 56, 5.0), (3000, 392, 20.0))
"""Nodes of eight rails, leaves of 64 ports, and the limit in seconds."""
LIMIT_RATIO = 2.0
"""What a link takes in the largest fabric: at most this times that in the smallest."""
REPEATS = 3


def seconds(fabric: Fabric) -> tuple[float, int]:
    """CPU time, since the machine may have other work: the least of some; and how many links."""
    took = []
    for _ in range(REPEATS):
        gc.collect()
        gc.freeze()  # what others have read is not to be looked through for garbage
        begin = time.process_time()
        links = fabric.check()
        took.append(time.process_time() - begin)
        wrong = [check.line() for check in links.checks if check.status != "ok"]
        if wrong:
            raise SystemExit(f"a link that keeps the contract has failed: {wrong[0]}")
    return min(took), sum(group.links for group in links.groups)


def main() -> int:
    broken = False
    per_link = []
    for nodes, leaves, limit in SIZES:
        took, links = seconds(Fabric(nodes=nodes, rails=8, leaves=leaves))
        per_link.append(took / links)
        broken |= took > limit
        print(
            f"links_{nodes}_nodes: {took:.2f} s (limit {limit:g} s; {links} links, "
            f"{1e6 * took / links:.0f} us a link)",
            flush=True,
        )
    ratio = per_link[-1] / per_link[0]
    broken |= ratio > LIMIT_RATIO
    print(
        f"links_linearity: {ratio:.2f} ratio (time a link in the largest fabric to that in the "
        f"smallest; limit {LIMIT_RATIO:g})"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
