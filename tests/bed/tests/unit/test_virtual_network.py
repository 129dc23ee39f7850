# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual network: planned, created, repaired after a kill, and removed completely."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils.cabling import (
    LEAF_MTU,
    NetworkPlan,
    plan_network,
)
from ansible_collections.baremetal.bed.plugins.module_utils.host_network import (
    MAX_INSTANCES,
    HostNetwork,
    Instances,
    NetworkJournal,
    create,
    destroy,
)
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    INTERFACE_LENGTH,
    VirtualError,
    controller_interface,
    parse_nodes,
)

from tests.bed.tests.unit.virtual_host import FakeHost, Killed


def management(count: int = 2, net: str = "10.99.0") -> dict[str, dict[str, Any]]:
    nodes = {
        f"node{number:02d}": {"address": f"{net}.{10 + number}", "prefix": 24, "interface": "mgmt0"}
        for number in range(1, count + 1)
    }
    return {**nodes, "launcher": {"address": f"{net}.10", "prefix": 24, "interface": ""}}


def rails(count: int = 2, per_node: int = 2) -> dict[str, list[dict[str, Any]]]:
    return {
        f"node{number:02d}": [
            {
                "interface": f"rail{rail}",
                "leaf": f"leaf{rail + 1:02d}",
                "leaf_port": f"Ethernet{number}",
                "network": f"10.10.{rail}.0/24",
                "gateway": f"10.10.{rail}.1",
            }
            for rail in range(per_node)
        ]
        for number in range(1, count + 1)
    }


def plan(
    cluster: str = "test",
    count: int = 2,
    per_node: int = 2,
    machines: Sequence[str] = (),
    **options: Any,
) -> NetworkPlan:
    nodes = parse_nodes(management(count), rails(count, per_node), machines)
    return plan_network(cluster, nodes, **options)


