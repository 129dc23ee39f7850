# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which version of every package of a set, and what the solver would do for it, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.text import some
from .package import DOWNGRADE, INSTALL, REMOVE, UPGRADE, Change, Manager, PackageSet, Wanted
from .package import matches as version_matches

ROLES = {"rdma": "rdma_stack", "gpu": "nvidia_gpu"}
SHOWN = 8
"""Versions that are listed when the wanted one does not exist."""
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


def satisfied(package: Wanted, found: str) -> bool:
    """Whether what is installed is what the set wants. Any version, where it names none."""
    return bool(found) and version_matches(package.version, found)


def unwanted(wanted: PackageSet, installed: Iterable[str]) -> list[str]:
    """Installed packages that must be absent."""
    names = {package.name for package in wanted.packages}
    return sorted(
        name for name in installed if any_matches(name, wanted.absent) and name not in names
    )


class Planner:
    """Plans one set. Asks the manager and changes nothing. `drift` are dependencies that differ
    from their pin, and the pin."""

    def __init__(
        self,
        wanted: PackageSet,
        manager: Manager,
        layer: str,
        allow_downgrade: bool,
        drift: Mapping[str, str],
    ) -> None:
        self.wanted, self.manager, self.layer = wanted, manager, layer
        self.allow_downgrade, self.drift = allow_downgrade, drift
        self.installed = manager.installed()
        self.ours = manager.pinned(layer)
        self.remove = unwanted(wanted, self.installed)
        self.away = [
            package
            for package in wanted.packages
            if not satisfied(package, self.installed.get(package.name, ""))
        ]
        self.solution = Solution(
            exact={
                package.name: self.installed[package.name]
                for package in wanted.packages
                if package not in self.away
            }
        )

    def outline(self) -> Solution:
        """The packages of the set alone, before the solver can be asked: without dependencies."""
        for stage in self.wanted.stages:
            changes = [self._outlined(each) for each in stage.packages if each in self.away]
            if changes:
                self.solution.stages.append((stage.name, changes))
        back = [Change(UPGRADE, name, self.installed[name], at) for name, at in self.drift.items()]
        gone = [Change(REMOVE, name, self.installed[name], "") for name in self.remove]
        if back or gone:
            self.solution.stages.append(("dependencies", [*back, *gone]))
        return self.solution

    def _outlined(self, package: Wanted) -> Change:
        before = self.installed.get(package.name, "")
        if before and package.version:
            now = f"{self.manager.upstream(before)}-0"
            self._see_direction(package, before, package.version, f"{package.version}-0", now)
        kind = UPGRADE if before else INSTALL
        return Change(kind, package.name, before, package.version or "newest")

    def _see_direction(
        self, package: Wanted, before: str, after: str, compared: str, now: str
    ) -> None:
        if not self.allow_downgrade and self.manager.lower(compared, now):
            what = f" (the set has {package.component or package.name} {package.version})"
            self.solution.refused.append(self._goes_down(package.name, before, after, what))

    def solve(self) -> Solution:
        self._choose()
        moved = any(self.installed.get(name) != at for name, at in self.solution.exact.items())
        extra = {} if moved else dict(self.drift)
        if not self.solution.refused and (moved or extra or self.remove):
            self._stages(extra)
            self._judge()
        return self.solution

    # Versions

    def _choose(self) -> None:
        there = self._versions([package.name for package in self.away])
        for package in self.away:
            name, has = package.name, self.installed.get(package.name, "")
            fitting = [at for at in there[name] if satisfied(package, at)]
            if not fitting:
                self.solution.refused.append(_not_available(package, there[name]))
                continue
            self.solution.exact[name] = fitting[0]
            if has:
                self._see_direction(package, has, fitting[0], fitting[0], has)

    def _versions(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Newest first; of the preferred repository alone, where it is one of the set."""
        there = {name: list(found) for name, found in self.manager.available(names).items()}
        for repository in self.wanted.repositories:
            from_it = [name for name in names if self._preferred(name) == repository.name]
            offered = self.manager.offered(from_it, [repository]) if from_it else {}
            there.update({name: list(found) for name, found in offered.items()})
        return {name: there.get(name, []) for name in names}

    def _preferred(self, name: str) -> str:
        """The repository that a package has to come from, or an empty name."""
        patterns = self.wanted.preferred
        return next((patterns[each] for each in patterns if fnmatchcase(name, each)), "")

    # Transactions

    def _stages(self, extra: Mapping[str, str]) -> None:
        """Each stage is solved together with those before it, which are done by then."""
        done: set[Change] = set()
        exact = dict(extra)
        stages = [(stage.name, stage.packages) for stage in self.wanted.stages]
        for name, packages in stages or [("removal", ())]:
            here = {package.name: self.solution.exact[package.name] for package in packages}
            exact.update(here)
            try:
                changes = self._settled(exact)
            except CommandError as error:
                others = [self._undefined(origin) for origin in {*self.wanted.preferred.values()}]
                why = "".join(f". {each}" for each in others if each)
                self.solution.refused.append(f"stage {name}: the solver refuses: {error}{why}")
                return
            new = [change for change in changes if change not in done]
            if new:
                self.solution.stages.append((name, new))
                self.solution.asked[name] = {**here, **({} if done else extra)}
            done.update(new)
        self._follow(exact, done)

    def _follow(self, exact: Mapping[str, str], done: set[Change]) -> None:
        """Let the dependencies that belong to it come along with the last stage that changes."""
        followers = self._followers({change.name for change in done}) if done else {}
        if not followers:
            return
        try:
            changes = self._settled({**exact, **followers})
        except CommandError:
            return  # they do not go together, and nothing needs them at that version
        name, last = self.solution.stages[-1]
        last += [change for change in changes if change not in done]
        self.solution.asked[name].update(followers)

    def _settled(self, exact: Mapping[str, str]) -> list[Change]:
        """Dependencies at the version of the set where they have one, not at the newest."""
        prefer = {name: at for name, at in self.solution.exact.items() if name not in exact}
        for _round in range(ROUNDS):
            changes = self.manager.simulate(exact, self.remove, prefer)
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
            for package in self.wanted.packages
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
                "Remove it first (and what needs it), or leave out what conflicts with it"
            )
        if change.kind == DOWNGRADE and not named and not self.allow_downgrade:
            return self._goes_down(change.name, change.before, change.after, " (a dependency)")
        if change.kind == UPGRADE and not named and any_matches(change.name, self.wanted.held):
            return (
                f"{change.name} would go from {change.before} to {change.after}, but is held at "
                "what is installed. Name its version in the set to change it"
            )
        origin = self._preferred(change.name)
        why = self._undefined(origin) if change.after and origin else ""
        return why and f"{change.name}: {why}"

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


def _not_available(package: Wanted, there: Sequence[str]) -> str:
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
