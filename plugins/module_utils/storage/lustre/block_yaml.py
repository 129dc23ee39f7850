# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The YAML that lnetctl and the kernel's client print, without a library that nodes may lack.

Mappings and lists in blocks, lists in brackets, every scalar as text. Tolerant on purpose:
releases indent differently and print things that no YAML has (`descr: ! "text"`), and a line that
is none is passed over.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ...dataclass import dataclass

_KEY = re.compile(
    r"(?P<key>\"[^\"]*\"|'[^']*'|[^\s#\"'\[][^#]*?)\s*:(?:\s+(?P<rest>.*))?$",
)
_QUOTED = re.compile(r"(?:!\s*)?(?P<sign>[\"'])(?P<text>.*)(?P=sign)")


@dataclass
class _Line:
    column: int
    text: str


def load(text: str) -> Any:
    """A dict, a list, or None where there is nothing of either."""
    lines = [line for line in map(_line, text.expandtabs(8).splitlines()) if line is not None]
    found: Any = None
    while lines:
        value = _block(lines, lines[0].column)
        if found is None:
            found = value
        elif isinstance(found, dict) and isinstance(value, dict):
            found.update(value)
    return found


def _line(line: str) -> Optional[_Line]:
    stripped = line.strip()
    if not stripped or stripped.startswith("#") or stripped in ("---", "..."):
        return None
    return _Line(len(line) - len(line.lstrip()), stripped)


def _block(lines: list[_Line], column: int) -> Any:
    first = lines[0].text
    if first == "-" or first.startswith("- "):
        return _list(lines, column)
    return _mapping(lines, column)


def _list(lines: list[_Line], column: int) -> list[Any]:
    items: list[Any] = []
    while lines and lines[0].column == column and (lines[0].text + " ").startswith("- "):
        line = lines[0]
        rest = line.text[1:].strip()
        if not rest:
            lines.pop(0)
            deeper = lines and lines[0].column > column
            items.append(_block(lines, lines[0].column) if deeper else None)
            continue
        inner = line.column + line.text.index(rest, 1)
        if _KEY.match(rest) or rest.startswith("- "):
            # The rest of the line begins a block of its own, at the column where it stands.
            lines[0] = _Line(inner, rest)
            items.append(_block(lines, inner))
        else:
            lines.pop(0)
            items.append(_scalar(rest))
    return items


def _mapping(lines: list[_Line], column: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while lines and lines[0].column == column:
        matched = _KEY.match(lines[0].text)
        if matched is None:
            if lines[0].text.startswith("- "):
                break
            lines.pop(0)
            continue
        lines.pop(0)
        key = str(_scalar(matched["key"]))
        rest = (matched["rest"] or "").strip()
        if rest and not rest.startswith("#"):
            found[key] = _scalar(rest)
            continue
        found[key] = None
        if not lines:
            break
        # A list may stand at the column of its key.
        deeper = lines[0].column > column
        if deeper or (lines[0].column == column and (lines[0].text + " ").startswith("- ")):
            found[key] = _block(lines, lines[0].column)
    # What stands further in and belongs to nothing that was understood.
    while lines and lines[0].column > column:
        lines.pop(0)
    return found


def _scalar(text: str) -> Any:
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        return quoted["text"]
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_scalar(part.strip()) for part in inner.split(",")] if inner else []
    return text
