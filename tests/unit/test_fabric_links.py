# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every link: agreement is one line, and each mismatch names the wrong end."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import SwitchEntry

from tests.unit.link_fabric import SPINES, Fabric, mac


def test_a_compliant_fabric_has_one_line_per_kind_of_link() -> None:
    fabric = Fabric()
    links = fabric.check()
    assert {check.status for check in links.checks} == {"ok"}
    listed = {check.subject: check.found for check in links.checks}
    assert list(listed) == [
        "leaf01 to nodes",
        "leaf01 to spines",
        "leaf02 to nodes",
        "leaf02 to spines",
    ]
    figures = "3 26 3 48 6 6 3 3 150000 1500000 100 9198 400 50 299008 200 400"
    assert " ".join(re.findall("[0-9]+", listed["leaf01 to nodes"])) == figures
    assert links.neighbours == 3 * 2 + 2 * 2


def test_one_end_that_differs_is_the_wrong_one() -> None:
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8")["pfc_priorities"] = (3, 4)
    check = fabric.one()
    assert check.name == "link_pfc"
    assert check.subject == "leaf01 Ethernet8 - node02 rail0"
    assert check.wanted == "PFC on 3"
    assert (check.found.count("PFC on"), check.found.count("4")) == (2, 1)
    assert check.reason.startswith("leaf01 is wrong. ")
    assert check.reason.endswith("site.yml --tags fabric --limit leaf01")


def test_a_buffer_that_is_fixed_by_hand_is_mended_by_hand() -> None:
    """NVUE, with the `port-buffer` of NVIDIA's template for a SuperPOD."""
    fabric = Fabric(system="nvue")
    for port in fabric.switches["leaf01"].report["ports"]:
        port["cable_metres"] = None
    fabric.port("leaf01", "swp2")["headroom_bytes"] = 288000
    check = fabric.one()
    assert (check.name, check.subject) == ("link_headroom", "leaf01 swp2 - node02 rail0")
    assert "port-buffer" in check.reason and "--tags fabric" not in check.reason


def test_two_ends_that_differ_from_the_contract_in_different_ways() -> None:
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8")["pfc_priorities"] = (4,)
    fabric.setting("node02", "rail0", "pfc")["found"] = [5]
    reason = fabric.one().reason
    assert reason.startswith("both ends are wrong.")
    assert "--tags fabric --limit leaf01" in reason
    assert "--tags rails --limit node02" in reason


def test_rails_without_a_nic_are_one_line_for_a_node() -> None:
    fabric = Fabric(nodes=2, rails=8)
    reason = "not applicable: not a RoCE NIC (driver veth)"
    for node in fabric.nodes.values():
        node.state["settings"] = {name: {} for name in node.state["settings"]}
        node.state["checks"] = [
            {"name": "rail_settings", "subject": rail, "status": "not_applicable", "reason": reason}
            for rail in node.state["rails"]
        ]
    assert fabric.failed() == []
    listed = fabric.not_applicable()
    assert [(check.subject, check.reason) for check in listed] == [
        (f"{name} rail0, rail1, rail2, rail3, rail4, rail5, rail6, rail7", reason)
        for name in ("node01", "node02")
    ]
    assert (listed[0].name, listed[0].wanted) == ("link_settings", "settings")


def test_a_rail_without_rdma_device_fails_with_its_reason() -> None:
    fabric = Fabric()
    state = fabric.nodes["node01"].state
    state["settings"]["rail0"] = {}
    state["checks"] = [
        {
            "name": "rail_settings",
            "subject": "rail0",
            "status": "failed",
            "reason": "rail0 has no RDMA device: is mlx5_ib loaded?",
        }
    ]
    failed = fabric.failed()
    assert {check.subject for check in failed} == {"leaf01 Ethernet0 - node01 rail0"}
    assert all("is mlx5_ib loaded?" in check.found for check in failed)


def test_what_a_system_never_says_is_not_applicable_once() -> None:
    fabric = Fabric()
    for port in fabric.switches["leaf01"].report["ports"]:
        port["cable_metres"] = None
    assert fabric.failed() == []
    (check,) = fabric.not_applicable()
    assert "cable_metres" in check.reason
    assert check.subject.startswith("leaf01 Ethernet0, Ethernet8, Ethernet16")


