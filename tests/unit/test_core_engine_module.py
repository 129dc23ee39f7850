# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every layer's module does alike: the node it has, what it refuses and what it returns."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import (
    engine,
    machine,
    reboots,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import (
    Layer,
    Outcome,
    Settled,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.reboots import (
    Reason,
    RecordError,
)

from tests.unit.ended import Ended, Module


class Refused(Exception):
    """What only this layer refuses."""


class Broken(Exception):
    """What only this layer fails with."""


RDMA = Layer("rdma", command_s=600.0, look_s=60.0, refusals=(Refused,), failures=(Broken,))
REASON = Reason("RDMA drivers", "new", "old", "the kernel goes on", "boot-1")
HOLDS = Check("rdma_source", "inbox", "inbox", "ok")


@pytest.fixture(autouse=True)
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "container", lambda: "podman")
    monkeypatch.setattr(machine, "boot_id", lambda: "boot-2")
    monkeypatch.setattr(reboots, "recorded", lambda tag: [replace(REASON, subject=tag)])


def ended(
    converge: Any, of: Layer = RDMA, check_mode: bool = False, module: Optional[Module] = None
) -> Ended:
    def settled(node: Node) -> Settled:
        if isinstance(converge, Exception):
            raise converge
        return converge(node) if callable(converge) else converge

    with pytest.raises(Ended) as caught:
        engine.carry_out(module or Module(check_mode), of, settled)
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


def test_all_that_came_of_it_is_returned() -> None:
    diff = [{"before": "", "after": "x"}]
    outcome = Outcome(True, diff, [HOLDS], [REASON])
    module = Module()
    done = ended(Settled(outcome, ["sys"], ["doubtful"], {"source": "inbox"}), module=module)
    assert not done.failed
    assert module.warned == ["doubtful"]
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


def test_a_broken_promise_and_a_step_that_failed_say_how_to_go_on() -> None:
    broken = Check("rdma_source", "inbox", "doca", "failed")
    done = ended(Settled(Outcome(checks=[broken], errors=["disk full"])))
    assert done.failed
    assert "run again with --tags rdma (checks: docs/checks.md)." in done.result["msg"]
    assert "disk full" in done.result["msg"]
    assert done.result["reboot_required"] is False


@pytest.mark.parametrize("error", [PlanError("x"), RecordError("x"), Refused("x")])
def test_a_refusal_says_that_nothing_was_changed(error: Exception) -> None:
    done = ended(error)
    assert done.failed
    assert done.result == {
        "msg": "rdma: nothing was changed:\nx",
        "layer": "rdma",
        "checks": [],
        "simulated": [],
    }


def test_a_refusal_returns_its_checks() -> None:
    broken = Check("rdma_source", "inbox", "doca", "failed")
    assert ended(PlanError("x", [broken])).result["checks"] == [asdict(broken)]


@pytest.mark.parametrize("error", [CommandError("x"), OSError("x"), Broken("x")])
def test_a_failure_does_not_say_so(error: Exception) -> None:
    done = ended(error)
    assert done.failed
    assert done.result["msg"] == "rdma: x"
    assert (done.result["checks"], done.result["simulated"]) == ([], [])


def test_a_record_that_cannot_be_read_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(_tag: str) -> list[Reason]:
        raise RecordError("os.json: not a record")

    monkeypatch.setattr(reboots, "recorded", recorded)
    assert ended(Settled(Outcome())).result["msg"].startswith("rdma: nothing was changed:\nos.json")
