# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Manager of apt: apt-get, apt-cache, apt-mark, dpkg and dpkg-query, and no bindings."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from ..core import commands
from ..core.commands import CommandError, Result, Runner
from ..core.files import FilePlan, plan_file
from . import apt_preferences, apt_sources, apt_state
from .apt_view import STRICT, View, complaints, options, without_credentials
from .manager import WAIT_S, PackageError, held_by_another, locked, until_free
from .package import (
    DOWNGRADE,
    INSTALL,
    REMOVE,
    UPGRADE,
    Change,
    PackageSet,
    Repository,
    Stream,
)

TIMEOUT_S = 3600.0
"""For one transaction: DKMS builds modules in it. What hangs longer is ended and repaired."""

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # it would restart services in the middle of the layer
}

KEEP_CONFFILES = ("--force-confdef", "--force-confold")

TRANSACTION = (
    *STRICT,
    *(f"Dpkg::Options::={word}" for word in KEEP_CONFFILES),
    f"DPkg::Lock::Timeout={WAIT_S}",
    "Dpkg::Use-Pty=0",
    "APT::Get::AutomaticRemove=false",
    "Acquire::Retries=2",
)

SOLVER = (
    # Hard dependencies and what the set names, and nothing that is only recommended: otherwise
    # what is on the node would depend on what other repositories had on that day.
    "APT::Install-Recommends=false",
    "APT::Install-Suggests=false",
)

QUIET = ("Debug::NoLocking=true", "Dir::Log::Planner=/dev/null")
"""Of what only reads: waits for nobody, and leaves no log."""

_INST = re.compile(r"Inst (\S+) (?:\[(\S+)\] )?\((\S+) ")
_REMV = re.compile(r"(?:Remv|Purg) (\S+) \[(\S+)\]")
_TARGET = "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(SUITE)|$(CODENAME)"
_FRONTEND_LOCK = "var/lib/dpkg/lock-frontend"


def node_runner() -> Runner:
    """How programs run on a node: long enough for a transaction, and never asking."""
    return functools.partial(commands.run, timeout_s=TIMEOUT_S, env=ENVIRONMENT)


