# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments of the kernel command line: configured for the next boot, compared with this one.

Nothing reboots here: an argument that is configured but not running yet is recorded as a reason to
reboot. Only arguments that this layer added are ever removed again; it keeps a list of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    REBOOT,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline.boot_loader import (
    BootLoader,
    boot_loader,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline.part import (
    Node,
    Plan,
    PlanError,
    Step,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.reboots import Reason, outlived

OWNED = "var/lib/baremetal-mpi-roce/kernel-arguments.json"
ABSENT = "absent"

_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]+(=[A-Za-z0-9_.,:/@+=-]*)?")


def key_of(argument: str) -> str:
    return argument.split("=", 1)[0]


def running(node: Node) -> list[str]:
    """The arguments this kernel was started with."""
    return (node.read("proc/cmdline") or "").split()


@dataclass(frozen=True)
class KernelArguments:
    arguments: Sequence[str] = ()

    @classmethod
    def from_options(cls, arguments: Sequence[str]) -> KernelArguments:
        bad = [argument for argument in arguments if not _ARGUMENT.fullmatch(argument)]
        if bad:
            shown = ", ".join(repr(argument) for argument in bad)
            raise PlanError(
                f"kernel_arguments: {shown}: one argument per entry, without blanks or quotes"
            )
        return cls(tuple(arguments))

    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        owned = _owned(node)
        loader = boot_loader(node)
        if loader is None or not (self.arguments or owned):
            return Plan()
        entries = loader.entries()
        added = [
            each
            for each in self.arguments
            if each in owned or not all(each in entry for entry in entries) or loader.exclusive
        ]
        dropped = [each for each in owned if each not in self.arguments]
        files = loader.files(self.arguments)
        steps = []
        missing = [each for each in self.arguments if not all(each in entry for entry in entries)]
        left = [each for each in dropped if any(each in entry for entry in entries)]
        if missing or left or loader.stale() or any(planned.changed for planned in files):
            steps.append(self._configure(node, loader, missing, left, [*owned, *added]))
        still_running = [each for each in dropped if each in running(node)]
        final = [*dict.fromkeys([*added, *still_running])]
        if final != owned:
            steps.append(_remember(node, owned, final))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            why = node.not_here("the kernel command line is the host's")
            checks = [
                not_applicable("kernel_argument", each, why, subject=each)
                for each in self.arguments
            ]
            return Verdict(checks)
        verdict = Verdict()
        loader = boot_loader(node)
        for argument in self.arguments:
            self._judge(node, loader, argument, verdict)
        for argument in _owned(node):
            if argument not in self.arguments and argument in running(node):
                self._judge_dropped(node, argument, verdict)
        return verdict

    def _configure(
        self,
        node: Node,
        loader: BootLoader,
        missing: Sequence[str],
        left: Sequence[str],
        owned: Sequence[str],
    ) -> Step:
        def act() -> None:
            _write_owned(node, owned)  # before the change: an interrupted run must know its own
            loader.configure(missing, left)

        before = " ".join(left) or "(without them)"
        return Step("kernel arguments of the next boot", before, " ".join(self.arguments), act)

    def _judge(
        self, node: Node, loader: Optional[BootLoader], argument: str, verdict: Verdict
    ) -> None:
        found = [each for each in running(node) if key_of(each) == key_of(argument)]
        shown = " ".join(found) or ABSENT
        rivals = [each for each in found if each not in self.arguments]
        if argument in found and (not rivals or found.index(argument) > found.index(rivals[-1])):
            verdict.checks.append(Check("kernel_argument", argument, shown, OK, argument))
            return
        entries = [] if loader is None else loader.entries()
        configured = bool(entries) and all(argument in each for each in entries)
        if argument in found:
            status, why = FAILED, f"{rivals[-1]} comes later and wins: remove it where it is set"
        elif loader is None:
            status = FAILED
            why = "neither GRUB nor grubby is here: add it where this node boots from"
        elif not configured:
            status, why = (
                (PENDING, "") if node.check_mode else (FAILED, "the boot loader has it not")
            )
        else:
            status, why = _await_reboot(node, argument, argument, shown, verdict)
        verdict.checks.append(Check("kernel_argument", argument, shown, status, argument, why))

    def _judge_dropped(self, node: Node, argument: str, verdict: Verdict) -> None:
        status, why = _await_reboot(node, argument, ABSENT, argument, verdict)
        verdict.checks.append(Check("kernel_argument", ABSENT, argument, status, argument, why))


def _await_reboot(
    node: Node, argument: str, wanted: str, found: str, verdict: Verdict
) -> tuple[str, str]:
    reason = Reason(
        subject=f"kernel argument {key_of(argument)}"
        if wanted != ABSENT
        else f"kernel argument {argument}",
        wanted=wanted,
        running=found,
        reason="the kernel reads its command line at boot only",
    )
    verdict.reasons.append(reason)
    earlier = outlived(reason, node.rebooted_for, node.boot_id)
    if earlier is None:
        return REBOOT, reason.reason
    return FAILED, f"not in effect although the node was rebooted for it (boot {earlier})"


def _owned(node: Node) -> list[str]:
    text = node.read(OWNED)
    if text is None:
        return []
    try:
        return [str(each) for each in json.loads(text)["owned"]]
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"/{OWNED}: cannot be read ({error}); remove it") from error


def _write_owned(node: Node, owned: Sequence[str]) -> None:
    unique = [*dict.fromkeys(owned)]
    text = json.dumps({"owned": unique}) + "\n" if unique else None
    node.record(OWNED, text).apply()


def _remember(node: Node, before: Sequence[str], after: Sequence[str]) -> Step:
    return Step(
        "kernel arguments added by this layer",
        " ".join(before) or "none",
        " ".join(after) or "none",
        lambda: _write_owned(node, after),
    )
