# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan a package set on a node, refuse what must not happen by accident, then converge to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..core.checks import FAILED, OK, PENDING, Check, compare
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs, plan_file
from .manager import Manager, PackageError
from .package import INSTALL, REMOVE, UPGRADE, Change, PackageSet
from .planning import (
    ROLES,
    Planner,
    Solution,
    all_wanted,
    any_matches,
    doomed,
    drifted,
    satisfied,
)


@dataclass(frozen=True)
class Plan:
    """What will be done, nothing of it done yet. `stages` go in order, each one transaction.

    `refused` are reasons why nothing may be done (a downgrade that nobody asked for, a version
    that no repository has, a conflict of the solver), one line each with the way out.
    """

    repairs: str = ""
    busy: bool = False
    """Another package manager was at work: it is waited for, and planned again, before acting."""
    warnings: Sequence[str] = ()
    files: Sequence[FilePlan] = ()
    streams: Sequence[Change] = ()
    stages: Sequence[tuple[str, Sequence[Change]]] = ()
    held: Sequence[str] = field(default_factory=tuple)
    refused: Sequence[str] = ()
    allow_downgrade: bool = False
    released: Sequence[str] = ()
    asked: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Stage to what is asked of the package manager there; the rest are dependencies."""

    @property
    def changes(self) -> list[Change]:
        return [change for _name, changes in self.stages for change in changes]

    @property
    def changed(self) -> bool:
        return bool(
            self.repairs
            or self.streams
            or self.changes
            or self.held
            or self.released
            or any(planned.changed for planned in self.files)
        )

    def diffs(self) -> list[dict[str, Any]]:
        """Ansible's diff form: repair, streams, files, every stage before and after, holds."""
        shown: list[dict[str, Any]] = []
        if self.repairs:
            shown.append(_diff("interrupted installation", [self.repairs], []))
        if self.warnings:
            shown.append(_diff("warnings of the package manager", [], self.warnings))
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


def plan(
    wanted: PackageSet, manager: Manager, layer: str, *, allow_downgrade: bool = False
) -> Plan:
    """What has to be done. Reads only (metadata are fetched into a place of their own).

    Raises PackageError when a repository or a key is not to be trusted or not to be had. A plan
    with `refused` must not be acted on: the caller fails with those lines.
    """
    return _plan(wanted, manager, layer, allow_downgrade, repaired=False)


def _plan(
    wanted: PackageSet, manager: Manager, layer: str, allow_downgrade: bool, *, repaired: bool
) -> Plan:
    definitions = manager.repository_files(wanted.repositories, layer)
    busy = manager.busy()
    interrupted = manager.interrupted()
    streams = manager.stream_changes(wanted.streams)
    installed = manager.installed()
    drift = drifted(wanted, manager, layer)
    away = [
        package.name
        for package in all_wanted(wanted)
        if not satisfied(package, installed.get(package.name, ""))
    ]
    # Nothing is fetched for what is there already.
    if away or drift or streams or any(planned.changed for planned in definitions):
        manager.refresh([*wanted.repositories, *manager.lacking(wanted.beside)])
    planner = Planner(wanted, manager, layer, allow_downgrade)
    solution = planner.solve(drift)
    unclear = busy or (interrupted and not repaired)
    if unclear and solution.refused and not planner.refused_before_solving:
        # Half an installation has no solution; there is one again when it is finished.
        solution = Solution(
            exact=solution.exact, stages=_without_solver(wanted, solution.exact, installed)
        )
    pins = _pins(wanted, manager, layer, solution, installed)
    after = solution.after(installed)
    held = manager.held()
    holds = _holds(wanted, pins, after)
    if interrupted and not (solution.changes or streams):
        # What others left half done is theirs, until it stands in the way of a change.
        interrupted = manager.interrupted(_ours(wanted, manager, layer))
    return Plan(
        repairs=interrupted,
        busy=busy,
        warnings=manager.warnings(),
        files=[*definitions, *manager.pin_files(pins, wanted, layer)],
        streams=streams,
        stages=solution.stages,
        held=sorted(holds - held),
        refused=solution.refused,
        allow_downgrade=allow_downgrade,
        released=_released(manager, layer, pins, holds, after),
        asked=solution.asked,
    )


