# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A package set on one node: planned, installed as one step of core.engine, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Optional

from ..core.checks import OK, Check, compare, differs, not_applicable
from ..core.commands import CommandError
from ..core.distribution import REDHAT, Distribution
from ..core.files import FilePlan
from ..core.part import Step
from .apt import Apt
from .dnf import DnfManager
from .package import REMOVE, Manager, PackageChange, PackageError, PackageSet
from .planning import (
    ROLES,
    PackagePlan,
    Planner,
    any_matches,
    missing_components,
    only_held,
    satisfied,
    unwanted,
)

NOTHING_CHANGED = "Nothing was changed: packages, pins and definitions are as they were"


def manager_of(distribution: Distribution, wanted: PackageSet, layer: str) -> Manager:
    return (DnfManager if distribution.family is REDHAT else Apt)(wanted, layer)


@dataclass(frozen=True)
class Installer:
    """One set on one node. `plan` and `verify` only read; `step` returns the change."""

    wanted: PackageSet
    manager: Manager
    layer: str
    allow_downgrade: bool = False

    def step(self, plan: PackagePlan, name: str, before: str, after: str) -> Step:
        """The step that carries out a plan, and restores the files if no package changed."""
        run = Installation(self, plan)
        return Step(name, before, after, run.act, True, shown=plan.diffs(), undo=run.undo)

    def plan(self) -> PackagePlan:
        """Raise PackageError with one line per refusal: a downgrade, a removal, a version that no
        repository has, a conflict."""
        return self.plan_now(self.manager.interrupted())

    def plan_now(self, interrupted: Mapping[str, str], *, fetch: bool = False) -> PackagePlan:
        """Plan the set with these unfinished packages. `fetch`: read metadata in any case."""
        manager = self.manager
        planner = Planner(self.wanted, manager, self.layer, self.allow_downgrade)
        definitions, streams = manager.repository_files(), manager.stream_changes()
        required = [package for package in planner.pending if not package.optional]
        pending = bool(required or planner.remove or streams)
        if not pending:
            # Foreign packages may stay unfinished until they block a change.
            interrupted = self.own(interrupted)
        repairs = "; ".join(interrupted.values())
        if any(file.changed for file in definitions) or (pending and repairs):
            plan, files = PackagePlan(solved=False, stages=planner.outline()), definitions
            return replace(plan, repairs=repairs, files=files, streams=streams)
        if pending or fetch:
            manager.refresh()
        plan = planner.solve()
        pins = self._pins(plan)
        after = plan.after(manager.installed())
        holds = self._holds(pins, after)
        return replace(
            plan,
            repairs=repairs,
            files=[*definitions, manager.pin_file(pins)],
            streams=streams,
            held=sorted(holds - manager.held()),
            released=self._released(pins, holds, after),
        )

    def own(self, interrupted: Mapping[str, str]) -> dict[str, str]:
        names = {"", *(each.name for each in self.wanted.packages)}
        names |= self.manager.pinned(self.layer).keys()
        return {x: state for x, state in interrupted.items() if x.partition(":")[0] in names}

    def _pins(self, plan: PackagePlan) -> dict[str, str]:
        """The set and those of its dependencies that come from the set's repositories.

        A dependency that was pinned before stays pinned while it is needed. Packages that the set
        only holds (the kernel) are pinned if this change installs them; a hold would block it.
        """
        manager = self.manager
        after = plan.after(manager.installed())
        incoming = [change.name for change in plan.changes if change.after]
        held = only_held(incoming, manager)
        offered = manager.available(incoming, self.wanted.repositories)
        kept = after.keys() & manager.pinned(self.layer).keys() & manager.needs(plan.exact)
        new = {name for name in incoming if after[name] in offered[name] or name in held}
        return {**{name: after[name] for name in kept | new}, **plan.exact}

    def _holds(self, pins: Iterable[str], after: Iterable[str]) -> set[str]:
        return only_held(after, self.manager).union(set(pins) & set(after))

    def _released(
        self, pins: Iterable[str], holds: Iterable[str], after: Mapping[str, str]
    ) -> list[str]:
        manager = self.manager
        others = {name for other in ROLES if other != self.layer for name in manager.pinned(other)}
        gone = set(manager.pinned(self.layer)).difference(pins, holds, others)
        return sorted(gone & manager.held() & after.keys())

    def _pins_as_installed(self) -> dict[str, str]:
        there = self.manager.installed()
        names = [each.name for each in self.wanted.packages if each.name in there]
        return self._pins(PackagePlan(exact={name: there[name] for name in names}))

    def install(self, name: str, changes: Iterable[PackageChange], plan: PackagePlan) -> None:
        """Install one stage in one transaction, and hold its packages."""
        manager, held = self.manager, self.manager.held()
        touched = [change.name for change in changes if change.name in held]
        removed = [change.name for change in changes if change.kind == REMOVE]
        try:
            manager.release(touched)
            manager.apply(plan.asked[name], removed)
        except BaseException:
            self._hold(touched)
            raise
        self.hold_pinned(touched)

    def hold_pinned(self, others: Iterable[str] = ()) -> None:
        """Hold what the pins on the node and the set hold, and `others`."""
        pinned = self.manager.pinned(self.layer)
        self._hold({*others, *self._holds(pinned, self.manager.installed())})

    def _hold(self, names: Iterable[str]) -> None:
        new = (set(names) & self.manager.installed().keys()) - self.manager.held()
        if new:
            self.manager.hold(sorted(new))

    def settle_pins(self, plan: PackagePlan) -> None:
        manager = self.manager
        installed = manager.installed()
        pins = self._pins_as_installed()
        holds = self._holds(pins, installed)
        gone = {*plan.released, *self._released(pins, holds, installed)} - holds
        manager.release(sorted(gone & installed.keys()))
        manager.pin_file(pins).apply()
        self._hold(holds)

    def verify(self, check_mode: bool = False) -> list[Check]:
        installed, absent = self.manager.installed(), self.wanted.absent
        files = self.manager.repository_files()
        checks = [self._interruption(check_mode)]
        for file in files:
            wanted = "absent" if file.after is None else "as planned"
            found = "different" if file.changed else wanted
            status = differs(check_mode) if file.changed else OK
            checks.append(Check("repository_file", wanted, found, status, str(file.path)))
        undefined = any(file.changed for file in files)
        checks += self._package_checks(installed, undefined, check_mode)
        for name in unwanted(self.wanted, installed):
            why = next(text for at, text in absent.items() if any_matches(name, [at]))
            status = differs(check_mode)
            checks.append(Check("package_absent", "absent", installed[name], status, name, why))
        pins, pinned = self._pins_as_installed(), self.manager.pinned(self.layer)
        lacking = {
            "packages_pinned": [name for name, at in pins.items() if pinned.get(name) != at],
            "packages_held": self._holds(pins, installed) - self.manager.held(),
        }
        return [
            *checks,
            *(
                compare(name, [], sorted(names), check_mode=check_mode, reason="these are not")
                for name, names in lacking.items()
            ),
        ]

    def _package_checks(
        self, installed: Mapping[str, str], undefined: bool, check_mode: bool
    ) -> Iterable[Check]:
        """`undefined`: definitions will change, so the available versions are not known yet."""
        packages = self.wanted.packages
        optional = [x for x in packages if x.optional and x.name not in installed]
        offered = self.manager.available([package.name for package in optional])
        without = set() if undefined else missing_components(optional, offered)
        for package in packages:
            version = installed.get(package.name, "")
            if not version and package.component in without:
                reason = "no repository of the node has it, and nothing else of the set needs it"
                yield not_applicable("package", package.version, reason, subject=package.name)
                continue
            yield Check(
                "package",
                package.version or "installed",
                version or "not installed",
                OK if satisfied(package, version) else differs(check_mode),
                package.name,
            )

    def _interruption(self, check_mode: bool) -> Check:
        """Unfinished foreign packages are named, without failing this layer."""
        name, interrupted = "packages_interrupted", self.manager.interrupted()
        own = "; ".join(self.own(interrupted).values())
        if interrupted and not own:
            text = f"not of the set: {'; '.join(interrupted.values())}"
            return Check(name, "", "", OK, reason=text)
        reason = "run the layer: it repairs this first"
        return compare(name, "", own, check_mode=check_mode, reason=reason)


