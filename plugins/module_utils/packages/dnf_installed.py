# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What rpm has installed on a node, read without dnf: quick, and nothing is fetched for it."""

from __future__ import annotations

import configparser
import platform
import re
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from ..core import commands
from ..core.dataclass import dataclass
from .package import held_by_another

# What dnf wrote down: transactions that did not end, scriptlets that failed, module streams.
# rpm records a package before its %post runs: after a kill in between, rpm alone takes the package
# for installed. dnf's history knows, because a transaction is written there first, and closed last.


DATABASE = Path("var/lib/dnf/history.sqlite")
MODULES = Path("etc/dnf/modules.d")
_UNFINISHED = 0
"""State of a transaction; 1 is done, 2 ended with an error."""
_EPOCH = re.compile(r"-\d+:(?=[^-]+-[^-]+$)")
_FAILED = re.compile(r"(%\w+)\((?P<nevra>[^\s()]+)\)")
# Installs, downgrades, obsoletes, upgrades and reinstalls: the new side of each.
_FORWARD = (1, 2, 4, 6, 9)
_EVR = "rpm.version || '-' || rpm.release"
_COLUMNS = f"rpm.name, rpm.epoch, {_EVR}, rpm.arch, trans.id, repo.repoid"
_ITEMS = (
    f"SELECT {_COLUMNS} FROM trans_item JOIN trans ON trans.id = trans_item.trans_id "
    "JOIN rpm ON rpm.item_id = trans_item.item_id JOIN repo ON repo.id = trans_item.repo_id "
    f"WHERE trans_item.action IN ({', '.join(map(str, _FORWARD))})"
)


@dataclass(frozen=True)
class Item:
    """A package that a transaction installed, and which transaction."""

    name: str
    evr: str
    arch: str
    transaction: int
    repository: str
    scriptlet: str = ""
    """The scriptlet that failed; empty for a transaction that was killed."""

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.evr}.{self.arch}"


def unsettled(root: Path) -> list[Item]:
    """What the last transaction was installing when it was killed, and packages of which a
    scriptlet failed when they were installed last.

    A copy is asked: the original may have a journal that only a writer could play back.
    """
    path = root / DATABASE
    with tempfile.TemporaryDirectory() as folder, suppress(sqlite3.DatabaseError):
        for one in path.parent.glob(f"{path.name}*"):
            with suppress(FileNotFoundError):
                shutil.copy(one, Path(folder, one.name))
        with closing(sqlite3.connect(Path(folder, path.name))) as connection:
            return [*_unfinished(connection), *_failed(connection)]
    return []  # none, or of another format: rpm's duplicates are found all the same


def streams(root: Path) -> dict[str, str]:
    """Module to its enabled stream."""
    found = {}
    for path in sorted((root / MODULES).glob("*.module")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # dnf itself refuses such a file, and says where
        for name in parser.sections():
            section = parser[name]
            if section.get("state") == "enabled" and section.get("stream"):
                found[section.get("name", name)] = section["stream"]
    return found


def _unfinished(connection: sqlite3.Connection) -> list[Item]:
    row = connection.execute("SELECT id, state FROM trans ORDER BY id DESC LIMIT 1").fetchone()
    if row is None or row[1] != _UNFINISHED:
        return []
    return _items(connection, f"{_ITEMS} AND trans.id = ?", (row[0],))


def _failed(connection: sqlite3.Connection) -> list[Item]:
    """rpm tells of a failed scriptlet in its output alone, which dnf keeps with the transaction."""
    found = []
    lines = connection.execute(
        "SELECT trans_id, line FROM console_output WHERE line LIKE '%failed%'"
    ).fetchall()
    for transaction, line in lines:
        match = _FAILED.search(line)
        if match is None:
            continue
        for item in _items(connection, f"{_ITEMS} AND trans.id = ?", (transaction,)):
            later = f"{_ITEMS} AND trans.id > ? AND rpm.name = ? AND rpm.arch = ?"
            told = _EPOCH.sub("-", match["nevra"]) == _EPOCH.sub("-", item.nevra)
            if told and not _items(connection, later, (transaction, item.name, item.arch)):
                found.append(replace(item, scriptlet=match[1]))
    return found


def _items(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[Item]:
    return [
        Item(name, f"{epoch}:{evr}" if epoch else evr, arch, transaction, repository)
        for name, epoch, evr, arch, transaction, repository in connection.execute(
            query, tuple(values)
        )
    ]


_FORM = (
    r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}"
    r"\t%{DBINSTANCE}\n"
)
_PARALLEL = ("installonlypkg(", "multiversion(kernel)")
_KERNEL = ("kernel", "kernel-PAE")
_DNF_LOCK = Path("var/lib/dnf/rpmdb_lock.pid")
_RPM_LOCKS = (Path("var/lib/rpm/.rpm.lock"), Path("usr/lib/sysimage/rpm/.rpm.lock"))


@dataclass(frozen=True)
class Package:
    name: str
    evr: str
    arch: str
    installed: tuple[int, int] = (0, 0)
    """Time, and rpm's own number: what was installed later has the higher one."""

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.evr}.{self.arch}"


