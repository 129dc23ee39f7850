# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`Manager` over dnf 4 and rpm, for EL 9.

What the node has is read from rpm and from files, so that an unchanged run neither fetches nor
starts dnf; what a repository has and what the solver makes of it is asked of dnf_program.py.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.commands import CommandError
from ..core.files import FilePlan, plan_file
from . import dnf_files, dnf_installed, dnf_program
from .package import (
    INSTALL,
    REMOVE,
    UPGRADE,
    WAIT_S,
    Change,
    PackageError,
    PackageSet,
    Repository,
    Stream,
    Wanted,
    until_free,
)
from .planning import any_matches, satisfied

INTERPRETER = "/usr/bin/python3"
"""The Python that dnf runs with on EL 9, which has its libraries."""
READ_TIMEOUT_S = 120.0
SOLVE_TIMEOUT_S = 1200.0
"""Fetching the metadata of every repository of a node is part of it."""
APPLY_TIMEOUT_S = 7200.0
"""Packages that build kernel modules when they are installed take their time."""


_NO_DKMS = re.compile(r"nothing provides (requested )?dkms(?![-\w])")
EPEL = (
    "\ndkms, with which the drivers are built, is in EPEL, and no repository of this node has it: "
    "dnf install epel-release (RHEL: docs/packages.md), or a mirror of EPEL; then run again"
)


