# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A mixed fabric of virtual switches: two leaves of each system, two spines.

The switches alone are up, as an instance of their own; no node is needed. They are simulations:
what is proved is what this collection does, not what a real switch does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from tests import waiting
from tests.fabric import VirtualSwitch, switch
from tests.instances import describe
from tests.nodes import TOP, Nodes, Run
from tools.run_tests import descendants

pytestmark = pytest.mark.nodes

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnfabric
management: {subnet: 10.246.0.0/24, interface: mgmt0}
nodes: {count: 2, management_first: 10.246.0.11}
gpus: {count: 6}
rails: {count: 6, speed_gbps: 10}
addresses: {pool: 10.146.0.0/16, prefix: 24}
leaves:
  count: 6
  management_first: 10.246.0.101
  ports: 64
  system: [sonic, sonic, nvue, nvue, eos, eos]
  asic: [spectrum4, spectrum4, spectrum4, spectrum4, tomahawk5, tomahawk5]
spines:
  count: 2
  management_first: 10.246.0.121
  ports: 64
  system: [sonic, eos]
  asic: [spectrum4, tomahawk5]
launcher: {name: launcher01, management: 10.246.0.10}
"""
LEAVES = [f"leaf0{number}" for number in range(1, 7)]
SPINES = ["spine01", "spine02"]
ONE_OF_EACH = ["leaf01", "leaf03", "leaf05"]
OTHERS = ["leaf02", "leaf04", "leaf06"]
CONFIRM_S = 10
KILLED_CONFIRM_S = 30
"""Long enough for all to be killed and looked at while their timers run."""

T = TypeVar("T")
Fabric = dict[str, VirtualSwitch]


def together(do: Callable[[str], T], names: list[str]) -> dict[str, T]:
    """On several switches at once; the first that fails, fails."""
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(do, names)))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("fabric") / "inventory"
    nodes = describe(folder, MODEL)
    variables = folder / "group_vars/all.yml"
    names = f"virtual_nodes_names: [{', '.join(LEAVES + SPINES)}]\n"
    variables.write_text(variables.read_text() + names)
    nodes.state(present=False)
    nodes.state(present=True)
    yield nodes
    if not os.environ.get("KEEP_NODES"):
        nodes.state(present=False)


@pytest.fixture(scope="module")
def fabric(nodes: Nodes) -> Fabric:
    """Fresh, with what an operator has on every switch."""
    found = {name: switch(nodes, name) for name in LEAVES + SPINES}
    together(lambda name: found[name].operate(), list(found))
    return found


def run(nodes: Nodes, *words: str, **options: Any) -> Run:
    confirm = f"switch_qos_confirm_s={CONFIRM_S}"
    return nodes.play("site.yml", "--tags=fabric", "--extra-vars", confirm, *words, **options)


def states(fabric: Fabric, names: list[str]) -> dict[str, Any]:
    return together(lambda name: fabric[name].state(), names)


def logs(fabric: Fabric) -> dict[str, list[str]]:
    return together(lambda name: fabric[name].log(), list(fabric))


def of_layer(found: Run, host: str) -> dict[str, str]:
    """Status of each check of a switch."""
    checks = found.report["layers"]["fabric"]["hosts"][host]["checks"]
    return {f"{check['name']} {check['subject']}".strip(): check["status"] for check in checks}


def test_check_mode_says_what_would_change_and_at_what_cost_and_touches_nothing(
    nodes: Nodes, fabric: Fabric
) -> None:
    before, told = states(fabric, list(fabric)), logs(fabric)
    found = run(nodes, "--check", "--diff")
    assert logs(fabric) == told and states(fabric, list(fabric)) == before
    for name in fabric:
        assert of_layer(found, name)["configuration"] == "pending"
        assert f"{name} ({fabric[name].variables['cluster_system']}): " in found.output
    assert "leaf01: go down and come up again: Ethernet0" in found.output
    assert "leaf03: buffers of the whole switch are laid out anew" in found.output
    assert "+nv set qos roce mode lossless" in found.output
    assert "+PORT_QOS_MAP|Ethernet0 pfc_enable: 3" in found.output


FAULTS = [
    ("rejected", {"apply": "rejected"}, "the change was not applied"),
    ("partial", {"apply": "partial", "times": 1}, ""),
    ("cut", {"apply": "cut", "seconds": 20}, ""),
    ("disk full", {"apply": "disk_full", "times": 1}, ""),
    ("confirm lost", {"confirm": "lost", "seconds": 3}, "it is not known to be kept"),
    ("wrong read-back", {"read": "wrong"}, "it does not have the change that it accepted"),
]


@pytest.mark.parametrize(
    ("fault", "words"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS]
)
def test_after_a_fault_a_switch_is_what_it_was_and_the_message_names_it(
    nodes: Nodes, fabric: Fabric, fault: dict[str, Any], words: str
) -> None:
    """Over SSH, on SONiC; test_fabric_{nvue,eos}_simulation.py have the same over HTTPS."""
    name = "leaf01"
    before = fabric[name].state()
    fabric[name].fault(**fault)
    try:
        found = run(nodes, f"--limit={name}", expect=None)
    finally:
        fabric[name].well()
    assert found.rc != 0, found.output
    assert f"{name}: " in found.output and words in found.output
    assert "Its former state is back (read back)." in found.output, found.output
    assert f"fabric: {name}" not in found.output
    assert found.total("changed") == 0
    assert fabric[name].state() == before


def test_a_killed_controller_leaves_nothing_in_force(nodes: Nodes, fabric: Fabric) -> None:
    before = states(fabric, ONE_OF_EACH)

    def kill(name: str) -> Any:
        # Slow, so that there is time between what is in force and what is kept.
        fabric[name].fault(delay_s=1)
        words = ["--tags=fabric", f"--limit={name}", f"-eswitch_qos_confirm_s={KILLED_CONFIRM_S}"]
        running = subprocess.Popen(
            nodes.command("site.yml", *words),
            cwd=TOP,
            env=nodes.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        waiting.until(
            lambda: fabric[name].waits() or running.poll() is not None,
            f"a change of {name} to be in force",
            120,
        )
        assert running.poll() is None, "the run ended before it was killed"
        for pid in descendants(running.pid):
            os.kill(pid, signal.SIGKILL)
        running.wait()
        fabric[name].well()
        return fabric[name].state()  # now: the others may take longer than its timer runs

    in_force = together(kill, ONE_OF_EACH)
    assert all(in_force[name] != before[name] for name in ONE_OF_EACH), "killed too late"
    # A run that comes too early says that it has to wait.
    early = run(nodes, f"--limit={','.join(ONE_OF_EACH)}", expect=None)
    assert early.rc != 0 and early.total("changed") == 0, early.output
    waiting.until(
        lambda: states(fabric, ONE_OF_EACH) == before,
        "the switches to undo it",
        6 * KILLED_CONFIRM_S,
        every=1,
    )


def test_one_switch_that_is_down_stops_all_before_any_is_touched(
    nodes: Nodes, fabric: Fabric
) -> None:
    told = logs(fabric)
    container = "vnfabric.leaf06"
    subprocess.run(["podman", "pause", container], check=True, capture_output=True)
    try:
        found = run(nodes, "--extra-vars=switch_qos_timeout_s=2", expect=None)
    finally:
        subprocess.run(["podman", "unpause", container], check=True, capture_output=True)
    assert found.rc != 0 and found.total("changed") == 0
    assert "leaf06 cannot be planned" in found.output
    assert "nothing was applied to any switch" in found.output and "all:!leaf06" in found.output
    assert logs(fabric) == told


def test_a_limit_changes_one_switch_alone(nodes: Nodes, fabric: Fabric) -> None:
    told = logs(fabric)
    run(nodes, "--limit=spine02")
    after = logs(fabric)
    assert {name for name in fabric if after[name] != told[name]} == {"spine02"}


@pytest.fixture(scope="module")
def operators(fabric: Fabric) -> dict[str, Any]:
    return together(lambda name: fabric[name].operators(), list(fabric))


@pytest.fixture(scope="module")
def converged(nodes: Nodes, fabric: Fabric, operators: dict[str, Any]) -> Run:
    return run(nodes)


def test_every_switch_keeps_the_contract_after_a_run(converged: Run, fabric: Fabric) -> None:
    for name in fabric:
        assert set(of_layer(converged, name).values()) == {"ok"}, name
    for name in LEAVES:
        fabric[name].keeps_the_contract()
    assert converged.hosts_with("changed") == set(fabric) - {"spine02"}


def test_a_second_run_opens_no_session_revision_or_checkpoint(
    nodes: Nodes, converged: Run, fabric: Fabric
) -> None:
    told, before = logs(fabric), states(fabric, list(fabric))
    found = run(nodes, "--diff")
    assert found.total("changed") == 0 and "to change" not in found.output
    assert logs(fabric) == told and states(fabric, list(fabric)) == before
    proved = nodes.play("playbooks/verify.yml", "--tags=fabric")
    assert all(set(of_layer(proved, name).values()) == {"ok"} for name in fabric)
    assert logs(fabric) == told


def test_what_is_the_operators_is_untouched(
    converged: Run, fabric: Fabric, operators: dict[str, Any]
) -> None:
    assert together(lambda name: fabric[name].operators(), list(fabric)) == operators


def test_drift_by_hand_is_found_named_and_repaired_where_it_is(
    nodes: Nodes, converged: Run, fabric: Fabric
) -> None:
    before = states(fabric, list(fabric))
    together(lambda name: fabric[name].drift(), OTHERS)
    drifted = states(fabric, OTHERS)
    assert all(drifted[name][0] != before[name][0] for name in OTHERS)

    seen = nodes.play("playbooks/verify.yml", "--tags=fabric", expect=None)
    assert seen.rc != 0 and states(fabric, OTHERS) == drifted
    assert seen.hosts_with("failed") == set(OTHERS)
    for name in OTHERS:
        failed = {check for check, status in of_layer(seen, name).items() if status == "failed"}
        assert "configuration" in failed
        assert any(check.startswith("port_pfc") for check in failed), failed
        assert any(check.startswith("port_mtu") for check in failed), failed
        assert f"site.yml --tags fabric --limit {name}" in seen.output

    # Slow switches are waited for.
    together(lambda name: fabric[name].fault(delay_s=0.3), OTHERS)
    run(nodes, "--limit=leaf04")
    assert states(fabric, ["leaf02", "leaf06"]) == {n: drifted[n] for n in ("leaf02", "leaf06")}
    repaired = run(nodes)
    together(lambda name: fabric[name].well(), OTHERS)
    assert repaired.hosts_with("changed") == {"leaf02", "leaf06"}
    after = states(fabric, list(fabric))
    for name in fabric:
        assert after[name][0] == before[name][0], name
