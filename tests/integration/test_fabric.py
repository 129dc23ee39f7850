# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A mixed fabric of virtual switches: a leaf of each system, and a spine (tests/fabric.py).

The switches are simulations: the tests show what this collection does, not what a real switch does.
tests/unit/test_fabric_role.py covers batches and when a run stops.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests import faults, waiting
from tests.fabric import CONFIRM, FABRIC, SWITCH_FAULTS, VirtualSwitch, failed_links, switch
from tests.nodes import Nodes, Run
from tools.run_tests import descendants

pytestmark = pytest.mark.nodes

LEAVES = [f"leaf0{number}" for number in (1, 2, 3)]
KILLED_CONFIRM_S = round(waiting.deadline(30))
"""Long enough to kill and examine all of them while their timers run."""

T = TypeVar("T")
Fabric = dict[str, VirtualSwitch]


def together(do: Callable[[str], T], names: list[str]) -> dict[str, T]:
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(do, names)))


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    """New switches, each with additional configuration of an operator."""
    nodes = FABRIC.fresh()
    found = {name: switch(nodes, name) for name in nodes.group("leaf", "spine")}
    FABRIC.used()
    together(lambda name: found[name].operate(), list(found))
    return found


@pytest.fixture(scope="module")
def nodes(fabric: Fabric) -> Nodes:
    return FABRIC.nodes


def run(nodes: Nodes, *words: str, **options: Any) -> Run:
    return nodes.play("site.yml", "--tags=fabric", CONFIRM, *words, **options)


def states(fabric: Fabric, names: list[str]) -> dict[str, Any]:
    return together(lambda name: fabric[name].state(), names)


def logs(fabric: Fabric) -> dict[str, list[str]]:
    return together(lambda name: fabric[name].log(), list(fabric))


def of_layer(found: Run, host: str) -> dict[str, str]:
    return {
        f"{check['name']} {check['subject']}".strip(): check["status"]
        for check in found.checks("fabric", host)
    }


def test_check_mode_reports_changes_and_their_impact(nodes: Nodes, fabric: Fabric) -> None:
    before, listed = states(fabric, list(fabric)), logs(fabric)
    found = nodes.play(FABRIC.playbook, *FABRIC.words, "--check", "--diff")
    assert logs(fabric) == listed and states(fabric, list(fabric)) == before
    for name in fabric:
        assert of_layer(found, name)["configuration"] == "pending"
        assert f"{name} ({fabric[name].variables['cluster_system']}): " in found.output
    assert re.search(r"leaf01: .*: Ethernet0", found.output)
    assert re.search(r"leaf02: .*buffers", found.output)
    assert "+nv set qos roce mode lossless" in found.output
    assert "+PORT_QOS_MAP|Ethernet0 pfc_enable: 3" in found.output
    statuses = {check["status"] for check in found.checks("links")}
    assert "pending" in statuses and "failed" not in statuses


