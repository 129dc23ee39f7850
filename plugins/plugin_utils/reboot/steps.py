# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a rolling reboot on the controller, in the order in which the role runs them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail

from ...module_utils.core import machine
from ...module_utils.core.checks import FAILED, OK, REBOOT, Check, as_dicts
from ...module_utils.core.locks import HeldError
from ..answers import AnswerError
from ..terminal import display
from . import guards, planning, table
from .host import STEP_LIMIT_S, RebootingHost, shortened

LAYER = "reboot"
REMEDY = (
    "check the host, repair it with site.yml --tags LAYER --limit {}, then run reboot.yml again"
)
SETTINGS = ("batch", "storage", "wait_s", "min_hours", "max_per_day")
FOUND = "cluster_reboot_found"
PLAN = "cluster_reboot_plan"
TURN = "cluster_reboot_turn"
REBOOTED = "cluster_reboot_rebooted"
OUTCOME = "cluster_reboot_outcome"
"""Variables in which the role registers the results of steps."""


@dataclass(frozen=True)
class RebootSteps:
    """The steps of one host. Results of earlier ones are read from the variables of the task."""

    host: RebootingHost
    arguments: Mapping[str, Any]
    """Arguments of the task, with the module's types and defaults."""
    task_vars: Mapping[str, Any]
    check_mode: bool

    def own(self, name: str) -> dict[str, Any]:
        return self.task_vars.get(name) or {}

    def of(self, host: str, name: str) -> dict[str, Any]:
        return self.task_vars["hostvars"][host].get(name) or {}

    @property
    def name(self) -> str:
        return str(self.task_vars["inventory_hostname"])

    @property
    def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = self.own(PLAN)["reboot_plan"]
        return plan

    @property
    def turn(self) -> dict[str, Any]:
        turn: dict[str, Any] = self.own(TURN)["turn"]
        return turn

    def outcome(self, host: str) -> Optional[dict[str, Any]]:
        return self.of(host, OUTCOME).get("reboot_outcome")

    def read(self) -> dict[str, Any]:
        """Read why the host waits for a reboot. A host that cannot be read is named and skipped."""
        done = self.host.run(step="read", commands=self.arguments["commands"])
        found: dict[str, Any] = {}
        try:
            lost = str(done.get("msg")) if done.get("failed") else ""
            if not lost:
                found = planning.typed(done.get("found"))
        except AnswerError as error:
            lost = str(error)
        if lost:
            found = {"lost": shortened(lost)}
        return {"changed": False, "found": {**found, "local": self.host.is_local}}

    def plan_batches(self) -> dict[str, Any]:
        """Decide which hosts reboot, and in which batches. Takes the lock, except in check mode."""
        settings = planning.RebootSettings(**{name: self.arguments[name] for name in SETTINGS})
        try:
            if not self.check_mode:
                guards.take(Path(self.arguments["state_directory"]), os.getppid())
            plan = planning.plan(self._decisions(settings), settings)
        except (HeldError, guards.LockedError, planning.SettingError) as error:
            raise AnsibleActionFail(f"nothing was rebooted: {error}") from None
        plan["check_mode"] = self.check_mode
        for line in table.plan_lines(plan):
            display.display(line)
        batches = [] if self.check_mode else plan["batches"]
        return {
            "changed": False,
            "reboot_plan": plan,
            "hosts": [turn["name"] for batch in batches for turn in batch["turns"]],
            "sizes": [len(batch["turns"]) for batch in batches],
        }

    def _decisions(self, settings: planning.RebootSettings) -> list[tuple[str, planning.Decision]]:
        """One decision per host, in the order of the inventory."""
        controller = machine.boot_id()
        decisions = []
        for name in self.task_vars["ansible_play_hosts_all"]:
            found = self.of(name, FOUND).get("found") or {"lost": "it was not read"}
            group = _group(name, self.task_vars["groups"])
            decisions.append((name, planning.decide(name, group, found, settings, controller)))
        return decisions

    def check_turn(self) -> dict[str, Any]:
        """Check that Ansible formed the batch as planned, and stop after a batch that failed."""
        batches, name = self.plan["batches"], self.name
        number = next(i for i, batch in enumerate(batches) if name in _names(batch["turns"]))
        planned = _names(batches[number]["turns"])
        actual = self.task_vars["ansible_play_batch"]
        if sorted(actual) != sorted(planned):
            raise AnsibleActionFail(
                f"batch {number + 1} should be {', '.join(planned)}, but is {', '.join(actual)}: "
                "no further host is rebooted"
            )
        former = _names(batches[number - 1]["turns"]) if number else []
        outcomes = [(self.outcome(host) or {}).get("status") for host in former]
        turn = next(turn for turn in batches[number]["turns"] if turn["name"] == name)
        return {
            "changed": False,
            "stopped": any(each not in (table.VERIFIED, table.LEFT) for each in outcomes),
            "turn": turn,
            "roles": sorted({planning.VERIFIERS[layer] for layer in turn["layers"]}),
        }

    def reboot(self) -> dict[str, Any]:
        """Drain and reboot the host, and wait until it is up in another boot."""
        turn = self.turn
        if turn["action"] == planning.VERIFY:
            return self._arrived(turn["boot_id"], time.monotonic(), changed=False)
        limit_s, wait_s = self.arguments["timeout_s"], self.arguments["wait_s"]
        left = self.host.run(
            wait_s + 2 * STEP_LIMIT_S,
            step="leave",
            boot_id=turn["boot_id"],
            reasons=turn["why"],
            wait_s=wait_s,
            commands=self.arguments["commands"],
        )
        began = time.monotonic()  # only now, as the step may have waited for jobs
        if left.get("refused"):
            outcome = _outcome(turn, table.LEFT, f"left: {left['msg']}")
            return {"changed": False, "left": True, "reboot_outcome": outcome}
        if left.get("failed") and not left.get("lost"):
            return {"failed": True, "msg": left.get("msg")}
        # After a lost connection, only the boot id shows whether the host rebooted.
        boot_id, problem = self.host.wait_for_another_boot(turn["boot_id"], began + limit_s)
        if boot_id is None:
            bmc = self.task_vars.get("cluster_bmc")
            problem += f"; its BMC is {bmc}" if bmc else ""
            return {
                "failed": True,
                "changed": True,
                "msg": f"it did not come back within {limit_s:g} s: {problem}",
                "seconds": round(time.monotonic() - began),
            }
        display.display(f"{turn['name']}: back after {time.monotonic() - began:.0f} s")
        return self._arrived(boot_id, began, changed=True)

    def _arrived(self, boot_id: str, began: float, changed: bool) -> dict[str, Any]:
        up = self.host.wait_until_up(began + self.arguments["timeout_s"], retry=changed)
        if not up.get("failed") and up["boot_id"] != boot_id:
            up = {"failed": True, "msg": "it rebooted a second time"}
        if up.get("failed"):
            return {"failed": True, "changed": changed, "msg": up.get("msg")}
        return {
            "changed": changed,
            "left": False,
            "boot_id": boot_id,
            "system": up["system"],
            "seconds": round(time.monotonic() - began) if changed else None,
        }

    def finish(self) -> dict[str, Any]:
        """Resume the host in Slurm, and remove the records that verification disproved."""
        turn, rebooted = self.turn, self.own(REBOOTED)
        if rebooted.get("left"):
            return {"changed": False, "reboot_outcome": rebooted["reboot_outcome"]}
        boot_id = rebooted["boot_id"]
        done = self.host.run(step="finish", records=turn["records"], boot_id=boot_id)
        if done.get("failed"):
            return {"failed": True, "msg": done.get("msg")}
        if done["left"]:
            left = done["left"].items()
            reasons = "; ".join(f"{record}: {', '.join(texts)}" for record, texts in left)
            return {"failed": True, "msg": f"it needs another reboot right after one: {reasons}"}
        verified = "verified" if rebooted["changed"] else "had rebooted, verified"
        text = f"{verified}: {', '.join(turn['layers']) or 'resumed in Slurm'}"
        outcome = _outcome(turn, table.VERIFIED, text, rebooted.get("seconds"))
        return {"changed": done["changed"], "reboot_outcome": outcome}

    def record_failure(self) -> dict[str, Any]:
        """Record why a host did not come back."""
        rebooted = self.own(REBOOTED)
        task = self.arguments["task"].rpartition(" : ")[2]
        text = f"FAILED at {task!r}: {shortened(self.arguments['failure'])}"
        outcome = _outcome(self.turn, table.FAILED, text, rebooted.get("seconds"))
        return {"changed": bool(rebooted.get("changed")), "reboot_outcome": outcome}

    def verdict(self) -> dict[str, Any]:
        """Return the outcome of the host as a check; fail if it still waits for a reboot."""
        name, plan = self.name, self.plan
        names = [host for batch in plan["batches"] for host in _names(batch["turns"])]
        outcomes = {host: outcome for host in names if (outcome := self.outcome(host))}
        rows = table.outcomes(plan, outcomes, plan["check_mode"])
        row = {"status": table.VERIFIED} if name in plan["nothing"] else rows[name]
        status = self._status(row, plan["check_mode"])
        if status == OK:
            return _verdict(Check("reboot_needed", "no", "no", OK))
        reason = f"{row['text']} ({'; '.join(row['reasons'])})"
        result = _verdict(Check("reboot_needed", "no", "yes", status, reason=reason))
        if status == FAILED:
            remedy = f". {REMEDY.format(name)}" if row["status"] == table.FAILED else ""
            result.update(failed=True, msg=f"{name}: {row['text']}{remedy}")
        return result

    @staticmethod
    def _status(row: Mapping[str, Any], check_mode: bool) -> str:
        if row["status"] == table.VERIFIED:
            return OK
        unknown = row["status"] == table.LEFT and not row["reasons"]
        by_policy = row.get("policy") or check_mode
        return FAILED if unknown or not by_policy else REBOOT


STEPS = {
    "read": RebootSteps.read,
    "plan": RebootSteps.plan_batches,
    "turn": RebootSteps.check_turn,
    "reboot": RebootSteps.reboot,
    "finish": RebootSteps.finish,
    "failed": RebootSteps.record_failure,
    "verdict": RebootSteps.verdict,
}


def _group(name: str, groups: Mapping[str, Sequence[str]]) -> str:
    """A launcher that is also a compute node counts as a launcher, rebooted one at a time."""
    for group in (planning.LAUNCHER, planning.STORAGE):
        if name in groups.get(group, []):
            return group
    return planning.COMPUTE


def _names(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    return [turn["name"] for turn in turns]


def _outcome(
    turn: Mapping[str, Any], status: str, text: str, seconds: Optional[float] = None
) -> dict[str, Any]:
    return {"host": turn["name"], "status": status, "text": text, "seconds": seconds}


def _verdict(check: Check) -> dict[str, Any]:
    return {"changed": False, "layer": LAYER, "checks": as_dicts([check])}