def _ours(wanted: PackageSet, manager: Manager, layer: str) -> frozenset[str]:
    """The set, what it needs, and what was pinned for it: half done, these are our concern."""
    names = [package.name for package in all_wanted(wanted)]
    return frozenset({*names, *manager.pinned(layer), *manager.needs(names)})


def _without_solver(
    wanted: PackageSet, exact: Mapping[str, str], installed: Mapping[str, str]
) -> list[tuple[str, list[Change]]]:
    """What is known of the stages before the repair: the packages of the set themselves."""
    stages = []
    for stage in wanted.stages:
        names = {package.name for package in stage.packages}
        changes = [
            Change(UPGRADE if name in installed else INSTALL, name, installed.get(name, ""), at)
            for name, at in exact.items()
            if name in names and installed.get(name, "") != at
        ]
        if changes:
            stages.append((stage.name, changes))
    return stages


def _pins(
    wanted: PackageSet,
    manager: Manager,
    layer: str,
    solution: Solution,
    installed: Mapping[str, str],
) -> dict[str, str]:
    """The set, and of what it needs everything that the repositories of the set have.

    What was pinned before and is still needed stays, also where the metadata are not at hand. What
    the set holds (the kernel) and what comes in with a change of it is pinned too: it could not
    come in otherwise.
    """
    after = solution.after(installed)
    pins = dict(solution.exact)
    incoming = {change.name for change in solution.changes if change.kind != REMOVE}
    needed = (incoming | manager.needs(sorted(pins))) - pins.keys()
    before = manager.pinned(layer)
    asked = [name for name in sorted(needed) if name in after and before.get(name) != after[name]]
    offered = manager.offered(asked, wanted.repositories) if asked else {}
    for name in needed & after.keys():
        comes = name in incoming and any_matches(name, wanted.held)
        if comes or before.get(name) == after[name] or after[name] in offered.get(name, ()):
            pins[name] = after[name]
    return pins


