# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Choose a version for every package of a set, and the transaction for every stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Optional

from ..core.commands import CommandError
from ..core.files import FilePlan, diff, diffs
from ..core.messages import Message, message
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


@dataclass(frozen=True)
class PackagePlan:
    """Changes of one set. `stages` are transactions, in order."""

    exact: dict[str, str] = field(default_factory=dict)
    """Every package of the set, with its full version after the change."""
    stages: list[tuple[str, list[PackageChange]]] = field(default_factory=list)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """Stage to the requested packages; the rest are dependencies."""
    solved: bool = True
    """False while repositories are undefined or packages are unfinished: the stages then lack
    dependencies, and the solver is asked during the change."""
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
        state = dict(installed)
        for change in self.changes:
            state.pop(change.name, None)
            if change.after:
                state[change.name] = change.after
        return state

    def diffs(self) -> list[dict[str, str]]:
        first: list[_Part] = [("interrupted installation", [self.repairs] * bool(self.repairs), ())]
        stages = [(f"packages, stage {name}", *_shown(changes)) for name, changes in self.stages]
        return [
            *_diffs([*first, ("module streams", *_shown(self.streams))]),
            *diffs(self.files),
            *_diffs([*stages, ("held packages", self.released, self.held)]),
        ]


_Part = tuple[str, Iterable[str], Iterable[str]]


def _diffs(parts: Iterable[_Part]) -> list[dict[str, str]]:
    return [
        diff(name, *("".join(f"{line}\n" for line in lines) for lines in (before, after)))
        for name, before, after in parts
        if before or after
    ]


def _shown(changes: Sequence[PackageChange]) -> tuple[list[str], list[str]]:
    return (
        [f"{change.name} {change.before}" for change in changes if change.before],
        [f"{change.name} {change.after}" for change in changes if change.after],
    )


def any_matches(name: str, patterns: Iterable[str]) -> bool:
    """Compare a name without the suffix of a foreign architecture (`libnvidia-gl-550:i386`)."""
    return any(fnmatchcase(name.partition(":")[0], pattern) for pattern in patterns)


def only_held(names: Iterable[str], manager: Manager) -> set[str]:
    """Those packages that have no version in the set but must not change: the kernel."""
    held, bringing = manager.wanted.held, manager.bringing()
    return {name for name in names if any_matches(name, held) or name in bringing}


def satisfied(package: WantedPackage, version: str) -> bool:
    return bool(version) and matches(package.version, version)


def missing_components(
    packages: Iterable[WantedPackage], available: Mapping[str, Sequence[str]]
) -> set[str]:
    return {
        package.component
        for package in packages
        if package.optional and not available[package.name]
    }


def unwanted(wanted: PackageSet, installed: Iterable[str]) -> list[str]:
    names = {package.name for package in wanted.packages}
    return sorted(
        name for name in installed if any_matches(name, wanted.absent) and name not in names
    )


def claimed(
    wanted: PackageSet, manager: Manager, removed: Iterable[str] = ()
) -> dict[str, Message]:
    """Packages of the set that share a file with an installed package, with the reason.

    `removed`: packages that the same transaction removes.
    """
    reasons = {}
    installed = manager.installed().keys() if wanted.claims else ()
    for path, name in wanted.claims.items():
        owner = manager.owner(path)
        # A removed package may still own a configuration file; that is not a conflict.
        if owner in installed and owner not in (name, *removed):
            reasons[name] = message(
                "file_in_two_packages",
                "{path} belongs to {name}, which the set installs, and to {owner}, which is "
                "installed: dpkg would fail. Remove {owner} first (and what needs it)",
                path=path,
                name=name,
                owner=owner,
            )
    return reasons


