# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Installed packages from rpm, without dnf: quickly, and without fetching metadata."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.commands import Runner
from .package import locked_by_another

_FORM = (
    r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}"
    r"\t%{DBINSTANCE}\n"
)
_PARALLEL = ("installonlypkg(", "multiversion(kernel)")
_KERNEL = ("kernel", "kernel-PAE")
_DNF_LOCK = "var/lib/dnf/rpmdb_lock.pid"
_RPM_LOCKS = ("var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock")
HISTORY = "var/lib/dnf/history.sqlite"
_KILLED = (
    "SELECT rpm.name, rpm.epoch, rpm.version || '-' || rpm.release, rpm.arch "
    "FROM trans_item JOIN rpm ON rpm.item_id = trans_item.item_id "
    "WHERE trans_item.action IN (1, 2, 4, 6, 9) AND trans_item.trans_id = "
    "(SELECT id FROM trans WHERE id = (SELECT MAX(id) FROM trans) AND state = 0)"
)
"""New packages of the last transaction, if it did not finish."""


@dataclass(frozen=True)
class InstalledRpm:
    name: str
    evr: str
    arch: str
    installed: tuple[int, int] = (0, 0)

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.evr}.{self.arch}"


class Rpm:
    """rpm on one root. Answers are cached until `forget`."""

    def __init__(self, run: Runner, root: Path) -> None:
        self.run, self._root = run, root
        self.words = ["rpm", *([] if root == Path("/") else ["--root", str(root)])]
        self._answers: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        self._answers = {}

    def _query(self, *words: str, check: bool = True) -> list[str]:
        if words not in self._answers:
            self._answers[words] = self.run([*self.words, *words], check=check).stdout
        return self._answers[words].splitlines()

    def packages(self) -> list[InstalledRpm]:
        """Every installed package, without the keys that rpm lists too."""
        return [
            InstalledRpm(name, evr.removeprefix("0:"), arch, (int(time), int(instance)))
            for line in self._query("-qa", "--qf", _FORM)
            for name, evr, arch, time, instance in [line.split("\t")]
            if name != "gpg-pubkey"
        ]

    def versions(self) -> dict[str, list[InstalledRpm]]:
        """Name to its installed versions for the machine's own architecture."""
        native = {platform.machine(), "noarch"}
        by_name = defaultdict(list)
        for package in self.packages():
            by_name[package.name].append(package)
        return {
            name: [one for one in same if one.arch in native] or same[:1]
            for name, same in by_name.items()
        }

    def duplicates(self) -> list[tuple[InstalledRpm, InstalledRpm]]:
        """Pairs (kept, old) left by an interrupted upgrade or downgrade."""
        same = defaultdict(list)
        for package in self.packages():
            same[(package.name, package.arch)].append(package)
        found = []
        for group in same.values():
            if len(group) > 1 and not self.parallel(group[0]):
                *old, kept = sorted(group, key=lambda one: one.installed)
                found += [(kept, one) for one in old]
        return found

    def killed(self) -> list[InstalledRpm]:
        """Installed packages whose scriptlets may not have run because dnf was killed.

        rpm records a package before %post runs, so only dnf's history shows this. The history is
        copied first: the original may have a journal that only a writer can replay.
        """
        there = {(package.name, package.evr, package.arch) for package in self.packages()}
        path = self._root / HISTORY
        with tempfile.TemporaryDirectory() as folder, suppress(sqlite3.DatabaseError):
            for one in path.parent.glob(f"{path.name}*"):
                with suppress(FileNotFoundError):
                    shutil.copy(one, Path(folder, one.name))
            with closing(sqlite3.connect(Path(folder, path.name))) as connection:
                rows = connection.execute(_KILLED).fetchall()
            items = [
                InstalledRpm(name, f"{epoch}:{evr}" if epoch else evr, arch)
                for name, epoch, evr, arch in rows
            ]
            return [item for item in items if (item.name, item.evr, item.arch) in there]
        return []  # no history, or an unknown format; duplicates are found all the same

    def parallel(self, package: InstalledRpm) -> bool:
        """Whether versions install in parallel, by dnf's default installonlypkgs."""
        return package.name in _KERNEL or any(
            line.startswith(_PARALLEL) for line in self._ask(r"[@%{PROVIDENAME}\n]", package.nevra)
        )

    def needs(self, names: Iterable[str]) -> frozenset[str]:
        found: set[str] = set()
        start = set(names)
        waiting = sorted(start)
        while waiting:
            required = self._ask(r"[@%{REQUIRENAME}\n]", *waiting)
            wanted = sorted({name for text in required for name in _names(text)})
            owners = self.providers(wanted)
            waiting = sorted(owners - found)
            found.update(owners)
        return frozenset(found - start)

    def _ask(self, form: str, *words: str) -> list[str]:
        """Answers to a query, whose format starts with @; errors are dropped."""
        lines = self._query("-q", "--qf", form, *words, check=False)
        return [line[1:] for line in lines if line.startswith("@")]

    def providers(self, capabilities: Iterable[str]) -> frozenset[str]:
        wanted = sorted(capabilities)
        return frozenset(self._ask(r"@%{NAME}\n", "--whatprovides", *wanted) if wanted else ())

    def lower(self, one: str, other: str) -> bool:
        pairs = zip(split(one), split(other))
        calls = ", ".join(f'rpm.vercmp("{mine}", "{its}")' for mine, its in pairs)
        order = self.run(["rpm", "--eval", f"%{{lua: print({calls})}}"]).stdout.split()
        return next((each for each in order if each != "0"), "0") == "-1"

    def busy(self) -> bool:
        with suppress(OSError, ValueError):
            pid = int((self._root / _DNF_LOCK).read_text(encoding="ascii"))
            if Path("/proc", str(pid), "stat").exists():
                return True
        return any(locked_by_another(self._root / path) for path in _RPM_LOCKS)


def split(evr: str) -> tuple[str, str, str]:
    epoch, colon, rest = evr.rpartition(":")
    version, _dash, release = rest.rpartition("-")
    return (epoch if colon else "0", version, release)


def _names(requirement: str) -> list[str]:
    """All names in `(a or b(64bit))`, `(a if b)`."""
    if not requirement.startswith("("):
        return [requirement]
    words = [word.lstrip("(") for word in requirement.split()]
    return [word[: len(word) - max(0, word.count(")") - word.count("("))] for word in words]
