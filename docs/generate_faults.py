#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/faults.md from the faults that tests inject.

The program has no options. A unit test compares the page with its output.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "faults.md"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests.fabric import SWITCH_FAULTS  # noqa: E402
from tests.faults import NODE_FAULTS  # noqa: E402

HEAD = """\
# Faults

Tests inject each of these faults on virtual nodes and switches. `playbooks/verify.yml` and
[drift.yml](drift.md) report it by the [check](checks.md) and print the command that repairs it.
What a site's own file or account causes must first be removed by hand.

[node-check](node-check.md), which runs on compute nodes without Ansible, finds those with a `+`.

<!-- made by docs/generate_faults.py -->

| layer | check | node-check | faults |
|---|---|---|---|
"""


ON_NODE = {(fault.layer, fault.check) for fault in NODE_FAULTS if fault.on_node}


def rows() -> Iterator[tuple[str, str, str]]:
    """Layer, check and fault."""
    for fault in (*NODE_FAULTS, *SWITCH_FAULTS):
        yield fault.layer, fault.check, fault.name


def page() -> str:
    faults: dict[tuple[str, str], list[str]] = {}
    for layer, check, name in rows():
        faults.setdefault((layer, check), []).append(name)
    lines = [
        f"| {of[0]} | `{of[1]}` | {'+' if of in ON_NODE else ''} | {'; '.join(names)} |\n"
        for of, names in faults.items()
    ]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
