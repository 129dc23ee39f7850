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

from tests.fabric import SYSTEMS  # noqa: E402
from tests.faults import NODE_FAULTS  # noqa: E402

HEAD = """\
# Faults

Tests inject each of these faults on virtual nodes and switches. `playbooks/verify.yml` reports it
by the [check](checks.md) and prints the command that repairs it: `ansible-playbook site.yml` with
`--tags` for the layer and `--limit` for the host. Some faults need a manual step first.

<!-- made by docs/generate_faults.py -->

| fault | layer | check | manual step |
|---|---|---|---|
"""


def rows() -> Iterator[tuple[str, str, str, str]]:
    for fault in NODE_FAULTS:
        yield fault.name, fault.layer, fault.check, fault.undo
    for system, switch in SYSTEMS.items():
        for name, check, _change in switch.FAULTS:
            yield f"{system}: {name}", "fabric", check, ""


def page() -> str:
    lines = []
    for name, layer, check, step in rows():
        step = f"`{step}`" if step else ""
        lines.append(f"| {name} | {layer} | `{check}` | {step} |\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
