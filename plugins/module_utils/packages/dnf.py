# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`Manager` over dnf 4 and rpm, for EL 9.

Installed packages are read from rpm and from files, so that an unchanged run does not start dnf;
repositories and the solver are read by dnf_program.py.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.commands import CommandError
from ..core.files import FilePlan
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
        self._rpm = dnf_installed.Rpm(self._bounded(READ_TIMEOUT_S), root)
        self.locks = dnf_files.VersionLock(root, plugin_paths)
        self._directory: Optional[tempfile.TemporaryDirectory[str]] = None
        self._known: dict[str, list[tuple[str, str]]] = {}
        """Package to (version, repository)."""

    # What an interruption left

    def busy(self) -> bool:
        return self._rpm.busy()

    def wait(self) -> None:
        if self.busy():
            until_free(self.busy, self.lock_timeout_s)
            self._rpm.forget()

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        if self.busy():
            return ""
        left = [
            f"{old.nevra} is still recorded beside {kept.nevra}"
            for kept, old in self._rpm.duplicates()
            if names is None or kept.name in names
        ]
        left += [
            f"{item.nevra}: {item.scriptlet} failed"
            if item.scriptlet
            else f"{item.nevra} was being installed when dnf was killed"
            for item in self._unsettled()
            if names is None or item.name in names
        ]
        return "; ".join(left)

    def repair(self) -> None:
        """Erase the older of two versions that an upgrade left; run unfinished scriptlets again."""
        for _kept, old in self._rpm.duplicates():
            self._bounded(APPLY_TIMEOUT_S)([*self._rpm.words, "-e", "--nodeps", old.nevra])
        self._rpm.forget()
        unsettled = self._unsettled()
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
                f"{', '.join(missing)} of an interrupted transaction: not in any repository, so "
                "not installed again. Install or remove them by hand"
            )

    def _unsettled(self) -> list[dnf_installed.Item]:
        """Packages that rpm takes for installed although their scriptlets did not end well."""
        there = {(one.name, one.evr, one.arch) for one in self._rpm.packages()}
        ours = {one.name for one in self._wanted.packages} | set(self.pinned())
        found = {}
        for item in dnf_installed.unsettled(self._root):
            mine = item.name in ours or item.repository.startswith(dnf_program.OURS)
            if (item.name, item.evr, item.arch) in there and (mine or not item.scriptlet):
                found[(item.name, item.evr, item.arch)] = item
        return list(found.values())

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
                f"{repository.key_sha256}): {text}. Check whether the repository is the right one"
            )
        return f"{where} cannot be read: {text}"

    # What is installed, and what could be

    def installed(self) -> Mapping[str, str]:
        """Of several versions of a package (kernels) the one that the set wants, else the newest.

        Where the wanted one can come beside those that are there, it is not there yet: what is
        newer is no reason to refuse it.
        """
        there = self._rpm.versions()
        found = {name: self._newest([one.evr for one in same]) for name, same in there.items()}
        for package in self._wanted.packages:
            same = there.get(package.name, [])
            fitting = self._fitting(package, [one.evr for one in same])
            if fitting:
                found[package.name] = fitting
            elif same and self._rpm.parallel(same[0]):
                del found[package.name]
        return found

    def _newest(self, versions: Sequence[str]) -> str:
        newest = versions[0]
        for version in versions[1:]:
            newest = version if self.lower(newest, version) else newest
        return newest

    def _fitting(self, package: Wanted, found: Iterable[str]) -> str:
        """The newest of those that satisfy the set; empty where none does."""
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
        return self._rpm.needs(names)

    def lower(self, one: str, other: str) -> bool:
        return self._rpm.lower(one, other)

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
        # A kernel comes beside those that other layers hold, and moves none of them.
        held = self._wanted.held
        free = held if any(any_matches(name, held) for name in exact) else ()
        self._lock_list(self.locks.without(self._layer, free))
        request = {"exact": dict(exact), "remove": list(remove), "prefer": dict(prefer or {})}
        answer = self._ask("simulate", request, SOLVE_TIMEOUT_S)
        for name, versions in answer.get("versions", {}).items():
            self._known.setdefault(name, versions)
        return self._changes(answer["changes"])

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        if not exact and not remove:
            return
        # rpm checks packages by the keys in its own keyring; an import of a known key does nothing.
        for repository in self._wanted.repositories:
            path = dnf_files.key_path(repository, self._layer, self._root)
            self._rpm.run(["rpmkeys", *self._rpm.words[1:], "--import", str(path)])
        request = {"exact": dict(exact), "remove": list(remove)}
        self._ask("apply", request, APPLY_TIMEOUT_S, writes=True)

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

        Raises PackageError where dnf would not read the list.
        """
        versions = {name: {version} for name, version in pins.items()}
        for package in self._rpm.packages():
            held = any_matches(package.name, wanted.held)
            if held or (package.name in versions and self._rpm.parallel(package)):
                versions.setdefault(package.name, set()).add(package.evr)
        # A plugin that is not installed may be on its way, as a package of this set.
        coming = any(package.name == dnf_files.PLUGIN for package in wanted.packages)
        coming = coming and not self.locks.installed()
        if versions and not coming and not self.locks.in_force():
            raise PackageError(dnf_files.NOT_IN_FORCE)
        return self.locks.plan(versions, layer)

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        """Of several versions of a package the one that the set wants, else the newest."""
        wanted = {package.name: package for package in self._wanted.packages}
        return {
            name: (self._fitting(wanted[name], versions) if name in wanted else "")
            or self._newest(versions)
            for name, versions in self.locks.pins(layer).items()
        }

    def held(self) -> frozenset[str]:
        """Locked by us, and the lock is in force."""
        return frozenset(self.locks.pins()) if self.locks.in_force() else frozenset()

    def hold(self, names: Sequence[str]) -> None:
        """The lock list holds by itself; that dnf reads it is checked by `held`."""

    def release(self, names: Sequence[str]) -> None:
        """Nothing to let go of: the solver is given a list without the locks of this layer."""

    # Running programs

    def _id(self, repository: Repository) -> str:
        return dnf_files.repository_id(repository, self._layer)

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

    def _bounded(self, seconds: float) -> commands.Runner:
        if self._run is commands.run:
            return functools.partial(commands.run, timeout_s=seconds)
        return self._run

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
        try:
            reply = self._reply(action, argv, json.dumps(request), seconds)
        finally:
            if writes:
                self._rpm.forget()
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
        text = (result.stderr.strip() or result.stdout.strip() or "no output")[-2000:]
        raise PackageError(f"dnf ({action}) ended with status {result.rc}: {text}")


def _source() -> str:
    """The program's text: modules are sent to nodes packed, so there is no file to name."""
    loader = sys.modules[dnf_program.__name__].__loader__
    text = loader.get_source(dnf_program.__name__)  # type: ignore[union-attr]
    return str(text)