def read(run: commands.Runner, rpm_root: Sequence[str]) -> list[Package]:
    """Every package; keys, which rpm keeps as packages, are left out."""
    output = run(["rpm", *rpm_root, "-qa", "--qf", _FORM]).stdout
    found = []
    for line in output.splitlines():
        name, evr, arch, time, instance = line.split("\t")
        if name != "gpg-pubkey":
            found.append(Package(name, evr.removeprefix("0:"), arch, (int(time), int(instance))))
    return found


def versions(packages: Iterable[Package]) -> dict[str, list[Package]]:
    """Name to what is installed of it, of the machine's own architecture."""
    native = {platform.machine(), "noarch"}
    by_name = defaultdict(list)
    for package in packages:
        by_name[package.name].append(package)
    return {
        name: [one for one in same if one.arch in native] or same[:1]
        for name, same in by_name.items()
    }


def split(evr: str) -> tuple[str, str, str]:
    """Epoch, version and release. Without an epoch it is 0."""
    epoch, colon, rest = evr.rpartition(":")
    version, _dash, release = rest.rpartition("-")
    return (epoch if colon else "0", version, release)


def lower(one: str, other: str, run: commands.Runner) -> bool:
    """As rpm itself orders two versions."""
    calls = [f'rpm.vercmp("{mine}", "{its}")' for mine, its in zip(split(one), split(other))]
    told = run(["rpm", "--eval", f"%{{lua: print({', '.join(calls)})}}"]).stdout.split()
    return next((order for order in told if order != "0"), "0") == "-1"


def duplicates(
    packages: Iterable[Package], parallel: Callable[[Package], bool]
) -> list[tuple[Package, Package]]:
    """(kept, old): what an interrupted upgrade or downgrade left beside what it had installed."""
    same = defaultdict(list)
    for package in packages:
        same[(package.name, package.arch)].append(package)
    found = []
    for group in same.values():
        if len(group) > 1 and not parallel(group[0]):
            *old, kept = sorted(group, key=lambda one: one.installed)
            found += [(kept, one) for one in old]
    return found


def parallel(package: Package, run: commands.Runner, rpm_root: Sequence[str]) -> bool:
    """Whether dnf lets several versions stand beside each other, by its own default list."""
    if package.name in _KERNEL:
        return True
    argv = ["rpm", *rpm_root, "-q", "--qf", r"[%{PROVIDENAME}\n]", package.nevra]
    return any(line.startswith(_PARALLEL) for line in run(argv, check=False).stdout.splitlines())


def needs(names: Sequence[str], run: commands.Runner, rpm_root: Sequence[str]) -> frozenset[str]:
    """Installed packages that these need at any depth, by the names in their requirements."""
    ask = ["rpm", *rpm_root, "-q", "--qf"]
    found: set[str] = set()
    waiting = sorted(names)
    while waiting:
        required = run([*ask, r"[@%{REQUIRENAME}\n]", *waiting], check=False).stdout
        wanted = {name for text in _marked(required) for name in _names(text)}
        if not wanted:
            break
        owners = run([*ask, r"@%{NAME}\n", "--whatprovides", *sorted(wanted)], check=False).stdout
        new = {*_marked(owners)} - found
        found |= new
        waiting = sorted(new)
    return frozenset(found - set(names))


def _marked(text: str) -> list[str]:
    """Without the lines that say what is not there."""
    return [line[1:] for line in text.splitlines() if line.startswith("@")]


def _names(requirement: str) -> list[str]:
    """Of `(a or b(64bit))`, `(a if b)`: every name, as whatever of it is installed counts."""
    if not requirement.startswith("("):
        return [requirement]
    words = [word.lstrip("(") for word in requirement.split()]
    return [word[: len(word) - max(0, word.count(")") - word.count("("))] for word in words]


def busy(root: Path) -> bool:
    """Whether a transaction is running now: what looks interrupted is only not finished."""
    try:
        pid = int((root / _DNF_LOCK).read_text(encoding="ascii"))
        if Path("/proc", str(pid), "stat").exists():
            return True
    except (OSError, ValueError):
        pass
    return any(held_by_another(root / path) for path in _RPM_LOCKS)
