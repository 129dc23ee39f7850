# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What dpkg says is on the node: versions, holds, what needs what, and what was left half done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ..core.dataclass import dataclass

FORMAT = "\\t".join(
    f"${{{name}}}"
    for name in (
        "Package",
        "Version",
        "Architecture",
        "db:Status-Want",
        "db:Status-Status",
        "db:Status-Eflag",
        "Provides",
        "Pre-Depends",
        "Depends",
    )
)
QUERY = ("dpkg-query", "-W", "-f", f"{FORMAT}\\n")

IN_USE = ("installed", "triggers-awaited", "triggers-pending")
AT_REST = (*IN_USE, "not-installed", "config-files")

_NAME = re.compile(r"^\s*([a-z0-9][a-z0-9+.-]*)")


@dataclass(frozen=True)
class State:
    """The database of dpkg. Packages of another architecture are `name:architecture`."""

    installed: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    unfinished: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    """Unfinished, and on their way out."""
    needed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Package to what may satisfy its dependencies, alternatives and all."""
    provided: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Virtual package to those that provide it."""

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        """Everything installed that these need, at any depth."""
        start = [name for name in names if name in self.installed]
        seen, todo = set(start), list(start)
        while todo:
            for wanted in self.needed.get(todo.pop(), ()):
                for name in (wanted, *self.provided.get(wanted, ())):
                    if name in self.installed and name not in seen:
                        seen.add(name)
                        todo.append(name)
        return frozenset(seen.difference(start))


def parse(text: str, native: str) -> State:
    """The answer to QUERY. `native` is dpkg's own architecture."""
    installed, held, unfinished, leaving = {}, set(), {}, set()
    needed: dict[str, list[str]] = {}
    provided: dict[str, list[str]] = {}
    for line in text.splitlines():
        package, version, architecture, want, status, flag, provides, *depends = line.split("\t")
        name = package if architecture in (native, "all") else f"{package}:{architecture}"
        if want == "hold":
            held.add(name)
        if status not in AT_REST or flag != "ok":
            unfinished[name] = status if flag == "ok" else f"{status}, {flag}"
            if want in ("deinstall", "purge"):
                leaving.add(name)
        if status not in IN_USE:
            continue
        installed[name] = version
        needed[name] = [each for words in depends for each in named(words)]
        for virtual in named(provides):
            provided.setdefault(virtual, []).append(name)
    return State(
        installed=installed,
        held=frozenset(held & installed.keys()),
        unfinished=unfinished,
        leaving=frozenset(leaving),
        needed=needed,
        provided=provided,
    )


def named(relations: str) -> list[str]:
    """The names in a field of relations, without versions and architectures."""
    found = (_NAME.match(each) for each in re.split(r"[,|]", relations))
    return [match.group(1) for match in found if match]


def exactly(relations: str) -> dict[str, str]:
    """What a field of relations wants at one version only (`libfoo (= 1.0-1)`)."""
    exact = {}
    for each in relations.split(","):
        found = re.fullmatch(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*\(=\s*(\S+)\)\s*", each)
        if found:
            exact[found.group(1)] = found.group(2)
    return exact
