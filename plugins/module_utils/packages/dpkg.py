# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""dpkg's package database (versions, holds, dependencies, unfinished packages) and apt's pins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from ..core.files import with_header
from ..core.part import NAME

QUERY = (
    "dpkg-query",
    "-W",
    "-f",
    "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Want}\\t${db:Status-Status}\\t"
    "${db:Status-Eflag}\\t${Provides}\\t${Pre-Depends}\\t${Depends}\\n",
)
IN_USE = ("installed", "triggers-awaited", "triggers-pending")
AT_REST = (*IN_USE, "not-installed", "config-files")
_STATUS_LINES = re.compile(r"^Package: (\S+)\nStatus: (.*)$", re.MULTILINE)
_NAME = re.compile(r"^\s*([a-z0-9][a-z0-9+.-]*)")
_RELEASE = re.compile(r"-\d+\.\d+\.\d+")
_EXACTLY = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*\(=\s*(\S+)\)\s*")


@dataclass(frozen=True)
class DpkgState:
    """Packages of a foreign architecture are named `name:architecture`."""

    installed: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    unfinished: dict[str, str] = field(default_factory=dict)
    needed: dict[str, list[list[str]]] = field(default_factory=dict)
    """Package to its dependencies, each a list of alternatives."""
    provided: dict[str, list[str]] = field(default_factory=dict)
    """Virtual package to its providers."""

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        start = [name for name in names if name in self.installed]
        seen, todo = set(start), list(start)
        while todo:
            for wanted in chain(*self.needed.get(todo.pop(), ())):
                for name in (wanted, *self.provided.get(wanted, ())):
                    if name in self.installed and name not in seen:
                        seen.add(name)
                        todo.append(name)
        return frozenset(seen.difference(start))

    def bringing(self, patterns: Sequence[str]) -> frozenset[str]:
        """Installed packages that depend, at any depth, on a package matching `patterns`, so that
        their upgrade installs the next kernel.

        Not those with a kernel release in their name, nor those that accept an alternative
        (`linux-headers-generic | linux-headers`).
        """
        names = {x for groups in self.needed.values() for x in chain(*groups)}
        found = new = {x for x in names if any(fnmatchcase(x, pattern) for pattern in patterns)}
        while new:
            found = found | new
            new = {
                name
                for name, groups in self.needed.items()
                if name not in found and any(found.issuperset(group) for group in groups if group)
            }
        return frozenset(x for x in found if x in self.needed and not _RELEASE.search(x))


def parse_state(text: str, native: str) -> DpkgState:
    """Parse the output of QUERY. `native`: dpkg's own architecture."""
    state = DpkgState()
    for line in text.splitlines():
        package, version, architecture, want, status, flag, provides, *depends = line.split("\t")
        name = package if architecture in (native, "all") else f"{package}:{architecture}"
        if status not in AT_REST or flag != "ok":
            state.unfinished[name] = status if flag == "ok" else f"{status}, {flag}"
        if status not in IN_USE:
            continue
        state.installed[name] = version
        if want == "hold":
            state.held.add(name)
        state.needed[name] = [_named(each) for words in depends for each in words.split(",")]
        for virtual in _named(provides):
            state.provided.setdefault(virtual, []).append(name)
    return state


STATUS = "var/lib/dpkg/status"
"""dpkg's database below the root, in the format of deb822(5)."""


def unfinished(database: str) -> dict[str, str]:
    """Packages that an interrupted dpkg left unfinished, with their state, by STATUS."""
    found = {}
    for name, status in _STATUS_LINES.findall(database):
        _want, flag, state = [*status.split(), "", "", ""][:3]
        if state not in AT_REST or flag != "ok":
            found[name] = state if flag == "ok" else f"{state}, {flag}"
    return found


def owner_of(path: str, text: str) -> str:
    for line in text.splitlines():
        names, _colon, found = line.partition(": ")
        if found == path and not names.startswith("diversion by"):
            return names.split(",")[0].partition(":")[0]
    return ""


def _named(relations: str) -> list[str]:
    found = (_NAME.match(each) for each in re.split(r"[,|]", relations))
    return [match.group(1) for match in found if match]


def exactly(relations: str) -> dict[str, str]:
    """Packages of a relations field with their only version (`libfoo (= 1.0-1)`)."""
    found = (_EXACTLY.fullmatch(each) for each in relations.split(","))
    return {match.group(1): match.group(2) for match in found if match}


# Pins: the only version allowed for a package, and its repository.

PREFERENCES = "etc/apt/preferences.d"
PINS = f"00-{NAME}-"
"""Sorts first: of two records for one package, apt obeys the first."""
EXACT = 1001
"""Above 1000, a version is the candidate even if a newer one is installed."""
NEVER = -1
PREFERRED = 600
"""Above the default priority of a repository (500)."""
ANY = "[a-z0-9]*"
"""Matches every package; with `*` apt ignores the version."""
_RECORD = re.compile(r"^Package: (.*)\nPin: (.*)\nPin-Priority: (.*)$", re.MULTILINE)


def render_pins(
    pins: Mapping[str, str], preferred: Mapping[str, str], versions: Iterable[str] = ()
) -> str:
    """A pin file. `preferred`: package pattern to a pin of its repository (`release o=NVIDIA`).
    `versions`: preferred for every package.
    """
    records = []
    for name, version in sorted(pins.items()):
        records += [(name, f"version {version}", EXACT), (name, "version *", NEVER)]
    records += [(ANY, f"version {version}", EXACT) for version in sorted(set(versions))]
    records += [(pattern, term, PREFERRED) for pattern, term in sorted(preferred.items())]
    return with_header(
        "".join(
            f"\nPackage: {package}\nPin: {term}\nPin-Priority: {priority}\n"
            for package, term, priority in records
        )
    )


def records(path: Path, priority: int) -> dict[str, str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {name: pin for name, pin, value in _RECORD.findall(text) if value == str(priority)}


def pinned(root: Path, layer: str = "") -> dict[str, str]:
    paths = sorted((root / PREFERENCES).glob(f"{PINS}{layer or '*'}.pref"))
    found = [pin for path in paths for pin in records(path, EXACT).items()]
    return {name: pin.split(None, 1)[1] for name, pin in found}
