# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The loop that settles parts, and the entry point of modules: refusals, failures, results."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import (
    asked,
    checks,
    engine,
    files,
    machine,
    reboots,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import (
    Layer,
    Outcome,
    Settled,
    settle,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Node,
    Plan,
    PlanError,
    Step,
    StepError,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.reboots import (
    Reason,
    RecordError,
)

from tests.unit.ended import Ended, Module

BROKEN = "it does not work"


@dataclass
class Recorded:
    """A part that records its steps."""

    done: list[str]
    steps: list[tuple[str, dict[str, bool]]] = field(default_factory=list)
    broken: str = ""
    reasons: list[reboots.Reason] = field(default_factory=list)
    file: str = ""

    def plan(self, node: Node) -> Plan:
        files = [node.file(self.file, "text\n")] if self.file else []
        return Plan(files, [self.step(name, **how) for name, how in self.steps])

    def step(self, name: str, **how: bool) -> Step:
        def act() -> None:
            if name == self.broken:
                raise StepError(BROKEN)
            self.done.append(name)

        return Step(name, "no", "yes", act, **how)

    def verify(self, node: Node) -> Verdict:
        return Verdict(reasons=self.reasons)


def node(root: Any, layer: str = "gpu") -> Node:
    def run(*args: Any, **more: Any) -> Any:
        raise AssertionError

    return Node(layer, root, run, None, "boot-1", uid=os.getuid(), gid=os.getgid())


@pytest.mark.parametrize(
    ("essential", "done"), [(True, ["first", "start"]), (False, ["first", "last", "start"])]
)
def test_after_an_essential_step_only_what_restores_is_tried(tmp_path, essential, done):
    seen: list[str] = []
    parts = [
        Recorded(seen, [("first", {}), ("packages", {"essential": essential})], broken="packages"),
        Recorded(seen, [("last", {}), ("start", {"restores": True})], file="etc/later.conf"),
    ]
    outcome = settle(parts, node(tmp_path))
    assert seen == done
    assert outcome.errors == [f"packages: {BROKEN}"]
    assert (tmp_path / "etc/later.conf").exists() is not essential
    assert [check.status for check in outcome.checks] == ["not_applicable" if essential else "ok"]


def test_a_restoring_step_that_fails_does_not_let_later_steps_run(tmp_path):
    seen: list[str] = []
    broken = [("packages", {"essential": True}), ("start", {"restores": True})]
    parts = [Recorded(seen, broken[:1], "packages"), Recorded(seen, broken[1:], "start")]
    parts.append(Recorded(seen, [("later", {})]))
    outcome = settle(parts, node(tmp_path))
    assert seen == [] and len(outcome.errors) == 2


def test_an_unwritable_file_ends_only_the_changes(tmp_path, monkeypatch):
    """Stopped services start again, everything is read back, and the reboot is recorded."""
    write = files.write_atomically

    def full(path: Path, *more: Any) -> None:
        if path.name == "full.conf":
            raise OSError(28, "No space left on device", str(path))
        write(path, *more)

    monkeypatch.setattr(files, "write_atomically", full)
    seen: list[str] = []
    reason = reboots.Reason("driver", "580", "570", "the kernel has the old one")
    parts = [
        Recorded(seen, [("stop", {})], file="etc/early.conf", reasons=[reason]),
        Recorded(seen, [("later", {})], file="etc/full.conf"),
        Recorded(seen, [("start", {"restores": True})], file="etc/late.conf"),
    ]
    outcome = settle(parts, node(tmp_path))
    assert seen == ["stop", "start"]
    [error] = outcome.errors
    assert "etc/full.conf" in error and "No space left" in error
    found = {check.subject: (check.status, check.reason) for check in outcome.checks}
    assert found["/etc/early.conf"] == ("ok", "")
    for name, status, part in (
        ("full", "failed", "No space left"),
        ("late", "not_applicable", "not written"),
    ):
        assert found[f"/etc/{name}.conf"][0] == status and part in found[f"/etc/{name}.conf"][1]
    assert reboots.recorded("gpu", tmp_path) == outcome.reasons != []


def test_an_unwritable_record_is_reported(tmp_path, monkeypatch):
    def full(path: Path, *_more: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_atomically", full)
    reason = reboots.Reason("driver", "580", "570", "the kernel has the old one")
    seen: list[str] = []
    outcome = settle([Recorded(seen, [("step", {})], reasons=[reason])], node(tmp_path))
    assert seen == ["step"]
    [error] = outcome.errors
    assert "not recorded" in error and "gpu.json" in error
    assert [each.subject for each in outcome.reasons] == ["driver"]


@dataclass
class Failing:
    """A part that fails in `where` with `error`."""

    where: str
    error: Exception

    def plan(self, node: Node) -> Plan:
        if self.where == "plan":
            raise self.error
        return Plan()

    def verify(self, node: Node) -> Verdict:
        if self.where == "verify":
            raise self.error
        return Verdict()


@pytest.mark.parametrize(
    "error", [CommandError("dkms: no"), OSError(5, "I/O error"), PlanError("x")]
)
def test_findings_of_all_parts_are_reported(tmp_path, error):
    seen: list[str] = []
    parts = [Failing("plan", error), Recorded(seen, [("step", {})], file="etc/one.conf")]
    check = Check("set", "right", "wrong", "failed")
    parts.append(Failing("plan", PlanError("wrong set", [check])))
    with pytest.raises(PlanError) as caught:
        settle(parts, node(tmp_path))
    assert str(caught.value) == f"{error}\nwrong set"
    assert caught.value.checks == [check]
    assert seen == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [CommandError("dkms: no"), OSError(5, "I/O error")])
def test_an_unread_part_keeps_its_record(tmp_path, error):
    reason = reboots.Reason("driver", "580", "570", "the kernel has the old one")
    other = reboots.Reason("kernel", "6.8", "6.5", "it runs")
    settle([Recorded([], reasons=[reason])], node(tmp_path))
    later = replace(node(tmp_path), rebooted_for=tuple(reboots.recorded("gpu", tmp_path)))
    outcome = settle([Failing("verify", error), Recorded([], reasons=[other])], later)
    assert outcome.errors == [f"cannot be read back: {error}"]
    assert {each.subject for each in reboots.recorded("gpu", tmp_path)} == {"driver", "kernel"}
    settle([Recorded([], reasons=[other])], later)
    assert [each.subject for each in reboots.recorded("gpu", tmp_path)] == ["kernel"]


# Waiting and undoing


class Clock:
    def __init__(self, good_after: float) -> None:
        self.now, self.good_after = 0.0, good_after

    def node(self, root: Path) -> Node:
        return replace(node(root), clock=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def good(self) -> bool:
        return self.now >= self.good_after


@pytest.mark.parametrize(
    ("good_after", "undone", "most"), [(0.0, [], 0.0), (3.0, [], 3.2), (9.0, ["undo"], 5.0)]
)
def test_a_step_is_undone_if_it_does_not_hold_in_time(tmp_path, good_after, undone, most):
    clock, seen = Clock(good_after), []

    def undo() -> str:
        seen.append("undo")
        return ""

    step = Step("link", "down", "up", lambda: None, holds=clock.good, wait_s=5.0, undo=undo)
    errors: list[str] = []
    engine.act([Plan(steps=[step])], clock.node(tmp_path), errors)
    assert (seen, errors) == (undone, [])
    assert min(good_after, most) <= clock.now <= most


@pytest.mark.parametrize("where", ["act", "holds", "undo"])
def test_a_step_that_raises_is_undone_and_stops_what_follows(tmp_path, where):
    seen: list[str] = []

    def reach(name: str) -> bool:
        seen.append(name)
        if name == where:
            raise CommandError(f"{name}: no")
        return False

    def undo() -> str:
        reach("undo")
        return "the files are as they were"

    act, holds = lambda: reach("act") and None, lambda: reach("holds")
    step = Step("packages", "old", "new", act, essential=True, holds=holds, undo=undo)
    plan = Plan(steps=[step, Recorded(seen).step("later")])
    errors: list[str] = []
    engine.act([plan], node(tmp_path), errors)
    assert seen == (["act", "undo"] if where == "act" else ["act", "holds", "undo"])
    done = "" if where == "undo" else "\nthe files are as they were"
    assert errors == [f"packages: {where}: no{done}"]


class Dial:
    """A change that is a number in a dictionary."""

    reason = ""

    def __init__(self, values: dict[str, Any], name: str, unit: str, fails: str = "") -> None:
        self.values, self.name, self.fails = values, name, fails
        self.unit, self.optional = unit.removesuffix("?"), unit.endswith("?")

    def write(self) -> None:
        self.values[self.name] = 1
        if self.fails == "write":
            raise CommandError("no")

    def restore(self) -> None:
        if self.fails == "restore":
            raise LookupError("gone")
        self.values[self.name] = 0

    def missing(self) -> str:
        return "was not taken" if self.fails in ("missing", "restore") else ""

    def failed(self, reason: str) -> None:
        self.reason = reason


@pytest.mark.parametrize(
    ("fails", "values", "restored"),
    [
        ({}, "1111", False),
        ({"a": "write"}, "0010", True),
        ({"b": "write"}, "0010", True),
        ({"a": "missing"}, "0010", True),
        ({"c": "missing"}, "1101", True),
        ({"d": "missing"}, "1110", False),
        ({"d": "write"}, "1110", False),
        ({"a": "write", "c": "write"}, "0000", True),
        ({"b": "restore"}, "0110", True),
    ],
)
def test_a_unit_takes_effect_as_a_whole_or_is_restored(tmp_path, fails, values, restored):
    now = dict.fromkeys("abcd", 0)
    units = {"a": "running", "b": "running", "c": "firmware", "d": "running?"}
    dials = {name: Dial(now, name, unit, fails.get(name, "")) for name, unit in units.items()}
    reads: list[str] = []
    group = engine.Group(
        list(dials.values()), lambda: reads.append("".join(map(str, now.values())))
    )
    step = Step("NIC", "0", "1", group.act, holds=group.holds, undo=group.undo)
    errors: list[str] = []
    engine.act([Plan(steps=[step])], node(tmp_path), errors)
    assert "".join(map(str, now.values())) == values
    assert (group.restored, errors) == (restored, [])
    assert len(reads) == (2 if fails else 1) and reads[-1] == values
    assert {name for name, dial in dials.items() if dial.reason} == set(fails)
    if fails.get("a") == "write":
        # Nothing in a unit is written after a failure in it.
        assert reads[0][1] == reads[0][3] == "0"


class Refused(Exception):
    """A refusal specific to this layer."""


RDMA = Layer("rdma", command_s=600.0, look_s=60.0, refusals=(Refused,))
REASON = Reason("RDMA drivers", "new", "old", "the kernel goes on", "boot-1")
HOLDS = Check("rdma_source", "inbox", "inbox", "ok")


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "container", lambda: "podman")
    monkeypatch.setattr(machine, "boot_id", lambda: "boot-2")
    real = reboots.recorded
    monkeypatch.setattr(
        reboots,
        "recorded",
        lambda tag, *root: real(tag, *root) if root else [replace(REASON, subject=tag)],
    )


def ended(converge: Any, of: Layer = RDMA, check_mode: bool = False) -> Ended:
    def settled(node: Node) -> Settled:
        if isinstance(converge, Exception):
            raise converge
        return converge(node) if callable(converge) else converge

    with pytest.raises(Ended) as caught:
        engine.carry_out(Module(check_mode), of, settled)
    return caught.value


@pytest.mark.parametrize("check_mode", [True, False])
def test_the_node_is_this_one(monkeypatch: pytest.MonkeyPatch, check_mode: bool) -> None:
    asked = {}
    monkeypatch.setattr(engine, "run", lambda argv, timeout_s: asked.update({argv: timeout_s}))
    seen = []
    ended(lambda node: seen.append(node) or Settled(Outcome()), check_mode=check_mode)
    (node,) = seen
    node.look("look")
    node.run("act")
    assert asked == {"look": 60.0, "act": 600.0}
    assert (node.layer, node.root, node.check_mode) == ("rdma", Path("/"), check_mode)
    assert (node.container, node.boot_id) == ("podman", "boot-2")
    assert node.rebooted_for == (replace(REASON, subject="rdma"),)


def test_the_whole_outcome_is_returned() -> None:
    diff = [{"before": "", "after": "x"}]
    outcome = Outcome(True, diff, [HOLDS], [REASON])
    done = ended(Settled(outcome, ["sys"], {"source": "inbox"}))
    assert not done.failed
    assert done.result.pop("checks")[0]["name"] == "rdma_source"
    assert done.result == {
        "changed": True,
        "layer": "rdma",
        "diff": diff,
        "container": "podman",
        "reboot_required": True,
        "reboot_reasons": [asdict(REASON)],
        "simulated": ["sys"],
        "source": "inbox",
    }


@pytest.mark.parametrize(
    ("settled", "check_mode", "done"),
    [
        (Settled(Outcome(checks=[HOLDS])), False, ["forget", ("k1", ["large"], ("now",))]),
        (Settled(Outcome(checks=[HOLDS])), True, []),
        (Settled(Outcome(checks=[replace(HOLDS, status="failed")])), False, ["forget"]),
        (Settled(Outcome(errors=["disk full"])), False, ["forget"]),
        (Settled(Outcome(), whole=False), False, ["forget"]),
        (PlanError("x"), False, ["forget"]),
    ],
)
def test_what_was_asked_is_recorded_when_it_was_read_back(
    monkeypatch: pytest.MonkeyPatch, settled: Any, check_mode: bool, done: list[Any]
) -> None:
    seen: list[Any] = []
    monkeypatch.setenv(asked.KEY, "k1")
    monkeypatch.setattr(asked, "forget", lambda _layer: seen.append("forget"))
    monkeypatch.setattr(
        asked,
        "remember",
        lambda _layer, key, *_given, public, of_run: seen.append((key, [*public], of_run)),
    )
    monkeypatch.setattr(Module, "argument_spec", {}, raising=False)
    ended(settled, replace(RDMA, public=("large",), of_run=("now",)), check_mode)
    assert seen == done


def test_failures_have_a_remedy() -> None:
    broken = Check("rdma_source", "inbox", "doca", "failed")
    done = ended(Settled(Outcome(checks=[broken], errors=["disk full"])))
    assert done.failed
    assert "--tags rdma (checks: docs/checks.md)." in done.result["msg"]
    assert "disk full" in done.result["msg"]
    assert done.result["reboot_required"] is False


@pytest.mark.parametrize("error", [PlanError("x"), RecordError("x"), Refused("x")])
def test_a_refusal_says_that_nothing_was_changed(error: Exception) -> None:
    done = ended(error)
    assert done.failed
    nothing = {"layer": "rdma", "checks": [], "simulated": []}
    assert done.result == {"msg": "rdma: nothing was changed:\nx", **nothing}


def test_a_refusal_is_as_strict_as_any_result(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = [Check("a", 1, 0, "pending"), Check("b", 1, 0, "reboot")]
    found = []
    for variable in ("", checks.STRICT, checks.REBOOTED):
        monkeypatch.setenv(variable or "UNUSED", "1")
        result = ended(PlanError("x", waiting)).result
        found.append([check["status"] for check in result["checks"]])
    assert found == [["pending", "reboot"], ["failed", "reboot"], ["failed", "failed"]]


@pytest.mark.parametrize("error", [CommandError("x"), OSError("x")])
def test_a_failure_does_not_claim_that_nothing_changed(error: Exception) -> None:
    done = ended(error)
    assert done.failed
    assert done.result["msg"] == "rdma: x"
    assert (done.result["checks"], done.result["simulated"]) == ([], [])
