# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Merges reports of runs into one, the report of a run that did all of it.

The result does not depend on the order of the reports, nor on whether some of them were merged
before. Reports come from execution nodes: every value is parsed, and hosts that were not given to
the node are left out.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, OK, PENDING, REBOOT
from ...module_utils.core.text import one_line, printable, shortened
from ..answers import checks, mapping, sentence, sequence
from ..layers import ROLES
from ..report.summary import MAX_SIMULATED, OUT, LayerOnHost, RunSummary

MOST_REASON = 2000
MOST_COUNT = 1 << 31
SEVERITY = (OK, REBOOT, PENDING, FAILED)
"""Of two answers of a host for the same layer, the one with the worst check counts."""


@dataclass(frozen=True)
class Entry:
    """Checks and figures of a layer on a host."""

    checks: list[dict[str, Any]]
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def weight(self) -> tuple[int, str]:
        worst = [SEVERITY.index(c["status"]) for c in self.checks if c["status"] in SEVERITY]
        text = json.dumps([self.checks, self.measured], sort_keys=True, default=str)
        return max(worst, default=0), text


@dataclass(frozen=True)
class Merged:
    """A report in the form that can be merged."""

    began: Optional[datetime] = None
    finished: Optional[datetime] = None
    layers: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    unverified: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By layer and host, the reason."""
    changed: Counter[str] = field(default_factory=Counter)
    executions: Counter[str] = field(default_factory=Counter)
    simulated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    out_of_service: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            _first(min, self.began, other.began),
            _first(max, self.finished, other.finished),
            _united(self.layers, other.layers, lambda a, b: _united(a, b, _worst)),
            _united(self.failed, other.failed, max),
            _united(self.unreachable, other.unreachable, max),
            _united(self.unverified, other.unverified, lambda a, b: _united(a, b, max)),
            self.changed + other.changed,
            self.executions + other.executions,
            _united(self.simulated, other.simulated, frozenset.union),
            tuple(sorted({*self.out_of_service, *other.out_of_service})),
        )

    @property
    def seconds(self) -> float:
        if self.began is None or self.finished is None:
            return 0.0
        return (self.finished - self.began).total_seconds()


def _first(choose: Any, *moments: Optional[datetime]) -> Optional[datetime]:
    return choose(filter(None, moments), default=None)  # type: ignore[no-any-return]


def _worst(one: Entry, other: Entry) -> Entry:
    return max(one, other, key=lambda entry: entry.weight)


def _united(one: Mapping[str, Any], other: Mapping[str, Any], both: Any) -> dict[str, Any]:
    found = dict(one)
    for key, value in other.items():
        found[key] = both(found[key], value) if key in found else value
    return found


def parsed(report: Any, hosts: Collection[str]) -> Merged:
    """A report of a run that was given these hosts."""
    given = mapping(report)
    layers = {}
    for layer, found in mapping(given.get("layers")).items():
        own = mapping(mapping(found).get("hosts"))
        if layer in ROLES and own:
            layers[layer] = {
                host: Entry(
                    checks(mapping(entry).get("checks")),
                    dict(printable(mapping(mapping(entry).get("measured")))),
                )
                for host, entry in own.items()
                if host in hosts
            }
    simulated = {
        shortened(one_line(line), MOST_REASON): frozenset(_known(sequence(names), hosts))
        for line, names in mapping(given.get("simulated")).items()
    }
    unverified: dict[str, dict[str, str]] = {}
    for layer, reasons in mapping(given.get("unverified")).items():
        for reason, names in mapping(reasons).items() if layer in ROLES else ():
            known = dict.fromkeys(_known(sequence(names), hosts), _reason(reason))
            unverified.setdefault(layer, {}).update(known)
    rows = [mapping(row) for row in sequence(given.get("out_of_service"))]
    began, seconds = _time(given.get("started")), given.get("seconds")
    finished = began
    if began and isinstance(seconds, (int, float)) and math.isfinite(seconds):
        finished = began + timedelta(seconds=min(max(seconds, 0.0), 1e7))
    counts = mapping(given.get("remote_module_executions"))
    return Merged(
        began,
        finished,
        {layer: own for layer, own in layers.items() if own},
        _reasons(given.get("failed"), hosts),
        _reasons(given.get("unreachable"), hosts),
        {layer: own for layer, own in unverified.items() if own},
        _counts(given.get("changed"), hosts),
        _counts(counts.get("hosts"), hosts),
        {line: names for line, names in list(simulated.items())[: MAX_SIMULATED * 50] if names},
        tuple(sorted({tuple(sentence(row.get(key)) for key in OUT) for row in rows})),
    )


def _known(names: Iterable[Any], hosts: Collection[str]) -> list[str]:
    return [name for name in names if isinstance(name, str) and name in hosts]


def _reason(text: Any) -> str:
    return str(printable(shortened(str(text), MOST_REASON)))


def _reasons(given: Any, hosts: Collection[str]) -> dict[str, str]:
    return {host: _reason(text) for host, text in mapping(given).items() if host in hosts}


def _counts(given: Any, hosts: Collection[str]) -> Counter[str]:
    found = {host: number for host, number in mapping(given).items() if host in hosts}
    return Counter({h: n for h, n in found.items() if type(n) is int and 0 < n < MOST_COUNT})


def _time(text: Any) -> Optional[datetime]:
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else None


def into(summary: RunSummary, merged: Merged) -> RunSummary:
    """`summary`, which knows hosts and command, with the results of all reports."""
    order = {host: at for at, host in enumerate(summary.roles)}

    def sort(names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: order.get(name, len(order)))

    for layer in filter(merged.layers.__contains__, ROLES):
        for host in sort(merged.layers[layer]):
            entry = merged.layers[layer][host]
            hosts = summary.layers.setdefault(layer, {})
            kept = hosts.setdefault(host, LayerOnHost(summary.records, layer, host))
            kept.add(entry.checks, entry.measured)
    summary.failed = {host: merged.failed[host] for host in sort(merged.failed)}
    summary.unreachable = {host: merged.unreachable[host] for host in sort(merged.unreachable)}
    summary.changed, summary.executions = merged.changed, merged.executions
    summary.simulated = {line: sort(merged.simulated[line]) for line in sorted(merged.simulated)}
    summary.out_of_service = [dict(zip(OUT, row)) for row in merged.out_of_service]
    if summary.verifies:
        for layer in ROLES:
            reasons = dict.fromkeys(summary.layers.get(layer, {}), "")
            reasons.update(merged.unverified.get(layer, {}))
            if reasons:
                summary.expected[layer] = {host: reasons[host] for host in sort(reasons)}
    return summary
