# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of `drift_ignore`: findings that do not count, with a reason and until a day."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Optional

import yaml

from ...module_utils.core.text import nearest
from ..answers import CHECK, shown
from ..schema.findings import Finding, Findings

VARIABLE = "drift_ignore"
EVERY = "*"
KEYS = ("check", "host", "subject", "reason", "until")
OPTIONAL = {"subject"}
MOST_RULES = 1000
"""Maximum number of rules of one host."""
MOST_TEXT = 300
"""Maximum length of a text in a rule."""
DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
TEMPLATE = re.compile(r"\{[{%#]")
_LAYERS = Path(__file__).parents[3] / "layers"


@dataclass(frozen=True)
class Rule:
    check: str
    host: str
    reason: str
    until: str
    """The last day, in UTC, as YYYY-MM-DD."""
    subject: str = ""
    """A pattern of file names, or empty for every subject."""
    hosts: Optional[Collection[str]] = None
    """The hosts that it covers; None: all."""

    def covers(self, host: str, check: str, subject: str) -> bool:
        return (
            check == self.check
            and (self.hosts is None or host in self.hosts)
            and (not self.subject or fnmatchcase(subject, self.subject))
        )

    def expired(self, day: str) -> bool:
        return day > self.until

    def as_dict(self) -> dict[str, Any]:
        """The rule as the operator wrote it."""
        return {key: getattr(self, key) for key in KEYS}


def read(
    given: Mapping[str, Any], groups: Mapping[str, Sequence[str]]
) -> tuple[list[Rule], list[Finding]]:
    """The rules of all hosts, and every error in them.

    `given` is the variable of each host without templating, None if it has none. A host has only
    the rules of its variables, so `host: "*"` in the file of a group covers that group.
    """
    having: dict[int, list[str]] = {}
    values: dict[int, Any] = {}
    for host, value in given.items():
        if value is not None:
            having.setdefault(id(value), []).append(host)  # a group's value is one object
            values[id(value)] = value
    covered: dict[Rule, set[str]] = {}
    findings = Findings()
    for number, hosts in having.items():
        for rule in _rules(values[number], findings.below((hosts[0], VARIABLE)), groups):
            members = {rule.host, *groups.get(rule.host, ())}
            inside = hosts if rule.host == EVERY else [host for host in hosts if host in members]
            covered.setdefault(rule, set()).update(inside)
    every = set(given)
    rules = [
        Rule(**rule.as_dict(), hosts=None if hosts == every else frozenset(hosts))
        for rule, hosts in covered.items()
    ]
    return rules, list(dict.fromkeys(findings.found))


def _rules(value: Any, findings: Findings, groups: Mapping[str, Sequence[str]]) -> Iterator[Rule]:
    if not isinstance(value, list) or len(value) > MOST_RULES:
        problem = f"it is {shown(value)}, not a list of at most {MOST_RULES} rules"
        findings.add("drift.rules", (), problem, "See docs/drift.md")
        return
    for index, item in enumerate(value):
        problems = list(_problems(item, groups))
        for key, problem, remedy in problems:
            path = (index, key) if key else (index,)
            findings.add(f"drift.rule_{key or 'form'}", path, problem, remedy)
        if not problems:
            yield Rule(**{key: str(item[key]) for key in KEYS if item.get(key) is not None})


def _problems(item: Any, groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, str]]:
    """The wrong key, the problem and the remedy."""
    if not isinstance(item, Mapping):
        yield "", f"it is {shown(item)}, not a rule", f"Write the keys {', '.join(KEYS)}"
        return
    unknown = [key for key in item if key not in KEYS]
    if unknown:
        yield "", f"unknown key {shown(unknown[0])}", nearest(str(unknown[0])[:40], KEYS)
    for key in KEYS:
        value = item.get(key)
        if value is None:
            if key not in OPTIONAL:
                yield key, "it is missing", "Add it"
        elif wrong := _day(value) if key == "until" else _text(value):
            yield key, wrong[0], wrong[1]
        elif key == "check" and not _known(value):
            problem = f"{shown(value)} is no check (docs/checks.md)"
            yield key, problem, nearest(value, sorted(known_checks()))
        elif key == "host" and value not in (names := {EVERY, *groups, *groups["all"]}):
            problem = f"{shown(value)} is no host or group of the inventory"
            yield key, problem, nearest(value, sorted(names))


def _text(value: Any) -> Optional[tuple[str, str]]:
    if not isinstance(value, str):
        return f"it is {shown(value)}, not a text", "Put it in quotes"
    if not value.strip() or len(value) > MOST_TEXT or not value.isprintable():
        return f"{shown(value)} is not one line of 1 to {MOST_TEXT} characters", "Shorten it"
    if TEMPLATE.search(value):
        return f"{shown(value)} is a template", "Write the value: rules are not templated"
    return None


def _day(value: Any) -> Optional[tuple[str, str]]:
    """YAML reads a day without quotes as a date, and one with a time as a point in time."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return None
    try:
        if isinstance(value, str) and DAY.fullmatch(value):
            datetime.date.fromisoformat(value)
            return None
    except ValueError:
        pass
    return f"{shown(value)} is not a day", "Write it as YYYY-MM-DD"


def _known(name: str) -> bool:
    names = known_checks()
    composed = tuple(each for each in names if each.endswith("_"))
    return CHECK.fits(name) and (name in names or name.startswith(composed))


@cache
def known_checks() -> frozenset[str]:
    """Names of docs/checks.md; those that end in `_` begin composed names, such as `rail_`."""
    names: set[str] = set()
    for path in _LAYERS.glob("*.yml"):
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for row in content.get("checks", {}):
            names.update(re.findall(r"`([a-z0-9_]+)`", row) if "`" in row else row.split(", "))
    return frozenset(names)


def of_dicts(given: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """Rules that Settings.as_dict wrote."""
    return [Rule(**each) for each in given]
