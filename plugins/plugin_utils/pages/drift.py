# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of a drift report: what differs since when, and the command that repairs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils.core.text import counted, natural, some
from ..answers import mapping, sequence
from ..report.preflight import ranges
from .cards import OF_FABRIC, Row, card, heading, listed, more, number, verdict
from .figures import Fabric, Fault, fabric, tiles
from .html import Markup, section, value

CLASSES = {"no drift": "ok", "drift": "bad", "incomplete": "warn"}
HEAD = "host", "finding", "reason", "until"
OF_RULES = "finding", "host", "until", "reason"
RULES = (
    ("expired", "Expired rules", "Rules whose findings count again"),
    ("unused", "Unused rules", "Rules that matched nothing for a month"),
)
MAX_CARDS, MAX_COMMANDS = 200, 12


def page(report: Row) -> tuple[str, list[Markup], dict[str, Any]]:
    cluster, word = str(report.get("cluster")), str(report.get("verdict"))
    class_ = CLASSES.get(word, "warn")
    found = [mapping(row) for row in sequence(report.get("findings")) if isinstance(row, dict)]
    active = [row for row in found if not row.get("ignored")]
    ignored = [row for row in found if row.get("ignored")]
    hosts = mapping(report.get("hosts"))
    silent = {str(host): str(why) for host, why in mapping(hosts.get("silent")).items()}
    new = [row for row in active if row.get("new")]
    sentence = _sentence(hosts, active, new, silent)
    drawn = Fabric(mapping(report.get("topology")))
    drawn.blame(
        Fault(
            str(row.get("host")),
            f"{row.get('subject')} {row.get('part')}",
            _said(row),
            row.get("layer") in OF_FABRIC,
        )
        for row in active
    )
    picture = fabric(drawn)
    figures = {
        "findings": (float(len(active)), ""),
        "new findings": (float(len(new)), ""),
        "silent hosts": (float(len(silent)), ""),
    }
    body = [
        heading(cluster, "drift", report),
        verdict(class_, word.capitalize(), sentence),
        tiles({**figures, "hosts answered": (number(hosts.get("answered")), "")}),
        *_findings(active),
        *([section("Fabric", picture)] if picture else []),
        *_lists(report, silent, ignored),
    ]
    summary = {
        "kind": "drift",
        "class": class_,
        "word": word.capitalize(),
        "sentence": sentence,
        "started": str(report.get("started")),
        "figures": {**figures, "duration": (number(report.get("seconds")), "s")},
    }
    return f"{cluster}: drift", body, summary


def _said(row: Row) -> str:
    return (
        f"{row.get('check')}: found {value(row.get('found'))}, desired {value(row.get('desired'))}"
    )


def _sentence(
    hosts: Row, active: list[Mapping[str, Any]], new: list[Any], silent: Mapping[str, str]
) -> str:
    answered, asked = (f"{number(hosts.get(key)):.0f}" for key in ("answered", "asked"))
    said = f"{answered} of {asked} hosts answered"
    if active:
        on = sorted({str(row.get("host")) for row in active}, key=natural)
        fresh = f", {len(new)} new" if new else ", none new"
        said = f"{counted(len(active), 'finding')}{fresh}, on {some(on, 4)}; {said}"
    if silent:
        said += f"; silent: {some(sorted(silent, key=natural), 4)}"
    return f"{said}."


def _findings(active: list[Mapping[str, Any]]) -> Iterator[Markup]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(active, key=lambda row: not row.get("new")):
        groups.setdefault((str(row.get("layer")), str(row.get("check"))), []).append(row)
    cards = []
    for (layer, name), rows in list(groups.items())[:MAX_CARDS]:
        checks = [(str(row.get("host")), {**row, "wanted": row.get("desired")}) for row in rows]
        commands = list(dict.fromkeys(str(row["command"]) for row in rows if row.get("command")))
        since = sorted(str(row.get("since") or "")[:16].replace("T", " ") for row in rows)
        new = sum(bool(row.get("new")) for row in rows)
        note = f"Since {since[0]} UTC" + (f", {new} new in this run." if new else ".")
        cards.append(card("differs", layer, name, checks, commands[:MAX_COMMANDS], [note]))
        cards.append(more(len(commands) - MAX_COMMANDS))
    if cards:
        yield section("Findings", *cards, more(len(groups) - MAX_CARDS))


def _lists(
    report: Row, silent: Mapping[str, str], ignored: list[Mapping[str, Any]]
) -> Iterator[Markup]:
    if silent:
        merged: dict[str, list[str]] = {}
        for host, why in silent.items():
            merged.setdefault(why, []).append(host)
        rows = [(ranges(hosts), why) for why, hosts in merged.items()]
        said = listed("Hosts that did not answer", ("hosts", "why"), rows)
        yield section("Silent hosts", said)
    offenders = [
        (
            str(row.get("part")),
            int(number(row.get("times"))),
            str(row.get("last"))[:16].replace("T", " "),
        )
        for row in map(mapping, sequence(report.get("offenders")))
    ]
    if offenders:
        head = ("part", "times", "last, UTC")
        yield section("Repeat offenders", listed("Parts that failed again", head, offenders))
    if ignored:
        left_out = [
            (
                str(row.get("host")),
                f"{row.get('layer')} {row.get('check')} {row.get('subject') or ''}",
                str(mapping(row["ignored"]).get("reason")),
                str(mapping(row["ignored"]).get("until")),
            )
            for row in ignored
        ]
        yield section("Ignored", listed("Findings that a rule ignores", HEAD, left_out))
    for key, title, caption in RULES:
        rules = [
            (
                f"{rule.get('check')} {rule.get('subject') or ''}",
                *(str(rule.get(key) or "-") for key in ("host", "until", "reason")),
            )
            for rule in map(mapping, sequence(report.get(key)))
        ]
        if rules:
            yield section(title, listed(caption, OF_RULES, rules))
