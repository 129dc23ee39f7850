# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What rpm has installed on a node, read without dnf: quick, and nothing is fetched for it."""

from __future__ import annotations

import fcntl
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from pathlib import Path

from .. import commands
from ..dataclass import dataclass
from .dnf_versions import compare, parse
from .manager import PackageError

_FORM = (
    r"%{NAME}\t%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}"
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
            found.append(Package(name, str(parse(evr)), arch, (int(time), int(instance))))
    return found


def versions(packages: Iterable[Package]) -> dict[str, list[Package]]:
    """Name to what is installed of it, the newest first; of the machine's own architecture."""
    native = {platform.machine(), "noarch"}
    by_name = defaultdict(list)
    for package in packages:
        by_name[package.name].append(package)
    order = cmp_to_key(compare)
    return {
        name: sorted(
            [one for one in same if one.arch in native] or same[:1],
            key=lambda one: order(one.evr),
            reverse=True,
        )
        for name, same in by_name.items()
    }


def newest(packages: Iterable[Package]) -> dict[str, str]:
    """Name to version, of several the newest."""
    return {name: same[0].evr for name, same in versions(packages).items()}


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
    form = r"@%{NAME}\n[-%{REQUIRENAME}\n][+%{PROVIDENAME}\n]"
    requires: dict[str, set[str]] = defaultdict(set)
    providers: dict[str, set[str]] = defaultdict(set)
    name = ""
    for line in run(["rpm", *rpm_root, "-qa", "--qf", form]).stdout.splitlines():
        kind, text = line[:1], line[1:]
        if kind == "@":
            name = text
        elif kind == "+":
            providers[text].add(name)
        elif kind == "-" and not text.startswith("rpmlib("):
            requires[name].update(_names(text))
    found: set[str] = set()
    waiting = [one for one in names if one in requires]
    while waiting:
        wanted = {need for one in waiting for need in requires[one]}
        for path in sorted(
            need for need in wanted if need.startswith("/") and need not in providers
        ):
            providers[path] = _owners(path, run, rpm_root)
        new = {owner for need in wanted for owner in providers.get(need, ())} - found
        found |= new
        waiting = sorted(new)
    return frozenset(found - set(names))


def _names(requirement: str) -> list[str]:
    """Of `(a or b(64bit))`, `(a if b)`: every name, as whatever of it is installed counts."""
    if not requirement.startswith("("):
        return [requirement]
    words = [word.lstrip("(") for word in requirement.split()]
    return [word[: len(word) - max(0, word.count(")") - word.count("("))] for word in words]


def _owners(path: str, run: commands.Runner, rpm_root: Sequence[str]) -> set[str]:
    argv = ["rpm", *rpm_root, "-q", "--whatprovides", "--qf", r"+%{NAME}\n", path]
    lines = run(argv, check=False).stdout.splitlines()
    return {line[1:] for line in lines if line.startswith("+")}


def busy(root: Path) -> bool:
    """Whether a transaction is running now: what looks interrupted is only not finished."""
    try:
        pid = int((root / _DNF_LOCK).read_text(encoding="ascii"))
        if Path("/proc", str(pid), "stat").exists():
            return True
    except (OSError, ValueError):
        pass
    return any(_locked(root / path) for path in _RPM_LOCKS)


def _locked(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            fcntl.lockf(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def interpreter() -> str:
    """The Python that dnf runs with, which has its libraries: the first line of dnf says which."""
    program = commands.find_program("dnf-3") or commands.find_program("dnf")
    if program is None:
        raise PackageError("dnf is not installed on this node")
    with open(program, "rb") as stream:
        first = stream.readline().decode(errors="replace")
    words = first[2:].split() if first.startswith("#!") else []
    words = [word for word in words if not word.endswith("/env") and not word.startswith("-")]
    if not words or "python" not in words[0]:
        raise PackageError(f"{program} is not the dnf 4 of EL 9: its first line is {first.strip()}")
    return words[0]
