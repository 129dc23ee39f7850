# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Port channels of the model: compiled, and compared with those of a switch, which are not set."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import aspects
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import (
    NodeEntry,
    SwitchEntry,
    cables_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compare import SwitchEnds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos import switch as eos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.links import check_links
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import switch as nvue
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import switch as sonic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    PEER,
    PortReport,
    SwitchError,
    SwitchIntent,
    SwitchReport,
    check_ports,
    compile_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.wiring import wires_of
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    ModelError,
    compile_model,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import PortGroup
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.paths import Paths
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import eos_intents, nvue_switch, sonic_switch
from tests.unit.small_model import compiled, doubts, edited, refused
from tests.unit.test_examples import groups as groups_of
from tests.unit.test_model_changes import changes

SPINES = "spines: {count: 2, ports: 64, links_per_leaf: 2, management_first: 10.0.0.111%s}"
STORAGE = (
    "storage: [{name: storage01, management: 10.0.0.20, links: ["
    "{leaf: leaf01, port: Ethernet8, interface: eth1, bond: bond0}, "
    "{leaf: leaf02, port: Ethernet8, interface: eth2, bond: bond0%s}]}]"
)


def model(spine_keys: str = "", storage: str = "") -> str:
    return edited(f"{SPINES % spine_keys}; {storage}" if storage else SPINES % spine_keys)


def ports(text: str) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Peer, bond and name of the port channel of each port that is in one."""
    cluster = compile_model(read("m", text))
    found = {}
    for kind in ("host", "storage", "uplink", "downlink"):
        for switch, group in groups_of(cluster, kind):
            for port, name in vars(group).get("channels", {}).items():
                bond = vars(group).get("bond", "")
                found[switch, port] = (group.peers[port], bond, name)
    return found


def test_links_of_two_switches_form_a_channel() -> None:
    named = ports(model(", port_channel: 'PortChannel1{:02d}'"))
    assert len(named) == 2 * 2 * 2 * 2
    assert named["leaf01", "Ethernet62"] == ("spine02", "", "PortChannel102")
    assert {
        name for (switch, _port), (_peer, _bond, name) in named.items() if "spine" in switch
    } == {"PortChannel101", "PortChannel102"}
    assert named["spine02", "Ethernet0"] == ("leaf01", "", "PortChannel101")
    anything = ports(model(", port_channel: true"))
    assert named.keys() == anything.keys() and {each[2] for each in anything.values()} == {""}
    assert not ports(model(", port_channel: false"))


def test_without_channels_variables_are_as_before() -> None:
    assert compiled(model()) == compiled(model(", port_channel: false"))
    for host in compiled(model()).hosts:
        for group in host.variables.get("cluster_ports", ()):
            assert set(group) == {
                *("kind", "peer_interface", "speed_gbps", "mtu", "rail", "plane", "prefix"),
                *("address", "peers", "addresses"),
            }


@pytest.mark.parametrize(
    ("edit", "remedy"),
    [
        ("peer_links: 4", "ports: {nodes"),
        ("leaves.mlag: true", "ports: {nodes"),
        ("lag: true", "spines"),
        ("leaves.lacp: true", "spines"),
    ],
)
def test_words_in_the_wrong_place(edit: str, remedy: str) -> None:
    with pytest.raises(ModelError) as refusal:
        compile_model(read("m", edited(edit)))
    [finding] = refusal.value.findings
    assert (finding.code, remedy in finding.remedy) == ("model.unknown_key", True)


def test_links_within_a_tier_are_ports_of_pairs() -> None:
    group = "{tier: leaf, count: 2, ports: 8, management_first: 10.0.0.101}"
    text = edited(f"switches: {{a: {group}}}; links: [{{from: a, to: a}}]")
    text = "".join(line for line in text.splitlines(True) if not line.startswith("leaves"))
    with pytest.raises(ModelError) as refusal:
        compile_model(read("m", text))
    [finding] = refusal.value.findings
    assert (finding.code, "peers" in finding.remedy) == ("model.links_down", True)


@pytest.mark.parametrize("word", ["PortChannel", "Port Channel{}", "{}{}", "1.5"])
def test_a_name_without_a_number_is_refused(word: str) -> None:
    wanted = f"10 model.pattern spines.port_channel {word if word == '1.5' else repr(word)}"
    assert refused(model(f", port_channel: {word if word == '1.5' else repr(word)}")) == [wanted]


def test_a_channel_between_routers_has_one_address_at_each_end() -> None:
    text = edited("leaves.uplink_pool: 10.9.0.0/16", model(", port_channel: true"))
    cluster = compile_model(read("m", text))
    addresses: dict[tuple[str, str], set[str]] = {}
    for kind in ("uplink", "downlink"):
        for switch, group in groups_of(cluster, kind):
            for port, peer in group.peers.items():
                addresses.setdefault((switch, peer), set()).add(group.addresses[port])
    assert len(addresses) == 8 and all(len(each) == 1 for each in addresses.values())
    assert len(set().union(*addresses.values())) == 8


def test_a_storage_host_with_a_bond_over_two_leaves() -> None:
    assert ports(model(storage=STORAGE % "")) == {
        ("leaf01", "Ethernet8"): ("storage01", "bond0", ""),
        ("leaf02", "Ethernet8"): ("storage01", "bond0", ""),
    }
    assert refused(model(storage=STORAGE.replace("bond0", "eth1", 1) % "")) == [
        "11 model.bond_name storage[0].links[0].bond 'eth1'"
    ]
    assert refused(model(storage=STORAGE % ", speed_gbps: 400")) == [
        "11 model.bond_speeds storage[0].links[1].speed_gbps 'bond0'"
    ]
    both = (STORAGE % ", address: 10.1.1.200").replace("bond0}", "bond0, address: 10.1.0.200}", 1)
    assert refused(model(storage=both)) == [
        "11 model.bond_address storage[0].links[1].address 'bond0'"
    ]
    one = STORAGE % ", address: 10.1.1.200"
    [storage] = [host for host in compiled(model(storage=one)).hosts if "storage" in host.groups]
    [link] = storage.variables["cluster_storage_links"]
    assert (link["interface"], link["leaf"]) == ("bond0", "leaf02")


def group(kind: str, peers: dict[str, str], *names: str, bond: str = "") -> Mapping[str, Any]:
    made = PortGroup(kind, "eth1", 400, 9000, peers=peers)
    if names:
        made.channels = dict(zip(peers, names))
    if bond:
        made.bond = bond
    return vars(made)


UP = {"a": "spine01", "b": "spine01", "c": "spine02"}


def faults(bundles: dict[str, str], *names: str) -> str:
    groups = [
        group("uplink", UP, *(names or ("", "", ""))),
        group("storage", {"d": "storage01"}, "", bond="bond0"),
        group("storage", {"e": "storage01"}, "", bond="bond1"),
        group("host", {"f": "node01"}),
    ]
    intent = compile_switch("leaf01", "sonic", "", {}, groups, read_contract({}))
    try:
        check_ports(intent, "abcdef", bundles)
    except SwitchError as error:
        return str(error)
    return ""


RIGHT = {"a": "Po1", "b": "Po1", "c": "Po2", "d": "Po10", "e": "Po11"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, []),
        ({"b": ""}, ["b", "no port channel", "spine01"]),
        ({"b": "Po3"}, ["b", "Po3", "spine01", "Po1"]),
        ({"c": "Po1"}, ["c", "Po1", "leads to spine01"]),
        ({"e": "Po10"}, ["e", "Po10", "leads to storage01 bond0"]),
        ({"f": "Po9"}, ["f", "Po9", "rails.bonded"]),
    ],
)
def test_a_member_elsewhere_is_named(change: dict[str, str], named: list[str]) -> None:
    found = faults({port: name for port, name in {**RIGHT, **change}.items() if name})
    assert bool(found) == bool(named)
    assert all(word in found for word in named[1:])
    assert [port for port in "abcdef" if f"{port} (" in found] == named[:1]


def test_names_of_the_model_hold() -> None:
    assert not faults(RIGHT, "Po1", "Po1", "Po2")
    found = faults(RIGHT, "Po1", "Po1", "Po3")
    assert all(word in found for word in ("c (", "Po2", "Po3", "spine02"))
    assert "1 more" in faults({})


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["Po1", "Po2", "Po3", "Po4"])))
def test_only_the_partition_of_the_model_is_accepted(bundles: dict[str, str]) -> None:
    of = {"a": "1", "b": "1", "c": "2", "d": "3", "e": "4"}
    right = bundles.keys() == of.keys() and all(
        (bundles[one] == bundles[other]) == (of[one] == of[other]) for one in of for other in of
    )
    assert right == (not faults(bundles))


def in_channel(intent: SwitchIntent, number: int) -> SwitchIntent:
    """The intent with one port in a port channel of the model."""
    ports = list(intent.ports)
    ports[number] = replace(ports[number], channel="peer")
    return replace(intent, ports=tuple(ports))


def test_sonic_leaves_the_mtu_of_a_member_to_the_channel() -> None:
    intent = in_channel(sonic_switch.small(), 1)
    config = copy.deepcopy(sonic_switch.new_switch(4))
    config["PORTCHANNEL_MEMBER"] = {"PortChannel7|Ethernet8": {}}
    config["PORT"]["Ethernet8"]["mtu"] = "1500"
    system = sonic.DRIVER
    present = sonic_switch.present(config)
    difference = system.difference(intent, system.wanted(intent), present)
    touched = {change.path for change in difference.changes}
    assert "PORT|Ethernet0 mtu" in touched and "PORT|Ethernet8 mtu" not in touched
    assert any("Ethernet8|3" in path for path in touched), "queues and buffers are the port's"
    for mtu, wanted in ({}, None), ({"mtu": "9216"}, 9216):
        present = sonic_switch.present(config, channels={"PortChannel7": mtu})
        first, second = sonic.DRIVER.report(intent, present).ports
        assert (second.mtu_ip, second.mtu_of, first.mtu_of) == (wanted, "PortChannel7", "")


@pytest.mark.parametrize(
    ("status", "up"),
    [("enabled", "up"), ("disabled", "up, but not used by LACP in PortChannel7"), (None, "up")],
)
def test_a_member_that_lacp_does_not_use_is_not_up(status: Any, up: str) -> None:
    intent = in_channel(sonic_switch.small(), 1)
    config = copy.deepcopy(sonic_switch.new_switch(4))
    config["PORTCHANNEL_MEMBER"] = {"PortChannel7|Ethernet8": {}}
    row = {"status": status} if status else {}
    present = sonic_switch.present(
        config,
        ports={port.name: {"oper_status": "up"} for port in intent.ports},
        channels={"PortChannel7:Ethernet8": row},
    )
    report = sonic.DRIVER.report(intent, present)
    ends = SwitchEnds("sonic", intent.asic, report.as_dict(), intent.fabric)
    wanted = ends.wanted("host", 800)
    assert ends.found("Ethernet8", wanted)[aspects.UP] == up
    assert ends.found("Ethernet0", wanted)[aspects.UP] == "up"
    shown = report.as_dict()
    member = shown["ports"][1]
    shown["ports"] = [member, {**member, "name": "Ethernet16", "in_channel": True}]
    ends = SwitchEnds("sonic", intent.asic, shown, intent.fabric)
    found = [ends.found(name, wanted)[aspects.UP] for name in ("Ethernet8", "Ethernet16")]
    assert found == [up, "up"]


def test_nvue_leaves_the_mtu_of_a_member_to_the_bond() -> None:
    intent = in_channel(nvue_switch.intent(), 3)
    bond = {"interface": {"bond1": {"bond": {"member": {"swp4": {}}}}}}
    present = nvue_switch.present(bond)
    system = nvue.DRIVER
    touched = {
        change.path for change in system.difference(intent, system.wanted(intent), present).changes
    }
    assert "interface swp3 link mtu" in touched and "interface swp4 link mtu" not in touched
    assert "interface swp4 qos pfc-watchdog state" in touched
    report = system.report(intent, present)
    assert [port.mtu_of for port in report.ports] == ["", "", "", "bond1"]
    with pytest.raises(SwitchError, match="swp4 "):
        system.difference(intent, system.wanted(intent), nvue_switch.present({}))


def test_nvue_finds_ports_that_left_next_to_a_bond() -> None:
    done = nvue_switch.merged(
        {},
        {
            "interface": {
                "swp5": {
                    "link": {"mtu": nvue_switch.intent().fabric.mtu_ip},
                    "qos": {"pfc-watchdog": {"state": "enable"}},
                }
            }
        },
    )
    done["interface"]["bond1"] = {"bond": {"member": {"swp1": {}}}}
    intent = in_channel(nvue_switch.intent(), 0)
    present = nvue_switch.present(done, ports=5)
    present.ports["swp5"]["link"]["oper-status"] = "down"
    steps = nvue.DRIVER.difference(intent, nvue.DRIVER.wanted(intent), present).steps
    assert steps["interface"]["swp5"]["link"] == {"mtu": None}


def test_eos_is_refused_before_a_switch_is_read() -> None:
    eos.DRIVER.wanted(eos_intents.leaf())
    with pytest.raises(WantedError) as refusal:
        eos.DRIVER.wanted(in_channel(eos_intents.leaf(), 1))
    [finding] = refusal.value.findings
    assert (finding.code, "Ethernet2/1" in finding.problem) == ("eos.port_channel", True)


LONG = edited(
    "leaves.asic: spectrum4; roce_qos: {cable_metres: {between_switches: 300}, classes: ["
    "{name: s, dscps: [20], priority: 4, bandwidth_percent: 9, lossless: true}, "
    "{name: t, dscps: [21], priority: 5, bandwidth_percent: 9, lossless: true}]}"
)
PAIRS = "leaves.ports: {nodes: 'Ethernet[0-10]', peers: 'Ethernet[60-61]'}; leaves.port: "


def test_ports_between_two_switches_of_a_pair() -> None:
    text = edited(PAIRS + "; leaves.count: 4").replace("ports: 64, ", "")
    cluster = compile_model(read("m", text))
    found = {
        (switch, port, peer, group.peer_interface)
        for switch, group in groups_of(cluster, "peer")
        for port, peer in group.peers.items()
    }
    pairs = [("leaf01", "leaf02"), ("leaf02", "leaf01"), ("leaf03", "leaf04"), ("leaf04", "leaf03")]
    assert found == {(a, p, b, p) for a, b in pairs for p in ("Ethernet60", "Ethernet61")}
    entries = [
        SwitchEntry(one.name, [vars(group) for group in one.ports]) for one in cluster.leaves
    ]
    listed = [str(cable) for cable in cables_of(entries) if cable.kind == PEER]
    assert listed[:2] == [
        "leaf01 Ethernet60 - leaf02 Ethernet60",
        "leaf01 Ethernet61 - leaf02 Ethernet61",
    ]
    assert len(listed) == 4
    hosts = {host.name: compiled(text).merged(host) for host in compiled(text).hosts}
    assert [wire.cable.kind for wire in wires_of(hosts)].count(PEER) == 4
    odd = text.replace("count: 4", "count: 3")
    assert "8 model.no_pairs leaves.ports.peers 3" in refused(odd)


TWO_TIERS = edited(
    "leaves.ports: {nodes: 'Ethernet[0-10]', uplinks: 'Ethernet[50-53]', peers: 'Ethernet60'}; "
    "leaves.count: 4; spines: {count: 2, management_first: 10.0.0.111, links_per_leaf: 2, ports: "
    "{downlinks: 'Ethernet[0-9]', peers: 'Ethernet[20-21]'}, port_channel: 'po{}', mlag: true}"
)


def test_a_pair_of_switches_is_one_end_of_a_channel() -> None:
    """A leaf has one channel to both spines, and each spine one to both leaves of a pair."""
    hosts = {host.name: host.variables for host in compiled(TWO_TIERS).hosts}
    channels: dict[str, dict[str, list[str]]] = {}
    for name in ("leaf03", "spine01"):
        intent = compile_switch(
            name, "nvue", "", {}, hosts[name]["cluster_ports"], read_contract({})
        )
        for port in intent.ports:
            if port.channel:
                key = f"{port.channel_name} {port.channel}"
                channels.setdefault(name, {}).setdefault(key, []).append(port.name)
    assert channels == {
        "leaf03": {"po1 spine01+spine02": [f"Ethernet{number}" for number in range(50, 54)]},
        "spine01": {
            "po1 leaf01+leaf02": [f"Ethernet{number}" for number in range(4)],
            "po2 leaf03+leaf04": [f"Ethernet{number}" for number in range(4, 8)],
        },
    }


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("port_channel: 'po{}', ", "", ["10 model.mlag spines.mlag"]),
        (", peers: 'Ethernet[20-21]'", "", []),
        (", mlag: true", "", []),
    ],
)
def test_a_channel_over_pairs(old: str, new: str, wanted: list[str]) -> None:
    text = TWO_TIERS.replace(old, new)
    assert text != TWO_TIERS
    if wanted:
        assert refused(text) == wanted
    else:
        compile_model(read("m", text))
    without = TWO_TIERS.replace(", peers: 'Ethernet[20-21]'", "")
    without = without.replace(", peers: 'Ethernet60'", "")
    assert refused(without) == ["10 model.mlag spines.mlag"]


def test_ports_of_a_pair_are_reported_and_not_configured() -> None:
    groups = [group("uplink", UP), group("peer", {"x": "leaf02"})]
    intent = compile_switch("leaf01", "sonic", "", {}, groups, read_contract({}))
    assert [port.name for port in intent.ports] == ["a", "b", "c"]
    report = SwitchReport.of(intent, "", lambda name: PortReport(name, True), True)
    assert [port.name for port in report.ports] == ["a", "b", "c", "x"]


def linked(peer: str) -> Mapping[str, Any]:
    return {**group("peer", {"x": peer}), "peer_interface": "x"}


@pytest.mark.parametrize(
    ("heard", "found"),
    [("leaf02 x", None), ("leaf02 y", "leaf02 y"), ("", "")],
)
def test_a_cable_of_a_pair_is_checked_by_lldp_only(heard: str, found: Any) -> None:
    system, _blank, port = heard.partition(" ")
    here = {"name": "x", "present": True, "up": True}
    neighbour = {"system": system, "port": port} if heard else None
    own = {"version": "", "lldp": True, "ports": [{**here, "neighbour": neighbour}]}
    far = {**own, "ports": [{**here, "neighbour": {"system": "leaf01", "port": "x"}}]}
    entries = {
        name: SwitchEntry(name, [linked(peer)], "sonic", "spectrum4", report)
        for name, peer, report in (("leaf01", "leaf02", own), ("leaf02", "leaf01", far))
    }
    checks = check_links(read_contract({}), entries, {}).checks
    assert {(check.name, check.status) for check in checks} == (
        {("link_neighbour", "failed")} if found is not None else set()
    )


BONDED = "rails: {count: 2, planes: 2, bonded: true, speed_gbps: 400%s}; leaves.count: 4"
PCI = ", pci: [[0000:01:00.0, 0000:01:00.1], [0000:02:00.0, 0000:02:00.1]]"


def test_planes_of_a_bond_have_one_address_and_a_cable_each() -> None:
    text = edited(BONDED % PCI)
    cluster = compile_model(read("m", text))
    first, second = cluster.nodes[1].rails
    assert (first.interface, first.address, first.prefix, first.gateway) == (
        *("rail0", "10.1.0.3", 24, "10.1.0.1"),
    )
    assert (second.network, first.pci, first.speed_gbps) == ("10.1.1.0/24", None, 800)
    assert [tuple(member.values()) for member in second.members] == [
        (0, "rail1p0", "0000:02:00.0", 400, "leaf03", "Ethernet1"),
        (1, "rail1p1", "0000:02:00.1", 400, "leaf04", "Ethernet1"),
    ]
    assert (second.leaf, second.leaf_port) == ("leaf03", "Ethernet1")
    assert ports(text)["leaf04", "Ethernet1"] == ("node02", "rail1", "")
    of_leaf = dict(groups_of(cluster, "host"))
    assert {switch: (one.address, one.peer_interface) for switch, one in of_leaf.items()} == {
        "leaf01": ("10.1.0.1", "rail0p0"),
        "leaf02": ("10.1.0.1", "rail0p1"),
        "leaf03": ("10.1.1.1", "rail1p0"),
        "leaf04": ("10.1.1.1", "rail1p1"),
    }
    assert "cluster_rail_networks" not in compiled(text).group_variables["all"]


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        ("rails.planes: 1; leaves.count: 2", "6 model.bonded_planes rails.planes 1"),
        ("addresses.plan: point_to_point", "6 model.bonded_routed rails.bonded"),
        ("rails.interface: 'longer-than{rail}'", ""),
        ("rails.interface: 'longer-than-xx{rail}'", "6 model.interface_name rails.interface"),
        ("rails.vlan: [1, 2]", ""),
        ("rails.vlan: [1, 2, 3, 4]", "6 model.values_for_devices rails.vlan 4"),
    ],
)
def test_values_that_bonds_cannot_have(edit: str, wanted: str) -> None:
    text = edited(edit, edited(BONDED % ""))
    if wanted:
        assert any(line.startswith(wanted) for line in refused(text))
    else:
        compile_model(read("m", text))


@given(st.integers(1, 5), st.integers(2, 3), st.integers(1, 6), st.sampled_from(["node", "rail"]))
def test_every_bond_has_a_network_and_every_member_a_port(
    rails: int, planes: int, nodes: int, order: str
) -> None:
    edit = f"rails: {{count: {rails}, planes: {planes}, bonded: true, speed_gbps: 400}}; "
    edit += f"leaves.count: {rails * planes * 2}; nodes.count: {nodes}; leaves.nodes_per_set: 3; "
    cluster = compile_model(read("m", edited(f"{edit}addresses.order: {order}")))
    addresses = [rail.address for node in cluster.nodes for rail in node.rails]
    assert len(set(addresses)) == len(addresses) == rails * nodes
    ends = {
        (member["leaf"], member["leaf_port"]): (node.name, rail.interface, member["interface"])
        for node in cluster.nodes
        for rail in node.rails
        for member in rail.members
    }
    assert ends == {
        (switch, port): (peer, group.bond, group.peer_interface)
        for switch, group in groups_of(cluster, "host")
        for port, peer in group.peers.items()
    }
    assert len(ends) == rails * planes * nodes


@pytest.mark.parametrize("swapped", [False, True])
def test_both_cables_of_a_bond_are_compared_with_lldp(swapped: bool) -> None:
    """Nodes announce the MAC address of each member."""
    cluster = compile_model(read("m", edited(BONDED % "")))
    switches = {}
    ends = {
        (switch, port): (peer, group.peer_interface)
        for switch, group in groups_of(cluster, "host")
        for port, peer in group.peers.items()
    }
    one, other = ("leaf01", "Ethernet0"), ("leaf02", "Ethernet0")
    heard = {**ends, one: ends[other], other: ends[one]} if swapped else ends
    mac = {end: f"02:00:00:00:00:{number:02x}" for number, end in enumerate(ends.values())}
    for leaf in cluster.leaves:
        listed = [
            {
                **vars(PortReport(port, True, up=True)),
                "neighbour": {"system": "", "port": mac[heard[leaf.name, port]]},
            }
            for group in leaf.ports
            for port in group.peers
        ]
        found = {"version": "", "lldp": True, "ports": listed}
        entry = SwitchEntry(leaf.name, [*map(vars, leaf.ports)], "sonic", "spectrum4", found)
        switches[leaf.name] = entry
    nodes = {
        node.name: NodeEntry(
            node.name,
            {
                "rails": {
                    member["interface"]: {
                        **{"mac": mac[node.name, member["interface"]], "mtu": 9000},
                        **{"up": True, "carrier": True, "speed_gbps": 400},
                    }
                    for rail in node.rails
                    for member in rail.members
                }
            },
        )
        for node in cluster.nodes
    }
    links = check_links(read_contract({}), switches, nodes)
    wrong = [check for check in links.checks if check.name == "link_neighbour"]
    assert [check.subject for check in wrong] == (
        ["leaf01 Ethernet0 and leaf02 Ethernet0"] if swapped else []
    )
    assert links.neighbours == len(ends) - 2 * swapped


def test_switches_of_a_pair_need_lldp() -> None:
    silent = {"version": "", "lldp": False, "ports": []}
    for kind, status in (("peer", "failed"), ("storage", "not_applicable")):
        own = {**linked("leaf02"), "kind": kind}
        entry = SwitchEntry("leaf01", [own], "sonic", "spectrum4", silent)
        checks = check_links(read_contract({}), {"leaf01": entry}, {}).checks
        assert [one.status for one in checks if one.name == "link_neighbour"] == [status]


def test_a_pair_connects_its_switches_and_needs_no_headroom() -> None:
    text = edited(PAIRS).replace("ports: 64, ", "")
    cluster = compile_model(read("m", text))
    assert not doubts(
        edited("leaves.ports: {nodes: 'Ethernet[0-10]', peers: 'Ethernet[11-63]'}", LONG)
    )
    paths = Paths(cluster.switches)
    assert paths.part("leaf01") == paths.part("leaf02")
    single = Paths(compile_model(read("m", edited(""))).switches)
    assert single.part("leaf01") != single.part("leaf02")


def test_another_channel_is_another_setting_of_a_port() -> None:
    found, _refusals = changes(model(), model(", port_channel: true"))
    assert sorted(found.ports) == ["leaf01", "leaf02", "spine01", "spine02"]
    assert [len(each.changed) for each in found.ports.values()] == [4] * 4
    assert not found.moved and not found.addresses


def test_bonds_instead_of_planes_move_no_cable() -> None:
    apart = edited("rails: {count: 2, planes: 2, speed_gbps: 400}; leaves.count: 4")
    found, _refusals = changes(apart, edited(BONDED % ""))
    assert not found.moved and not found.added and not found.removed
    assert "rail0p0.interface" in {setting.key for setting in found.settings}
    back, _refusals = changes(edited(BONDED % ""), apart)
    assert not back.moved and "rail0.members" in {setting.key for setting in back.settings}
