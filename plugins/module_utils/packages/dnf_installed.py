# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What rpm has installed on a node, read without dnf: quick, and nothing is fetched for it."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .. import commands
from ..dataclass import dataclass
from .manager import held_by_another

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
