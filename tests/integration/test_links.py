# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links from both their ends, on nodes and switches of an instance of their own: one leaf of each
system, and a spine. Mistakes are made by hand, past the code under test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import run as command
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.inventory import (
    VirtualNetworkError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.routing import Routing

from tests.fabric import VirtualSwitch, switch
from tests.instances import describe
from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnlinks
management: {subnet: 172.30.239.0/24, interface: mgmt0}
nodes: {count: 2, management_first: 172.30.239.11, slots: 2}
rails: {count: 3, speed_gbps: 10, mtu: 9000}
addresses: {pool: 10.152.0.0/16, prefix: 24}
leaves:
  count: 3
  management_first: 172.30.239.101
  ports: 64
  system: [sonic, nvue, eos]
  asic: [spectrum4, spectrum4, tomahawk5]
spines: {count: 1, ports: 64, management_first: 172.30.239.121, system: sonic, asic: spectrum4}
launcher: {name: launcher01, management: 172.30.239.10}
"""
NODES, SWITCHES = ["node01", "node02"], ["leaf01", "leaf02", "leaf03", "spine01"]


def routed() -> bool:
    """Whether leaves and spines can be routers here."""
    try:
        Routing(command).require()
    except VirtualNetworkError:
        return False
    return True


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("links") / "inventory"
    nodes = describe(folder, MODEL)
    variables = folder / "group_vars/all.yml"
    variables.write_text(
        variables.read_text()
        + f"virtual_nodes_names: [{', '.join(NODES + SWITCHES)}]\n"
        + f"virtual_nodes_fabric: {'routed' if routed() else 'bridges'}\n"
    )
    nodes.state(present=False)
    nodes.state(present=True)
    yield nodes
    if not os.environ.get("KEEP_NODES"):
        nodes.state(present=False)


@pytest.fixture(scope="module")
def fabric(nodes: Nodes) -> dict[str, VirtualSwitch]:
    """Set up, rails and switches."""
    done = nodes.play("site.yml", "--tags=rails,fabric,links")
    failed = [line for line in lines(done) if line["status"] == "failed"]
    assert failed == []
    return {name: switch(nodes, name) for name in SWITCHES}


def lines(done: Run) -> list[dict[str, Any]]:
    """Every check of the links, whoever was told it."""
    hosts = done.report["layers"]["links"]["hosts"].values()
    return [check for host in hosts for check in host["checks"]]


def failed_on(done: Run) -> dict[str, list[str]]:
    """By host, the links that it failed for."""
    return {
        name: [check["subject"] for check in host["checks"] if check["status"] == "failed"]
        for name, host in done.report["layers"]["links"]["hosts"].items()
        if any(check["status"] == "failed" for check in host["checks"])
    }


def test_before_the_first_run_check_mode_passes_with_all_of_it_pending(nodes: Nodes) -> None:
    done = nodes.play("site.yml", "--tags=rails,fabric,links", "--check")
    statuses = {check["status"] for check in lines(done)}
    assert "pending" in statuses
    assert "failed" not in statuses


def test_links_that_agree_are_a_line_for_each_leaf_with_the_figures(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    done = nodes.play("playbooks/links.yml")
    assert done.total("changed") == 0
    told = {check["subject"]: check["found"] for check in lines(done) if check["status"] == "ok"}
    assert set(told) == {
        f"leaf0{number} to {where}" for number in (1, 2, 3) for where in ("nodes", "spines")
    }
    assert all(text.startswith(("1 links: ", "2 links: ")) for text in told.values())
    assert all("DSCP 26 to TC 3" in text and "PFC on 3" in text for text in told.values())
    reasons = [check["reason"] for check in lines(done) if check["status"] == "not_applicable"]
    assert reasons.count("not applicable on what is no RoCE NIC (driver veth)") == len(NODES)
    assert "9 in the model, 9 with nothing wrong in what both ends say" in done.output


def test_a_run_of_all_layers_reads_nobody_twice(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    done = nodes.play("site.yml", "--tags=rails,fabric,links")
    assert done.total("changed") == 0
    assert set(done.report["remote_module_executions"]["hosts"].values()) == {1}, "roce_rails"
    assert set(done.report["remote_module_executions"]["hosts"]) == set(NODES)


def test_a_drift_on_each_system_is_found_at_the_end_that_is_wrong_and_repaired(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    leaves = ["leaf01", "leaf02", "leaf03"]
    for name in leaves:
        fabric[name].drift()
    done = nodes.play("playbooks/links.yml", expect=2)
    found = failed_on(done)
    assert sorted(found) == leaves
    wrong = [check for check in lines(done) if check["status"] == "failed"]
    assert {check["name"] for check in wrong} >= {"link_pfc", "link_mtu"}
    for check in wrong:
        leaf = check["subject"].split()[0]
        assert check["reason"].startswith(f"{leaf} is wrong"), check
        assert check["reason"].endswith(
            f"Repair: ansible-playbook site.yml --tags fabric --limit {leaf}"
        )
    nodes.play("site.yml", "--tags=fabric", f"--limit={','.join(leaves)}")
    assert failed_on(nodes.play("playbooks/links.yml")) == {}


def test_a_rail_with_another_mtu_is_the_nodes_fault(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    nodes.on("node02").run("ip link set rail1 mtu 1500")
    done = nodes.play("playbooks/links.yml", expect=2)
    assert failed_on(done) == {"node02": ["leaf02 swp2 - node02 rail1"]}
    (check,) = [each for each in lines(done) if each["status"] == "failed"]
    assert check["name"] == "link_mtu"
    done = nodes.play("site.yml", "--tags=rails,links", "--limit=node02")
    assert failed_on(done) == {}


def swap(nodes: Nodes, leaf: VirtualSwitch) -> str:
    """Have the first two ports of a leaf see each other's neighbour; returns what is swapped."""
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
    wrong = [each for each in lines(done) if each["status"] == "failed"]
    assert {check["subject"] for check in wrong} == swapped
    assert all("are swapped" in check["reason"] for check in wrong)


def test_a_limit_reads_nobody_outside_of_it(nodes: Nodes, fabric: dict[str, VirtualSwitch]) -> None:
    done = nodes.play("playbooks/links.yml", "--limit=leaf01,node02")
    assert set(done.report["remote_module_executions"]["hosts"]) == {"node02"}
    outside = [check for check in lines(done) if check["name"] == "link_other_end"]
    assert [check["wanted"] for check in outside] == ["both ends of 4 links"]


def test_rails_of_different_leaves_reach_each_other(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    if not routed():
        pytest.skip("FRR is not installed (apt-get install frr): leaves are bridges here")
    for here, there in ((0, 1), (2, 0)):
        source = nodes.of("node01")["cluster_rails"][here]["address"]
        target = nodes.of("node02")["cluster_rails"][there]["address"]
        done = nodes.on("node01").run(f"ping -c1 -W2 -M do -s 8972 -I {source} {target}")
        assert done.rc == 0, done.stdout
        assert "ttl=61" in done.stdout, "leaf, spine, leaf"


def test_the_report_lies_where_the_summary_lies(
    nodes: Nodes, fabric: dict[str, VirtualSwitch]
) -> None:
    done = nodes.play("playbooks/links.yml")
    (said,) = [line for line in done.output.splitlines() if line.startswith("links: report in ")]
    report = json.loads(Path(said.removeprefix("links: report in ")).read_text(encoding="utf-8"))
    assert {group["switch"] for group in report["links"]} == {"leaf01", "leaf02", "leaf03"}
    assert sum(group["agree"] for group in report["links"]) == 9
