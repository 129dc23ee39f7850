# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Preflight findings of all hosts, each listed once with its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from ...module_utils.core.checks import FAILED
from ...module_utils.core.text import counted, some

Findings = dict[tuple[bool, str, str, str, tuple[tuple[str, str], ...]], list[str]]
"""Maps (blocks a run, name, wanted, reason, found values by host) to subjects."""

MAX_DIGITS = 18
"""Most digits of a number in a range: host names may come from files."""


def findings(checks: Mapping[str, Iterable[Mapping[str, Any]]]) -> Findings:
    """Failures first, then warnings. Equal findings of the same hosts are merged."""
    seen: dict[tuple[bool, str, str, str, str], dict[str, str]] = {}
    for host, of_host in checks.items():
        for check in of_host:
            stops, name, reason = check["status"] == FAILED, check["name"], check["reason"]
            if stops or reason:
                key = (stops, name, str(check["wanted"]), reason, check["subject"])
                seen.setdefault(key, {})[host] = str(check["found"])
    merged: Findings = {}
    for (stops, name, wanted, reason, subject), of_hosts in seen.items():
        same = (stops, name, wanted, reason, tuple(of_hosts.items()))
        merged.setdefault(same, []).append(subject)
    return dict(sorted(merged.items(), key=lambda each: not each[0][0]))


def lines(findings: Findings, hosts: int) -> list[str]:
    stopping = sum(stops for stops, *_rest in findings)
    what = f"preflight: {counted(hosts, 'host')}, {stopping or 'nothing'} of what was found stops"
    shown = [f"{what} the first run"]
    for (stops, name, wanted, reason, of_hosts), places in findings.items():
        of, values = dict(of_hosts), dict.fromkeys(value for _host, value in of_hosts)
        where = f"{name} {some(places)}" if any(places) else name
        shown.append(f"  {'STOPS' if stops else 'note'}  {where}: {ranges(of)}")
        shown += [f"    found {some([*values], 3)}; wanted {wanted}", f"    {reason}"]
    return shown


def ranges(hosts: Iterable[str]) -> str:
    """`launcher01, node[001-498,500]`"""
    numbers: dict[tuple[str, int], list[str]] = {}
    for host in hosts:
        name = host[:-MAX_DIGITS] + host[-MAX_DIGITS:].rstrip("0123456789")
        numbers.setdefault((name, len(host)), []).append(host[len(name) :])
    shown = []
    for (name, _length), of_name in numbers.items():
        ordered = enumerate(sorted(of_name))
        runs = [list(run) for _key, run in groupby(ordered, lambda x: int(x[1] or 0) - x[0])]
        ends = [dict.fromkeys((run[0][1], run[-1][1])) for run in runs]
        text = ",".join("-".join(item) for item in ends)
        shown.append(f"{name}[{text}]" if len(of_name) > 1 else name + text)
    return ", ".join(shown)
