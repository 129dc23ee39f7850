# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which version of every package of a set, and what the solver would do for it, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Optional

from ..core.dataclass import dataclass
from .manager import Manager, PackageError
from .package import DOWNGRADE, REMOVE, UPGRADE, Change, PackageSet, Wanted, matches

ROLES = {"rdma": "rdma_stack", "gpu": "nvidia_gpu"}
SHOWN = 8
"""Versions that are named to who asks for one that is not there."""
ROUNDS = 10
"""Times that the solver is asked again with a dependency at a better version."""


@dataclass
class Solution:
    """What was found. `refused` is why it must not be done, one line for each reason."""

    exact: dict[str, str] = field(default_factory=dict)
    """Every package of the set and the full version that it gets or keeps."""
    stages: list[tuple[str, list[Change]]] = field(default_factory=list)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    """Stage to what is asked of the package manager there; the rest are dependencies."""
    refused: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[Change]:
        return [change for _name, changes in self.stages for change in changes]

    def after(self, installed: Mapping[str, str]) -> dict[str, str]:
        """What is installed when all of it was done."""
        state = dict(installed)
        for change in self.changes:
            if change.kind == REMOVE:
                state.pop(change.name, None)
            else:
                state[change.name] = change.after
        return state


def any_matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def all_wanted(wanted: PackageSet) -> list[Wanted]:
    return [package for stage in wanted.stages for package in stage.packages]


def satisfied(package: Wanted, found: str) -> bool:
    """Whether what is installed is what the set says. Any version, where it says none."""
    return bool(found) and matches(package.version, found)


def doomed(wanted: PackageSet, installed: Iterable[str]) -> list[str]:
    """Installed packages that must not be there."""
    names = {package.name for package in all_wanted(wanted)}
    return sorted(
        name for name in installed if any_matches(name, wanted.absent) and name not in names
    )


def drifted(wanted: PackageSet, manager: Manager, layer: str) -> dict[str, str]:
    """Dependencies that somebody moved away from their pin although the set is as it was."""
    installed = manager.installed()
    names = [package.name for package in all_wanted(wanted)]
    needed = manager.needs(names)
    return {
        name: version
        for name, version in manager.pinned(layer).items()
        if name in needed and name not in names and installed[name] != version
    }