def _holds(wanted: PackageSet, pins: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    """What has to be held: what is pinned, and what the set only holds (the kernel)."""
    further = {name for name in after if any_matches(name, wanted.held)}
    return {name for name in pins if name in after} | further


def _released(
    manager: Manager,
    layer: str,
    pins: Mapping[str, str],
    holds: Iterable[str],
    after: Mapping[str, str],
) -> list[str]:
    """What this layer held and no longer wants, unless another layer does."""
    others = {name for other in ROLES if other != layer for name in manager.pinned(other)}
    gone = (manager.pinned(layer).keys() - pins.keys() - set(holds) - others) & manager.held()
    return sorted(name for name in gone if name in after)


def act(plan: Plan, wanted: PackageSet, manager: Manager, layer: str) -> Plan:
    """Do it, and return what was done: after a repair the plan is made again.

    Raises PackageError; the text says which stages are done and that another run continues.
    """
    if plan.busy:
        manager.wait()
        plan = _plan(wanted, manager, layer, plan.allow_downgrade, repaired=False)
    if plan.repairs:
        manager.repair()
        again = _plan(wanted, manager, layer, plan.allow_downgrade, repaired=True)
        plan = replace(again, repairs=plan.repairs)
    if plan.refused:
        raise PackageError("\n".join(plan.refused))
    if not plan.changed:
        return plan
    _see_that_others_ran(plan, wanted, manager)
    kept = _write(plan, wanted, manager)
    try:
        if plan.streams:
            manager.switch_streams(wanted.streams)
        _converge(plan, wanted, manager, layer, kept)
    finally:
        kept.forget()
    _settle_pins(wanted, manager, layer, plan.released)
    return plan


def _see_that_others_ran(plan: Plan, wanted: PackageSet, manager: Manager) -> None:
    """What was planned from a repository of another layer can only come when that layer ran."""
    lacking = {repository.name for repository in manager.lacking(wanted.beside)}
    for change in plan.changes:
        patterns = [each for each in wanted.preferred if any_matches(change.name, [each])]
        missing = [wanted.preferred[each] for each in patterns if wanted.preferred[each] in lacking]
        if change.after and missing:
            raise PackageError(
                f"{change.name} {change.after} comes from the repository {missing[0]}, which is "
                "another layer's and not on this node yet. Nothing was changed. Run that layer "
                "first (rdma comes before gpu: --tags rdma,gpu)"
            )


class Kept:
    """Files as they were before a change, so that they can be put back on a full disk too.

    A second name of each file that changes: files are replaced and never written in place, so the
    old one stays under it, with mode and owner. Renaming it back needs no space.

    The name begins with a dot and has an end of its own: neither apt nor dnf reads it.
    """

    def __init__(self, files: Sequence[FilePlan]) -> None:
        self._files = [planned for planned in files if planned.changed]
        for planned in self._files:
            if planned.before is not None:
                name = _second(planned.path)
                name.unlink(missing_ok=True)  # of a run that was killed
                with suppress(OSError):  # a file system without links: written again then
                    os.link(planned.path.resolve(), name)

    def put_back(self) -> list[str]:
        """Each file, whatever happens to another; returns those that could not be, with why.

        First those go that were not there, which may be what makes room.
        """
        left = []
        for planned in sorted(self._files, key=lambda each: each.before is not None):
            try:
                self._put_back(planned)
            except OSError as error:
                left.append(f"{planned.path}: {error.strerror or error}")
        return left

    def _put_back(self, planned: FilePlan) -> None:
        second = _second(planned.path)
        if second.exists():
            second.replace(planned.path.resolve())
            return
        mode = planned.mode if planned.mode_before is None else planned.mode_before
        uid, gid = planned.owner_before or (planned.uid, planned.gid)
        plan_file(planned.path, planned.before, mode=mode, uid=uid, gid=gid).apply()

    def forget(self) -> None:
        """The files stay as they are now."""
        for planned in self._files:
            with suppress(OSError):
                _second(planned.path).unlink()


def _second(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f".{target.name}.baremetal-mpi-roce-before")


def _write(plan: Plan, wanted: PackageSet, manager: Manager) -> Kept:
    """Definitions and pins, then the metadata: all of it, or what was there before."""
    kept = Kept(plan.files)
    try:
        for planned in plan.files:
            planned.apply()
        manager.adopt(wanted.repositories)
    except OSError as error:
        left = kept.put_back()
        kept.forget()
        raise PackageError(
            f"definitions and pins could not be written: {error}. {_put_back_or(left)}"
        ) from error
    except BaseException:
        kept.put_back()
        kept.forget()
        raise
    return kept


def _put_back_or(left: Sequence[str]) -> str:
    """What is said of the files after `put_back`."""
    if not left:
        return "Nothing was changed: packages, pins and definitions are as they were"
    return (
        f"Packages are as they were. Not put back: {'; '.join(left)}. Remove the cause and run "
        "again"
    )


def _converge(plan: Plan, wanted: PackageSet, manager: Manager, layer: str, kept: Kept) -> None:
    """Every stage in its own transaction. What is there is held again, however it ends."""
    first = dict(manager.installed())
    names = [name for name, _changes in plan.stages]
    for place, (name, changes) in enumerate(plan.stages):
        held = manager.held()
        touched = [each.name for each in changes if each.name in held]
        gone = [each.name for each in changes if each.kind == REMOVE]
        try:
            manager.release(touched)
            manager.apply(plan.asked.get(name, {}), gone)
        except PackageError as error:
            if dict(manager.installed()) == first and not manager.interrupted():
                left = kept.put_back()
                _hold(manager, touched)
                raise PackageError(f"stage {name}: {error}\n{_put_back_or(left)}") from error
            _hold(manager, _holds(wanted, manager.pinned(layer), manager.installed()))
            raise PackageError(_half_way(names, place, error)) from error
        _hold(manager, touched)


def _half_way(names: Sequence[str], place: int, error: PackageError) -> str:
    done = ", ".join(names[:place]) or "none"
    left = ", ".join(names[place + 1 :]) or "none"
    return (
        f"stage {names[place]} ({place + 1} of {len(names)}): {error}\n"
        f"Stages that are done: {done}; not begun: {left}. What is installed is held as it is. "
        "Remove the cause and run again: what was interrupted is repaired first, and the "
        "rest goes on from there"
    )


def _hold(manager: Manager, names: Iterable[str]) -> None:
    """Hold those of these that are installed and not held yet."""
    new = (set(names) & manager.installed().keys()) - manager.held()
    if new:
        manager.hold(sorted(new))


def _settle_pins(wanted: PackageSet, manager: Manager, layer: str, released: Sequence[str]) -> None:
    """Pin and hold what has really come in, and let go of what is no longer needed."""
    installed = manager.installed()
    names = [package.name for package in all_wanted(wanted)]
    exact = {name: installed[name] for name in names if name in installed}
    pins = _pins(wanted, manager, layer, Solution(exact=exact), installed)
    holds = _holds(wanted, pins, installed)
    gone = {*released, *_released(manager, layer, pins, holds, installed)} - holds
    manager.release(sorted(gone & installed.keys()))
    for planned in manager.pin_files(pins, wanted, layer):
        planned.apply()
    _hold(manager, holds)


def verify(
    wanted: PackageSet, manager: Manager, layer: str, check_mode: bool = False
) -> list[Check]:
    """Read the node again: installed at the version of the set, pinned, held, nothing absent."""
    missing = PENDING if check_mode else FAILED
    installed, held, pinned = manager.installed(), manager.held(), manager.pinned(layer)
    checks = [_interruption(wanted, manager, layer, check_mode)]
    checks += [
        Check("repository_metadata", "verified", "verified", OK, reason=f"apt warns: {line}")
        for line in manager.warnings()
    ]
    definitions = manager.repository_files(wanted.repositories, layer)
    checks += [_definition(planned, missing) for planned in definitions]
    names = []
    for package in all_wanted(wanted):
        found = installed.get(package.name, "")
        names.append(package.name)
        status = OK if satisfied(package, found) else missing
        told = found or "not installed"
        checks.append(Check("package", package.version or "installed", told, status, package.name))
    for name in doomed(wanted, installed):
        why = next(why for each, why in wanted.absent.items() if any_matches(name, [each]))
        checks.append(Check("package_absent", "absent", installed[name], missing, name, why))
    exact = {name: installed[name] for name in names if name in installed}
    pins = _pins(wanted, manager, layer, Solution(exact=exact), installed)
    holds = _holds(wanted, pins, installed)
    loose = sorted(name for name, at in pins.items() if pinned.get(name) != at)
    moved = sorted(name for name in drifted(wanted, manager, layer))
    for check, wrong in (
        ("packages_pinned", loose),
        ("packages_at_pin", moved),
        ("packages_held", sorted(holds - held)),
    ):
        checks.append(compare(check, [], wrong, check_mode=check_mode, reason=_WHY[check]))
    return checks


def _interruption(wanted: PackageSet, manager: Manager, layer: str, check_mode: bool) -> Check:
    """Of others it is named, and no failure of this layer."""
    found = manager.interrupted()
    ours = manager.interrupted(_ours(wanted, manager, layer)) if found else ""
    name = "packages_interrupted"
    if found and not ours:
        return Check(name, "", "", OK, reason=f"not of the set: {found}")
    return compare(
        name, "", ours, check_mode=check_mode, reason="run the layer: it repairs this first"
    )


_WHY = {
    "packages_pinned": "these are not pinned at what is installed",
    "packages_at_pin": "somebody moved these dependencies away from the version they are pinned at",
    "packages_held": "these are not held",
}


def _definition(planned: FilePlan, missing: str) -> Check:
    wanted = "absent" if planned.after is None else "as planned"
    found = wanted if not planned.changed else "missing or different"
    status = missing if planned.changed else OK
    return Check("repository_file", wanted, found, status, str(planned.path))
