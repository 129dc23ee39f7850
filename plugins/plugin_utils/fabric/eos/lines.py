# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EOS configuration as a tree: what is indented below a line belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ....module_utils.dataclass import dataclass

BANNER_END = "EOF"


@dataclass
class Line:
    text: str
    children: list[Line] = field(default_factory=list)


def parse(configuration: str) -> list[Line]:
    """The lines at the top; `!` lines, comments and the final `end` are left out.

    The text of a banner is no configuration, even where it looks like one.
    """
    top: list[Line] = []
    open_blocks: list[tuple[int, list[Line]]] = [(-1, top)]
    for raw in _without_banners(configuration.splitlines()):
        text = raw.strip()
        if not text or text.startswith("!") or raw == "end":
            continue
        indent = len(raw) - len(raw.lstrip())
        while open_blocks[-1][0] >= indent:
            open_blocks.pop()
        line = Line(text)
        open_blocks[-1][1].append(line)
        open_blocks.append((indent, line.children))
    return top


def _without_banners(lines: list[str]) -> Iterator[str]:
    in_banner = False
    for line in lines:
        if in_banner:
            in_banner = line.strip() != BANNER_END
        else:
            in_banner = line.startswith("banner ")
            yield line
