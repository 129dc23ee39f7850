#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time the detection and repair of twenty simultaneous faults on nodes of both families.

In each of two rounds verify.yml must report exactly these faults, the commands that it prints must
repair them, and the next verify.yml must succeed. The nodes are those of tests/nodes.py. If they
are not running, they are created and afterwards removed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests import faults  # noqa: E402
from tests.nodes import INVENTORY, Nodes  # noqa: E402

CHOSEN = 20
VERIFY = ("playbooks/verify.yml", "--skip-tags=smoke")


def timed(name: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    work()
    print(f"faults_{name}: {time.monotonic() - began:.1f} s", flush=True)


def chosen() -> dict[str, list[faults.Fault]]:
    """Return the faults of each round.

    `mixed` takes faults of each layer in turn, so that every layer and host has some. `manual`
    takes those that an operator must undo.
    """
    layers: dict[str, list[faults.Fault]] = {fault.layer: [] for fault in faults.NODE_FAULTS}
    for fault in faults.NODE_FAULTS:
        layers[fault.layer].append(fault)
    turns = range(max(map(len, layers.values())))
    mixed = [of[turn] for turn in turns for of in layers.values() if turn < len(of)]
    manual = [fault for fault in faults.NODE_FAULTS if fault.undo]
    return {"mixed": mixed[:CHOSEN], "manual": manual[-CHOSEN:]}


def run_round(nodes: Nodes, name: str, made: list[faults.Fault]) -> bool:
    """Return whether exactly the injected faults were reported and one round repaired them."""
    timed(f"{name}_made", lambda: faults.inject(nodes, made))
    seen = nodes.play(*VERIFY, expect=2)
    print(f"faults_{name}_verify: {seen.seconds:.1f} s", flush=True)
    missed, surplus = faults.missed(seen, made), faults.surplus(seen, made)
    print(f"faults_{name}_found: {len(made) - len(missed)} of {len(made)}")
    print(f"faults_{name}_surplus: {len(surplus)} checks (limit 0)")
    faults.undo(nodes, made)
    for words in faults.repairs(seen):
        timed(f"{name}_repair_{words[2]}", lambda words=words: nodes.play(*words))
    after = nodes.play(*VERIFY, expect=None)
    print(f"faults_{name}_verify_after: {after.seconds:.1f} s, exit status {after.rc} (limit 0)")
    for line in [*missed, *surplus]:
        print(line, file=sys.stderr)
    return not (missed or surplus or after.rc)


def main() -> int:
    nodes = Nodes(INVENTORY)
    running = nodes.ssh_config.exists()
    try:
        nodes.state(present=True)
        timed("site", lambda: nodes.play("site.yml", "--skip-tags=smoke"))
        rounds = [run_round(nodes, *faults_of) for faults_of in chosen().items()]
        return int(not all(rounds))
    finally:
        if not running:
            nodes.state(present=False)


if __name__ == "__main__":
    sys.exit(main())
