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
by the [check](checks.md) and prints the command that repairs it. What a site's own file or account
causes must first be removed by hand.

<!-- made by docs/generate_faults.py -->

| fault | layer | check |
|---|---|---|
"""


def rows() -> Iterator[tuple[str, str, str]]:
    for fault in NODE_FAULTS:
        yield fault.name, fault.layer, fault.check
    for system, switch in SYSTEMS.items():
        for name, check, _change in switch.FAULTS:
            yield f"{system}: {name}", "fabric", check


def page() -> str:
    return HEAD + "".join(f"| {name} | {layer} | `{check}` |\n" for name, layer, check in rows())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
