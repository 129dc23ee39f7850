# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which version of every package of a set, and what the solver would do for it, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..core.commands import CommandError
from ..core.files import FilePlan, diff, diffs
from ..core.text import some
from .package import (
    DOWNGRADE,
    INSTALL,
    REMOVE,
    UPGRADE,
    Manager,
    PackageChange,
    PackageError,
    PackageSet,
    WantedPackage,
    matches,
)

ROLES = {"rdma": "rdma_stack", "gpu": "nvidia_gpu"}
SHOWN = 8
"""Versions that are listed when the wanted one does not exist."""


@dataclass(frozen=True)
class PackagePlan:
    """What will be done, nothing of it done yet. `stages` go in order, each one transaction."""

    exact: dict[str, str] = field(default_factory=dict)
    """Every package of the set and the full version that it gets or keeps."""
    stages: list[tuple[str, list[PackageChange]]] = field(default_factory=list)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """Stage to what is asked of the package manager there; the rest are dependencies."""
    solved: bool = True
    """False before the repositories are defined, or while something is half done: then the stages
    have the packages of the set without dependencies, and the solver is asked when acting."""
    repairs: str = ""
    files: Sequence[FilePlan] = ()
    streams: Sequence[PackageChange] = ()
    held: Sequence[str] = ()
    released: Sequence[str] = ()

    @property
    def changes(self) -> list[PackageChange]:
        return [change for _name, changes in self.stages for change in changes]

    @property
    def changed(self) -> bool:
        acts = self.repairs or self.streams or self.changes or self.held or self.released
        return bool(acts) or any(planned.changed for planned in self.files)

    def after(self, installed: Mapping[str, str]) -> dict[str, str]:
        """What is installed when all of it was done."""
        state = dict(installed)
        for change in self.changes:
            state.pop(change.name, None)
            if change.after:
                state[change.name] = change.after
        return state

    def diffs(self) -> list[dict[str, str]]:
        """Ansible's diff form: repair, streams, files, every stage before and after, holds."""
        return [
            *([_diff("interrupted installation", [self.repairs], [])] if self.repairs else []),
            *([_changes_diff("module streams", self.streams)] if self.streams else []),
            *diffs(self.files),
            *(_changes_diff(f"packages, stage {name}", each) for name, each in self.stages),
            *(
                [_diff("held packages", self.released, self.held)]
                if self.held or self.released
                else []
            ),
        ]