class Apt:
    """apt of one node. Files are below `root`; the programs are those of the node."""

    def __init__(
        self,
        run: Optional[Runner] = None,
        *,
        root: Path = Path("/"),
        uid: int = 0,
        gid: int = 0,
    ) -> None:
        self._run: Runner = run or node_runner()
        self._root, self._uid, self._gid = root, uid, gid
        self._layer = ""
        self._view: Optional[View] = None
        self._known: Optional[apt_state.State] = None
        self._told: Sequence[str] = ()

    # What is there

    def _state(self) -> apt_state.State:
        if self._known is None:
            native = self._ask(["dpkg", "--print-architecture"]).stdout.strip()
            self._known = apt_state.parse(self._ask([*apt_state.QUERY]).stdout, native)
        return self._known

    def _ask(self, argv: Sequence[str]) -> Result:
        try:
            return self._run(argv)
        except CommandError as error:
            raise PackageError(str(error)) from error

    def installed(self) -> Mapping[str, str]:
        return self._state().installed

    def needs(self, names: Sequence[str]) -> frozenset[str]:
        return self._state().needs(names)

    def held(self) -> frozenset[str]:
        return self._state().held

    def available(self, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
        return self._madison(names, None)

    def offered(
        self, names: Sequence[str], repositories: Sequence[Repository]
    ) -> Mapping[str, Sequence[str]]:
        return self._madison(names, frozenset(map(without_credentials, repositories)))

    def _madison(
        self, names: Sequence[str], sites: Optional[frozenset[str]]
    ) -> dict[str, list[str]]:
        """One line per version and repository, the newest first."""
        found: dict[str, list[str]] = {name: [] for name in names}
        if not names:
            return found
        for line in self._ask(["apt-cache", *self._words(), "madison", *names]).stdout.splitlines():
            name, version, source = (word.strip() for word in line.split("|"))
            site, _blank, index = source.partition(" ")
            if not index.endswith("Packages") or name not in found or version in found[name]:
                continue
            if sites is None or site.rstrip("/") in sites:
                found[name].append(version)
        return found

    def lower(self, one: str, other: str) -> bool:
        return self._run(["dpkg", "--compare-versions", one, "lt", other], check=False).rc == 0

    def upstream(self, version: str) -> str:
        without = version.partition(":")[2] or version
        return without.rpartition("-")[0] or without

    def stream_changes(self, streams: Sequence[Stream]) -> list[Change]:
        return []

    def switch_streams(self, streams: Sequence[Stream]) -> None:
        """apt has none."""

    # Repositories

    def repository_files(self, repositories: Sequence[Repository], layer: str) -> list[FilePlan]:
        self._layer = layer
        return apt_sources.plan_sources(repositories, layer, self._root, self._uid, self._gid)

    def refresh(self, repositories: Sequence[Repository]) -> None:
        self._view = None
        view = View(self._run, self._root)
        view.define(repositories)
        self._view = view
        self._told = view.warnings

    def lacking(self, repositories: Sequence[Repository]) -> Sequence[Repository]:
        return apt_sources.lacking(repositories, self._root)

    def adopt(self, repositories: Sequence[Repository]) -> None:
        self._view = None

    def _words(self) -> list[str]:
        return [] if self._view is None else self._view.words()

    # The solver

    def simulate(
        self,
        exact: Mapping[str, str],
        remove: Sequence[str] = (),
        prefer: Optional[Mapping[str, str]] = None,
    ) -> list[Change]:
        if self._view is None:
            self._view = View(self._run, self._root)
        pins = {**(prefer or {}), **exact}
        self._view.pin(
            {**self._bound(pins), **pins}, apt_preferences.path_of(self._layer, self._root).name
        )
        self._view.release([*self.pinned(self._layer), *exact, *remove])
        return self._solve(exact, remove, self._view.words())

    def _bound(self, pins: Mapping[str, str]) -> dict[str, str]:
        """What these depend on at one version only, and so on.

        apt takes the newest of a dependency and then finds that it does not fit; it has to be told.
        """
        bound: dict[str, str] = {}
        todo = {name: version for name, version in pins.items() if version}
        while todo:
            argv = ["apt-cache", *self._words(), "show"]
            argv += [f"{name}={version}" for name, version in sorted(todo.items())]
            todo = {}
            for line in self._run(argv, check=False).stdout.splitlines():
                name, _colon, relations = line.partition(": ")
                if name in ("Depends", "Pre-Depends"):
                    todo.update(apt_state.exactly(relations))
            todo = {name: at for name, at in todo.items() if name not in bound and name not in pins}
            bound.update(todo)
        return bound

    def _solve(
        self, exact: Mapping[str, str], remove: Sequence[str], words: Sequence[str]
    ) -> list[Change]:
        settings = options((*SOLVER, *STRICT, *QUIET))
        argv = ["apt-get", *words, *settings, "-s", *self._install(exact, remove)]
        result = self._run(argv, check=False)
        if result.rc != 0:
            raise PackageError(_refusal(result))
        return self._changes(result.stdout)

    def _changes(self, text: str) -> list[Change]:
        found = []
        for line in text.splitlines():
            install, removal = _INST.match(line), _REMV.match(line)
            if install:
                name, after = install.group(1), install.group(3)
                before = self.installed().get(name, "")
                if before == after:
                    continue  # installed again only because another one has to be
                found.append(Change(self._kind(before, after), name, before, after))
            elif removal:
                found.append(Change(REMOVE, removal.group(1), removal.group(2), ""))
        return found

    def _kind(self, before: str, after: str) -> str:
        if not before:
            return INSTALL
        return DOWNGRADE if self.lower(after, before) else UPGRADE

    # Changes

    def apply(self, exact: Mapping[str, str], remove: Sequence[str] = ()) -> None:
        self._view = None
        bound = View(self._run, self._root)  # with the pins that are on the node
        bound.pin({**self._bound(exact), **exact}, "")
        words = options([f"Dir::Etc::preferencesparts={bound.where}/preferences"])
        more = self._removed_beside(remove, self._solve(exact, remove, words)) if remove else []
        if more:
            raise PackageError(
                f"apt would also remove {', '.join(more)}. Nothing was changed. Remove them first, "
                "or find out what they need"
            )
        guard = ["--allow-downgrades", *([] if remove else ["--no-remove"])]
        self._transaction([*words, *guard, *self._install(exact, remove)])

    def _install(self, exact: Mapping[str, str], remove: Sequence[str]) -> list[str]:
        """What apt-get is asked. What is broken at the very version that is wanted is no upgrade
        to apt, so it has to be told to install again."""
        broken = self._broken(exact)
        again = ["--reinstall"] if broken else []
        return ["install", *again, *_arguments({**broken, **exact}, remove)]

    def _removed_beside(self, remove: Sequence[str], changes: Iterable[Change]) -> list[str]:
        return [each.name for each in changes if each.kind == REMOVE and each.name not in remove]

    def _transaction(self, words: Sequence[str]) -> None:
        self._view = self._known = None
        argv = ["apt-get", "-y", "-q", *options((*TRANSACTION, *SOLVER)), *words]
        try:
            result = self._run(argv, check=False)
        except CommandError as error:
            raise PackageError(
                f"{error}. What it left behind is repaired by running again"
            ) from error
        finally:
            self._known = None
        if result.rc != 0:
            raise PackageError(_refusal(result))

    def hold(self, names: Sequence[str]) -> None:
        self._mark("hold", names)

    def release(self, names: Sequence[str]) -> None:
        self._mark("unhold", names)

    def _mark(self, what: str, names: Sequence[str]) -> None:
        there = [name for name in names if name in self.installed()]
        if there:
            self._ask(["apt-mark", *options([f"DPkg::Lock::Timeout={WAIT_S}"]), what, *there])
            self._known = None

    # Pins

    def pin_files(self, pins: Mapping[str, str], wanted: PackageSet, layer: str) -> list[FilePlan]:
        path = apt_preferences.path_of(layer, self._root)
        preferred = self._preferred(wanted, _read(path))
        text = apt_preferences.render(pins, preferred) if pins or preferred else None
        return [plan_file(path, text, uid=self._uid, gid=self._gid)]

    def pinned(self, layer: str = "") -> Mapping[str, str]:
        if layer:
            return apt_preferences.pins_of(_read(apt_preferences.path_of(layer, self._root)))
        pins: dict[str, str] = {}
        for path in sorted(
            (self._root / apt_preferences.DIRECTORY).glob(f"{apt_preferences.PREFIX}*")
        ):
            pins.update(apt_preferences.pins_of(_read(path)))
        return pins

    def _preferred(self, wanted: PackageSet, before: str) -> dict[str, str]:
        """How apt tells the preferred repository of each pattern from the others.

        From the release fields of its metadata. While they are not at hand (lists were cleaned, or
        nothing was fetched in check mode) what the file says stays.
        """
        if not wanted.preferred:
            return {}
        known = apt_preferences.preferred_of(before)
        terms = self._terms()
        sites = {each.name: without_credentials(each) for each in wanted.repositories}
        found = {}
        for pattern, name in wanted.preferred.items():
            if name not in sites:
                continue  # of another layer, whose preferences say so, for the whole node
            term = terms.get(sites[name], "")
            others = [site for site in sites.values() if site != sites[name]]
            if term and any(terms.get(site) == term for site in others):
                raise PackageError(
                    f"repository {name}: apt cannot tell it from another one of the set, "
                    f"both say {term}. Give the mirror's Release files their own Origin or Label"
                )
            if term or pattern in known:
                found[pattern] = term or known[pattern]
        return found

    def _terms(self) -> dict[str, str]:
        """Site to what its Release file says of itself."""
        argv = [
            "apt-get",
            *self._words(),
            "indextargets",
            "--format",
            _TARGET,
            "Created-By: Packages",
        ]
        terms = {}
        for line in self._run(argv, check=False).stdout.splitlines():
            site, *values = line.split("|")
            said = [f"{key}={value}" for key, value in zip("olan", values) if _usable(value)]
            if said:
                terms[site.rstrip("/")] = f"release {','.join(said)}"
        return terms

    # What was interrupted

    def busy(self) -> bool:
        """apt holds this lock from its first package to its last, and dpkg while it runs."""
        return held_by_another(self._root / _FRONTEND_LOCK)

    def wait(self) -> None:
        until_free(self.busy)
        self._known = None

    def warnings(self) -> Sequence[str]:
        return tuple(self._told)

    def interrupted(self, names: Optional[Collection[str]] = None) -> str:
        if self.busy():
            return ""
        left = [
            f"{name} ({how})"
            for name, how in sorted(self._state().unfinished.items())
            if names is None or name.partition(":")[0] in names
        ]
        if left:
            return f"dpkg left half done: {', '.join(left)}"
        updates = self._root / "var/lib/dpkg/updates"
        if updates.is_dir() and any(path.name.isdigit() for path in updates.iterdir()):
            return "dpkg was ended while it wrote its database"
        result = self._run(["apt-get", *options(QUIET), "check"], check=False)
        if result.rc != 0 and "unmet dependencies" in result.stdout + result.stderr:
            unmet = [
                line
                for line in _unmet(result.stdout)
                if names is None or line.partition(" ")[0].partition(":")[0] in names
            ]
            if unmet or names is None:
                return f"dependencies are not met: {'; '.join(unmet)}"
        return ""

    def repair(self) -> None:
        """What is configured or unpacked is finished. A package of the set that has to be unpacked
        again is left to `apply`: at the version that is wanted now, not at the one that failed."""
        self._view = self._known = None
        with locked(self._root / _FRONTEND_LOCK):
            # dpkg would wait for the lock that is held for it here.
            argv = ["env", "DPKG_FRONTEND_LOCKED=true", "dpkg", *KEEP_CONFFILES]
            first = self._run([*argv, "--configure", "-a"], check=False)
            leaving = sorted(self._state().leaving)
            if leaving:
                self._run([*argv, "--remove", "--force-remove-reinstreq", *leaving], check=False)
                self._known = None
        told = ""
        try:
            self._transaction(["install", "-f", "--no-remove"])
        except PackageError as error:
            told = str(error)
        self._known = None
        left = self._state().unfinished.keys() - self.pinned().keys()
        if left or (told and not self._state().unfinished):
            raise PackageError(
                f"{self.interrupted()}, and neither dpkg --configure -a nor apt-get -f install "
                f"could finish it: {told or _tail(first)}\n"
                "dpkg --remove --force-remove-reinstreq NAME takes out a package that cannot be "
                "finished; then run again"
            )

    def _broken(self, exact: Mapping[str, str]) -> dict[str, str]:
        """Packages that have to be unpacked again, and at which version."""
        at = {**self.pinned(), **exact}
        state = self._state()
        return {name: at[name] for name in state.unfinished if at.get(name)}


def _arguments(exact: Mapping[str, str], remove: Sequence[str]) -> list[str]:
    return [f"{name}={at}" for name, at in sorted(exact.items())] + [f"{name}-" for name in remove]


def _usable(value: str) -> bool:
    """apt leaves the variable in place where the Release file has no such field."""
    return bool(value) and not value.startswith("$(") and not re.search(r"[,|]", value)


def _unmet(text: str) -> list[str]:
    """The lines of apt that say which dependency of what is not met."""
    _before, found, after = text.partition("unmet dependencies")
    lines = [line.strip() for line in after.splitlines()[1:]] if found else []
    return [
        line for line in lines if "Depends:" in line or "Conflicts:" in line or "Breaks:" in line
    ]


def _refusal(result: Result) -> str:
    """Why apt-get did not, without its progress."""
    text = f"{result.stdout}\n{result.stderr}"
    lines = [*_unmet(result.stdout), *(line for line in complaints(text) if line.startswith("E:"))]
    dpkg = [
        line.strip() for line in text.splitlines() if line.startswith(("dpkg: error", "dpkg: un"))
    ]
    return "; ".join([*dpkg, *lines]) or f"exit status {result.rc}: {_tail(result)}"


def _tail(result: Result) -> str:
    return (result.stderr.strip() or result.stdout.strip() or "it printed nothing")[-1500:]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