class DnfManager:
    """One layer's view of one node."""

    def __init__(
        self,
        wanted: PackageSet,
        layer: str,
        *,
        root: Path = Path("/"),
        run: commands.Runner = commands.run,
        plugin_paths: Optional[Sequence[Path]] = None,
    ) -> None:
        self._wanted, self._layer, self._root, self._run = wanted, layer, root, run
        self.lock_timeout_s: float = WAIT_S
        self._directory: Optional[tempfile.TemporaryDirectory[str]] = None
        self._known: dict[str, list[tuple[str, str]]] = {}
        """Package to (version, repository)."""
        self._plugin_paths = plugin_paths

    # What an interruption left

    def busy(self) -> bool:
        return dnf_installed.busy(self._root)

    def wait(self) -> None:
        until_free(self.busy, self.lock_timeout_s)

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        if self.busy():
            return ""
        packages = [each for each in self._packages() if names is None or each.name in names]
        told = [
            f"{old.nevra} is still recorded beside {kept.nevra}"
            for kept, old in dnf_installed.duplicates(packages, self._parallel)
        ]
        told += [
            f"{item.nevra}: {item.scriptlet} failed"
            if item.scriptlet
            else f"{item.nevra} was being installed when dnf was killed"
            for item in self._unsettled(packages)
        ]
        return "; ".join(told)

    def repair(self) -> None:
        """Erase what an upgrade did not come to erase; run again the scriptlets that did not end.

        Erasing the older one is what was left to do: files that both have stay with the newer.
        """
        packages = self._packages()
        for kept, old in dnf_installed.duplicates(packages, self._parallel):
            argv = ["rpm", *self._rpm_root(), "-e", "--nodeps", old.nevra]
            try:
                self._bounded(APPLY_TIMEOUT_S)(argv)
            except CommandError as error:
                raise PackageError(
                    f"{old.nevra}, left behind by an interrupted upgrade to {kept.nevra}, cannot "
                    f"be erased: {error}"
                ) from error
        unsettled = self._unsettled(self._packages())
        if not unsettled:
            return
        # What is enabled now: the streams of a new set belong to the plan that comes after this.
        request: dict[str, Any] = {
            "packages": [[item.name, item.evr, item.arch] for item in unsettled],
            "streams": {},
        }
        missing = self._ask("reinstall", request, APPLY_TIMEOUT_S, writes=True)["missing"]
        if missing:
            raise PackageError(
                f"an interrupted transaction left {', '.join(missing)} in doubt, and no repository "
                "has them to install again. Install or remove them by hand: "
                f"dnf reinstall {' '.join(missing)}"
            )

    def _unsettled(self, packages: Sequence[dnf_installed.Package]) -> list[dnf_installed.Item]:
        """Packages that rpm takes for installed although their scriptlets did not end well."""
        there = {(one.name, one.evr, one.arch) for one in packages}
        ours = {one.name for one in self._wanted.packages} | set(self.pinned())
        found = {}
        for item in dnf_installed.unsettled(self._root):
            mine = item.name in ours or item.repository.startswith(dnf_program.OURS)
            if (item.name, item.evr, item.arch) in there and (mine or not item.scriptlet):
                found[(item.name, item.evr, item.arch)] = item
        return list(found.values())

    def _parallel(self, package: dnf_installed.Package) -> bool:
        """Whether several versions of it may be installed at once, as of the kernel."""
        return dnf_installed.parallel(package, self._quick, self._rpm_root())

    # Repositories

    def repository_files(self, repositories: Sequence[Repository], layer: str) -> list[FilePlan]:
        return dnf_files.plan(repositories, self._wanted, layer, self._root)

    def refresh(self, repositories: Sequence[Repository]) -> None:
        self._known = {}
        by_id = {self._id(repository): repository for repository in repositories}
        errors = self._ask("refresh", {"repositories": list(by_id)}, SOLVE_TIMEOUT_S)["errors"]
        if errors:
            raise PackageError(
                "; ".join(self._broken(by_id[name], text) for name, text in sorted(errors.items()))
            )

    def defined(self, name: str) -> bool:
        return dnf_files.defined(name, self._root)

    def _broken(self, repository: Repository, text: str) -> str:
        where = f"repository {repository.name} ({repository.url})"
        if "gpg" in text.lower() or "signature" in text.lower():
            return (
                f"{where}: its metadata are not signed by the key of the set (sha256 "
                f"{repository.key_sha256}): {text}. Nothing of it is used; find out who signed them"
            )
        return f"{where} cannot be read: {text}"

    # What is installed, and what could be

    def installed(self) -> Mapping[str, str]:
        """Of several versions of a package (kernels) the one that the set wants, else the newest.

        Where the wanted one can come beside those that are there, it is not there yet: what is
        newer is no reason to refuse it.
        """
        there = dnf_installed.versions(self._packages())
        found = {name: self._newest([one.evr for one in same]) for name, same in there.items()}
        for package in self._wanted.packages:
            same = there.get(package.name, [])
            fitting = self._fitting(package, [one.evr for one in same])
            if fitting:
                found[package.name] = fitting
            elif same and self._parallel(same[0]):
                del found[package.name]
        return found

    def _newest(self, versions: Sequence[str]) -> str:
        newest = versions[0]
        for version in versions[1:]:
            newest = version if self.lower(newest, version) else newest
        return newest

    def _fitting(self, package: Wanted, found: Iterable[str]) -> str:
        """The newest of those that are as the set says; empty where none is."""
        good = [each for each in found if satisfied(package, each)]
        return self._newest(good) if good else ""

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return self._versions(names, None)

    def offered(
        self, names: Sequence[str], repositories: Sequence[Repository]
    ) -> Mapping[str, Sequence[str]]:
        return self._versions(names, {self._id(repository) for repository in repositories})

    def _versions(
        self, names: Sequence[str], repositories: Optional[set[str]]
    ) -> dict[str, list[str]]:
        unknown = sorted(set(names) - self._known.keys())
        if unknown:
            self._lock_list("")  # a lock hides versions; what there is, is asked here
            answer = self._ask("available", {"names": unknown}, SOLVE_TIMEOUT_S)["versions"]
            self._known.update(answer)
        return {
            name: list(
                dict.fromkeys(
                    version
                    for version, repository in self._known[name]
                    if repositories is None or repository in repositories
                )
            )
            for name in names
        }

    def needs(self, names: Sequence[str]) -> frozenset[str]:
        return dnf_installed.needs(names, self._quick, self._rpm_root())

    def lower(self, one: str, other: str) -> bool:
        return dnf_installed.lower(one, other, self._quick)

    def upstream(self, version: str) -> str:
        return dnf_installed.split(version)[1]

    # Module streams

    def stream_changes(self, streams: Sequence[Stream]) -> list[Change]:
        now = dnf_installed.streams(self._root)
        return [
            Change(
                UPGRADE if now.get(one.module) else INSTALL,
                f"module {one.module}",
                now.get(one.module, ""),
                one.stream,
            )
            for one in streams
            if now.get(one.module) != one.stream
        ]

    def switch_streams(self, streams: Sequence[Stream]) -> None:
        if self.stream_changes(streams):
            wanted = {one.module: one.stream for one in streams}
            self._ask("switch", {"streams": wanted}, SOLVE_TIMEOUT_S, writes=True)

    # Transactions

    def simulate(
        self,
        exact: Mapping[str, str],
        remove: Sequence[str] = (),
        prefer: Optional[Mapping[str, str]] = None,
    ) -> list[Change]:
        if not exact and not remove:
            return []
        text = self._lock_text()
        # A kernel comes beside those that other layers hold, and moves none of them.
        free = (
            self._wanted.held if any(any_matches(name, self._wanted.held) for name in exact) else ()
        )
        self._lock_list(dnf_files.without(text, self._layer, free))
        request = {"exact": dict(exact), "remove": list(remove), "prefer": dict(prefer or {})}
        try:
            answer = self._ask("simulate", request, SOLVE_TIMEOUT_S)
        except PackageError as error:
            raise PackageError(f"{error}{self._hint(exact)}") from error
        for name, versions in answer.get("versions", {}).items():
            self._known.setdefault(name, versions)
        return self._changes(answer["changes"])

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        if not exact and not remove:
            return
        # rpm checks packages by the keys in its own keyring; an import of a known key does nothing.
        for repository in self._wanted.repositories:
            path = dnf_files.key_path(repository, self._layer, self._root)
            self._quick(["rpmkeys", *self._rpm_root(), "--import", str(path)])
        request = {"exact": dict(exact), "remove": list(remove)}
        try:
            self._ask("apply", request, APPLY_TIMEOUT_S, writes=True)
        except PackageError as error:
            raise PackageError(f"{error}{self._hint(exact)}") from error

    def _hint(self, exact: Mapping[str, str]) -> str:
        locks = dnf_files.of_operators(self._lock_text(), exact)
        if not locks:
            return ""
        return (
            f". Locks of the operator in {dnf_files.list_path(self._root)} concern these packages: "
            f"{', '.join(locks)}; remove one with: dnf versionlock delete"
        )

    def _changes(self, items: Sequence[Mapping[str, str]]) -> list[Change]:
        found = []
        for item in items:
            before, after = item["before"], item["after"]
            kind = item.get("kind", UPGRADE if before else INSTALL) if after else REMOVE
            if before != after:
                found.append(Change(kind, item["name"], before, after))
        return found

    # Pins: versionlock

    def pin_files(self, pins: Mapping[str, str], wanted: PackageSet, layer: str) -> list[FilePlan]:
        """With them, what the set only holds (the kernel), in every version that is installed.

        Raises PackageError where dnf would not read the list, before anything is touched.
        """
        versions = {name: {version} for name, version in pins.items()}
        for package in self._packages():
            held = any(fnmatchcase(package.name, pattern) for pattern in wanted.held)
            if held or (package.name in versions and self._parallel(package)):
                versions.setdefault(package.name, set()).add(package.evr)
        self._see_that_locks_hold(versions)
        path = dnf_files.list_path(self._root)
        try:
            text = dnf_files.with_block(self._lock_text(), versions, layer)
        except ValueError as error:
            raise PackageError(f"{path}: {error}. Put the missing line back") from error
        if not text and not path.exists():
            return []
        return [plan_file(path, text)]

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """Of several versions of a package the one that the set wants, else the newest."""
        found: dict[str, list[str]] = {}
        for owner, entry in dnf_files.entries(self._lock_text()):
            if owner and (not layer or owner == layer):
                versions = found.setdefault(dnf_files.name_of(entry), [])
                versions.append(dnf_files.version_of(entry))
        wanted = {package.name: package for package in self._wanted.packages}
        return {
            name: (self._fitting(wanted[name], versions) if name in wanted else "")
            or self._newest(versions)
            for name, versions in found.items()
        }

    def held(self) -> frozenset[str]:
        """Locked by us, and the lock is in force."""
        return frozenset() if self._not_effective() else frozenset(self.pinned())

    def hold(self, names: Sequence[str]) -> None:
        """The lock list holds by itself; that dnf reads it is checked by `held`."""

    def release(self, names: Sequence[str]) -> None:
        """Nothing to let go of: the solver is given a list without the locks of this layer."""

    def _see_that_locks_hold(self, names: Collection[str]) -> None:
        """A plugin that is not there may be on its way, as a package of this set."""
        coming = any(package.name == dnf_files.PLUGIN for package in self._wanted.packages)
        if not names or (coming and not dnf_files.is_installed(self._plugins())):
            return
        reason = self._not_effective()
        if reason:
            raise PackageError(f"nothing would keep packages at their versions: {reason}")

    def _lock_text(self) -> str:
        try:
            return dnf_files.list_path(self._root).read_text("utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return ""

    def _not_effective(self) -> str:
        return dnf_files.not_effective(self._root, self._plugins())

    def _plugins(self) -> Sequence[Path]:
        if self._plugin_paths is not None:
            return self._plugin_paths
        return dnf_files.plugin_paths(self._root)

    # Running programs

    def _id(self, repository: Repository) -> str:
        return dnf_files.repository_id(repository, self._layer)

    def _packages(self) -> list[dnf_installed.Package]:
        return dnf_installed.read(self._quick, self._rpm_root())

    def _private(self) -> Path:
        """Where dnf keeps its state and log while planning, and reads another list of locks.
        Metadata go to the node's cache."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="baremetal-mpi-roce-")
            (Path(self._directory.name) / "plugins").mkdir()
        return Path(self._directory.name)

    def _lock_list(self, text: str) -> None:
        """Let versionlock read this list: its configuration is read here last."""
        plugins = self._private() / "plugins"
        (plugins / "versionlock.list").write_text(text, encoding="utf-8")
        configuration = f"[main]\nlocklist = {plugins}/versionlock.list\n"
        (plugins / "versionlock.conf").write_text(configuration, encoding="utf-8")

    def _rpm_root(self) -> list[str]:
        return [] if self._root == Path("/") else ["--root", str(self._root)]

    def _bounded(self, seconds: float) -> commands.Runner:
        if self._run is commands.run:
            return functools.partial(commands.run, timeout_s=seconds)
        return self._run

    @property
    def _quick(self) -> commands.Runner:
        return self._bounded(READ_TIMEOUT_S)

    def _ask(
        self, action: str, more: Mapping[str, Any], seconds: float, *, writes: bool = False
    ) -> dict[str, Any]:
        """Have the program do something, in the private place unless it `writes`."""
        request = {
            "action": action,
            "root": str(self._root),
            "comment": f"baremetal.mpi_roce: layer {self._layer}",
            "preferred": dict(self._wanted.preferred),
            "streams": {one.module: one.stream for one in self._wanted.streams},
            **more,
        }
        if writes:
            self.wait()
        else:
            request["private"] = str(self._private())
        request["program"] = _source()
        argv = [INTERPRETER, "-I", "-c", dnf_program.COMMAND]
        reply = self._reply(action, argv, json.dumps(request), seconds)
        if "refused" in reply:
            remedy = EPEL if _NO_DKMS.search(reply["refused"]) else ""
            raise PackageError(f"dnf ({action}): {reply['refused']}{remedy}")
        done: dict[str, Any] = reply["done"]
        return done

    def _reply(
        self, action: str, argv: Sequence[str], request: str, seconds: float
    ) -> dict[str, Any]:
        try:
            result = self._bounded(seconds)(argv, stdin=request, check=False)
        except CommandError as error:
            raise PackageError(f"dnf ({action}): {error}") from error
        with suppress(ValueError):
            reply = json.loads(result.stdout)
            if isinstance(reply, dict) and reply.keys() & {"done", "refused"}:
                return reply
        if result.rc < 0:
            raise PackageError(f"dnf ({action}) was killed by signal {-result.rc}")
        told = (result.stderr.strip() or result.stdout.strip() or "it printed nothing")[-2000:]
        raise PackageError(f"dnf ({action}) ended with status {result.rc}: {told}")


def _source() -> str:
    """The program's text: modules are sent to nodes packed, so there is no file to name."""
    loader = sys.modules[dnf_program.__name__].__loader__
    text = loader.get_source(dnf_program.__name__)  # type: ignore[union-attr]
    return str(text)
