#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write docs/faults.md from the faults that tests make: run it, it has no options.

A unit test fails while the page is not what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "faults.md"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests.fabric import SYSTEMS  # noqa: E402
from tests.faults import NODE_FAULTS  # noqa: E402

HEAD = """\
# Faults

The tests make each of these faults by hand on virtual nodes and switches. `playbooks/verify.yml`
finds it under the check ([checks](checks.md)), and prints the command that repairs it.

<!-- made by docs/generate_faults.py -->

| fault | layer | check | by hand first | repair: `ansible-playbook site.yml -i INVENTORY` |
|---|---|---|---|---|
"""


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    for fault in NODE_FAULTS:
        yield fault.name, fault.layer, fault.check, fault.undo, f"--tags {fault.layer} --limit HOST"
    for system, switch in SYSTEMS.items():
        for name, check, _change in switch.FAULTS:
            yield f"{system}: {name}", "fabric", check, "", "--tags fabric --limit SWITCH"


def page() -> str:
    lines = []
    for name, layer, check, first, command in rows():
        first = f"`{first}`" if first else ""
        lines.append(f"| {name} | {layer} | `{check}` | {first} | `{command}` |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
