# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan a package set on a node, refuse what must not happen by accident, then converge to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from ..core.checks import FAILED, OK, PENDING, Check, compare
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs, plan_file
from ..core.part import Step
from .package import REMOVE, Change, Manager, PackageError, PackageSet
from .planning import ROLES, Planner, Solution, any_matches, satisfied, unwanted


@dataclass(frozen=True)
class Plan:
    """What will be done, nothing of it done yet. `stages` go in order, each one transaction."""

    repairs: str = ""
    solved: bool = True
    """False before the repositories are defined, or while something is half done or another
    package manager runs: then the stages have the packages of the set without dependencies, and the
    solver is asked when acting."""
    files: Sequence[FilePlan] = ()
    streams: Sequence[Change] = ()
    stages: Sequence[tuple[str, Sequence[Change]]] = ()
    held: Sequence[str] = ()
    released: Sequence[str] = ()
    asked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Stage to what is asked of the package manager there; the rest are dependencies."""

    @property
    def changes(self) -> list[Change]:
        return [change for _name, changes in self.stages for change in changes]

    @property
    def changed(self) -> bool:
        acts = self.repairs or self.streams or self.changes or self.held or self.released
        return bool(acts) or any(planned.changed for planned in self.files)

    def diffs(self) -> list[dict[str, Any]]:
        """Ansible's diff form: repair, streams, files, every stage before and after, holds."""
        shown: list[dict[str, Any]] = []
        if self.repairs:
            shown.append(_diff("interrupted installation", [self.repairs], []))
        if self.streams:
            shown.append(_changes_diff("module streams", self.streams))
        shown += diffs(self.files)
        shown += [_changes_diff(f"packages, stage {name}", each) for name, each in self.stages]
        if self.held or self.released:
            shown.append(_diff("held packages", self.released, self.held))
        return shown