@pytest.mark.parametrize(
    ("system", "minimum", "maximum", "right"),
    [
        ("sonic", 150001, 1500000, False),
        ("eos", 150000, 1499999, False),
        ("nvue", 159744, 1511424, True),
        ("nvue", 159743, 1511424, False),
        ("nvue", 172032, 1500000, False),
    ],
)
def test_thresholds_may_be_rounded_by_the_chip(
    system: str, minimum: int, maximum: int, right: bool
) -> None:
    fabric = Fabric(system=system, asic="tomahawk5" if system == "eos" else "spectrum4")
    (port, *_) = fabric.switches["leaf01"].report["ports"]
    port["ecn"][3].update(minimum_bytes=minimum, maximum_bytes=maximum)
    assert [check.name for check in fabric.failed()] == ([] if right else ["link_ecn"])


WATCHDOG = Fabric().port("leaf01", "Ethernet8")["watchdog"]


@pytest.mark.parametrize(
    ("fields", "name", "found"),
    [
        ({"cable_metres": None}, "link_cable", "the switch does not report it"),
        ({"weights": {"0": 99, "3": 1, "5": 7}}, "link_weights", "TC 0 has 99 %, TC 3 has 1 %"),
        ({"weights": {0: 50}}, "link_weights", "TC 0 has 50 %, TC 3 has 0 %"),
        ({"strict_queues": (3, 6)}, "link_queues", "TC 3 (roce) strict too"),
        ({"headroom_bytes": 104448, "platform_headroom_bytes": 104448}, "", ""),
        ({"headroom_bytes": 104447, "platform_headroom_bytes": 104448}, "link_headroom", "104447"),
        ({"headroom_bytes": 299008}, "", ""),
        ({"headroom_bytes": 299007}, "link_headroom", "leaf01 Ethernet8: 299007 bytes"),
        ({"watchdog": {**WATCHDOG, "restoration_ms": 0}}, "", ""),
        ({"watchdog": {**WATCHDOG, "detection_ms": 500}}, "link_watchdog", "drop after 500 ms"),
        ({"watchdog": {**WATCHDOG, "poll_ms": 50}}, "", ""),
        ({"watchdog": {**WATCHDOG, "poll_ms": 101}}, "link_watchdog", "101 ms"),
    ],
)
def test_a_value_of_one_port(fields: dict[str, Any], name: str, found: str) -> None:
    """A larger headroom, the platform's own, or a faster watchdog is as good as the contract's."""
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8").update(fields)
    assert [check.name for check in fabric.failed()] == ([name] if name else [])
    assert not name or found in fabric.one().found


def test_a_system_with_one_cable_length_has_the_longest() -> None:
    fabric = Fabric()
    port = fabric.port("leaf01", "Ethernet8")
    port["cable_metres"] = 100
    assert fabric.one().name == "link_cable"
    fabric.change_switch("leaf01", system="nvue")
    assert fabric.failed() == []
    port["cable_metres"] = 40
    assert fabric.one().found == "leaf01 Ethernet8: 40 m"


def test_a_link_that_is_down_says_nothing_of_speeds() -> None:
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8").update(up=False, speed_gbps=None, neighbour=None)
    fabric.rail("node02", "rail0").update(carrier=False, speed_gbps=None)
    check = fabric.one()
    assert check.name == "link_up"
    assert check.found == "leaf01 Ethernet8: down; node02 rail0: no carrier"
    assert "ansible-playbook" not in check.reason, "no layer repairs it"


def test_a_rail_that_nobody_set_up_is_no_broken_link() -> None:
    fabric = Fabric()
    fabric.rail("node02", "rail0").update(up=False, carrier=False, speed_gbps=None)
    check = fabric.one()
    assert check.found == "leaf01 Ethernet8: up; node02 rail0: not set up"
    assert check.reason.endswith("ansible-playbook site.yml --tags rails --limit node02")
    assert fabric.failed(check_mode=True) == []
    fabric.rail("node02", "rail0")["up"] = True
    assert fabric.one(check_mode=True).found == "leaf01 Ethernet8: up; node02 rail0: no carrier"