def _diff(what: str, before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
    return diff(what, old, new)


def _changes_diff(what: str, changes: Sequence[PackageChange]) -> dict[str, str]:
    before = [f"{each.name} {each.before}" for each in changes if each.before]
    return _diff(what, before, [f"{each.name} {each.after}" for each in changes if each.after])


def any_matches(name: str, patterns: Iterable[str]) -> bool:
    """Of any architecture: one that is not dpkg's own ends a name (`libnvidia-gl-550:i386`)."""
    return any(fnmatchcase(name.partition(":")[0], pattern) for pattern in patterns)


def only_held(names: Iterable[str], manager: Manager) -> set[str]:
    """Of these, those that stay as installed, without a version in the set: the kernel."""
    held, bringing = manager.wanted.held, manager.bringing()
    return {name for name in names if any_matches(name, held) or name in bringing}


def satisfied(package: WantedPackage, found: str) -> bool:
    """Whether what is installed is what the set wants. Any version, where it names none."""
    return bool(found) and matches(package.version, found)


def lacking(packages: Iterable[WantedPackage], there: Mapping[str, Sequence[str]]) -> set[str]:
    """Components of optional packages that no repository has."""
    return {each.component for each in packages if each.optional and not there[each.name]}


def unwanted(wanted: PackageSet, installed: Iterable[str]) -> list[str]:
    """Installed packages that must be absent."""
    names = {package.name for package in wanted.packages}
    return sorted(
        name for name in installed if any_matches(name, wanted.absent) and name not in names
    )


def claimed(wanted: PackageSet, manager: Manager, away: Iterable[str] = ()) -> dict[str, str]:
    """Packages that cannot be installed, as another one has a file of theirs: each with why. What
    is going `away` is not in their way."""
    found = {}
    installed = manager.installed().keys() if wanted.claims else ()
    for path, name in wanted.claims.items():
        owner = manager.owner(path)
        # A configuration file of a removed package is in nobody's way.
        if owner in installed and owner not in (name, *away):
            found[name] = (
                f"{path} is of {name}, which the set brings, and of {owner}, which is installed: "
                f"dpkg stops there. Remove {owner} first (and what needs it)"
            )
    return found


class Planner:
    """Plans one set. Asks the manager and changes nothing."""

    def __init__(
        self, wanted: PackageSet, manager: Manager, layer: str, allow_downgrade: bool
    ) -> None:
        self.wanted, self.manager, self.layer = wanted, manager, layer
        self.allow_downgrade = allow_downgrade
        self.installed = manager.installed()
        self.remove = unwanted(wanted, self.installed)
        self.away = [
            package
            for package in wanted.packages
            if not satisfied(package, self.installed.get(package.name, ""))
        ]
        self.found = PackagePlan(
            exact={
                package.name: self.installed[package.name]
                for package in wanted.packages
                if package not in self.away
            }
        )
        self.refused: list[str] = []
        """Why it must not be done, one line for each reason."""

    def outline(self) -> list[tuple[str, list[PackageChange]]]:
        """The packages of the set alone, before the solver can be asked: without dependencies."""
        stages = []
        for stage in self.wanted.stages:
            changes = [self._outlined(each) for each in stage.packages if each in self.away]
            if changes:
                stages.append((stage.name, changes))
        gone = [PackageChange(REMOVE, name, self.installed[name], "") for name in self.remove]
        return [*stages, ("removal", gone)] if gone else stages

    def _outlined(self, package: WantedPackage) -> PackageChange:
        before = self.installed.get(package.name, "")
        kind = UPGRADE if before else INSTALL
        return PackageChange(kind, package.name, before, package.version or "newest")

    def solve(self) -> PackagePlan:
        """Raises PackageError with everything that is refused."""
        self._choose()
        if not self.refused and (self.away or self.remove):
            self._stages()
            self._judge()
        if self.refused:
            raise PackageError("\n".join(self.refused))
        return self.found

    # Versions

    def _outdated(self) -> list[WantedPackage]:
        """What follows its repository, and is not at a version that is there."""
        names = [each.name for each in self.wanted.packages if each.follows]
        there = self.manager.available(names, self.wanted.repositories)
        return [
            package
            for package in self.wanted.packages
            if package.follows
            and package not in self.away
            and there[package.name]
            and self.installed[package.name] not in there[package.name]
        ]

    def _choose(self) -> None:
        if self.away:
            self.away += self._outdated()
        there = self.manager.available([package.name for package in self.away])
        without = lacking(self.away, there)
        self.away = [each for each in self.away if each.component not in without]
        for package in self.away:
            name, has = package.name, self.installed.get(package.name, "")
            fitting = [at for at in there[name] if satisfied(package, at)]
            if not fitting:
                self.refused.append(_not_available(package, there[name]))
                continue
            self.found.exact[name] = fitting[0]
            if has and not self.allow_downgrade and self.manager.lower(fitting[0], has):
                what = f" (the set has {package.component or name} {package.version})"
                self.refused.append(self._goes_down(name, has, fitting[0], what))

    # Transactions

    def _stages(self) -> None:
        """Each stage is solved together with those before it, which are done by then."""
        done: set[PackageChange] = set()
        exact: dict[str, str] = {}
        stages = [(stage.name, stage.packages) for stage in self.wanted.stages]
        for name, packages in stages or [("removal", ())]:
            found = self.found.exact
            here = {each.name: found[each.name] for each in packages if each.name in found}
            exact.update(here)
            try:
                changes = self.manager.simulate(exact, self.remove, self.found.exact)
            except CommandError as error:
                others = {self._undefined(origin) for origin in self.wanted.preferred.values()}
                why = "".join(f". {each}" for each in others if each)
                self.refused.append(f"stage {name}: the solver refuses: {error}{why}")
                return
            new = [change for change in changes if change not in done]
            if new:
                self.found.stages.append((name, new))
                self.found.asked[name] = here
            done.update(new)

    # Refusals

    def _judge(self) -> None:
        ours = self.manager.pinned(self.layer)
        replaced = {stage.name: stage.replaced for stage in self.wanted.stages}
        for stage, changes in self.found.stages:
            expected = (*self.wanted.absent, *ours, *replaced.get(stage, ()))
            reasons = [self._against(change, expected) for change in changes]
            self.refused += [f"stage {stage}: {reason}" for reason in reasons if reason]
        changes = self.found.changes
        coming = {each.name for each in changes if each.kind == INSTALL}
        if coming.intersection(self.wanted.claims.values()):
            away = [each.name for each in changes if each.kind == REMOVE]
            found = claimed(self.wanted, self.manager, away)
            self.refused += [why for name, why in found.items() if name in coming]

    def _against(self, change: PackageChange, expected: Sequence[str]) -> str:
        """`expected`: what may go."""
        named = change.name in self.found.exact
        if change.kind == REMOVE:
            if any_matches(change.name, expected):
                return ""
            return (
                f"{change.name} {change.before} would be removed, which the set does not ask for. "
                "Remove it first (and what needs it), or leave out what conflicts with it"
            )
        if change.kind == DOWNGRADE and not named and not self.allow_downgrade:
            return self._goes_down(change.name, change.before, change.after, " (a dependency)")
        if change.kind == UPGRADE and not named and only_held([change.name], self.manager):
            return (
                f"{change.name} would go from {change.before} to {change.after}, but is held at "
                "what is installed. Name its version in the set to change it"
            )
        for pattern, origin in self.wanted.preferred.items():
            why = self._undefined(origin) if fnmatchcase(change.name, pattern) else ""
            if why:
                return f"{change.name}: {why}"
        return ""

    def _undefined(self, origin: str) -> str:
        if self.manager.defined(origin):
            return ""
        return (
            f"Repository {origin}, the source of {', '.join(self.wanted.preferred)}, is not defined"
            " on this node: run the layer that defines it first (--tags rdma,gpu)"
        )

    def _goes_down(self, name: str, before: str, after: str, what: str) -> str:
        return (
            f"{name}: {before} is installed, and {after} is lower{what}. Set the version that is "
            f"installed, or {ROLES.get(self.layer, self.layer)}_allow_downgrade: true"
        )


def _not_available(package: WantedPackage, there: Sequence[str]) -> str:
    component = f" (software.{package.component})" if package.component else ""
    if not there:
        return (
            f"{package.name}: not in any repository of this node. Check the repositories of the set"
            f" for this distribution{component}"
        )
    return (
        f"{package.name}: no repository has version {package.version}{component}; "
        f"there are {some(there, SHOWN)}"
    )
