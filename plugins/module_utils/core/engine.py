# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The engine of every layer: plan all parts, write, read everything back, return the result.

`settle` does it for a list of parts; `carry_out` is what the module of a layer calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Optional

from . import checks, machine, reboots
from .checks import FAILED, OK, PENDING, Check, not_applicable
from .commands import CommandError, run
from .files import FilePlan, diffs
from .part import Node, Part, Plan, PlanError, StepError, Verdict


@dataclass
class Outcome:
    """What the module returns."""

    changed: bool = False
    diff: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    reasons: list[reboots.Reason] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def settle(parts: Sequence[Part], node: Node) -> Outcome:
    """Bring `node` to what `parts` want and read it back; in check mode only return what would be.

    Raises PlanError, before anything is written, with every finding of every part. From then on
    nothing is raised: whatever fails, services that were stopped start again, everything is read
    back, and what waits for a reboot is recorded.
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
    unwritten = {} if node.check_mode else _act(plans, outcome.errors)

    verdicts, read = _read_back(parts, node, outcome.errors)
    files = [planned for plan in plans for planned in plan.files]
    outcome.checks = [_file_check(each, node, unwritten) for each in files]
    outcome.checks += [check for verdict in verdicts for check in verdict.checks]
    outcome.reasons = _record(verdicts, node, outcome, keep=not read)
    outcome.changed = bool(outcome.diff)
    return outcome


def _act(plans: Sequence[Plan], errors: list[str]) -> dict[Path, Optional[str]]:
    """Do it all, in order; a line in `errors` for what could not be done.

    Returns the files that were not written, and why; None after an earlier failure.
    """
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
            if stopped and not step.restores:
                continue
            try:
                step.act()
            except (OSError, CommandError, StepError) as error:
                errors.append(f"{step.what}: {error}")
                stopped = stopped or step.essential
    return unwritten


def _read_back(parts: Sequence[Part], node: Node, errors: list[str]) -> tuple[list[Verdict], bool]:
    """What every part finds, and whether each could look."""
    verdicts = []
    for part in parts:
        try:
            verdicts.append(part.verify(node))
        except (OSError, CommandError) as error:
            errors.append(f"cannot be read back: {error}")
    return verdicts, len(verdicts) == len(parts)


def _file_check(planned: FilePlan, node: Node, unwritten: Mapping[Path, Optional[str]]) -> Check:
    """A file is judged by its plan in check mode, and by reading it again after a change."""
    subject = f"/{planned.path.relative_to(node.root)}"
    wanted = "absent" if planned.after is None else "as planned"
    if not planned.changed:
        return Check("file", wanted, wanted, OK, subject)
    if node.check_mode:
        return Check("file", wanted, "missing or different", PENDING, subject)
    why = unwritten.get(planned.path, "")
    if why is None:
        return not_applicable(
            "file", wanted, "not written, as an earlier step failed", subject=subject
        )
    try:
        text = planned.path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        text = None
    except OSError as error:
        why = why or str(error)
    if not why and text == planned.after:
        return Check("file", wanted, wanted, OK, subject)
    why = why or "changed by something else meanwhile"
    return Check("file", wanted, "different", FAILED, subject, why)


def _record(
    verdicts: Sequence[Verdict], node: Node, outcome: Outcome, *, keep: bool
) -> list[reboots.Reason]:
    """Write down what waits. `keep`: what was recorded and could not be looked at stays as well."""
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    if keep:
        known = [each for each in node.rebooted_for if not any(map(each.same_wish, reasons))]
        reasons += known
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


REMEDY = "Correct what the lines name, then run again with --tags {} (checks: docs/checks.md)."


@dataclass(frozen=True)
class Layer:
    """`refusals` are raised before anything is changed, `failures` at any time.

    Both come on top of those that every layer has.
    """

    tag: str
    command_s: float
    """Time for one program that changes something."""
    look_s: Optional[float] = None
    """Time for one that only looks, where it has less."""
    refusals: tuple[type[Exception], ...] = ()
    failures: tuple[type[Exception], ...] = ()
    simulates: bool = True
    """Whether its results list what of them is not this machine's own."""

    def node(self, check_mode: bool) -> Node:
        """Raises RecordError and OSError."""
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
    """What came of it. `returned` is what only this layer returns."""

    outcome: Outcome
    simulated: Sequence[str] = ()
    returned: Mapping[str, Any] = field(default_factory=dict)


def carry_out(module: checks.Module, layer: Layer, converge: Callable[[Node], Settled]) -> NoReturn:
    """Return what `converge` made of this node; a refusal fails before anything is changed."""
    nothing: dict[str, Any] = {"layer": layer.tag, "checks": []}
    if layer.simulates:
        nothing["simulated"] = []
    refusals: tuple[type[Exception], ...] = (PlanError, reboots.RecordError, *layer.refusals)
    failures: tuple[type[Exception], ...] = (CommandError, OSError, *layer.failures)
    try:
        node = layer.node(module.check_mode)
        settled = converge(node)
    except refusals as error:
        nothing["checks"] = checks.as_dicts(getattr(error, "checks", []))
        module.fail_json(msg=f"{layer.tag}: nothing was changed:\n{error}", **nothing)
    except failures as error:
        module.fail_json(msg=f"{layer.tag}: {error}", **nothing)

    outcome = settled.outcome
    simulated = {"simulated": list(settled.simulated)} if layer.simulates else {}
    checks.end(
        module,
        layer.tag,
        outcome.checks,
        REMEDY.format(layer.tag),
        errors=outcome.errors,
        changed=outcome.changed,
        diff=outcome.diff,
        container=node.container,
        reboot_required=bool(outcome.reasons),
        reboot_reasons=[asdict(reason) for reason in outcome.reasons],
        **simulated,
        **settled.returned,
    )