def test_a_port_and_a_rail_that_are_not_there() -> None:
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8")["present"] = False
    del fabric.nodes["node01"].state["rails"]["rail1"]
    failed = {check.subject: check for check in fabric.failed()}
    assert "no such port" in failed["leaf01 Ethernet8 - node02 rail0"].found
    assert "no such rail" in failed["leaf02 Ethernet0 - node01 rail1"].found


def test_hosts_without_a_report_fail_and_their_links_are_half_checked() -> None:
    fabric = Fabric()
    fabric.change_switch("leaf01", report=None, reason="leaf01: Connection refused")
    fabric.change_node("node03", state=None)
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    failed = {check.subject: check for check in fabric.failed()}
    assert set(failed) == {"leaf01", "node03", "leaf01 Ethernet8 - node02 rail0"}
    assert failed["leaf01"].reason.startswith("leaf01: Connection refused. Try:")
    assert failed["node03"].reason.startswith("node03 returned nothing")
    reason = failed["leaf01 Ethernet8 - node02 rail0"].reason
    assert reason.startswith("node02 is wrong (leaf01")
    groups = {(group.switch, group.to): group for group in fabric.check().groups}
    group = groups["leaf01", "nodes"]
    assert (group.links, group.agree, group.one_end, group.wrong, group.unread) == (3, 0, 1, 1, 1)


def test_switches_without_a_system_are_told_once() -> None:
    fabric = Fabric(spines="")
    for name in fabric.switches:
        fabric.change_switch(name, system="", report=None)
    assert fabric.failed() == []
    (check,) = fabric.not_applicable()
    assert "leaf01, leaf02" in check.reason


def test_within_a_limit_other_ends_are_said_not_to_be_read() -> None:
    fabric = Fabric()
    for name in ("node01", "node03"):
        fabric.change_node(name, state=None)
    fabric.change_switch("leaf02", report=None)
    for name in ("spine01", "spine02"):
        fabric.change_switch(name, report=None)
    inside = ["leaf01", "node02"]
    assert fabric.failed(inside=inside) == []
    names = [check.name for check in fabric.not_applicable(inside=inside)]
    assert "link_other_end" in names
    groups = {(group.switch, group.to): group.links for group in fabric.check(inside=inside).groups}
    assert groups == {("leaf01", "nodes"): 3, ("leaf02", "nodes"): 1, ("leaf01", "spines"): 2}


# Cables


def test_swapped_uplinks_are_one_line_although_four_ends_hear_them() -> None:
    fabric = Fabric()
    ups = [port for port in fabric.switches["leaf01"].report["ports"] if port["cable_metres"] > 50]
    ups[0]["neighbour"], ups[1]["neighbour"] = ups[1]["neighbour"], ups[0]["neighbour"]
    downs = [fabric.port(spine, "Ethernet0") for spine in ("spine01", "spine02")]
    downs[0]["neighbour"], downs[1]["neighbour"] = downs[1]["neighbour"], downs[0]["neighbour"]
    check = fabric.one()
    assert "are swapped" in check.reason
    assert check.subject == f"leaf01 {ups[0]['name']} and {ups[1]['name']}"


def test_a_neighbour_known_by_full_name_by_alias_or_by_mac() -> None:
    fabric = Fabric()
    (up, *_) = [p for p in fabric.switches["leaf01"].report["ports"] if p["cable_metres"] > 50]
    up["neighbour"] = {"system": "Spine01.example.net", "port": "etp1"}
    fabric.port("spine01", "Ethernet0")["alias"] = "etp1"
    fabric.port("leaf01", "Ethernet0")["neighbour"] = {"system": "node01", "port": "rail0"}
    fabric.port("leaf01", "Ethernet8")["neighbour"] = {
        "system": "node02.example.net",
        "port": mac("node02", "rail0").upper(),
    }
    assert fabric.failed() == []
    up["neighbour"]["port"] = "etp2"
    assert "etp2" in fabric.one().found