@dataclass
class Installation:
    """One run of a plan: `act` and `undo` of a Step. Stages are separate transactions."""

    installer: Installer
    plan: PackagePlan
    """Replaced by the solved plan once definitions are written."""
    before: Optional[Mapping[str, str]] = None
    completed: int = 0
    begun: bool = False
    written: list[FilePlan] = field(default_factory=list)

    def act(self) -> None:
        """Write definitions, solve, write pins, then install stage by stage.

        Raises CommandError and OSError. Another run continues after the completed stages.
        """
        manager = self.installer.manager
        manager.wait()
        if self.plan.repairs:
            manager.repair()
        self.begun = True
        if not self.plan.solved:
            self._solve()
        self._write(self.plan.files)
        if self.plan.streams:
            manager.switch_streams()
        if not self.plan.changed:
            return
        self.before = dict(manager.installed())
        stages = self.plan.stages
        for index, (name, changes) in enumerate(stages):
            try:
                self.installer.install(name, changes, self.plan)
            except CommandError as error:
                where = f"stage {name} ({index + 1} of {len(stages)})"
                raise PackageError(f"{where}: {error}") from error
            self.completed += 1
        self.installer.settle_pins(self.plan)

    def undo(self) -> str:
        """Restore definitions and pins if no package changed; otherwise report the progress."""
        manager = self.installer.manager
        if not self.begun:
            return ""
        if self.before is None or (
            dict(manager.installed()) == self.before and not manager.interrupted()
        ):
            for file in reversed(self.written):
                with suppress(OSError):
                    file.undo()
            if self.before is not None:
                self.installer.hold_pinned()  # by the restored pins
            return NOTHING_CHANGED
        self.installer.hold_pinned()
        names = [name for name, _changes in self.plan.stages]
        return (
            f"Completed stages: {', '.join(names[: self.completed]) or 'none'}; not started: "
            f"{', '.join(names[self.completed + 1 :]) or 'none'}. Installed packages are held at "
            "their versions. Remove the cause and run again: an interrupted installation is "
            "repaired first"
        )

    def _solve(self) -> None:
        """Plan again, as the solver can be asked after definitions are written and repairs done."""
        former = self.plan
        self._write(former.files)
        plan = self.installer.plan_now({}, fetch=True)
        self.plan = replace(plan, repairs=former.repairs, files=[*former.files, *plan.files])

    def _write(self, files: Iterable[FilePlan]) -> None:
        for file in files:
            if file.changed and file not in self.written:
                file.apply()
                self.written.append(file)
