# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings that a reboot clears, on real kernels: restored without Ansible, or reported.

Virtual functions need a rail whose card has SR-IOV (`virtual_nodes_sriov_rails` of the inventory).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import BOOT_UNIT
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.boot_program import (
    RESULT,
    STATE,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.boot_unit import PROGRAM

from tests import waiting
from tests.nodes import Nodes

pytestmark = pytest.mark.machines

PLAYBOOK = "playbooks/rails.yml"
RAILS = f"/{PROGRAM}"
ALLOWED = '--extra-vars={"roce_rails_remove_vfs_in_use": true}'


@pytest.fixture
def node(machines: Nodes) -> Iterator[str]:
    """A node with this layer. It is restored afterwards."""
    name = machines.group("compute")[-1]
    machines.play(PLAYBOOK, f"--limit={name}")
    yield name
    machines.play(PLAYBOOK, f"--limit={name}")


def failed(machines: Nodes, name: str) -> list[str]:
    return list(json.loads(machines.on(name).file(f"/{RESULT}").content_string)["failed"])


def state(machines: Nodes, name: str) -> str:
    return machines.on(name).run("systemctl is-active %s", BOOT_UNIT).stdout.strip()


def test_everything_holds_after_a_reboot_without_ansible(machines: Nodes, node: str) -> None:
    before = machines.on(node).check_output(f"{RAILS} --check --json")
    machines.reboot(node)
    waiting.until(
        lambda: state(machines, node) not in ("activating", "unknown", ""), "the unit to end", 240
    )

    assert failed(machines, node) == []
    found = machines.on(node).run(f"{RAILS} --check --json")
    assert found.rc == 0 and json.loads(found.stdout) == json.loads(before)
    assert machines.play(PLAYBOOK, f"--limit={node}", "--check").total("changed") == 0


def test_what_is_changed_by_hand_is_seen_on_the_node(machines: Nodes, node: str) -> None:
    machines.on(node).check_output("dcb pfc set dev rail0 prio-pfc all:off")
    found = machines.on(node).run(f"{RAILS} --check")
    assert found.rc == 1 and "rail_pfc rail0: wanted" in found.stdout
    machines.on(node).check_output("systemctl start %s", BOOT_UNIT)
    assert machines.on(node).run(f"{RAILS} --check").rc == 0


def test_the_unit_fails_without_an_rdma_device_and_recovers(machines: Nodes, node: str) -> None:
    machines.on(node).check_output("rdma link delete rxe1")
    assert machines.on(node).run("systemctl start %s", BOOT_UNIT).rc != 0
    messages = machines.on(node).check_output("journalctl -b -p err -o cat -u %s", BOOT_UNIT)
    assert "rail_rdma rail1: wanted 'rail1', found None" in messages
    assert state(machines, node) == "failed"
    assert any("rail_rdma" in line for line in failed(machines, node))

    machines.on(node).check_output("rdma link add rxe1 type rxe netdev rail1")
    mended = lambda: failed(machines, node) == [] and state(machines, node) == "inactive"  # noqa: E731
    waiting.until(mended, "the unit to mend it", 240)


@pytest.mark.parametrize("damage", ["rm /{program}", "systemctl disable {unit}", "rm /{state}"])
def test_what_was_taken_from_the_unit_is_put_back(machines: Nodes, node: str, damage: str) -> None:
    words = {"program": PROGRAM, "unit": BOOT_UNIT, "state": STATE}
    machines.on(node).check_output(damage.format(**words))
    assert machines.play(PLAYBOOK, f"--limit={node}", "--check").total("changed") == 1
    assert machines.play(PLAYBOOK, f"--limit={node}").total("changed") == 1
    assert machines.play(PLAYBOOK, f"--limit={node}").total("changed") == 0


# Virtual functions


@pytest.fixture
def card(machines: Nodes) -> Iterator[tuple[str, str]]:
    """A node and its rail with SR-IOV, with four idle virtual functions created by hand."""
    cards = [
        (name, rail)
        for name in machines.group("compute")
        for rail in machines.of(name).get("virtual_nodes_sriov_rails", [])
    ]
    if not cards:
        pytest.skip("no rail of this inventory has SR-IOV (virtual_nodes_sriov_rails)")
    name, rail = cards[0]
    machines.play(PLAYBOOK, f"--limit={name}")
    machines.on(name).check_output(f"echo 4 >/sys/class/net/{rail}/device/sriov_numvfs")
    waiting.until(lambda: len(functions(machines, name, rail)) == 4, "four functions", 240)
    yield name, rail
    machines.play(PLAYBOOK, f"--limit={name}", ALLOWED)


def functions(machines: Nodes, name: str, rail: str) -> list[str]:
    found = machines.on(name).run(f"ls -d /sys/class/net/{rail}/device/virtfn*/net/*")
    return [path.rpartition("/")[2] for path in found.stdout.split()]


def test_idle_virtual_functions_are_shown_and_removed(
    machines: Nodes, card: tuple[str, str]
) -> None:
    name, rail = card
    shown = machines.play(PLAYBOOK, f"--limit={name}", "--check", "--diff")
    assert shown.output.count(", igbvf): idle") >= 4 and shown.total("changed") == 1
    assert len(functions(machines, name, rail)) == 4

    assert machines.play(PLAYBOOK, f"--limit={name}").total("failed") == 0
    numvfs = f"/sys/class/net/{rail}/device/sriov_numvfs"
    assert machines.on(name).file(numvfs).content_string == "0\n"
    assert machines.play(PLAYBOOK, f"--limit={name}").total("changed") == 0


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("ip link set {vf} up", "{vf} is up"),
        ("ip address add 192.0.2.1/24 dev {vf}", "{vf} carries 192.0.2.1/24"),
        ("ip netns add guest; ip link set {vf} netns guest", "another network namespace"),
        ("ip link add bond9 type bond; ip link set {vf} master bond9", "{vf} is used by bond9"),
    ],
)
def test_one_in_use_keeps_all_until_it_is_allowed(
    machines: Nodes, card: tuple[str, str], use: str, said: str
) -> None:
    name, rail = card
    vf = functions(machines, name, rail)[0]
    machines.on(name).check_output(f"sh -c '{use.format(vf=vf)}'")
    try:
        refused = machines.play(PLAYBOOK, f"--limit={name}", expect=2)
        assert said.format(vf=vf) in refused.output
        assert "roce_rails_remove_vfs_in_use: true" in refused.output
        numvfs = machines.on(name).file(f"/sys/class/net/{rail}/device/sriov_numvfs")
        assert numvfs.content_string == "4\n"

        machines.play(PLAYBOOK, f"--limit={name}", ALLOWED)
        assert functions(machines, name, rail) == []
    finally:
        machines.on(name).run("ip netns delete guest; ip link delete bond9")
