# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads back that packages are installed which a role has the package manager install."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.checks import Check, compare, not_applicable
from ..core.distribution import read_distribution
from ..core.part import Node, Plan, Verdict

CHECK = "package_installed"
APT = "apt"
QUERY = ("dpkg-query", "-W", "-f", "${Package}\\t${db:Status-Status}\\t${Provides}\\n")
WANTED, ABSENT = "installed", "not installed"
_PLAIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9+._-]*)(?::[a-z0-9]+)?(?:=.*)?")
"""A name with architecture and version, if any. Files, groups and patterns are not names."""


@dataclass(frozen=True)
class Installed:
    names: Sequence[str]

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict(list(self._checks(node)))

    def _checks(self, node: Node) -> Iterable[Check]:
        plain = {}
        for name in dict.fromkeys(self.names):
            match = _PLAIN.fullmatch(name)
            if match:
                plain[name] = match[1]
            else:
                reason = "a group or a file, which only the package manager resolves"
                yield not_applicable(CHECK, WANTED, reason, subject=name)
        if not plain:
            return
        missing = absent(node, sorted(set(plain.values())))
        for name, package in plain.items():
            found = ABSENT if package in missing else WANTED
            yield compare(CHECK, WANTED, found, subject=name, check_mode=node.check_mode)


def absent(node: Node, names: Sequence[str]) -> set[str]:
    """The packages that are neither installed nor provided by one that is. Raises CommandError,
    and PlanError on another distribution. An RPM system may have dpkg, and the other way round."""
    if read_distribution(node.root).family.package_manager == APT:
        return set(names) - _of_dpkg(node.look(QUERY).stdout)
    said = _rpm(node, "--whatprovides", names)
    missing = [name for name in names if f"no package provides {name}" in said]
    # With its version, a name is not provided.
    said = _rpm(node, "--query", missing) if missing else set()
    return {name for name in missing if f"package {name} is not installed" in said}


def _rpm(node: Node, mode: str, names: Sequence[str]) -> set[str]:
    return set(node.look(["rpm", "-q", mode, *names], check=False).stdout.splitlines())


def _of_dpkg(text: str) -> set[str]:
    found = set()
    for line in text.splitlines():
        name, status, provides = (line + "\t\t").split("\t")[:3]
        if status == "installed":
            found.add(name)
            found.update(re.findall(r"[a-z0-9][a-z0-9+.-]+(?=\s*(?:\(|:|,|$))", provides))
    return found
