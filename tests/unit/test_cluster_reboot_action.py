# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Steps of a rolling reboot on the controller: batches, lost connections, outcomes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
from dataclasses import asdict
from typing import Any, Optional

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.baremetal.mpi_roce.plugins.action import cluster_reboot as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.marked import MARK
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import (
    guards,
    planning,
    steps,
    table,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import host as reboot_host
from hypothesis import example, given

from tests.unit.hostile import spoilt


class Task:
    def __init__(self, arguments: dict[str, Any], check_mode: bool) -> None:
        self.args, self.check_mode = arguments, check_mode


class Connection:
    transport = "ssh"

    def set_option(self, name: str, value: Any) -> None:
        pass

    def reset(self) -> None:
        pass


class Action(action.ActionModule):  # type: ignore[misc]
    """An action without Ansible. `boots` are the answers to successive reads of the boot id."""

    def __init__(
        self,
        answers: Optional[dict[str, Any]] = None,
        boots: tuple[Any, ...] = (),
        check_mode: bool = False,
        **arguments: Any,
    ) -> None:
        self._task = Task({"step": "read", **arguments}, check_mode)
        self._connection = Connection()
        self._answers = answers or {}
        self._boots = itertools.chain(boots, itertools.repeat(boots[-1] if boots else ""))

    def step(self, name: str, variables: Any) -> Any:
        return self.steps()[name](variables)

    def _execute_module(self, _name: str, module_args: Any = None, task_vars: Any = None) -> Any:
        found = self._answers[module_args["step"]]
        if isinstance(found, list):
            found = found.pop(0)
        if callable(found):
            found = found()
        if isinstance(found, Exception):
            raise found
        return found

    def _low_level_execute_command(self, command: str, sudoable: bool = True) -> Any:
        assert reboot_host.BOOT_ID in command
        found = next(self._boots)
        if isinstance(found, Exception):
            raise found
        if callable(found):
            found()
        return {"rc": 0, "stdout": f"A banner\r\n{MARK}\r\n{found}\r\n", "stderr": ""}


LOST = AnsibleConnectionFailure("Connection refused")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only in sleep."""
    now = [1000.0]
    monkeypatch.setattr(reboot_host.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        reboot_host.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(steps.display, "display", lambda *_words: None)


def turn(name: str, kind: str = planning.REBOOT) -> planning.Turn:
    return planning.Turn(name, "compute", kind, ("os",), ("os",), ("os: x",), "before")


def play(*batches: list[str], here: str = "", outcomes: Any = (), left: Any = ()) -> Any:
    plan = {
        "batches": [
            {"action": planning.REBOOT, "turns": [asdict(turn(name)) for name in names]}
            for names in batches
        ],
        "left": [asdict(each) for each in left],
        "nothing": ["idle"],
        "check_mode": False,
    }
    names = ["idle", *(each.name for each in left), *itertools.chain(*batches)]
    hostvars: Any = {name: {} for name in names}
    for name, status in dict(outcomes).items():
        said = {"host": name, "status": status, "text": status}
        hostvars[name] = {steps.OUTCOME: {"reboot_outcome": said}}
    batch = next((names for names in batches if here in names), [])
    return {
        "inventory_hostname": here,
        "ansible_play_batch": batch,
        "ansible_play_hosts": names,
        "hostvars": hostvars,
        steps.PLAN: {"reboot_plan": plan},
        "cluster_reboot_turn": {"turn": turn(here).__dict__},
    }


# Batches


def test_a_batch_follows_a_successful_one():
    outcomes = {"a": table.VERIFIED, "b": table.LEFT}
    found = Action().step("turn", play(["a", "b"], ["c"], here="c", outcomes=outcomes))
    assert found["stopped"] is False
    assert found["roles"] == ["baremetal.mpi_roce.os_baseline"]


@pytest.mark.parametrize("outcomes", [{"a": table.VERIFIED, "b": table.FAILED}, {"a": "verified"}])
def test_a_batch_does_not_follow_one_that_failed(outcomes):
    assert (
        Action().step("turn", play(["a", "b"], ["c"], here="c", outcomes=outcomes))["stopped"]
        is True
    )


@pytest.mark.parametrize("batch", [["a"], ["a", "b", "c"], ["b", "c"]])
def test_a_batch_differs_from_the_plan(batch):
    variables = play(["a", "b"], ["c"], here="b")
    variables["ansible_play_batch"] = batch
    with pytest.raises(AnsibleActionFail, match="batch 1 "):
        Action().step("turn", variables)


# A reboot


def test_another_boot_id_means_back():
    arrived = {"boot_id": "after", "system": "running"}
    answers = {"leave": {"changed": True}, "arrive": arrived}
    run = Action(answers, ("before", LOST, LOST, "after"), timeout_s=100)
    found = run.step("reboot", play(["a"], here="a"))
    assert found["boot_id"] == "after" and found["seconds"] == 6 and found["changed"]


UP = {"boot_id": "after", "system": "running"}


@pytest.mark.parametrize(
    ("answers", "boots", "why"),
    [
        ({"leave": LOST, "arrive": UP}, "after", ""),  # only the boot id decides
        ({"leave": LOST, "arrive": UP}, "before", "did not reboot"),
        ({"leave": {}}, LOST, "within 10 s: Connection refused"),
        ({"leave": {}, "arrive": [LOST, LOST, UP]}, "after", ""),
        ({"leave": {}, "arrive": LOST}, "after", "Connection refused"),
        ({"leave": {}, "arrive": {"boot_id": "later", "system": "running"}}, "after", "a second"),
    ],
)
def test_when_a_host_is_back(answers, boots, why):
    limit_s = 10 if why else 100
    found = Action(answers, (boots,), timeout_s=limit_s).step("reboot", play(["a"], here="a"))
    assert (bool(found.get("failed")), found["changed"]) == (bool(why), True)
    assert why in found["msg"] if why else found["boot_id"] == "after"


# A host that accepts the login and then hangs


def time_is_up() -> None:
    """Let the current time limit expire."""
    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
        pytest.fail("there is no time limit")
    signal.setitimer(signal.ITIMER_REAL, 0.001)


class Hung:
    """A connection whose program never terminates; its plugin retries, as that of ssh does."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self) -> Any:
        for _try in range(3):
            with contextlib.suppress(Exception):  # like the ssh connection
                self.once()
        raise AssertionError("the time limit did not expire")

    def once(self) -> None:
        self.started.append(subprocess.Popen(["sleep", "infinity"]))
        time_is_up()
        self.started[-1].wait()

    def terminated(self) -> bool:
        return len(self.started) == 1 and self.started[0].wait() == -signal.SIGTERM


def test_a_host_that_hangs_has_not_come_back():
    hung = Hung()
    run = Action({"leave": {}}, (hung, LOST, LOST), timeout_s=2)
    found = run.step("reboot", {**play(["a"], here="a"), "cluster_bmc": "10.9.0.9"})
    assert found["failed"] and "did not come back" in found["msg"] and hung.terminated()
    assert found["msg"].endswith("its BMC is 10.9.0.9")
    hung = Hung()
    messages = reboot_host.RebootingHost(Action(boots=(hung,)), {}).boot_id()[1]
    assert f"no answer within {reboot_host.BOOT_ID_LIMIT_S:g} s" in messages and hung.terminated()


@pytest.mark.parametrize("step", ["read", "arrive", "finish"])
def test_a_host_that_hangs_in_a_step_is_lost(step):
    hung = Hung()
    done = reboot_host.RebootingHost(Action({step: hung}), {}).run(step=step)
    assert (
        done["failed"] and done["lost"] and "no answer within" in done["msg"] and hung.terminated()
    )


def test_a_host_that_refuses_is_left():
    answers = {"leave": {"failed": True, "refused": True, "msg": "MPI runs on it"}}
    found = Action(answers).step("reboot", play(["a"], here="a"))
    assert not found.get("failed") and found["left"]
    assert found["reboot_outcome"]["status"] == table.LEFT
    done = Action().step("finish", {**play(["a"], here="a"), "cluster_reboot_rebooted": found})
    assert done["reboot_outcome"] == found["reboot_outcome"]


def test_a_host_that_needs_another_reboot_fails():
    answers = {"finish": {"changed": True, "left": {"os": ["still"]}}}
    rebooted = {"boot_id": "after", "changed": True}
    found = Action(answers).step(
        "finish",
        {**play(["a"], here="a"), "cluster_reboot_rebooted": rebooted},
    )
    assert found["failed"] and "os: still" in found["msg"]


# Reading and planning


def test_the_plan_takes_the_lock(tmp_path, monkeypatch):
    names = ["node01", "node02", "storage01", "login01"]
    found = {
        "boot_id": "now",
        "reasons": {"os": [{"subject": "x", "reason": "why", "boot_id": "now"}]},
        "boots": [0.0],
        "now": 100.0,
        "processes": [],
        "slurm": None,
        "problems": [],
    }
    variables = {
        "ansible_play_hosts_all": names,
        "groups": {"compute": names[:2], "storage": ["storage01"], "launcher": ["login01"]},
        "hostvars": {name: {steps.FOUND: {"found": dict(found)}} for name in names},
    }
    variables["hostvars"]["node02"] = {}  # it left the play
    arguments = {"state_directory": str(tmp_path / "state"), "batch": "50%"}
    shown = Action(check_mode=True, **arguments).step("plan", variables)
    assert shown["hosts"] == [] and not (tmp_path / "state").exists()
    done = Action(**arguments).step("plan", variables)
    assert (done["hosts"], done["sizes"]) == (["node01", "login01"], [1, 1])
    assert [left["name"] for left in done["reboot_plan"]["left"]] == ["node02", "storage01"]

    monkeypatch.setattr(guards, "started", lambda pid, root: "1")
    another = os.getppid() + 1  # this run's parent may be init
    (tmp_path / "state" / guards.NAME).write_text(json.dumps([another, "1"]))
    with pytest.raises(AnsibleActionFail, match="nothing was rebooted"):
        Action(**arguments).step("plan", variables)


HERE = {
    "boot_id": "now",
    "reasons": {"os": [{"subject": "x", "reason": "why", "boot_id": "now", "wanted": "y"}]},
    "boots": [0.0],
    "now": 100.0,
    "processes": [{"pid": 7, "user": "mpi", "command": "a.out", "why": "MPI"}],
    "slurm": {"name": "n", "state": "IDLE", "reason": "", "drained": 0, "ours": 0, "busy": 1},
    "problems": ["no scontrol"],
}


@example({**HERE, "reasons": 7})
@given(spoilt(HERE))
def test_whatever_a_host_answers_the_plan_of_the_others_is_the_same(said):
    read = Action({"read": {"found": said}}).step("read", {"inventory_hostname": "node01"})["found"]
    names = ["node01", "node02"]
    hostvars = {
        "node01": {steps.FOUND: {"found": read}},
        "node02": {
            steps.FOUND: {"found": {**HERE, "processes": [], "slurm": None, "problems": []}}
        },
    }
    groups = {"compute": names}
    variables = {"ansible_play_hosts_all": names, "groups": groups, "hostvars": hostvars}
    plan = Action(check_mode=True, state_directory="/nowhere").step("plan", variables)[
        "reboot_plan"
    ]
    turns = [turn["name"] for batch in plan["batches"] for turn in batch["turns"]]
    assert "node02" in turns
    found = table.outcomes(plan, {}, True)
    assert all(line.isprintable() for line in (*table.lines(found), *table.plan_lines(plan)))


# The verdict of each host


def verdict(here: str, **more: Any) -> dict[str, Any]:
    left = [
        planning.Left("busy", "MPI runs on it", ("os: x",)),
        planning.Left("disk", "it is storage", ("os: x",), policy=True),
        planning.Left("gone", "it was not reached"),
    ]
    outcomes = {"a": table.VERIFIED, "b": table.FAILED}
    variables = play(["a"], ["b"], ["c"], here=here, outcomes=outcomes, left=left)
    variables[steps.PLAN]["reboot_plan"].update(more)
    return Action().step("verdict", variables)


@pytest.mark.parametrize(
    ("host", "fails", "status"),
    [
        ("idle", False, "ok"),
        ("a", False, "ok"),
        ("b", True, "failed"),
        ("c", True, "failed"),
        ("busy", True, "failed"),
        ("disk", False, "reboot"),
        ("gone", True, "failed"),
    ],
)
def test_a_host_that_still_waits_fails(host, fails, status):
    found = verdict(host)
    assert bool(found.get("failed")) is fails
    assert found["checks"][0]["status"] == status


@pytest.mark.parametrize(("host", "fails"), [("a", False), ("busy", False), ("gone", True)])
def test_a_plan_fails_only_for_unread_hosts(host, fails):
    assert bool(verdict(host, check_mode=True).get("failed")) is fails
