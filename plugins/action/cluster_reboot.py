# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a rolling reboot, as the controller sees them.

A lost connection is what a reboot looks like from here, so no step leaves that to Ansible: a host
that cannot be reached is named with what is known of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import yaml
from ansible import constants as C
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError

from ..module_utils.core import machine
from ..module_utils.core.checks import FAILED, OK, REBOOT, Check, as_dicts
from ..module_utils.reboot import node
from ..modules.cluster_reboot import ARGUMENTS
from ..plugin_utils.answers import AnswerError
from ..plugin_utils.marked import answer, question
from ..plugin_utils.reboot import guards, planning, table
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "reboot"
MODULE = "baremetal.mpi_roce.cluster_reboot"
SUMMARY = "baremetal.mpi_roce.summary"
VERIFY = Path(__file__).resolve().parents[2] / "playbooks/verify.yml"
FOUND, PLAN, OUTCOME = (
    "cluster_reboot_found",
    "cluster_reboot_plan",
    "cluster_reboot_outcome",
)
"""Where the role registers what `read`, `plan` and the last step of a turn return."""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PAUSES_S = (1.0, 1.0, 2.0, 2.0, 5.0)
"""Between looks whether a host is back; the last one from then on."""
LOOK_S = 60.0
"""For one look at the boot id: login and answer."""
STEP_S = 300.0
"""For a step on the host, beyond what it waits for: its programs have a minute each."""
MESSAGE_SHOWN = 600
REPAIR = "look at it, repair it with site.yml --tags LAYER --limit {}, then run reboot.yml again"


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {
            "read": self._read,
            "plan": self._plan,
            "turn": self._turn,
            "reboot": self._reboot,
            "finish": self._finish,
            "failed": self._failed,
            "verdict": self._verdict,
        }

    def _read(self, task_vars: Any) -> dict[str, Any]:
        """A host that cannot be read is named and left out; the others are still read."""
        done = self._on_host(task_vars, step="read", commands=self._given["commands"])
        try:
            lost = str(done.get("msg")) if done.get("failed") else ""
            found = {"lost": ""} if lost else planning.typed(done.get("found"))
        except AnswerError as error:
            lost = str(error)
        if lost:
            found = {"lost": " ".join(lost.split())[:MESSAGE_SHOWN]}
        found["local"] = self._connection.transport.rpartition(".")[2] == "local"
        return {"changed": False, "found": found}

    def _plan(self, task_vars: Any) -> dict[str, Any]:
        names = ("batch", "storage", "wait_s", "min_hours", "max_per_day")
        settings = planning.Settings(**{name: self._given[name] for name in names})
        if not self._task.check_mode:
            try:
                guards.take(Path(self._given["state_directory"]), os.getppid())
            except guards.LockedError as error:
                raise AnsibleActionFail(f"nothing was rebooted: {error}") from None
        controller = planning.Controller(machine.boot_id(), node.machine_id(), socket.gethostname())
        roles = verified_by()
        judged = []
        for name in task_vars["ansible_play_hosts_all"]:  # as the inventory orders them
            found = (task_vars["hostvars"][name].get(FOUND) or {}).get("found")
            found = found or {"lost": "nothing is known of it"}
            group = _group(name, task_vars["groups"])
            verdict = planning.judge(name, group, found, settings, controller, roles)
            judged.append((name, verdict))
        try:
            plan = planning.plan(judged, settings)
        except planning.SettingError as error:
            raise AnsibleActionFail(f"nothing was rebooted: {error}") from None
        plan["check_mode"] = bool(self._task.check_mode)
        for line in table.plan_lines(plan):
            display.display(line)
        batches = [] if self._task.check_mode else plan["batches"]
        return {
            "changed": False,
            "reboot_plan": plan,
            "hosts": [turn["name"] for batch in batches for turn in batch["turns"]],
            "sizes": [len(batch["turns"]) for batch in batches],
        }

    def _turn(self, task_vars: Any) -> dict[str, Any]:
        """Ansible cuts the batches by counting; here it is seen that it counted as planned."""
        name = task_vars["inventory_hostname"]
        batches = _known(task_vars, PLAN)["reboot_plan"]["batches"]
        number = next(
            index for index, batch in enumerate(batches) if name in _names(batch["turns"])
        )
        if sorted(task_vars["ansible_play_batch"]) != sorted(_names(batches[number]["turns"])):
            raise AnsibleActionFail(
                f"batch {number + 1} was to be {', '.join(_names(batches[number]['turns']))}, and "
                f"it is {', '.join(task_vars['ansible_play_batch'])}: nothing more is rebooted"
            )
        before = batches[:number]
        wrong = [
            turn["name"]
            for batch in before[-1:]  # those before it had to be right for it to have its turn
            for turn in batch["turns"]
            if (_outcome_of(task_vars, turn["name"]) or {}).get("status")
            not in (table.VERIFIED, table.LEFT)
        ]
        turn = next(turn for turn in batches[number]["turns"] if turn["name"] == name)
        roles = verified_by()
        return {
            "changed": False,
            "stopped": bool(wrong),
            "turn": turn,
            "roles": sorted({roles[layer] for layer in turn["layers"]}),
        }

    def _reboot(self, task_vars: Any) -> dict[str, Any]:
        turn = _known(task_vars, "cluster_reboot_turn")["turn"]
        if turn["what"] == planning.VERIFY:
            return self._arrived(task_vars, turn["boot_id"], time.monotonic(), changed=False)
        limit, wait_s = self._given["timeout_s"], self._given["wait_s"]
        left = self._on_host(
            task_vars,
            wait_s + 2 * STEP_S,
            step="leave",
            boot_id=turn["boot_id"],
            reasons=turn["why"],
            wait_s=wait_s,
            commands=self._given["commands"],
        )
        began = time.monotonic()  # not before: it may have waited for a job until now
        if left.get("refused"):
            outcome = _outcome(turn, table.LEFT, f"left: {left['msg']}")
            return {"changed": False, "left": True, "reboot_outcome": outcome}
        if left.get("failed") and not left.get("lost"):
            return {"failed": True, "msg": left.get("msg")}
        # After a lost connection only the boot id shows whether it rebooted.
        boot_id, problem = self._another_boot(turn["boot_id"], began + limit)
        if boot_id is None:
            return {
                "failed": True,
                "changed": True,
                "msg": f"it did not come back within {limit:g} s: {problem}",
                "seconds": round(time.monotonic() - began),
            }
        display.display(f"{turn['name']}: back after {time.monotonic() - began:.0f} s")
        return self._arrived(task_vars, boot_id, began, changed=True)

    def _finish(self, task_vars: Any) -> dict[str, Any]:
        turn = _known(task_vars, "cluster_reboot_turn")["turn"]
        rebooted = _known(task_vars, "cluster_reboot_rebooted")
        if rebooted.get("left"):
            return {"changed": False, "reboot_outcome": rebooted["reboot_outcome"]}
        done = self._on_host(
            task_vars, step="finish", records=turn["records"], boot_id=rebooted["boot_id"]
        )
        if done.get("failed"):
            return {"failed": True, "msg": done.get("msg")}
        if done["left"]:
            again = "; ".join(f"{key}: {', '.join(why)}" for key, why in done["left"].items())
            return {"failed": True, "msg": f"it asks for a reboot again right after one: {again}"}
        what = "verified" if rebooted["changed"] else "had rebooted, verified"
        text = f"{what}: {', '.join(turn['layers']) or 'given back to Slurm'}"
        outcome = _outcome(turn, table.VERIFIED, text, rebooted.get("seconds"))
        return {"changed": done["changed"], "reboot_outcome": outcome}

    def _failed(self, task_vars: Any) -> dict[str, Any]:
        turn = _known(task_vars, "cluster_reboot_turn")["turn"]
        rebooted = _known(task_vars, "cluster_reboot_rebooted")
        why = " ".join(self._given["failure"].split())[:MESSAGE_SHOWN]
        text = f"FAILED at {self._given['task'].rpartition(' : ')[2]!r}: {why}"
        outcome = _outcome(turn, table.FAILED, text, rebooted.get("seconds"))
        return {"changed": bool(rebooted.get("changed")), "reboot_outcome": outcome}

    def _verdict(self, task_vars: Any) -> dict[str, Any]:
        name = task_vars["inventory_hostname"]
        plan = _known(task_vars, PLAN)["reboot_plan"]
        names = [turn for batch in plan["batches"] for turn in _names(batch["turns"])]
        found = table.outcomes(
            plan,
            {each: one for each in names for one in [_outcome_of(task_vars, each)] if one},
            plan["check_mode"],
        )
        first = name == task_vars["ansible_play_hosts"][0]
        if first and found and SUMMARY not in C.CALLBACKS_ENABLED:
            for line in table.lines(found):
                display.display(line)
        if name in plan["nothing"]:
            check = Check("reboot_needed", "no", "no", OK)
            return {"changed": False, "layer": LAYER, "checks": as_dicts([check])}
        row = found[name]
        good = row["status"] == table.VERIFIED
        bad = not good and not row.get("policy") and not plan["check_mode"]
        bad = bad or (row["status"] == table.LEFT and not row["reasons"])
        check = Check(
            "reboot_needed",
            "no",
            "no" if good else "yes",
            OK if good else FAILED if bad else REBOOT,
            reason=f"{row['text']} ({'; '.join(row['reasons'])})" if not good else "",
        )
        result = {"changed": False, "layer": LAYER, "checks": as_dicts([check])}
        if bad:
            remedy = f". {REPAIR.format(name)}" if row["status"] == table.FAILED else ""
            return {**result, "failed": True, "msg": f"{name}: {row['text']}{remedy}"}
        return result

    def _arrived(self, task_vars: Any, boot_id: str, began: float, changed: bool) -> dict[str, Any]:
        limit = self._given["timeout_s"]
        while True:
            left = max(0.0, began + limit - time.monotonic())
            here = self._on_host(task_vars, left + STEP_S, step="arrive", timeout_s=left)
            if not (here.get("lost") and changed and left):
                break
            time.sleep(PAUSES_S[-1])  # while it boots, its sshd may be started once more
            self._fresh_connection()
        if not here.get("failed") and here["boot_id"] != boot_id:
            here = {"failed": True, "msg": "it rebooted again by itself"}
        if here.get("failed"):
            return {"failed": True, "changed": changed, "msg": here.get("msg")}
        return {
            "changed": changed,
            "left": False,
            "boot_id": boot_id,
            "system": here["system"],
            "seconds": round(time.monotonic() - began) if changed else None,
        }

    def _another_boot(self, former: str, until: float) -> tuple[Optional[str], str]:
        """The id of the boot that the host has come up in, or None and what was in the way."""
        pauses = list(PAUSES_S)
        while True:
            boot_id, problem = self._boot_id()
            if boot_id and boot_id != former:
                return boot_id, ""
            if boot_id:
                problem = "it answers, and did not reboot"
            if time.monotonic() >= until:
                return None, problem
            time.sleep(pauses.pop(0) if len(pauses) > 1 else pauses[0])

    def _boot_id(self) -> tuple[str, str]:
        try:
            with guards.bounded(LOOK_S):
                self._fresh_connection()
                done = self._low_level_execute_command(question(BOOT_ID), sudoable=False)
        except (AnsibleError, OSError, guards.NoAnswerError) as error:
            return "", " ".join(str(error).split())[:MESSAGE_SHOWN]
        if done["rc"] != 0:
            return "", f"exit status {done['rc']}: {done.get('stderr', '').strip()[:MESSAGE_SHOWN]}"
        found = (answer(done["stdout"]) or "").split()
        if len(found) != 1:
            return "", f"no boot id: {' '.join(str(done['stdout']).split())[:MESSAGE_SHOWN]}"
        return found[0], ""

    def _fresh_connection(self) -> None:
        """Not the one that ends with the boot; and each try is one try."""
        with contextlib.suppress(KeyError):
            self._connection.set_option("reconnection_retries", 0)
        with contextlib.suppress(AnsibleError, OSError, AttributeError):
            self._connection.reset()

    def _on_host(
        self, task_vars: Any, within_s: float = STEP_S, **arguments: Any
    ) -> dict[str, Any]:
        """A step on the host. A lost connection is a result, with `lost` in it."""
        try:
            with guards.bounded(within_s):
                done: dict[str, Any] = self._execute_module(
                    MODULE, module_args=arguments, task_vars=task_vars
                )
        except (AnsibleConnectionFailure, guards.NoAnswerError) as error:
            return {"failed": True, "lost": True, "msg": str(error)}
        if done.get("unreachable"):
            return {"failed": True, "lost": True, "msg": str(done.get("msg"))}
        return done

    @functools.cached_property
    def _given(self) -> dict[str, Any]:
        """Arguments of the task, with their types and defaults."""
        given: dict[str, Any] = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]
        return given


def verified_by() -> dict[str, str]:
    """Layer -> role, as playbooks/verify.yml has it."""
    plays = yaml.safe_load(VERIFY.read_text(encoding="utf-8"))
    return planning.verifiers(play for play in plays if isinstance(play, Mapping))


def _group(name: str, groups: Mapping[str, Any]) -> str:
    """A launcher that computes is a launcher: the one that is rebooted alone."""
    for group in (planning.LAUNCHER, planning.STORAGE):
        if name in groups.get(group, []):
            return group
    return planning.COMPUTE


def _names(turns: Any) -> list[str]:
    return [turn["name"] for turn in turns]


def _known(task_vars: Any, name: str) -> dict[str, Any]:
    return task_vars.get(name) or {}


def _outcome_of(task_vars: Any, name: str) -> Optional[dict[str, Any]]:
    found = task_vars["hostvars"][name].get(OUTCOME) or {}
    return found.get("reboot_outcome")


def _outcome(
    turn: Mapping[str, Any], status: str, text: str, seconds: Optional[float] = None
) -> dict[str, Any]:
    return {"host": turn["name"], "status": status, "text": text, "seconds": seconds}
