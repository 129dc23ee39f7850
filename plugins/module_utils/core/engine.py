# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one loop that converges a node: plan, write, wait, read back, undo what did not take effect.
`act` is for programs that have no record of reboots."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Optional

from . import asked, checks, machine, reboots, written
from .checks import FAILED, OK, PENDING, Check, not_applicable
from .commands import CommandError, run
from .files import FilePlan, diffs
from .part import (
    FAULTS,
    Change,
    Node,
    Part,
    Plan,
    PlanError,
    Step,
    StepError,
    Verdict,
    fault_text,
)
from .waiting import until

POLL_S = 0.2
"""Seconds between two reads of a step that has not taken effect yet."""


@dataclass
class Outcome:
    changed: bool = False
    diff: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    reasons: list[reboots.Reason] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def settle(parts: Sequence[Part], node: Node) -> Outcome:
    """Bring `node` to the desired state of `parts` and read it back; in check mode only plan.

    Raises PlanError, with every finding, before anything is written. From then on nothing is
    raised: after a failure, stopped services are started again, everything is read back, and the
    reasons for a reboot are recorded.
    """
    plans = []
    findings = []
    failed: list[Check] = []
    for part in parts:
        try:
            plans.append(part.plan(node))
        except (PlanError, CommandError, OSError) as error:
            findings.append(str(error))
            failed += getattr(error, "checks", [])
    if findings:
        raise PlanError("\n".join(findings), failed)

    outcome = Outcome()
    for plan in plans:
        outcome.diff += diffs(plan.files)
        outcome.diff += [diff for step in plan.steps for diff in step.diffs()]
    unwritten = {} if node.check_mode else act(plans, node, outcome.errors)

    verdicts, complete = _read_back(parts, node, outcome.errors)
    files = [planned for plan in plans for planned in plan.files]
    outcome.checks = [_file_check(planned, node, unwritten) for planned in files]
    outcome.checks += [check for verdict in verdicts for check in verdict.checks]
    outcome.reasons = _record(verdicts, node, outcome, preserve=not complete)
    if not node.check_mode:
        kept = [each for each in files if each.path not in unwritten]
        kept += [each for verdict in verdicts for each in verdict.files if not each.changed]
        _remember(kept, node, outcome)
    outcome.changed = bool(outcome.diff)
    return outcome


def act(plans: Sequence[Plan], node: Node, errors: list[str]) -> dict[Path, Optional[str]]:
    """Carry out `plans`, adding a line to `errors` for each failure. Returns the files that were
    not written with the error, or None after an earlier failure."""
    stopped = False
    unwritten: dict[Path, Optional[str]] = {}
    for plan in plans:
        for planned in plan.files:
            if stopped:
                unwritten[planned.path] = None
                continue
            try:
                planned.apply()
            except OSError as error:
                errors.append(f"{planned.path}: {error}")
                unwritten[planned.path] = str(error)
                stopped = True
        for step in plan.steps:
            if (step.restores or not stopped) and not _carried_out(step, node, errors):
                stopped = stopped or step.essential
    return unwritten


def _carried_out(step: Step, node: Node, errors: list[str]) -> bool:
    """Run a step and wait until it takes effect; otherwise undo it. Return False after an error."""
    failures: list[str] = []
    held = False
    with _noted(failures):
        step.act()
        held = step.holds is None or until(
            step.holds, step.wait_s, POLL_S, clock=node.clock, sleep=node.sleep
        )
    if not held and step.undo is not None:
        done = ""
        with _noted(failures):
            done = step.undo()
        if done:
            failures[-1:] = ["\n".join([*failures[-1:], done])]
    errors += [f"{step.what}: {failure}" for failure in failures]
    return not failures