FAULTS = {
    "partial": {"apply": "partial"},
    "cut": {"apply": "cut", "seconds": 8},
    "confirm lost": {"confirm": "lost", "seconds": 3},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_faulty_switch_is_named_and_unchanged(
    nodes: Nodes, fabric: Fabric, fault: dict[str, Any]
) -> None:
    """tests/unit covers each fault of each system."""
    name = "leaf01"
    before = fabric[name].state()
    fabric[name].fault(**fault)
    try:
        found = run(nodes, f"--limit={name}", expect=None)
    finally:
        fabric[name].well()
    assert found.rc != 0, found.output
    assert f"{name}: " in found.output
    assert f"fabric: {name}" not in found.output
    assert found.total("changed") == 0
    assert fabric[name].state() == before


def test_a_killed_controller_leaves_nothing_in_force(nodes: Nodes, fabric: Fabric) -> None:
    before = states(fabric, LEAVES)

    def kill(name: str) -> Any:
        # Slow, so that there is time between applying and saving.
        fabric[name].fault(delay_s=1)
        words = ["--tags=fabric", f"--limit={name}", f"-eswitch_qos_confirm_s={KILLED_CONFIRM_S}"]
        running = nodes.start("site.yml", *words, output=subprocess.DEVNULL)
        waiting.until(
            lambda: fabric[name].waits() or running.poll() is not None,
            f"a change of {name} to be in force",
            120,
        )
        assert running.poll() is None, "the run was finished before the kill"
        for pid in descendants(running.pid):
            os.kill(pid, signal.SIGKILL)
        running.wait()
        fabric[name].well()
        return fabric[name].state()  # now: the others may take longer than its timer

    in_force = together(kill, LEAVES)
    assert all(in_force[name] != before[name] for name in LEAVES), "killed too late"
    # A run that starts too early reports how long it must wait.
    early = run(nodes, f"--limit={','.join(LEAVES)}", expect=None)
    assert early.rc != 0 and early.total("changed") == 0, early.output
    waiting.until(
        lambda: states(fabric, LEAVES) == before,
        "the switches to undo it",
        6 * KILLED_CONFIRM_S,
        every=1,
    )


def test_one_switch_that_is_down_stops_all_before_any_is_touched(
    nodes: Nodes, fabric: Fabric
) -> None:
    listed = logs(fabric)
    container = "vnfabric.leaf03"
    subprocess.run(["podman", "pause", container], check=True, capture_output=True)
    try:
        found = run(
            nodes, f"--extra-vars=switch_qos_timeout_s={waiting.deadline(2):.0f}", expect=None
        )
    finally:
        subprocess.run(["podman", "unpause", container], check=True, capture_output=True)
    assert found.rc != 0 and found.total("changed") == 0
    assert "all:!leaf03" in found.output
    assert logs(fabric) == listed


@pytest.fixture(scope="module")
def operators(fabric: Fabric) -> dict[str, Any]:
    return together(lambda name: fabric[name].operators(), list(fabric))


@pytest.fixture(scope="module")
def converged(nodes: Nodes, operators: dict[str, Any]) -> Run:
    return FABRIC.converge()


def test_every_switch_keeps_the_contract_after_a_run(converged: Run, fabric: Fabric) -> None:
    for name in fabric:
        assert set(of_layer(converged, name).values()) == {"ok"}, name
    for name in LEAVES:
        fabric[name].keeps_the_contract()
    assert converged.hosts_with("changed") >= set(LEAVES)
    assert failed_links(converged) == {}


def test_a_second_run_opens_no_session_revision_or_checkpoint(
    nodes: Nodes, converged: Run, fabric: Fabric
) -> None:
    listed, before = logs(fabric), states(fabric, list(fabric))
    found = nodes.play(FABRIC.playbook, *FABRIC.words, "--diff")
    assert found.total("changed") == 0 and "to change" not in found.output
    assert logs(fabric) == listed and states(fabric, list(fabric)) == before
    # Layers that need the rails of a node read them only once.
    executions = found.report["remote_module_executions"]["hosts"]
    assert executions == dict.fromkeys(nodes.group("compute"), 1), "roce_rails"


def test_what_is_the_operators_is_untouched(
    converged: Run, fabric: Fabric, operators: dict[str, Any]
) -> None:
    assert together(lambda name: fabric[name].operators(), list(fabric)) == operators


def test_drift_by_hand_is_found_named_and_repaired_where_it_is(
    nodes: Nodes, converged: Run, fabric: Fabric, tmp_path: Path
) -> None:
    """Each switch separately; for its links a fault concerns one end, which drift names."""
    before = states(fabric, list(fabric))
    together(lambda name: fabric[name].drift(), LEAVES)
    drifted = states(fabric, LEAVES)
    assert all(drifted[name][0] != before[name][0] for name in LEAVES)

    words = ("--tags=fabric,links", "--limit=localhost:compute:leaf:spine")
    seen = faults.drift(nodes, tmp_path, *words, expect=2)
    assert states(fabric, LEAVES) == drifted
    assert faults.missed(seen, SWITCH_FAULTS) == []
    assert sorted(seen.report["layers"]["fabric"]["hosts"]) == LEAVES
    assert {each["host"] for each in seen.report["findings"]} <= {*LEAVES}
    for name in LEAVES:
        assert "configuration" in {check["name"] for check in seen.failed("fabric", name)}
    for each in seen.report["findings"]:
        assert each["new"] and each["found"] != each["desired"]
        wanted = f" --tags fabric --limit {each['host']}" if each["layer"] == "fabric" else ""
        assert each["command"].endswith(wanted), each

    linked = nodes.play("playbooks/links.yml", expect=2)
    assert sorted(failed_links(linked)) == LEAVES
    wrong = linked.failed("links")
    assert {check["name"] for check in wrong} >= {"link_pfc", "link_mtu"}
    for check in wrong:
        leaf = check["subject"].split()[0]
        assert check["reason"].startswith(f"{leaf} is wrong"), check
        assert check["reason"].endswith(
            f"Repair: ansible-playbook site.yml --tags fabric --limit {leaf}"
        )

    # Slow switches are waited for.
    together(lambda name: fabric[name].fault(delay_s=0.3), LEAVES)
    run(nodes, "--limit=leaf02")
    assert states(fabric, ["leaf01", "leaf03"]) == {n: drifted[n] for n in ("leaf01", "leaf03")}
    repaired = nodes.play(FABRIC.playbook, *FABRIC.words)
    together(lambda name: fabric[name].well(), LEAVES)
    assert repaired.hosts_with("changed") == {"leaf01", "leaf03"}
    assert failed_links(repaired) == {}
    clean = faults.drift(nodes, tmp_path, *words, expect=0)
    every = {faults.key(each) for each in seen.report["findings"]}
    assert faults.history(tmp_path, "found") == dict.fromkeys(every, seen.report["started"])
    assert faults.history(tmp_path, "repaired") == dict.fromkeys(every, clean.report["started"])
    after = states(fabric, list(fabric))
    for name in fabric:
        assert after[name][0] == before[name][0], name
