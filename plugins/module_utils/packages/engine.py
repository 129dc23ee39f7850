# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan a package set on a node, refuse what must not happen by accident, then converge to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.commands import CommandError
from ..core.distribution import REDHAT, Distribution
from ..core.files import FilePlan
from ..core.part import Step
from .apt import Apt
from .dnf import DnfManager
from .package import REMOVE, Manager, PackageError, PackageSet
from .planning import ROLES, Plan, Planner, any_matches, lacking, only_held, satisfied, unwanted


def manager_of(found: Distribution, wanted: PackageSet, layer: str) -> Manager:
    """The package manager of a distribution."""
    return (DnfManager if found.family is REDHAT else Apt)(wanted, layer)


@dataclass(frozen=True)
class Installer:
    """One set on one node. `plan` and `verify` only read."""

    wanted: PackageSet
    manager: Manager
    layer: str
    allow_downgrade: bool = False

    def step(self, plan: Plan, what: str, before: str, after: str) -> Step:
        """The plan as an essential step of a part."""

        def act() -> None:
            self.act(plan)

        return Step(what, before, after, act, essential=True, shown=plan.diffs())

    # Plan

    def plan(self) -> Plan:
        """Raises PackageError for what is refused: a downgrade, a removal, a version that no
        repository has, a conflict; one line each."""
        return self._plan()

    def _plan(self, *, ready: bool = False, fetch: bool = False) -> Plan:
        """`ready`: definitions are written and what was interrupted is repaired."""
        manager = self.manager
        interrupted = {} if ready else manager.interrupted()
        planner = Planner(self.wanted, manager, self.layer, self.allow_downgrade)
        definitions, streams = manager.repository_files(), manager.stream_changes()
        pending = any(not x.optional for x in planner.away) or bool(planner.remove or streams)
        if not pending:
            # What others left half done is theirs, until it is in the way of a change.
            interrupted = self._ours(interrupted)
        repairs = "; ".join(interrupted.values())
        if any(each.changed for each in definitions) or (pending and repairs):
            stages = planner.outline()
            return Plan(
                repairs=repairs, solved=False, files=definitions, streams=streams, stages=stages
            )
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

    def _ours(self, interrupted: Mapping[str, str]) -> dict[str, str]:
        """Of what is half done, the set and what was pinned for it."""
        ours = {package.name for package in self.wanted.packages} | {""}
        ours |= set(self.manager.pinned(self.layer))
        return {name: how for name, how in interrupted.items() if name.partition(":")[0] in ours}

    def _pins(self, plan: Plan) -> dict[str, str]:
        """The set, and of what it needs everything that the repositories of the set have.

        What was pinned before and is still needed stays. What the set holds (the kernel) and what
        comes in with a change of it is pinned too: it could not come in otherwise.
        """
        manager, wanted = self.manager, self.wanted
        after = plan.after(manager.installed())
        incoming = [change.name for change in plan.changes if change.after]
        held = only_held(incoming, manager)
        offered = manager.available(incoming, wanted.repositories)
        kept = after.keys() & manager.pinned(self.layer).keys() & manager.needs(plan.exact)
        new = {name for name in incoming if after[name] in offered[name] or name in held}
        return {**{name: after[name] for name in kept | new}, **plan.exact}

    def _holds(self, pins: Iterable[str], after: Iterable[str]) -> set[str]:
        """What has to be held: what is pinned, and what the set only holds (the kernel)."""
        return only_held(after, self.manager).union(set(pins) & set(after))

    def _released(
        self, pins: Mapping[str, str], holds: Iterable[str], after: Mapping[str, str]
    ) -> list[str]:
        """What this layer held and no longer wants, unless another layer does."""
        manager = self.manager
        others = {name for other in ROLES if other != self.layer for name in manager.pinned(other)}
        gone = set(manager.pinned(self.layer)).difference(pins, holds, others)
        return sorted(gone & manager.held() & after.keys())

    # Act

    def act(self, plan: Plan) -> Plan:
        """Do it, and return what was done. Raises PackageError, which names the stages that are
        done; another run continues."""
        manager = self.manager
        written: list[FilePlan] = []
        manager.wait()
        if plan.repairs:
            manager.repair()
        try:
            if not plan.solved or plan.repairs:
                definitions = [] if plan.solved else list(plan.files)
                _write(definitions, written)
                again = self._plan(ready=True, fetch=not plan.solved)
                files = [*definitions, *again.files]
                plan = replace(again, repairs=plan.repairs, files=files)
            _write(plan.files, written)
            if plan.streams:
                manager.switch_streams()
        except (CommandError, OSError) as error:
            raise PackageError(f"{error}\n{_put_back(written)}") from error
        if plan.changed:
            self._converge(plan, written)
            self._settle_pins(plan)
        return plan

    def _converge(self, plan: Plan, written: Sequence[FilePlan]) -> None:
        """Every stage in its own transaction. What is there is held again, however it ends."""
        manager = self.manager
        first = dict(manager.installed())
        names = [name for name, _changes in plan.stages]
        for place, (name, changes) in enumerate(plan.stages):
            held = manager.held()
            touched = [each.name for each in changes if each.name in held]
            gone = [each.name for each in changes if each.kind == REMOVE]
            try:
                manager.release(touched)
                manager.apply(plan.asked[name], gone)
            except CommandError as error:
                if dict(manager.installed()) == first and not manager.interrupted():
                    state = _put_back(written)
                else:
                    state = (
                        f"Stages that are done: {', '.join(names[:place]) or 'none'}; not begun: "
                        f"{', '.join(names[place + 1 :]) or 'none'}. What is installed is held as "
                        "it is. Remove the cause and run again: what was interrupted is repaired "
                        "first"
                    )
                where = f"stage {name} ({place + 1} of {len(names)})"
                raise PackageError(f"{where}: {error}\n{state}") from error
            finally:
                pinned = manager.pinned(self.layer)
                self._hold({*touched, *self._holds(pinned, manager.installed())})

    def _hold(self, names: Iterable[str]) -> None:
        """Hold those of these that are installed and not held yet."""
        new = (set(names) & self.manager.installed().keys()) - self.manager.held()
        if new:
            self.manager.hold(sorted(new))

    def _settle_pins(self, plan: Plan) -> None:
        """Pin and hold what the set needs now, and let go of what is no longer needed."""
        manager = self.manager
        installed = manager.installed()
        pins = self._pins(self._as_installed())
        holds = self._holds(pins, installed)
        gone = {*plan.released, *self._released(pins, holds, installed)} - holds
        manager.release(sorted(gone & installed.keys()))
        manager.pin_file(pins).apply()
        self._hold(holds)

    def _as_installed(self) -> Plan:
        installed = self.manager.installed()
        names = [package.name for package in self.wanted.packages if package.name in installed]
        return Plan(exact={name: installed[name] for name in names})

    # Verify

    def verify(self, check_mode: bool = False) -> list[Check]:
        """Read the node again: at the version of the set, pinned, held, nothing that is absent."""
        try:
            return self._verify(check_mode)
        except CommandError as error:
            wanted = "as the set has them"
            return [Check("packages", wanted, "unknown", FAILED, reason=str(error))]

    def _verify(self, check_mode: bool) -> list[Check]:
        manager, wanted = self.manager, self.wanted
        missing = differs(check_mode)
        checks = [self._interruption(check_mode)]
        installed, pinned = manager.installed(), manager.pinned(self.layer)
        away = [x for x in wanted.packages if x.optional and x.name not in installed]
        without = lacking(away, manager.available([each.name for each in away]))
        for planned in manager.repository_files():
            without = set() if planned.changed else without  # not known yet
            goal = "absent" if planned.after is None else "as planned"
            found, status = ("different", missing) if planned.changed else (goal, OK)
            checks.append(Check("repository_file", goal, found, status, str(planned.path)))
        for package in wanted.packages:
            here = installed.get(package.name, "")
            if not here and package.component in without:
                why = "no repository of the node has it, and nothing else of the set needs it"
                checks.append(not_applicable("package", package.version, why, subject=package.name))
                continue
            status = OK if satisfied(package, here) else missing
            goal = package.version or "installed"
            checks.append(Check("package", goal, here or "not installed", status, package.name))
        for name in unwanted(wanted, installed):
            why = next(why for each, why in wanted.absent.items() if any_matches(name, [each]))
            checks.append(Check("package_absent", "absent", installed[name], missing, name, why))
        pins = self._pins(self._as_installed())
        for check, wrong, why in (
            (
                "packages_pinned",
                {name for name, at in pins.items() if pinned.get(name) != at},
                "these are not pinned at the installed version",
            ),
            (
                "packages_held",
                self._holds(pins, installed) - manager.held(),
                "these are not held",
            ),
        ):
            checks.append(compare(check, [], sorted(wrong), check_mode=check_mode, reason=why))
        return checks

    def _interruption(self, check_mode: bool) -> Check:
        """What others left half done is named, and no failure of this layer."""
        name, found = "packages_interrupted", self.manager.interrupted()
        ours = "; ".join(self._ours(found).values())
        if found and not ours:
            return Check(name, "", "", OK, reason=f"not of the set: {'; '.join(found.values())}")
        why = "run the layer: it repairs this first"
        return compare(name, "", ours, check_mode=check_mode, reason=why)


def _write(files: Iterable[FilePlan], written: list[FilePlan]) -> None:
    for planned in files:
        if planned.changed and planned not in written:
            planned.apply()
            written.append(planned)


def _put_back(written: Sequence[FilePlan]) -> str:
    """Definitions and pins as they were, as nothing was installed."""
    for planned in reversed(written):
        with suppress(OSError):
            planned.undo()
    return "Nothing was changed: packages, pins and definitions are as they were"