@pytest.mark.parametrize("output", ["spine01", "SPINE01.dc1", "spine01.dc1.example.net"])
def test_a_domain_that_the_inventory_has_and_lldp_has_not(output: str) -> None:
    fabric = renamed({"spine01": "spine01.dc1", "spine02": "spine02.dc1"})
    (up, *_) = [p for p in fabric.switches["leaf01"].report["ports"] if p["cable_metres"] > 50]
    up["neighbour"]["system"] = output
    assert fabric.failed() == []
    up["neighbour"]["system"] = "spine01.dc2"
    assert "spine01.dc2" in fabric.one().found


def test_a_short_name_of_two_hosts_means_the_expected_one() -> None:
    fabric = renamed({"spine01": "spine.dc1", "spine02": "spine.dc2"})
    ups = [p for p in fabric.switches["leaf01"].report["ports"] if p["cable_metres"] > 50]
    for up in ups:
        up["neighbour"]["system"] = "spine"
    assert fabric.failed() == []
    here = {"system": "spine", "port": ups[0]["neighbour"]["port"]}
    fabric.port("leaf01", "Ethernet0")["neighbour"] = here
    assert "the name of spine.dc1 and of spine.dc2" in fabric.one().found


def renamed(names: dict[str, str]) -> Fabric:
    """Hosts with other names in the inventory and in LLDP."""
    fabric = Fabric()
    text = json.dumps([[s.name, s.ports, s.report] for s in fabric.switches.values()])
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    fabric.switches = {
        name: SwitchEntry(name, ports, "sonic", "spectrum4", report)
        for name, ports, report in json.loads(text)
    }
    return fabric


def test_an_unread_node_is_recognised_by_its_name() -> None:
    fabric = Fabric()
    fabric.change_node("node01", state=None)
    for leaf in ("leaf01", "leaf02"):
        fabric.port(leaf, "Ethernet0")["neighbour"] = {
            "system": "node01",
            "port": "02:ff:ff:ff:ff:ff",
        }
    assert fabric.one().name == "link_report"
    unread = [check for check in fabric.not_applicable() if check.name == "link_neighbour"]
    assert [check.subject for check in unread] == ["node01"]


def test_the_alias_of_a_switch_that_was_not_read_is_no_mismatch() -> None:
    fabric = Fabric()
    fabric.change_switch("spine01", report=None)
    (up, *_) = [p for p in fabric.switches["leaf01"].report["ports"] if p["cable_metres"] > 50]
    up["neighbour"] = {"system": "spine01", "port": "etp1"}
    assert fabric.failed(inside=["leaf01"]) == []
    up["neighbour"] = {"system": "leaf02", "port": "etp1"}
    assert fabric.one(inside=["leaf01"]).found.startswith("leaf02 etp1, ")


def test_silence_between_switches_fails_and_at_a_node_says_what_to_install() -> None:
    fabric = Fabric()
    for port in fabric.switches["leaf01"].report["ports"]:
        port["neighbour"] = None
    failed = fabric.failed()
    assert len(failed) == 2
    assert {check.name for check in failed} == {"link_neighbour"}
    (check,) = fabric.not_applicable()
    assert check.subject == "leaf01 to nodes"
    assert "lldpd" in check.reason


@pytest.mark.parametrize("spines", [SPINES, ""])
def test_a_switch_without_lldp_fails_if_it_has_links_to_switches(spines: str) -> None:
    fabric = Fabric(spines=spines)
    fabric.switches["leaf01"].report["lldp"] = False
    found = fabric.failed() if spines else fabric.not_applicable()
    assert "enable LLDP on the switch" in found[0].reason
    assert bool(fabric.failed()) == bool(spines)


@pytest.mark.parametrize(("mtu", "wrong"), [(1500, True), (8999, True), (9000, False)])
def test_the_mtu_of_a_routed_interface_must_fit_the_rails(mtu: int, wrong: bool) -> None:
    fabric = Fabric(system="eos", asic="tomahawk5")
    for port in fabric.switches["leaf01"].report["ports"]:
        if port["neighbour"]["system"] == "":
            port.update(mtu_ip=mtu, mtu_of="Vlan100")
    assert {check.name for check in fabric.failed()} == ({"link_mtu"} if wrong else set())
    for check in fabric.failed():
        assert "leaf01 interface Vlan100 by hand" in check.reason
        assert "--tags fabric" not in check.reason
    if wrong:
        assert {check.status for check in fabric.check(check_mode=True).checks} >= {"failed"}