class Machine:
    """A fake host with the journal of one cluster."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.fake = FakeHost(**options)
        self.network = HostNetwork(self.fake)
        self.folder = folder

    def journal(self, cluster: str = "test") -> NetworkJournal:
        return NetworkJournal(cluster, self.folder / "journal")

    def create(self, wanted: NetworkPlan, *, check_mode: bool = False) -> tuple[str, ...]:
        journal = self.journal(wanted.cluster)
        return create(wanted, self.network, journal, check_mode=check_mode)

    def destroy(self, cluster: str = "test", *, check_mode: bool = False) -> tuple[str, ...]:
        journal = self.journal(cluster)
        return destroy(cluster, self.network, journal, check_mode=check_mode)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_every_node_gets_its_namespace_and_every_rail_its_leaf(machine: Machine) -> None:
    machine.create(plan())
    spaces = machine.fake.spaces
    assert set(spaces) == {"", "test-fabric", "test.node01", "test.node02", "test.launcher"}
    assert set(spaces["test.node01"]) == {"lo", "mgmt0", "rail0", "rail1"}
    assert set(spaces["test.launcher"]) == {"lo", "mgmt0"}
    fabric = spaces["test-fabric"]
    assert fabric["node02-rail1"].master == "leaf02"
    assert fabric["node02-rail1"].peer == ("test.node02", "rail1")
    assert fabric["leaf02"].addresses == ["10.10.1.1/24"]
    assert fabric["node02-mgmt0"].master == "management"
    assert machine.fake.sysctls["test-fabric"]["net.ipv4.ip_forward"] == "1"


def test_a_rail_is_left_as_a_factory_leaves_it(machine: Machine) -> None:
    machine.create(plan())
    rail = machine.fake.spaces["test.node01"]["rail0"]
    assert (rail.mtu, rail.up, rail.addresses) == (1500, False, [])
    leaf_end = machine.fake.spaces["test-fabric"]["node01-rail0"]
    assert (leaf_end.mtu, leaf_end.up) == (LEAF_MTU, True)
    assert machine.fake.spaces["test-fabric"]["leaf01"].mtu == LEAF_MTU


def test_the_host_gets_one_interface_with_the_last_free_address(machine: Machine) -> None:
    machine.create(plan())
    host = machine.fake.spaces[""]
    assert set(host) == {"lo", controller_interface("test")}
    assert host[controller_interface("test")].addresses == ["10.99.0.254/24"]


def test_the_controller_takes_no_address_a_node_has() -> None:
    nodes = management()
    nodes["node01"]["address"] = "10.99.0.254"
    controller = plan_network("test", parse_nodes(nodes, {})).controller
    assert controller.addresses == ("10.99.0.253/24",)


def test_what_a_role_did_to_a_rail_is_left_alone(machine: Machine) -> None:
    machine.create(plan())
    rail = machine.fake.spaces["test.node01"]["rail0"]
    rail.mtu, rail.up, rail.addresses = 9000, True, ["10.10.0.11/24"]
    assert machine.create(plan()) == ()
    assert rail.addresses == ["10.10.0.11/24"]


@pytest.mark.parametrize("damage", ["address", "down", "cable", "bridge", "master"])
def test_damage_is_repaired(machine: Machine, damage: str) -> None:
    machine.create(plan())
    before = copy.deepcopy(machine.fake.spaces)
    fabric = machine.fake.spaces["test-fabric"]
    if damage == "address":
        machine.fake.spaces["test.node01"]["mgmt0"].addresses.clear()
    elif damage == "down":
        fabric["node01-rail0"].up = False
    elif damage == "cable":
        machine.fake._delete("test.node01", "rail0")
    elif damage == "bridge":
        machine.fake._delete("test-fabric", "leaf01")
        for link in fabric.values():
            link.master = None if link.master == "leaf01" else link.master
    else:
        fabric["node01-rail0"].master = "leaf02"
    assert machine.create(plan())
    assert machine.create(plan()) == ()
    assert shape(machine) == shape_of(before)


def shape(machine: Machine) -> Any:
    return shape_of(machine.fake.spaces)


def shape_of(spaces: Any) -> Any:
    """Return everything but the interface indexes, which the kernel assigns."""
    return {
        space: {
            name: (link.peer, link.up, link.mtu, link.master, sorted(link.addresses))
            for name, link in links.items()
        }
        for space, links in spaces.items()
    }


def test_killed_anywhere_a_second_run_completes_it(tmp_path: Path) -> None:
    wanted = plan(machines=["node02"])
    whole = Machine(tmp_path / "whole")
    whole.create(wanted)
    for lives in range(len(whole.fake.lines)):
        machine = Machine(tmp_path / str(lives))
        machine.fake.lives = lives
        with pytest.raises(Killed):
            machine.create(wanted)
        machine.fake.lives = None
        machine.create(wanted)
        assert shape(machine) == shape(whole), f"killed after {lives} lines"


def test_killed_anywhere_destroying_leaves_nothing(tmp_path: Path) -> None:
    wanted = plan(switches=SWITCHES)
    whole = Machine(tmp_path / "whole")
    whole.create(wanted)
    for lives in range(len(whole.fake.lines)):
        machine = Machine(tmp_path / str(lives))
        before = shape(machine)
        machine.fake.lives = lives
        with pytest.raises(Killed):
            machine.create(wanted)
        machine.fake.lives = None
        machine.destroy()
        assert shape(machine) == before, f"killed after {lives} lines"
        assert not machine.journal().exists


def test_a_destruction_killed_anywhere_is_completed(tmp_path: Path) -> None:
    first = Machine(tmp_path / "first")
    first.create(plan())
    for lives in range(len(first.destroy())):
        machine = Machine(tmp_path / str(lives))
        before = shape(machine)
        machine.create(plan())
        machine.fake.lives = lives
        with pytest.raises(Killed):
            machine.destroy()
        machine.fake.lives = None
        machine.destroy()
        assert shape(machine) == before


def test_destroying_touches_no_other_namespace(machine: Machine) -> None:
    machine.fake.spaces["test.stranger"] = {"lo": machine.fake.spaces[""]["lo"]}
    other = plan_network("test-two", parse_nodes(management(net="10.98.0"), rails()))
    machine.create(other)
    before = shape(machine)
    machine.create(plan())
    machine.destroy()
    assert shape(machine) == before
    assert machine.create(other) == ()


def test_a_foreign_namespace_is_not_taken_over(machine: Machine) -> None:
    machine.fake.spaces["test.node01"] = {"lo": machine.fake.spaces[""]["lo"]}
    with pytest.raises(VirtualError, match=r"test\.node01: exists already"):
        machine.create(plan())
    assert set(machine.fake.spaces) == {"", "test.node01"}
    assert not machine.journal().exists


def test_a_broken_namespace_is_made_anew(machine: Machine) -> None:
    machine.create(plan())
    whole = shape(machine)
    machine.fake._netns("delete", "test.node01")
    machine.fake.spaces["test.node01"] = {}
    machine.create(plan())
    assert shape(machine) == whole


def test_a_node_less_in_the_inventory_is_a_namespace_less(machine: Machine) -> None:
    machine.create(plan(count=3))
    kept = machine.fake.spaces["test.node01"]["rail0"].index
    machine.create(plan(count=2))
    assert "test.node03" not in machine.fake.spaces
    assert not [name for name in machine.fake.spaces["test-fabric"] if name.startswith("node03")]
    assert machine.fake.spaces["test.node01"]["rail0"].index == kept


def test_ends_with_the_right_names_on_the_wrong_cables_are_cut(machine: Machine) -> None:
    """Interface indexes repeat between namespaces: a cable is identified by both directions."""
    machine.create(plan())
    spaces = machine.fake.spaces
    right, wrong = spaces["test.node01"]["rail0"], spaces["test.node02"]["rail0"]
    wrong.index = right.index
    ends = spaces["test-fabric"]["node01-rail0"], spaces["test-fabric"]["node02-rail0"]
    ends[0].peer, ends[1].peer = ends[1].peer, ends[0].peer
    right.peer, wrong.peer = wrong.peer, right.peer
    assert any("link add name node01-rail0" in line for line in machine.create(plan()))
    assert spaces["test.node01"]["rail0"].peer == ("test-fabric", "node01-rail0")


def test_check_mode_says_the_same_and_does_nothing(machine: Machine) -> None:
    commands = machine.create(plan(), check_mode=True)
    assert machine.fake.lines == []
    assert not machine.journal().exists
    machine.create(plan())
    assert set(machine.fake.lines) == set(commands)
    gone = machine.destroy(check_mode=True)
    assert machine.fake.spaces["test-fabric"]
    assert machine.destroy() == gone


def test_point_to_point_puts_the_gateway_on_the_port(machine: Machine) -> None:
    links = rails(1, 1)
    links["node01"][0].update(network="10.20.0.0/31", gateway="10.20.0.0")
    nodes = parse_nodes(management(1), links)
    machine.create(plan_network("test", nodes, point_to_point=True))
    port = machine.fake.spaces["test-fabric"]["node01-rail0"]
    assert (port.master, port.addresses) == (None, ["10.20.0.0/31"])
    assert machine.fake.spaces["test-fabric"]["leaf01"].addresses == []


def test_an_overlapping_route_of_the_host_is_refused(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path,
        routes=[{"dst": "default", "dev": "eth0"}, {"dst": "10.0.0.0/8", "dev": "eth0"}],
    )
    with pytest.raises(VirtualError, match=r"routes 10\.0\.0\.0/8 dev eth0.*cluster\.yml"):
        machine.create(plan())
    assert machine.fake.lines == []


def test_names_fit_and_stay_apart() -> None:
    links = rails(1, 1)
    long = "compute-node-with-a-long-name-01"
    nodes = {long: management(1)["node01"]}
    links = {long: [{**links["node01"][0], "leaf": "leaf-with-a-long-name-01"}]}
    wanted = plan_network("a-cluster-with-a-long-name", parse_nodes(nodes, links))
    ports = [
        *wanted.bridges,
        *(end for cable in wanted.cables for end in (cable.near, cable.far) if end),
    ]
    assert all(len(port.name) <= INTERFACE_LENGTH for port in ports)
    assert len({(port.namespace, port.name) for port in ports}) == len(ports)
    assert controller_interface("a-cluster-1") != controller_interface("a-cluster-2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cluster": "a.b"}, r"cluster name 'a\.b'"),
        ({"prefix": 16}, "one management network"),
        ({"leaf": "leaf09"}, r"10\.10\.0\.0/24 .* leaf01 .* leaf09"),
    ],
)
def test_an_impossible_inventory_is_refused(change: dict[str, Any], message: str) -> None:
    nodes = management()
    links = rails()
    rail = links["node02"][0]
    if "prefix" in change:
        nodes["node02"]["prefix"] = change["prefix"]
    rail["leaf"] = change.get("leaf", rail["leaf"])
    with pytest.raises(VirtualError, match=message):
        plan_network(change.get("cluster", "test"), parse_nodes(nodes, links))


def test_a_machines_cables_are_taps_beside_the_containers(machine: Machine) -> None:
    machine.create(plan(machines=["node02"]))
    assert "test.node02" not in machine.fake.spaces
    fabric = machine.fake.spaces["test-fabric"]
    assert {name: fabric[f"node02-{name}"].peer for name in ("mgmt0", "rail0", "rail1")} == {
        "mgmt0": None,
        "rail0": None,
        "rail1": None,
    }
    assert fabric["node02-rail1"].master == fabric["node01-rail1"].master == "leaf02"
    assert fabric["node02-mgmt0"].master == "management"
    assert fabric["node02-rail1"].mtu == LEAF_MTU
    assert fabric["node02-rail1"].up
    assert machine.create(plan(machines=["node02"])) == ()


@pytest.mark.parametrize(("before", "after"), [([], ["node02"]), (["node02"], [])])
def test_a_node_that_changes_its_kind_is_cabled_anew(
    machine: Machine, before: list[str], after: list[str]
) -> None:
    machine.create(plan(machines=before))
    machine.create(plan(machines=after))
    assert ("test.node02" in machine.fake.spaces) == (after == [])
    assert (machine.fake.spaces["test-fabric"]["node02-rail0"].peer is None) == (after != [])
    assert machine.create(plan(machines=after)) == ()


# Routed fabric


def group(kind: str, interface: str, **peers: str) -> dict[str, Any]:
    return {"kind": kind, "peer_interface": interface, "peers": peers}


SWITCHES: dict[str, list[dict[str, Any]]] = {
    "leaf01": [
        {"kind": "host", "peer_interface": "rail0", "peers": {"Ethernet1/1": "node01"}},
        {"kind": "uplink", "peer_interface": "swp1", "peers": {"Ethernet9/1": "spine01"}},
        group("uplink", "swp1", swp10="spine02"),
    ],
    "leaf02": [group("uplink", "swp2", swp9="spine01"), group("uplink", "swp2", swp10="spine02")],
    "spine01": [group("downlink", "swp9", swp2="leaf02")],
    "spine02": [group("downlink", "swp10", swp1="leaf01", swp2="leaf02")],
}


def test_leaves_have_gateways_and_a_path_over_every_spine(machine: Machine) -> None:
    wanted = plan(switches=SWITCHES)
    machine.create(wanted)
    spaces, routed = machine.fake.spaces, machine.fake.routed
    assert spaces["test.router.leaf02"]["leaf02"].addresses == ["10.10.1.1/24"]
    assert spaces["test.router.leaf01"]["node01-rail0"].master == "leaf01"
    assert set(spaces["test-fabric"]) == {
        "lo", "management", "controller", *(f"{name}-mgmt0" for name in ("node01", "node02")),
        "launcher-mgmt0",
    }  # fmt: skip
    far = spaces["test.router.spine01"]["swp1"]
    assert far.peer == ("test.router.leaf01", "Ethernet9-1"), "Linux takes no slash in a name"
    assert (far.addresses, far.mtu, far.up) == (["169.254.0.1/31"], LEAF_MTU, True)
    assert routed["test.router.leaf01"] == {"10.10.1.0/24": {"169.254.0.1", "169.254.0.3"}}
    assert routed["test.router.spine02"] == {
        "10.10.0.0/24": {"169.254.0.2"},
        "10.10.1.0/24": {"169.254.0.6"},
    }
    assert machine.create(wanted) == ()


@pytest.mark.parametrize("damage", ["hop", "network", "uplink"])
def test_routes_and_uplinks_are_repaired(machine: Machine, damage: str) -> None:
    wanted = plan(switches=SWITCHES)
    machine.create(wanted)
    whole, routes = shape(machine), copy.deepcopy(machine.fake.routed)
    if damage == "hop":
        machine.fake.routed["test.router.leaf01"]["10.10.1.0/24"] = {"169.254.0.1"}
    elif damage == "network":
        machine.fake.routed["test.router.leaf01"]["10.99.9.0/24"] = {"169.254.0.1"}
    else:
        machine.fake._delete("test.router.spine01", "swp1")
    assert machine.create(wanted) != ()
    assert (shape(machine), machine.fake.routed) == (whole, routes)


BGP: dict[str, list[dict[str, Any]]] = {
    "leaf01": [
        {"kind": "host", "peer_interface": "rail0", "peers": {"Ethernet1/1": "node01"}},
        {**group("uplink", "swp1", swp9="spine01"), "addresses": {"swp9": "10.8.0.1"}},
    ],
    "spine01": [{**group("downlink", "swp9", swp1="leaf01"), "addresses": {"swp1": "10.8.0.0"}}],
}


def plan_bgp(switches: dict[str, list[dict[str, Any]]]) -> NetworkPlan:
    given = management()
    for number, name in enumerate(switches):
        address = f"10.99.0.{100 + number}"
        given[name] = {"address": address, "prefix": 24, "interface": "mgmt0"}
    nodes = parse_nodes(given, rails(per_node=1))
    return plan_network("test", nodes, switches=switches, bgp=True)


def test_with_bgp_the_ports_are_in_the_containers_of_the_switches(machine: Machine) -> None:
    wanted = plan_bgp(BGP)
    machine.create(wanted)
    spaces = machine.fake.spaces
    assert set(spaces["test.leaf01"]) == {
        "lo", "mgmt0", "Ethernet1", "Ethernet2", "swp9", "leaf01",
    }  # fmt: skip
    assert spaces["test.leaf01"]["Ethernet2"].peer == ("test.node02", "rail0")
    assert spaces["test.leaf01"]["leaf01"].addresses == ["10.10.0.1/24"]
    uplink = spaces["test.spine01"]["swp1"]
    assert (uplink.peer, uplink.addresses) == (("test.leaf01", "swp9"), ["10.8.0.0/31"])
    assert machine.fake.routed == {}, "routes are those of BGP"
    for name in ("test.leaf01", "test.spine01"):
        assert machine.fake.sysctls[name]["net.ipv4.fib_multipath_hash_policy"] == "1"
    assert "test.node01" not in machine.fake.sysctls
    assert machine.create(wanted) == ()


def test_with_bgp_an_uplink_needs_an_address() -> None:
    without = {**BGP, "spine01": [group("downlink", "swp9", swp1="leaf01")]}
    with pytest.raises(VirtualError, match=r"spine01 swp1 .*leaves\.uplink_pool"):
        plan_bgp(without)


def test_with_bgp_every_switch_is_simulated() -> None:
    nodes = parse_nodes(management(), rails(per_node=1))
    with pytest.raises(VirtualError, match="leaf01 is not simulated"):
        plan_network("test", nodes, switches=BGP, bgp=True)


def test_a_routed_fabric_has_no_machines() -> None:
    with pytest.raises(VirtualError, match="node01 is a machine"):
        plan(machines=["node01"], switches=SWITCHES)


@pytest.fixture
def limit(tmp_path: Path) -> Path:
    path = tmp_path / MAX_INSTANCES
    path.parent.mkdir(parents=True)
    path.write_text("128\n")
    return path


def test_the_inotify_limit_is_raised_until_the_last_cluster_is_down(
    tmp_path: Path, limit: Path
) -> None:
    folder = tmp_path / "run/virtual"
    instances, journals = (
        Instances(folder, tmp_path),
        [NetworkJournal(name, folder) for name in "ab"],
    )
    for journal in journals:
        journal.write([])
        instances.lift()
    assert limit.read_text() == "1024\n"
    journals[0].clear()
    instances.put_back()
    assert limit.read_text() == "1024\n"
    journals[1].clear()
    instances.put_back()
    assert limit.read_text() == "128\n"
    assert not folder.parent.exists()
    instances.put_back()


@pytest.mark.parametrize("found", ["1024\n", "4096\n"])
def test_a_limit_that_is_high_enough_is_left_alone(tmp_path: Path, limit: Path, found: str) -> None:
    limit.write_text(found)
    instances = Instances(tmp_path / "run/virtual", tmp_path)
    instances.lift()
    assert not (tmp_path / "run").exists()
    instances.put_back()
    assert limit.read_text() == found


def test_a_limit_that_somebody_changed_meanwhile_stays(tmp_path: Path, limit: Path) -> None:
    instances = Instances(tmp_path / "run/virtual", tmp_path)
    instances.lift()
    limit.write_text("512\n")
    instances.put_back()
    assert limit.read_text() == "512\n"
    assert not (tmp_path / "run").exists()


def test_a_lowered_limit_is_raised_and_the_original_restored(tmp_path: Path, limit: Path) -> None:
    instances = Instances(tmp_path / "run/virtual", tmp_path)
    instances.lift()
    limit.write_text("256\n")
    instances.lift()
    assert limit.read_text() == "1024\n"
    instances.put_back()
    assert limit.read_text() == "128\n"
