# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What pages of all kinds begin with: heading, verdict, and a card per kind of finding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT
from ...module_utils.core.text import counted
from ..answers import amount
from ..report.preflight import ranges
from .figures import shown
from .html import Markup, asset, join, prose, table, tag, text, value

UNVERIFIED, NONE = "unverified", "none"
SIGNS = {
    FAILED: ("bad", "✕", "failed"),
    UNVERIFIED: ("bad", "?", "not verified"),
    REBOOT: ("warn", "↻", "needs a reboot"),
    PENDING: ("warn", "…", "pending"),
    OK: ("ok", "✓", "ok"),
    NOT_APPLICABLE: ("na", "○", "not applicable"),
    NONE: ("none", "", "not part of it"),
}
"""Class, sign and word of a status, the worst first."""
RANKS = {status: at for at, status in enumerate(SIGNS)}
FINDINGS = FAILED, REBOOT, PENDING
OF_FABRIC = "rails", "fabric", "links", "verbs"
"""Layers whose findings mark a node or switch in the drawing of the fabric."""
MAX_IN_CARD, MAX_LISTED = 25, 150
MAX_COMMAND = 64 << 10
MAX_NUMBER = 1e15
UNKNOWN = "unknown"
"""A time that a report does not have."""
COLUMNS = "hosts", "subject", "found", "desired", "reason"
WIDE = {4: "why"}
Row = Mapping[str, Any]


def heading(cluster: str, what: str, report: Row, check: bool = False) -> Markup:
    started = moment(report.get("started") or report.get("made"))
    took = f", {shown(number(report.get('seconds')), 's')}" if report.get("seconds") else ""
    mode = ", check mode: nothing was changed" if check else ""
    return join(
        [
            tag("h1", f"{cluster}: {what}"),
            tag("p", f"{started} UTC{took}{mode}", class_="meta"),
        ]
    )


def verdict(class_: str, word: str, sentence: str) -> Markup:
    sign = {"ok": "✓", "bad": "✕", "warn": "!"}.get(class_, "○")
    return tag(
        "p",
        tag("span", sign, class_="sign", aria_hidden="true"),
        tag("span", tag("strong", f"{word}."), " ", sentence),
        class_=f"verdict {class_}",
    )


def moment(found: Any) -> str:
    """A time as `2026-11-29 13:02:29`, from either form that reports have."""
    digits = re.sub(r"[-:T]", "", str(found or ""))[:14]
    if not re.fullmatch(r"[0-9]{14}", digits):
        return UNKNOWN
    return "{}{}-{}-{} {}:{}:{}".format(*re.findall("..", digits))


def figure(found: Any) -> Optional[float]:
    """A number that can be drawn: not negative, infinite or NaN."""
    return None if (read := amount(found, MAX_NUMBER)) is None else float(read)


def number(found: Any) -> float:
    return figure(found) or 0.0


def meaning(layer: str, name: str) -> tuple[str, str]:
    """When a check holds, and what to do otherwise (docs/checks.md); empty if it is not there."""
    known = _meanings()
    for of in (layer, "any", *known):
        if name in known.get(of, {}):
            return known[of][name]
    begins = [key for key in known.get(layer, {}) if key.endswith("_") and name.startswith(key)]
    return known[layer][max(begins, key=len)] if begins else ("", "")


@lru_cache(maxsize=1)
def _meanings() -> dict[str, dict[str, tuple[str, str]]]:
    return {
        layer: {
            name: (means[0], means[1]) for names, means in own.items() for name in names.split()
        }
        for layer, own in json.loads(asset("meanings.json")).items()
    }


def card(
    status: str,
    layer: str,
    name: str,
    rows: Sequence[tuple[str, Row]],
    commands: Iterable[str] = (),
    notes: Iterable[object] = (),
) -> Markup:
    """Checks of one name with one status, by host; equal ones are one row."""
    class_, sign, word = SIGNS.get(status, ("bad", "✕", status))
    merged: dict[tuple[str, ...], list[str]] = {}
    for host, check in rows:
        said = [value(check.get(key)) for key in ("found", "wanted")]
        key = (str(check.get("subject") or "-"), *said, str(check.get("reason") or ""))
        merged.setdefault(key, []).append(host)
    listed = [(ranges(dict.fromkeys(hosts)), *key) for key, hosts in merged.items()]
    kept = [at for at in range(5) if any(row[at] not in ("", "-") for row in listed)] or [0]
    # Numbers found and desired are next to each other, not aligned with those of other rows.
    cells = [
        (row[kept[0]], *(tag("td", row[at], class_=WIDE.get(at)) for at in kept[1:]))
        for row in listed[:MAX_IN_CARD]
    ]
    hosts = {host for host, _check in rows if host}
    holds, otherwise = meaning(layer, name)
    steps = {str(check["by_hand"]) for _host, check in rows if check.get("by_hand")}
    return tag(
        "section",
        tag(
            "h3",
            tag("span", f"{sign} {word}", class_=f"tag {class_}"),
            f"{layer}: {name}" + (f" on {counted(len(hosts), 'host')}" if hosts else ""),
        ),
        tag("p", "Expected: ", prose(holds), ".", class_="means") if holds else "",
        table(f"{name}: what was found", [COLUMNS[at] for at in kept], cells, class_="found"),
        more(len(listed) - MAX_IN_CARD),
        tag("p", "What to do: ", prose(otherwise), ".") if otherwise else "",
        *(tag("p", tag("strong", "By hand: "), step) for step in sorted(steps)[:3]),
        *(tag("p", each) for each in notes),
        *map(command, commands),
        class_=f"card {class_}",
    )


def command(line: str) -> Markup:
    return tag("pre", tag("code", text(line, MAX_COMMAND)), tabindex="0")


def listed(caption: str, head: Sequence[object], rows: Sequence[Sequence[object]]) -> Markup:
    """A table of bounded length, which says how many rows it lacks."""
    return join([table(caption, head, rows[:MAX_LISTED]), more(len(rows) - MAX_LISTED)])


def more(left: int) -> Markup:
    said = f"{left} more are in the JSON report."
    return tag("p", said, class_="means") if left > 0 else Markup("")
