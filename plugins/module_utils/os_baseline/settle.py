# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan everything, then write, then read everything back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import FilePlan, diffs
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline.part import (
    LAYER,
    Node,
    Part,
    PlanError,
    Verdict,
)


@dataclass
class Outcome:
    """What the module returns."""

    changed: bool = False
    diff: list[dict[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    reasons: list[reboots.Reason] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def settle(parts: Sequence[Part], node: Node) -> Outcome:
    """Bring `node` to what `parts` want and read it back; in check mode only say what would be.

    Raises PlanError, before anything is written, with every finding of every part.
    """
    plans = []
    findings = []
    for part in parts:
        try:
            plans.append(part.plan(node))
        except PlanError as error:
            findings.append(str(error))
    if findings:
        raise PlanError("\n".join(findings))

    outcome = Outcome()
    for plan in plans:
        outcome.diff += diffs(plan.files) + [step.diff() for step in plan.steps]
        if node.check_mode:
            continue
        for planned in plan.files:
            planned.apply()
        for step in plan.steps:
            try:
                step.act()
            except (OSError, CommandError) as error:
                outcome.errors.append(f"{step.what}: {error}")

    verdicts = [part.verify(node) for part in parts]
    outcome.checks = [_file_check(each, node) for plan in plans for each in plan.files]
    outcome.checks += [check for verdict in verdicts for check in verdict.checks]
    outcome.reasons = _record(verdicts, node, outcome)
    outcome.changed = bool(outcome.diff)
    return outcome


def _file_check(planned: FilePlan, node: Node) -> Check:
    """A file is judged by its plan in check mode, and by reading it again after a change."""
    subject = f"/{planned.path.relative_to(node.root)}"
    wanted = "absent" if planned.after is None else "as planned"
    if not planned.changed:
        return Check("file", wanted, wanted, OK, subject)
    if node.check_mode:
        return Check("file", wanted, "missing or different", PENDING, subject)
    try:
        text = planned.path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        text = None
    if text == planned.after:
        return Check("file", wanted, wanted, OK, subject)
    return Check(
        "file", wanted, "different", FAILED, subject, "changed by something else meanwhile"
    )


def _record(verdicts: Sequence[Verdict], node: Node, outcome: Outcome) -> list[reboots.Reason]:
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    record = reboots.plan(LAYER, reasons, node.boot_id, root=node.root, uid=node.uid, gid=node.gid)
    if record.changed:
        outcome.diff.append(record.diff())
        if not node.check_mode:
            record.apply()
    return reboots.merge(reasons, node.rebooted_for, node.boot_id)
