# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settling parts: the layer's own record, and what happens to the rest when a step fails."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Node,
    Plan,
    PlanError,
    Step,
    StepError,
    Verdict,
)


@dataclass
class Recorded:
    """A part whose steps write down that they were done."""

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
                raise StepError("it does not work")
            self.done.append(name)

        return Step(name, "no", "yes", act, **how)

    def verify(self, node: Node) -> Verdict:
        return Verdict(reasons=self.reasons)


def node(root: Any, layer: str = "gpu") -> Node:
    def run(*args: Any, **more: Any) -> Any:
        raise AssertionError

    return Node(layer, root, run, None, "boot-1", uid=os.getuid(), gid=os.getgid())


def test_each_layer_keeps_a_record_of_its_own(tmp_path):
    reason = reboots.Reason("driver", "580", "570", "the kernel has the old one")
    settle([Recorded([], reasons=[reason])], node(tmp_path, "gpu"))
    settle([Recorded([])], node(tmp_path, "os"))
    assert list(reboots.required(tmp_path)) == ["gpu"]


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
    assert outcome.errors == ["packages: it does not work"]
    assert (tmp_path / "etc/later.conf").exists() is not essential
    assert [each.status for each in outcome.checks] == ["not_applicable" if essential else "ok"]


def test_a_file_that_cannot_be_written_ends_the_changes_and_not_the_run(tmp_path, monkeypatch):
    """What was stopped starts again, all is read back, and the reboot is recorded."""
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
    told = {each.subject: (each.status, each.reason) for each in outcome.checks}
    assert told["/etc/early.conf"] == ("ok", "")
    assert told["/etc/full.conf"][0] == "failed" and "No space left" in told["/etc/full.conf"][1]
    assert (
        told["/etc/late.conf"][0] == "not_applicable" and "not written" in told["/etc/late.conf"][1]
    )
    assert reboots.recorded("gpu", tmp_path) == outcome.reasons != []


def test_a_record_that_cannot_be_written_is_told_with_all_the_rest(tmp_path, monkeypatch):
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
    """A part that cannot even look: `where` it fails, and how."""

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
def test_a_part_that_cannot_plan_hides_nobody_elses_findings(tmp_path, error):
    seen: list[str] = []
    parts = [Failing("plan", error), Recorded(seen, [("step", {})], file="etc/one.conf")]
    check = Check("set", "right", "wrong", "failed")
    parts.append(Failing("plan", PlanError("the set is wrong", [check])))
    with pytest.raises(PlanError) as caught:
        settle(parts, node(tmp_path))
    assert str(caught.value) == f"{error}\nthe set is wrong"
    assert caught.value.checks == [check]
    assert seen == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [CommandError("dkms: no"), OSError(5, "I/O error")])
def test_what_cannot_be_read_back_stays_recorded(tmp_path, error):
    reason = reboots.Reason("driver", "580", "570", "the kernel has the old one")
    other = reboots.Reason("kernel", "6.8", "6.5", "it runs")
    settle([Recorded([], reasons=[reason])], node(tmp_path))
    later = replace(node(tmp_path), rebooted_for=tuple(reboots.recorded("gpu", tmp_path)))
    outcome = settle([Failing("verify", error), Recorded([], reasons=[other])], later)
    assert outcome.errors == [f"cannot be read back: {error}"]
    assert {each.subject for each in reboots.recorded("gpu", tmp_path)} == {"driver", "kernel"}
    settle([Recorded([], reasons=[other])], later)
    assert [each.subject for each in reboots.recorded("gpu", tmp_path)] == ["kernel"]


def test_what_only_looks_has_its_own_time(tmp_path):
    def look(*args: Any, **more: Any) -> Any:
        raise AssertionError

    here = node(tmp_path)
    assert here.look is here.run
    assert replace(here, looks=look).look is look


def test_a_step_that_changes_many_things_shows_each(tmp_path):
    one, other = ({"before": f"{word}\n", "after": "gone\n"} for word in ("one", "other"))
    step = Step("packages", "", "", lambda: None, shown=[one, other])
    assert step.diffs() == [one, other]
    assert Step("unit", "inactive", "active", lambda: None).diffs()[0]["after"] == "active\n"