@contextmanager
def _noted(failures: list[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, CommandError, StepError) as error:
        failures.append(str(error))


class Group:
    """Changes of one subject: all are written in order, then `read`. If one failed or is missing,
    its unit is restored in reverse order."""

    def __init__(self, changes: Sequence[Change], read: Callable[[], None]) -> None:
        self.restored = False
        """Whether a whole unit was restored."""
        self._changes = changes
        self._read = read
        self._begun: list[Change] = []
        self._failures: dict[Change, str] = {}

    def act(self) -> None:
        for change in self._changes:
            if change.unit in self._broken_units():
                continue
            self._begun.append(change)
            try:
                change.write()
            except FAULTS as error:
                self._failures[change] = f"could not be set: {fault_text(error)}"

    def holds(self) -> bool:
        self._read()
        broken = self._broken_units()
        for change in self._begun:
            if change not in self._failures and change.unit not in broken:
                missing = change.missing()
                if missing:
                    self._failures[change] = missing
        return not self._failures

    def undo(self) -> str:
        """Restore the failed changes and their units; the members get the text of the failure."""
        broken = self._broken_units()
        errors = []
        for change in reversed(self._begun):
            if change in self._failures or change.unit in broken:
                try:
                    change.restore()
                except FAULTS as error:
                    errors.append(f"{change.name} could not be put back: {fault_text(error)}")
        self._read()
        done = "; ".join(errors) or "what was set with it was put back to what it was"
        for change, failure in self._failures.items():
            change.failed(f"{failure}; {done}")
        self.restored = bool(broken)
        return ""

    def _broken_units(self) -> set[str]:
        return {change.unit for change in self._failures if not change.optional}


def _read_back(parts: Sequence[Part], node: Node, errors: list[str]) -> tuple[list[Verdict], bool]:
    """Return the verdicts, and whether every part could be read."""
    verdicts = []
    for part in parts:
        try:
            verdicts.append(part.verify(node))
        except (OSError, CommandError) as error:
            errors.append(f"cannot be read back: {error}")
    return verdicts, len(verdicts) == len(parts)


def _file_check(planned: FilePlan, node: Node, unwritten: Mapping[Path, Optional[str]]) -> Check:
    """Compare the planned content of a file, or in check mode its content before the change."""
    subject = f"/{planned.path.relative_to(node.root)}"
    wanted = "absent" if planned.after is None else "as planned"
    if not planned.changed:
        return Check("file", wanted, wanted, OK, subject)
    if node.check_mode:
        return Check("file", wanted, "missing or different", PENDING, subject)
    reason = unwritten.get(planned.path, "")
    if reason is None:
        reason = "not written, as an earlier step failed"
        return not_applicable("file", wanted, reason, subject=subject)
    try:
        text = node.read(subject)  # with its carriage returns
    except OSError as error:
        reason = reason or str(error)
    if not reason and text == planned.after:
        return Check("file", wanted, wanted, OK, subject)
    reason = reason or "changed by another program in the meantime"
    return Check("file", wanted, "different", FAILED, subject, reason)


def _record(
    verdicts: Sequence[Verdict], node: Node, outcome: Outcome, *, preserve: bool
) -> list[reboots.Reason]:
    """Record the reasons for a reboot; `preserve` retains earlier ones, as a part was not read."""
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    if preserve:
        reasons += [old for old in node.rebooted_for if not any(map(old.same_wish, reasons))]
    try:
        record = reboots.plan(
            node.layer, reasons, node.boot_id, root=node.root, uid=node.uid, gid=node.gid
        )
        if record.changed:
            outcome.diff.append(record.diff())
            if not node.check_mode:
                record.apply()
    except OSError as error:
        outcome.errors.append(f"what waits for a reboot is not recorded: {error}")
    return reboots.merge(reasons, node.rebooted_for, node.boot_id)


def _remember(files: Sequence[FilePlan], node: Node, outcome: Outcome) -> None:
    """Record what was written, for programs that run without Ansible."""
    try:
        written.record(files, node.layer, node.root, node.uid, node.gid).apply()
    except OSError as error:
        outcome.errors.append(f"what was written is not recorded: {error}")


REMEDY = "Correct what the lines name, then run again with --tags {} (checks: docs/checks.md)."


@dataclass(frozen=True)
class Layer:
    """The differences between the modules of layers. `refusals` are exceptions raised before any
    change, in addition to those common to all layers."""

    tag: str
    command_s: float
    """Time limit for a program, in seconds."""
    look_s: Optional[float] = None
    """Shorter time limit for programs that only read, if any."""
    refusals: tuple[type[Exception], ...] = ()
    simulates: bool = True
    """Whether results list the simulated hardware of this machine."""
    bonds: bool = False
    """Whether it supports rails that are bonds (`members` in `cluster_rails`)."""
    public: tuple[str, ...] = ()
    """Options with `no_log` only because of their size: records keep them."""
    of_run: tuple[str, ...] = ()
    """Options that each run determines: records only keep that they were given."""

    def node(self, check_mode: bool) -> Node:
        """Return this machine as a node. Raises RecordError and OSError."""
        return Node(
            layer=self.tag,
            root=Path("/"),
            run=partial(run, timeout_s=self.command_s),
            looks=None if self.look_s is None else partial(run, timeout_s=self.look_s),
            container=machine.container(),
            boot_id=machine.boot_id(),
            check_mode=check_mode,
            rebooted_for=tuple(reboots.recorded(self.tag)),
        )


@dataclass(frozen=True)
class Settled:
    """Return values of a layer's module; `returned` contains those specific to the layer."""

    outcome: Outcome
    simulated: Sequence[str] = ()
    returned: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True
    """Whether this module is the whole layer, so that it tells whether the layer is unchanged."""


def carry_out(module: checks.Module, layer: Layer, converge: Callable[[Node], Settled]) -> NoReturn:
    """Converge this node and end the module; a refusal fails before anything is changed."""
    strictness = checks.Strictness.of(os.environ)
    nothing: dict[str, Any] = {"layer": layer.tag, "checks": []}
    if layer.simulates:
        nothing["simulated"] = []
    refusals: tuple[type[Exception], ...] = (PlanError, reboots.RecordError, *layer.refusals)
    try:
        if not module.check_mode:
            asked.forget(layer.tag)
        node = layer.node(module.check_mode)
        bonds = [rail for rail in module.params.get("rails") or () if rail.get("members")]
        if bonds and not layer.bonds:
            raise PlanError(
                f"{', '.join(str(rail.get('interface')) for rail in bonds)}: bonds of several "
                f"planes, which the layer {layer.tag} does not support. Configure it by hand, or "
                "write rails.bonded: false in the model (docs/rails.md, Bonded rails)"
            )
        settled = converge(node)
    except refusals as error:
        nothing["checks"] = checks.as_dicts(strictness.of_checks(getattr(error, "checks", [])))
        module.fail_json(msg=f"{layer.tag}: nothing was changed:\n{error}", **nothing)
    except (CommandError, OSError) as error:
        module.fail_json(msg=f"{layer.tag}: {error}", **nothing)

    outcome = settled.outcome
    failed = outcome.errors or checks.failures(strictness.of_checks(outcome.checks))
    key = os.environ.get(asked.KEY)
    if key and settled.whole and not failed and not module.check_mode:
        try:
            given = (module.params, module.argument_spec)
            asked.remember(layer.tag, key, *given, public=layer.public, of_run=layer.of_run)
        except OSError as error:
            outcome.errors.append(f"what was asked is not recorded: {error}")
    returned = dict(settled.returned)
    if layer.simulates:
        returned["simulated"] = list(settled.simulated)
    checks.end(
        module,
        layer.tag,
        outcome.checks,
        REMEDY.format(layer.tag),
        errors=outcome.errors,
        strictness=strictness,
        changed=outcome.changed,
        diff=outcome.diff,
        container=node.container,
        reboot_required=bool(outcome.reasons),
        reboot_reasons=[asdict(reason) for reason in outcome.reasons],
        **returned,
    )