def _diff(what: str, before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    return {
        "before_header": what,
        "after_header": what,
        "before": "".join(f"{line}\n" for line in before),
        "after": "".join(f"{line}\n" for line in after),
    }


def _changes_diff(what: str, changes: Sequence[Change]) -> dict[str, str]:
    return _diff(
        what,
        [f"{each.name} {each.before}" for each in changes if each.before],
        [f"{each.name} {each.after}" for each in changes if each.after],
    )


class Written:
    """Definitions and pins that were written, all of which go back when nothing was installed."""

    def __init__(self) -> None:
        self._files: list[FilePlan] = []

    def write(self, files: Sequence[FilePlan]) -> None:
        for planned in files:
            if planned.changed and planned not in self._files:
                planned.apply()
                self._files.append(planned)

    @contextmanager
    def or_back(self) -> Iterator[None]:
        try:
            yield
        except (CommandError, OSError) as error:
            raise PackageError("\n".join(filter(None, [str(error), self.back()]))) from error
        except BaseException:
            self.back()
            raise

    def back(self) -> str:
        """Each file as it was, whatever happens to another; returns a line for the message."""
        if not self._files:
            return ""
        left = []
        for planned in reversed(self._files):
            mode = planned.mode if planned.mode_before is None else planned.mode_before
            uid, gid = planned.owner_before or (planned.uid, planned.gid)
            try:
                plan_file(planned.path, planned.before, mode=mode, uid=uid, gid=gid).apply()
            except OSError as error:
                left.append(f"{planned.path}: {error.strerror or error}")
        if left:
            return f"Packages are as they were. Not put back: {'; '.join(left)}"
        return "Nothing was changed: packages, pins and definitions are as they were"


@dataclass(frozen=True)
class Installer:
    """One set on one node. `plan` and `verify` only read."""

    wanted: PackageSet
    manager: Manager
    layer: str
    allow_downgrade: bool = False

    def installed(self) -> Mapping[str, str]:
        return self.manager.installed()

    def step(self, plan: Plan, what: str, before: str, after: str) -> Step:
        """The plan as an essential step of a part."""

        def act() -> None:
            self.act(plan)

        return Step(what, before, after, act, essential=True, shown=plan.diffs())

    # Plan

    def plan(self) -> Plan:
        """Raises PackageError for what is refused: an untrusted key, a downgrade, a removal, a
        version that no repository has, a conflict; one line each."""
        return self._plan()

    def _plan(self, *, ready: bool = False, fetch: bool = False) -> Plan:
        """`ready`: definitions are written and what was interrupted is repaired."""
        wanted, manager = self.wanted, self.manager
        definitions = manager.repository_files(wanted.repositories, self.layer)
        streams = manager.stream_changes(wanted.streams)
        planner = Planner(wanted, manager, self.layer, self.allow_downgrade, self._drifted())
        pending = bool(planner.away or planner.drift or planner.remove or streams)
        interrupted = "" if ready else manager.interrupted()
        if interrupted and not pending:
            # What others left half done is theirs, until it is in the way of a change.
            interrupted = manager.interrupted(self._ours())
        unclear = any(each.changed for each in definitions)
        if pending and not ready:
            unclear = unclear or bool(interrupted) or manager.busy()
        if unclear:
            solution = planner.outline()
            if solution.refused:
                raise PackageError("\n".join(solution.refused))
            return Plan(interrupted, False, definitions, streams, solution.stages)
        if fetch or pending:
            manager.refresh(wanted.repositories)
        solution = planner.solve()
        if solution.refused:
            raise PackageError("\n".join(solution.refused))
        pins = self._pins(solution)
        after = solution.after(manager.installed())
        holds = self._holds(pins, after)
        return Plan(
            repairs=interrupted,
            files=[*definitions, *manager.pin_files(pins, wanted, self.layer)],
            streams=streams,
            stages=solution.stages,
            held=sorted(holds - manager.held()),
            released=self._released(pins, holds, after),
            asked=solution.asked,
        )

    def _drifted(self) -> dict[str, str]:
        """Dependencies that were moved away from their pin although the set is as it was."""
        installed = self.manager.installed()
        names = [package.name for package in self.wanted.packages]
        needed = self.manager.needs(names)
        return {
            name: version
            for name, version in self.manager.pinned(self.layer).items()
            if name in needed and name not in names and installed[name] != version
        }

    def _ours(self) -> frozenset[str]:
        """The set, what it needs, and what was pinned for it."""
        names = [package.name for package in self.wanted.packages]
        return frozenset({*names, *self.manager.pinned(self.layer), *self.manager.needs(names)})

    def _pins(self, solution: Solution) -> dict[str, str]:
        """The set, and of what it needs everything that the repositories of the set have.

        What was pinned before and is still needed stays, also where the metadata are not at hand.
        What the set holds (the kernel) and what comes in with a change of it is pinned too: it
        could not come in otherwise.
        """
        manager = self.manager
        after = solution.after(manager.installed())
        pins = dict(solution.exact)
        incoming = {change.name for change in solution.changes if change.kind != REMOVE}
        needed = (incoming | manager.needs(sorted(pins))) - pins.keys()
        before = manager.pinned(self.layer)
        asked = [
            name for name in sorted(needed) if name in after and before.get(name) != after[name]
        ]
        offered = manager.offered(asked, self.wanted.repositories) if asked else {}
        for name in needed & after.keys():
            comes = name in incoming and any_matches(name, self.wanted.held)
            if comes or before.get(name) == after[name] or after[name] in offered.get(name, ()):
                pins[name] = after[name]
        return pins

    def _holds(self, pins: Iterable[str], after: Mapping[str, str]) -> set[str]:
        """What has to be held: what is pinned, and what the set only holds (the kernel)."""
        further = {name for name in after if any_matches(name, self.wanted.held)}
        return {name for name in pins if name in after} | further

    def _released(
        self, pins: Mapping[str, str], holds: Iterable[str], after: Mapping[str, str]
    ) -> list[str]:
        """What this layer held and no longer wants, unless another layer does."""
        manager = self.manager
        others = {name for other in ROLES if other != self.layer for name in manager.pinned(other)}
        kept = {*pins, *holds, *others}
        gone = (manager.pinned(self.layer).keys() - kept) & manager.held()
        return sorted(name for name in gone if name in after)

    # Act

    def act(self, plan: Plan) -> Plan:
        """Do it, and return what was done. Raises PackageError, which names the stages that are
        done; another run continues."""
        written = Written()
        self.manager.wait()
        if plan.repairs or not plan.solved:
            whose = None if plan.stages or plan.streams else self._ours()
            if self.manager.interrupted(whose):
                self.manager.repair()
            with written.or_back():
                definitions = [] if plan.solved else plan.files
                written.write(definitions)
                again = self._plan(ready=True, fetch=not plan.solved)
            files = [*definitions, *again.files]
            plan = replace(again, files=files, repairs=plan.repairs)
        if not plan.changed:
            return plan
        with written.or_back():
            written.write(plan.files)
            if plan.streams:
                self.manager.switch_streams(self.wanted.streams)
        self._converge(plan, written)
        self._settle_pins(plan.released)
        return plan

    def _converge(self, plan: Plan, written: Written) -> None:
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
                manager.apply(plan.asked.get(name, {}), gone)
            except CommandError as error:
                if dict(manager.installed()) == first and not manager.interrupted():
                    back = written.back()
                    self._hold(touched)
                    raise PackageError(f"stage {name}: {error}\n{back}") from error
                self._hold(self._holds(manager.pinned(self.layer), manager.installed()))
                raise PackageError(_half_way(names, place, error)) from error
            self._hold(touched)

    def _hold(self, names: Iterable[str]) -> None:
        """Hold those of these that are installed and not held yet."""
        new = (set(names) & self.manager.installed().keys()) - self.manager.held()
        if new:
            self.manager.hold(sorted(new))

    def _settle_pins(self, released: Sequence[str]) -> None:
        """Pin and hold what has really come in, and let go of what is no longer needed."""
        manager = self.manager
        installed = manager.installed()
        names = [package.name for package in self.wanted.packages]
        exact = {name: installed[name] for name in names if name in installed}
        pins = self._pins(Solution(exact=exact))
        holds = self._holds(pins, installed)
        gone = {*released, *self._released(pins, holds, installed)} - holds
        manager.release(sorted(gone & installed.keys()))
        for planned in manager.pin_files(pins, self.wanted, self.layer):
            planned.apply()
        self._hold(holds)

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
        missing = PENDING if check_mode else FAILED
        installed, pinned = manager.installed(), manager.pinned(self.layer)
        checks = [self._interruption(check_mode)]
        for planned in manager.repository_files(wanted.repositories, self.layer):
            goal = "absent" if planned.after is None else "as planned"
            found, status = ("different", missing) if planned.changed else (goal, OK)
            checks.append(Check("repository_file", goal, found, status, str(planned.path)))
        for package in wanted.packages:
            here = installed.get(package.name, "")
            status = OK if satisfied(package, here) else missing
            goal = package.version or "installed"
            checks.append(Check("package", goal, here or "not installed", status, package.name))
        for name in unwanted(wanted, installed):
            why = next(why for each, why in wanted.absent.items() if any_matches(name, [each]))
            checks.append(Check("package_absent", "absent", installed[name], missing, name, why))
        names = [package.name for package in wanted.packages]
        pins = self._pins(Solution({name: installed[name] for name in names if name in installed}))
        for check, wrong, why in (
            (
                "packages_pinned",
                {name for name, at in pins.items() if pinned.get(name) != at},
                "these are not pinned at the installed version",
            ),
            (
                "packages_at_pin",
                set(self._drifted()),
                "these dependencies were moved away from their pinned version",
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
        ours = self.manager.interrupted(self._ours()) if found else ""
        if found and not ours:
            return Check(name, "", "", OK, reason=f"not of the set: {found}")
        why = "run the layer: it repairs this first"
        return compare(name, "", ours, check_mode=check_mode, reason=why)


def _half_way(names: Sequence[str], place: int, error: Exception) -> str:
    done = ", ".join(names[:place]) or "none"
    left = ", ".join(names[place + 1 :]) or "none"
    return (
        f"stage {names[place]} ({place + 1} of {len(names)}): {error}\n"
        f"Stages that are done: {done}; not begun: {left}. What is installed is held as it is. "
        "Remove the cause and run again: what was interrupted is repaired first, and the "
        "rest goes on from there"
    )
