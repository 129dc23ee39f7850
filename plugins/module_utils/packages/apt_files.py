# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of apt and dpkg: definitions of repositories, pins, and dpkg's list of packages.

Two layers may name the same repository. Its definition is one file that lists its layers; a layer
that no longer wants it takes its name out, the last one the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from ..core.dataclass import dataclass
from ..core.files import FilePlan, plan_file, with_header
from .package import ARMOUR, Repository, check_key

PREFIX = "baremetal-mpi-roce-"
SOURCES = "etc/apt/sources.list.d"
KEYRINGS = "etc/apt/keyrings"
_FOR = re.compile(r"^# For the layers: (.*)$", re.MULTILINE)


def source_path(name: str, root: Path) -> Path:
    return root / SOURCES / f"{PREFIX}{name}.sources"


def render_source(repository: Repository, key: Path, layers: Sequence[str]) -> str:
    """The definition. Never `Trusted`: apt verifies it by this key and by no other."""
    return with_header(
        f"# For the layers: {' '.join(layers)}\nTypes: deb\nURIs: {repository.url}\nSuites: /\n"
        f"Signed-By: {key}\n"
    )


def plan_sources(
    repositories: Sequence[Repository], layer: str, root: Path, uid: int, gid: int
) -> list[FilePlan]:
    """Keys before the definitions that name them, and definitions away before their keys."""

    def file(path: Path, text: Optional[str], secret: bool = False) -> FilePlan:
        return plan_file(path, text, uid=uid, gid=gid, secret=secret)

    keys, sources, gone = [], [], []
    for repository in repositories:
        check_key(repository)
        path = source_path(repository.name, root)
        layers = sorted({*_layers(path), layer})
        armoured = ARMOUR in repository.key
        # apt tells the two forms of a key apart by the end of the name.
        name = f"{PREFIX}{repository.name}.{'asc' if armoured else 'gpg'}"
        key = root / KEYRINGS / name
        text = repository.key.decode("utf-8", "surrogateescape")
        keys.append(file(key, text, secret=not armoured))  # no bytes in a diff
        sources.append(file(path, render_source(repository, key, layers)))
        gone += [file(other, None) for other in _keys(root, repository.name) if other != key]
    wanted = {repository.name for repository in repositories}
    for path in sorted((root / SOURCES).glob(f"{PREFIX}*.sources")):
        name, layers = path.name[len(PREFIX) : -len(".sources")], _layers(path)
        if name in wanted or layer not in layers:
            continue
        others = " ".join(each for each in layers if each != layer)
        if others:
            text = _FOR.sub(f"# For the layers: {others}", path.read_text("utf-8"))
            sources.append(file(path, text))
        else:
            sources.append(file(path, None))
            gone += [file(key, None, secret=True) for key in _keys(root, name)]
    return [*keys, *sources, *gone]


def _keys(root: Path, name: str) -> list[Path]:
    paths = [root / KEYRINGS / f"{PREFIX}{name}.{end}" for end in ("asc", "gpg")]
    return [path for path in paths if path.exists()]


def _layers(path: Path) -> list[str]:
    """The layers that a definition on the node is for."""
    found = _FOR.search(read(path))
    return found.group(1).split() if found else []


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


# Pins: the one version that a package may have, and which repository it comes from.

PREFERENCES = "etc/apt/preferences.d"
PINS = "00-baremetal-mpi-roce-"
"""First of its directory: of two records about one package, apt obeys the one it reads first."""
EXACT = 1001
"""Above 1000: this version is the candidate even below an installed one."""
NEVER = -1
"""Other versions are no candidates at all, neither for an upgrade nor as a dependency."""
PREFERRED = 600
"""Above what every repository has by itself (500)."""
_RECORD = re.compile(r"^Package: (.*)\nPin: (.*)\nPin-Priority: (.*)$", re.MULTILINE)


def pins_path(layer: str, root: Path) -> Path:
    return root / PREFERENCES / f"{PINS}{layer}.pref"


def render_pins(pins: Mapping[str, str], preferred: Mapping[str, str]) -> str:
    """`preferred` is package pattern to what tells its repository (`release o=NVIDIA`)."""
    records = []
    for name, version in sorted(pins.items()):
        records += [(name, f"version {version}", EXACT), (name, "version *", NEVER)]
    records += [(pattern, term, PREFERRED) for pattern, term in sorted(preferred.items())]
    return with_header(
        "".join(
            f"\nPackage: {package}\nPin: {term}\nPin-Priority: {priority}\n"
            for package, term, priority in records
        )
    )


def pins_of(text: str) -> dict[str, str]:
    """The pins that `render_pins` was given."""
    return {name: pin.split(None, 1)[1] for name, pin in _records(text, EXACT)}


def preferred_of(text: str) -> dict[str, str]:
    return dict(_records(text, PREFERRED))


def _records(text: str, priority: int) -> list[tuple[str, str]]:
    return [(name, pin) for name, pin, value in _RECORD.findall(text) if value == str(priority)]


# dpkg's list of packages: versions, holds, dependencies, and what was left half done.

QUERY = (
    "dpkg-query",
    "-W",
    "-f",
    "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Want}\\t${db:Status-Status}\\t"
    "${db:Status-Eflag}\\t${Provides}\\t${Pre-Depends}\\t${Depends}\\n",
)
IN_USE = ("installed", "triggers-awaited", "triggers-pending")
AT_REST = (*IN_USE, "not-installed", "config-files")
_NAME = re.compile(r"^\s*([a-z0-9][a-z0-9+.-]*)")
_EXACTLY = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*\(=\s*(\S+)\)\s*")


@dataclass(frozen=True)
class State:
    """Packages of another architecture are `name:architecture`."""

    installed: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    unfinished: dict[str, str] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    """Unfinished, and on their way out."""
    needed: dict[str, list[str]] = field(default_factory=dict)
    """Package to what may satisfy its dependencies, alternatives and all."""
    provided: dict[str, list[str]] = field(default_factory=dict)
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


def parse_state(text: str, native: str) -> State:
    """The answer to QUERY. `native` is dpkg's own architecture."""
    state = State()
    for line in text.splitlines():
        package, version, architecture, want, status, flag, provides, *depends = line.split("\t")
        name = package if architecture in (native, "all") else f"{package}:{architecture}"
        if status not in AT_REST or flag != "ok":
            state.unfinished[name] = status if flag == "ok" else f"{status}, {flag}"
            if want in ("deinstall", "purge"):
                state.leaving.add(name)
        if status not in IN_USE:
            continue
        state.installed[name] = version
        if want == "hold":
            state.held.add(name)
        state.needed[name] = [each for words in depends for each in _named(words)]
        for virtual in _named(provides):
            state.provided.setdefault(virtual, []).append(name)
    return state


def _named(relations: str) -> list[str]:
    """The names in a field of relations, without versions and architectures."""
    found = (_NAME.match(each) for each in re.split(r"[,|]", relations))
    return [match.group(1) for match in found if match]


def exactly(relations: str) -> dict[str, str]:
    """What a field of relations wants at one version only (`libfoo (= 1.0-1)`)."""
    found = (_EXACTLY.fullmatch(each) for each in relations.split(","))
    return {match.group(1): match.group(2) for match in found if match}
