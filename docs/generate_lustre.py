#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Write the table of docs/lustre.md from the code: run it, it has no options.

Text between the marks is generated, the rest is written by hand. A unit test fails while the page
is not what this writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "lustre.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema import kinds  # noqa: E402
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lustre.keys import SETTINGS  # noqa: E402


def page(text: str) -> str:
    """The page with its generated part as the code has it now."""
    before, found, rest = text.partition(BEGIN)
    _old, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"{PAGE}: the marks of its keys are not there")
    head = ["| key | holds | default | |", "|---|---|---|---|"]
    return before + BEGIN + "\n".join([*head, *_keys(SETTINGS)]) + "\n" + END + after


def _keys(section: kinds.Section, prefix: str = "") -> Iterator[str]:
    for key in section.keys:
        below = kinds.section_in(key.kind)
        kind = key.kind.kind if isinstance(key.kind, kinds.OrNull) else key.kind
        name = f"{prefix}{key.name}" + ("[]" if isinstance(kind, kinds.ListOf) and below else "")
        if below is None:
            yield f"| `{name}` | {key.kind.describe()} | {_default(key)} | {key.help} |"
            continue
        if name.endswith("[]"):
            yield f"| `{name}` | list | {_default(key)} | {key.help} |"
        yield from _keys(below, f"{name}.")


def _default(key: kinds.Key) -> str:
    if key.required:
        return "required"
    if key.default_text:
        return key.default_text
    if key.default in ("", None, [], {}):
        return "none"
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
