# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was found of all links, as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence

from ....module_utils.checks import FAILED, PENDING
from .check import Group, Links

SHOWN = 40
"""So many leaves, and so many mismatches, stand on the screen; the report has all of them."""
HEADINGS = ("links of", "to", "links", "agree", "one end", "mismatched", "not read")


def lines(links: Links) -> list[str]:
    """The figures of each leaf, the worst first; then every mismatch."""
    failed = [check for check in links.checks if check.status in (FAILED, PENDING)]
    count = sum(group.links for group in links.groups)
    agree = sum(group.agree for group in links.groups)
    told = [
        f"links: {count} in the model, {agree} with nothing wrong in what both ends say, "
        f"{links.neighbours} shown by LLDP to be where the model has them"
    ]
    if links.groups:
        told += _table(links.groups)
    told += [f"  {check.line()}" for check in failed[:SHOWN]]
    if len(failed) > SHOWN:
        told.append(f"  ... and {len(failed) - SHOWN} more: see the report")
    return told


def _table(groups: Sequence[Group]) -> list[str]:
    worst_first = sorted(groups, key=lambda group: (-group.wrong, -group.unread, -group.one_end))
    rows = [HEADINGS, *map(_row, worst_first[:SHOWN])]
    widths = [max(map(len, column)) for column in zip(*rows)]
    table = [
        "  "
        + "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
    if len(groups) > SHOWN:
        table.append(f"  ... and {len(groups) - SHOWN} more lines like these: see the report")
    return table


def _row(group: Group) -> tuple[str, ...]:
    figures = (group.links, group.agree, group.one_end, group.wrong, group.unread)
    return (group.switch, group.to, *(str(figure) if figure else "-" for figure in figures))