class Planner:
    """Plans one set. Asks the manager and changes nothing."""

    def __init__(
        self, wanted: PackageSet, manager: Manager, layer: str, allow_downgrade: bool
    ) -> None:
        self.wanted, self.manager, self.layer = wanted, manager, layer
        self.allow_downgrade = allow_downgrade
        self.installed = manager.installed()
        self.ours = manager.pinned(layer)
        self.solution = Solution()
        self.refused_before_solving = False

    def solve(self, drift: Mapping[str, str]) -> Solution:
        """`drift` is what goes back to its pin, where nothing of the set itself changes."""
        self._choose()
        self.refused_before_solving = bool(self.solution.refused)
        remove = doomed(self.wanted, self.installed)
        moved = any(self.installed.get(name) != at for name, at in self.solution.exact.items())
        extra = {} if moved else dict(drift)
        if self.solution.refused or not (moved or extra or remove):
            return self.solution
        self._stages(remove, extra)
        self._judge()
        return self.solution

    # Versions

    def _choose(self) -> None:
        missing = [
            package
            for package in all_wanted(self.wanted)
            if not satisfied(package, self.installed.get(package.name, ""))
        ]
        there = self._versions([package.name for package in missing])
        for package in all_wanted(self.wanted):
            name, has = package.name, self.installed.get(package.name, "")
            if package not in missing:
                self.solution.exact[name] = has
                continue
            fitting = [at for at in there[name] if satisfied(package, at)]
            if not fitting:
                self.solution.refused.append(_nobody_has(package, there[name]))
                continue
            self.solution.exact[name] = fitting[0]
            if has and self.manager.lower(fitting[0], has) and not self.allow_downgrade:
                self.solution.refused.append(self._goes_down(name, has, fitting[0], package))

    def _versions(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Newest first; of the preferred repository alone, where there is one."""
        there = {name: list(found) for name, found in self.manager.available(names).items()}
        for repository in (*self.wanted.repositories, *self.wanted.beside):
            from_it = [name for name in names if self._preferred(name) == repository.name]
            offered = self.manager.offered(from_it, [repository]) if from_it else {}
            there.update({name: list(found) for name, found in offered.items()})
        return {name: there.get(name, []) for name in names}

    def _preferred(self, name: str) -> str:
        """The repository that a package has to come from, or an empty name."""
        patterns = self.wanted.preferred
        if name in patterns:
            return patterns[name]
        return next((patterns[each] for each in patterns if fnmatchcase(name, each)), "")

    # Transactions

    def _stages(self, remove: Sequence[str], extra: Mapping[str, str]) -> None:
        """Each stage is solved together with those before it, which are done by then."""
        extra = dict(extra)
        done: set[Change] = set()
        exact: dict[str, str] = dict(extra)
        stages = [(stage.name, stage.packages) for stage in self.wanted.stages]
        for name, packages in stages or [("removal", ())]:
            here = {package.name: self.solution.exact[package.name] for package in packages}
            asked = {**here, **extra}
            exact.update(here)
            try:
                changes = self._settled(exact, remove)
            except PackageError as error:
                self.solution.refused.append(f"stage {name}: the solver refuses: {error}")
                return
            extra = {}
            new = [change for change in changes if change not in done]
            done.update(new)
            if new:
                self.solution.stages.append((name, new))
                self.solution.asked[name] = asked

        self._follow(exact, remove, done)

    def _follow(self, exact: Mapping[str, str], remove: Sequence[str], done: set[Change]) -> None:
        """Let the dependencies that belong to it come along with the last stage that changes."""
        followers = self._followers({change.name for change in done}) if done else {}
        if not followers:
            return
        try:
            changes = self._settled({**exact, **followers}, remove)
        except PackageError:
            return  # they do not go together, and nothing needs them at that version
        name, last = self.solution.stages[-1]
        last += [change for change in changes if change not in done]
        self.solution.asked[name].update(followers)

    def _settled(self, exact: Mapping[str, str], remove: Sequence[str]) -> list[Change]:
        """Dependencies at the version of the set where they have one, not at the newest."""
        prefer = {name: at for name, at in self.solution.exact.items() if name not in exact}
        for _round in range(ROUNDS):
            changes = self.manager.simulate(exact, remove, prefer)
            better = self._better([each for each in changes if each.name not in exact])
            if not {name: at for name, at in better.items() if prefer.get(name) != at}:
                return changes
            prefer.update(better)
        return changes

    def _followers(self, moved: set[str]) -> dict[str, str]:
        """Dependencies that were of the same release as a package of the set that changes.

        They fit as they are, or the solver would have moved them; but they were built as one.
        """
        upstream = self.manager.upstream
        new = {
            upstream(self.installed[name]): upstream(at)
            for name, at in self.solution.exact.items()
            if name in self.installed and self.installed[name] != at
        }
        names = [
            name
            for name in sorted(self.ours)
            if name not in self.solution.exact
            and name not in moved
            and upstream(self.installed.get(name, "")) in new
        ]
        offered = self.manager.offered(names, self.wanted.repositories) if names else {}
        found = {}
        for name in names:
            at = new[upstream(self.installed[name])]
            same = [each for each in offered.get(name, ()) if upstream(each) == at]
            if same and same[0] != self.installed[name]:
                found[name] = same[0]
        return found

    def _better(self, changes: Sequence[Change]) -> dict[str, str]:
        """Versions that dependencies should have come in at.

        The preferred repository's; or that of a component, where the repositories have the package
        at just that version too: half a driver of another release would be of no use.
        """
        names = [each.name for each in changes if each.after]
        ours = self.manager.offered(names, self.wanted.repositories) if names else {}
        foreign = [each for each in names if self._preferred(each)]
        there = self._versions(foreign) if foreign else {}
        components = {
            self.manager.upstream(self.solution.exact[package.name])
            for package in all_wanted(self.wanted)
            if package.version and package.name in self.solution.exact
        }
        better = {}
        for change in changes:
            offered = there.get(change.name) or list(ours.get(change.name, ()))
            same = [at for at in offered if self.manager.upstream(at) in components]
            if change.after in same or (change.name not in there and change.after not in offered):
                continue
            if same:
                better[change.name] = same[0]
            elif there.get(change.name) and change.after not in there[change.name]:
                better[change.name] = there[change.name][0]
        return better

    # Refusals

    def _judge(self) -> None:
        for stage, changes in self.solution.stages:
            for change in changes:
                reason = self._against(change)
                if reason:
                    self.solution.refused.append(f"stage {stage}: {reason}")

    def _against(self, change: Change) -> str:
        named = change.name in self.solution.exact
        if change.kind == REMOVE:
            if any_matches(change.name, self.wanted.absent) or change.name in self.ours:
                return ""
            return (
                f"{change.name} {change.before} would be removed, which the set does not ask for. "
                f"Remove it first (and what needs it), or leave out what conflicts with it"
            )
        if change.kind == DOWNGRADE and not named and not self.allow_downgrade:
            return self._goes_down(change.name, change.before, change.after, None)
        if change.kind == UPGRADE and not named and any_matches(change.name, self.wanted.held):
            return (
                f"{change.name} would go from {change.before} to {change.after}, but is held at "
                "what is installed. Name its version in the set to change it"
            )
        return ""

    def _goes_down(self, name: str, before: str, after: str, package: Optional[Wanted]) -> str:
        role = ROLES.get(self.layer, self.layer)
        what = f" (the set says {_said(package)})" if package is not None else " (a dependency)"
        return (
            f"{name}: {before} is installed, and {after} is lower{what}. Set the version that is "
            f"installed, or {role}_allow_downgrade: true to go down on purpose"
        )


def _said(package: Wanted) -> str:
    return f"{package.component or package.name} {package.version}"


def _nobody_has(package: Wanted, there: Sequence[str]) -> str:
    if not there:
        return (
            f"{package.name}: no repository of this node has it. Check the repositories of the set"
            f" for this distribution{_component(package)}"
        )
    more = f" and {len(there) - SHOWN} older ones" if len(there) > SHOWN else ""
    return (
        f"{package.name}: no repository has version {package.version}{_component(package)}; "
        f"there are {', '.join(there[:SHOWN])}{more}"
    )


def _component(package: Wanted) -> str:
    return f" (software.{package.component})" if package.component else ""