class Planner:
    def __init__(
        self, wanted: PackageSet, manager: Manager, layer: str, allow_downgrade: bool
    ) -> None:
        self.wanted, self.manager, self.layer = wanted, manager, layer
        self.allow_downgrade = allow_downgrade
        self.installed = manager.installed()
        self.remove = unwanted(wanted, self.installed)
        self.pending = [
            package
            for package in wanted.packages
            if not satisfied(package, self.installed.get(package.name, ""))
        ]
        self.plan = PackagePlan(
            exact={
                package.name: self.installed[package.name]
                for package in wanted.packages
                if package not in self.pending
            }
        )
        self.refusals: list[Message] = []

    def outline(self) -> list[tuple[str, list[PackageChange]]]:
        """The stages without dependencies, for a plan before the solver can be asked."""
        stages = [
            (stage.name, [self._outlined(each) for each in stage.packages if each in self.pending])
            for stage in self.wanted.stages
        ]
        gone = [PackageChange(REMOVE, name, self.installed[name], "") for name in self.remove]
        return [stage for stage in (*stages, ("removal", gone)) if stage[1]]

    def _outlined(self, package: WantedPackage) -> PackageChange:
        before = self.installed.get(package.name, "")
        kind = UPGRADE if before else INSTALL
        return PackageChange(kind, package.name, before, package.version or "newest")

    def solve(self) -> PackagePlan:
        """Raise PackageError with one line per refusal."""
        self._choose_versions()
        if not self.refusals and (self.pending or self.remove):
            self._solve_stages()
            self._check_changes()
        if self.refusals:
            raise PackageError("\n".join(self.refusals), self.refusals)
        return self.plan

    def _outdated(self) -> list[WantedPackage]:
        """Packages that follow their repository and whose version is no longer in it."""
        following = [x for x in self.wanted.packages if x.follows and x not in self.pending]
        offered = self.manager.available([x.name for x in following], self.wanted.repositories)
        return [
            package
            for package in following
            if offered[package.name] and self.installed[package.name] not in offered[package.name]
        ]

    def _choose_versions(self) -> None:
        if self.pending:
            self.pending += self._outdated()
        available = self.manager.available([package.name for package in self.pending])
        without = missing_components(self.pending, available)
        self.pending = [package for package in self.pending if package.component not in without]
        for package in self.pending:
            name, installed = package.name, self.installed.get(package.name, "")
            fitting = [version for version in available[name] if satisfied(package, version)]
            if not fitting:
                self.refusals.append(_not_available(package, available[name]))
                continue
            self.plan.exact[name] = fitting[0]
            if installed and not self.allow_downgrade and self.manager.lower(fitting[0], installed):
                origin = f" (the set has {package.component or name} {package.version})"
                change = PackageChange(DOWNGRADE, name, installed, fitting[0])
                self.refusals.append(self._downgrade(change, origin))

    def _solve_stages(self) -> None:
        """Solve each stage together with the ones before it, which are installed by then."""
        former: set[PackageChange] = set()
        exact: dict[str, str] = {}
        stages = [(stage.name, stage.packages) for stage in self.wanted.stages]
        for name, packages in stages or [("removal", ())]:
            chosen = self.plan.exact
            asked = {each.name: chosen[each.name] for each in packages if each.name in chosen}
            exact.update(asked)
            try:
                changes = self.manager.simulate(exact, self.remove, chosen)
            except CommandError as error:
                self.refusals.append(
                    message(
                        "package_conflict",
                        "stage {stage}: the solver refuses: {error}",
                        stage=name,
                        error=error,
                    )
                )
                return
            new = [change for change in changes if change not in former]
            if new:
                self.plan.stages.append((name, new))
                self.plan.asked[name] = asked
            former.update(new)

    def _check_changes(self) -> None:
        own = self.manager.pinned(self.layer)
        replaced = {stage.name: stage.replaced for stage in self.wanted.stages}
        for stage, changes in self.plan.stages:
            removable = (*self.wanted.absent, *own, *replaced.get(stage, ()))
            refusals = (self._refusal(stage, change, removable) for change in changes)
            self.refusals += [refusal for refusal in refusals if refusal]
        changes = self.plan.changes
        installing = {change.name for change in changes if change.kind == INSTALL}
        if installing.intersection(self.wanted.claims.values()):
            removed = [change.name for change in changes if change.kind == REMOVE]
            conflicts = claimed(self.wanted, self.manager, removed)
            self.refusals += [text for name, text in conflicts.items() if name in installing]

    def _refusal(
        self, stage: str, change: PackageChange, removable: Sequence[str]
    ) -> Optional[Message]:
        """The reason against one change, or None. `removable`: names and patterns."""
        named = change.name in self.plan.exact
        if change.kind == REMOVE:
            if any_matches(change.name, removable):
                return None
            return message(
                "package_removal",
                "stage {stage}: {name} {before} would be removed, which the set does not ask for. "
                "Remove it first (and what needs it), or leave out what conflicts with it",
                stage=stage,
                **vars(change),
            )
        if change.kind == DOWNGRADE and not named and not self.allow_downgrade:
            return self._downgrade(change, f" (a dependency, stage {stage})")
        if change.kind == UPGRADE and not named and only_held([change.name], self.manager):
            return message(
                "package_held",
                "stage {stage}: {name} would go from {before} to {after}, but is held at the "
                "installed version. To change it, name its version in the set",
                stage=stage,
                **vars(change),
            )
        return None

    def _downgrade(self, change: PackageChange, origin: str) -> Message:
        return message(
            "package_downgrade",
            "{name}: {before} is installed, and {after} is lower{origin}. Set the version that is "
            "installed, or {role}_allow_downgrade: true",
            origin=origin,
            role=ROLES.get(self.layer, self.layer),
            **vars(change),
        )


def _not_available(package: WantedPackage, versions: Sequence[str]) -> Message:
    return message(
        "package_version_unknown",
        "{wanted}: in no repository of this node{component}; available: {available}",
        wanted=f"{package.name} {package.version}".strip(),
        component=f" (software.{package.component})" if package.component else "",
        available=some(versions),
    )
