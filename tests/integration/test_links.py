# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links as seen from both ends, on the fabric of tests/fabric.py. The faults are injected by
hand. test_fabric.py covers drift of a switch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fabric import FABRIC, VirtualSwitch, failed_links, switch
from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

SWITCHES = ["leaf01", "leaf02", "leaf03", "spine01"]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    yield FABRIC.converged()
    FABRIC.down()


@pytest.fixture(scope="module")
def fabric(nodes: Nodes) -> dict[str, VirtualSwitch]:
    return {name: switch(nodes, name) for name in SWITCHES}


def test_matching_links_are_one_check_per_leaf(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    done = nodes.play("playbooks/links.yml")
    assert done.total("changed") == 0
    links = done.checks("links")
    listed = {check["subject"]: check["found"] for check in links if check["status"] == "ok"}
    assert set(listed) == {
        f"leaf0{number} to {where}" for number in (1, 2, 3) for where in ("nodes", "spines")
    }
    assert all(text.startswith(("1 links: ", "2 links: ")) for text in listed.values())
    assert all("DSCP 26 to TC 3" in text and "PFC on 3" in text for text in listed.values())
    reasons = [check["reason"] for check in links if check["status"] == "not_applicable"]
    assert sum("veth" in reason for reason in reasons) == len(nodes.group("compute"))
    (output,) = [line for line in done.output.splitlines() if line.startswith("links: report in ")]
    report = json.loads(Path(output.removeprefix("links: report in ")).read_text(encoding="utf-8"))
    assert {group["switch"] for group in report["links"]} == {"leaf01", "leaf02", "leaf03"}
    assert sum(group["agree"] for group in report["links"]) == 9


def test_a_rail_with_another_mtu_is_the_nodes_fault(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    mtu = "ip link set rail1 mtu {}"
    with nodes.by_hand("node02", mtu.format(1500), mtu.format(9000)):
        done = nodes.play("playbooks/links.yml", expect=2)
    assert failed_links(done) == {"node02": ["leaf02 swp2 - node02 rail1"]}
    (check,) = done.failed("links")
    assert check["name"] == "link_mtu"


def swap(nodes: Nodes, leaf: VirtualSwitch) -> str:
    """Let the first two ports of a leaf see each other's neighbour. Returns the swapped ports."""
    first, second = nodes.of(leaf.name)["cluster_ports"][0]["peers"]
    known = json.loads(leaf.shell("cat /etc/virtual-switch/switch.json"))["ports"]
    at = {port["name"]: port for port in known}
    leaf.fault(
        lldp={
            here: {"system": at[there]["peer"], "port": at[there]["peer_interface"]}
            for here, there in ((first, second), (second, first))
        }
    )
    return f"{leaf.name} {first} and {second}"


def test_swapped_cables_show_as_such_on_each_system(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    leaves = [fabric[name] for name in ("leaf01", "leaf02", "leaf03")]
    swapped = {swap(nodes, leaf) for leaf in leaves}
    try:
        done = nodes.play("playbooks/links.yml", expect=2)
    finally:
        for leaf in leaves:
            leaf.well()
    wrong = done.failed("links")
    assert {check["subject"] for check in wrong} == swapped
    assert all("swapped" in check["reason"] for check in wrong)


def test_a_limit_reads_no_host_outside_of_it(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    done = nodes.play("playbooks/links.yml", "--limit=leaf01,node02")
    assert set(done.report["remote_module_executions"]["hosts"]) == {"node02"}
    outside = [check for check in done.checks("links") if check["name"] == "link_other_end"]
    assert ["4" in check["wanted"] for check in outside] == [True]


def test_rails_of_different_leaves_reach_each_other(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    for here, there in ((0, 1), (2, 0)):
        source = nodes.of("node01")["cluster_rails"][here]["address"]
        target = nodes.of("node02")["cluster_rails"][there]["address"]
        done = nodes.on("node01").run(f"ping -c1 -W2 -M do -s 8972 -I {source} {target}")
        assert done.rc == 0, done.stdout
        assert "ttl=61" in done.stdout, "leaf, spine, leaf"
