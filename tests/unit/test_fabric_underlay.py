# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Routing of a switch against the model: right parts are one line, and each fault names its link,
its gateway or its rails."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import model
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.routes import (
    Routes,
    key_of,
    prefix_of,
    ranges_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.underlay import (
    BgpSession,
    RoutedInterface,
    Site,
    Underlay,
    compare,
    first_hops,
    ports_of,
    rails_of,
    site_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: routed
management: {subnet: 10.0.0.0/20}
nodes: {count: 8, management_first: 10.0.0.11}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 400}
addresses: {pool: 10.100.0.0/16, plan: %s}
leaves: {count: 4, management_first: 10.0.1.1, ports: 64, nodes_per_set: 4, system: sonic,
  asic: spectrum4, asn_first: 65101, uplink_pool: 10.200.0.0/20}
spines: {count: 2, management_first: 10.0.2.1, ports: 64, links_per_leaf: 2, system: sonic,
  asic: spectrum4, asn: 65001}
launcher: {name: launcher01, management: 10.0.0.10}
"""


class HostVars(dict[str, Any]):
    def raw_get(self, name: str) -> Any:
        return self[name]


def hostvars(plan: str = "subnet_per_rail", text: str = MODEL) -> tuple[dict[str, Any], HostVars]:
    inventory = model.inventory_of(model.compile_model(model.read("cluster.yml", text % plan)))
    everywhere = inventory.group_variables["all"]
    found = HostVars({host.name: {**everywhere, **host.variables} for host in inventory.hosts})
    groups: dict[str, Any] = {}
    for host in inventory.hosts:
        groups.setdefault(host.groups[0], []).append(host.name)
    return groups, found


def site(switch: str, plan: str = "subnet_per_rail") -> Site:
    groups, variables = hostvars(plan)
    found = site_of(switch, groups, variables)
    assert found is not None
    return found


def right(site: Site) -> Underlay:
    """What a switch reports that is configured as in the model."""
    interfaces: dict[str, RoutedInterface] = {}
    sessions = []
    for port in site.own:
        if port.kind == "host" and port.address:
            shared = port.address if port.prefix != 31 else port.name
            interfaces[f"Vlan{shared}"] = RoutedInterface((f"{port.address}/{port.prefix}",), 9216)
        elif port.address:
            interfaces[port.name] = RoutedInterface((f"{port.address}/31",), 9216)
            far = str(ipaddress.IPv4Address(int(ipaddress.IPv4Address(port.address)) ^ 1))
            sessions.append(BgpSession(far, "established", site.asns[port.peer]))
    hops = first_hops(site.switch, site.links, list(site.ports))
    routes = {
        prefix: hops[leaf]
        for leaf in hops
        for prefix in rails_of(site.ports[leaf])
        if leaf != site.switch
    }
    return Underlay(interfaces, sessions, routes)


def faults(site: Site, found: Underlay) -> list[Check]:
    return [check for check in compare(site, found) if check.status == "failed"]


@pytest.mark.parametrize("plan", ["subnet_per_rail", "point_to_point"])
@pytest.mark.parametrize("switch", ["leaf01", "leaf04", "spine02"])
def test_a_switch_as_in_the_model_has_one_line_for_each_part(switch: str, plan: str) -> None:
    here = site(switch, plan)
    checks = compare(here, right(here))
    assert {check.status for check in checks} == {"ok"}
    wanted = ["underlay_session", "underlay_paths"]
    assert [check.name for check in checks] == (
        ["underlay_gateway", *wanted] if switch.startswith("leaf") else wanted
    )


def test_equal_cost_paths_are_spines_times_links() -> None:
    here = site("leaf01")
    uplinks = {port.name for port in here.own if port.kind == "uplink"}
    assert len(uplinks) == 4
    assert first_hops("leaf01", here.links, ["leaf02", "leaf03"]) == {
        "leaf02": uplinks,
        "leaf03": uplinks,
    }
    spine = first_hops("spine01", here.links, ["leaf03"])["leaf03"]
    assert {port.peer for port in here.ports["spine01"] if port.name in spine} == {"leaf03"}
    assert len(spine) == 2


NETWORKS = st.builds(
    lambda first, length: (first << 4 >> (32 - length) << (32 - length), length),
    st.integers(0, 255),
    st.integers(22, 32),
)
TABLES = st.dictionaries(NETWORKS, st.frozensets(st.sampled_from("ab"), min_size=1), max_size=40)


@given(st.sets(st.builds(key_of, NETWORKS)))
def test_ranges_have_each_number_once(keys: set[int]) -> None:
    found = [key for each in ranges_of(keys) for key in range(*each)]
    assert sorted(found) == sorted(keys)


def test_networks_of_a_leaf_are_one_range() -> None:
    keys = [key_of((first, 31)) for first in range(0x0A000000, 0x0A000000 + 64 * 16, 16)]
    assert len(ranges_of(keys)) == 1 and len(list(range(*ranges_of(keys)[0]))) == 64


@given(TABLES, NETWORKS, st.sets(NETWORKS, min_size=1))
def test_routes_are_those_of_the_table(table: Any, wanted: Any, several: Any) -> None:
    routes = Routes.of(table)
    assert routes == table and Routes(routes.groups) == table
    covering = [
        each
        for each in table
        if each[1] <= wanted[1] and wanted[0] >> (32 - each[1]) == each[0] >> (32 - each[1])
    ]
    longest = max(covering, key=lambda each: each[1], default=None)
    assert routes.longest(key_of(wanted)) == (
        (None, 0) if longest is None else (table[longest], longest[1])
    )
    alike = {table.get(each) for each in several}
    common = alike.pop() if len(alike) == 1 else None
    assert routes.common({key_of(each) for each in several}) == common


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_each_missing_path_names_its_cable_and_no_other(data: st.DataObject) -> None:
    here = SITES[data.draw(st.sampled_from(sorted(SITES)))]
    links = [port for port in here.own if port.kind == "uplink"]
    lost = data.draw(st.sets(st.sampled_from([port.name for port in links]), max_size=3))
    found = right(here)
    some = data.draw(st.sets(st.sampled_from(sorted(found.routes or ())), min_size=1))
    routes = {
        prefix: hops - lost if prefix in some else hops
        for prefix, hops in (found.routes or {}).items()
    }
    wrong = faults(here, replace(found, routes=routes))
    assert {check.name for check in wrong} <= {"underlay_paths"}
    assert {check.subject for check in wrong} == {str(p) for p in links if p.name in lost}


SITES = {
    f"{switch} {plan}": site(switch, plan)
    for switch in ("leaf01", "leaf04")
    for plan in ("subnet_per_rail", "point_to_point")
}


def test_a_rail_without_a_route_is_named_with_its_leaf() -> None:
    here = site("leaf01")
    (lost,) = rails_of(here.ports["leaf03"])
    found = right(here)
    routes = {prefix: hops for prefix, hops in (found.routes or {}).items() if prefix != lost}
    (check,) = faults(here, replace(found, routes=routes))
    assert (check.name, "no route" in check.found) == ("underlay_paths", True)
    assert check.subject.endswith(" of leaf03")


@pytest.mark.parametrize(
    ("default", "status"), [("Management0", "failed"), ("over the links", "ok")]
)
def test_a_default_route_counts_only_over_links(default: str, status: str) -> None:
    here = site("leaf01")
    uplinks = frozenset(port.name for port in here.own if port.kind == "uplink")
    hops = uplinks if default.startswith("over") else frozenset((default,))
    checks = compare(here, replace(right(here), routes={(0, 0): hops}))
    assert {c.status for c in checks if c.name == "underlay_paths"} == {status}


def test_an_aggregate_covers_the_rails_below_it() -> None:
    here = site("leaf01")
    uplinks = frozenset(port.name for port in here.own if port.kind == "uplink")
    pool = prefix_of("10.100.0.0/16")
    assert pool is not None
    assert not faults(here, replace(right(here), routes={pool: uplinks}))
    few = frozenset(sorted(uplinks)[1:])
    (check,) = faults(here, replace(right(here), routes={pool: few}))
    assert check.subject.startswith(min(uplinks))


def test_subinterfaces_are_links() -> None:
    here = site("leaf01")
    found = right(here)
    routes = {
        prefix: frozenset(f"{name}.10" for name in hops)
        for prefix, hops in (found.routes or {}).items()
    }
    interfaces = {
        name if name.startswith("Vlan") else f"{name}.10": interface
        for name, interface in (found.interfaces or {}).items()
    }
    ports = {
        name: tuple(port._replace(address=None) if port.kind != "host" else port for port in each)
        for name, each in here.ports.items()
    }
    below = replace(found, routes=routes, interfaces=interfaces)
    for each in (here, replace(here, ports=ports)):
        assert {check.status for check in compare(each, below)} == {"ok"}


def test_one_address_family_of_a_session_is_enough() -> None:
    here = site("leaf01")
    found = right(here)
    sessions = list(found.sessions or ())
    idle = [replace(session, state="idle") for session in sessions]
    for both in ([*sessions, *idle], [*idle, *sessions]):
        assert not faults(here, replace(found, sessions=both))


def test_next_hops_that_the_model_does_not_have_are_not_judged() -> None:
    here = site("leaf01")
    found = right(here)
    routes = {prefix: frozenset(("Vlan4001",)) for prefix in found.routes or {}}
    checks = [c for c in compare(here, replace(found, routes=routes)) if c.name == "underlay_paths"]
    assert [check.status for check in checks] == ["not_applicable"]
    assert "Vlan4001" in checks[0].reason


def test_a_gateway_with_a_small_mtu_and_a_missing_one() -> None:
    here = site("leaf01")
    found = right(here)
    ((name, interface),) = [
        (name, each) for name, each in (found.interfaces or {}).items() if name.startswith("Vlan")
    ]
    small = replace(
        found, interfaces={**(found.interfaces or {}), name: replace(interface, mtu=1500)}
    )
    (check,) = faults(here, small)
    assert (check.name, check.found) == ("underlay_gateway", f"{name} with MTU 1500")
    assert check.subject in interface.addresses[0] and "fragmented" in check.reason
    without = {key: each for key, each in (found.interfaces or {}).items() if key != name}
    (check,) = faults(here, replace(found, interfaces=without))
    assert (check.name, check.found) == ("underlay_gateway", "none")


@pytest.mark.parametrize("mtu", [None, 9000, 9216])
def test_an_mtu_as_large_as_that_of_the_rails_is_enough(mtu: Optional[int]) -> None:
    here = site("leaf01")
    found = right(here)
    interfaces = {name: replace(each, mtu=mtu) for name, each in (found.interfaces or {}).items()}
    assert not faults(here, replace(found, interfaces=interfaces))


def _sessions(found: Underlay, number: int, **more: Any) -> Sequence[BgpSession]:
    sessions = list(found.sessions or ())
    sessions[number] = replace(sessions[number], **more)
    return sessions


@pytest.mark.parametrize(
    ("more", "found"),
    [({"state": "active"}, "active"), ({"asn": 65009}, "AS 65009"), ({"peer": "10.9.9.9"}, None)],
)
def test_a_session_that_is_not_that_of_the_model(
    more: Mapping[str, Any], found: Optional[str]
) -> None:
    here = site("leaf01")
    links = [port for port in here.own if port.kind == "uplink"]
    as_in_model = right(here)
    (check,) = faults(here, replace(as_in_model, sessions=_sessions(as_in_model, 2, **more)))
    assert (check.name, check.found, check.subject) == ("underlay_session", found, str(links[2]))


def test_a_session_without_number_is_that_of_its_port() -> None:
    here = site("leaf01")
    links = [port for port in here.own if port.kind == "uplink"]
    sessions = [BgpSession(port.name, "established", 65001) for port in links]
    found = replace(right(here), sessions=sessions)
    assert not faults(here, found)
    (check,) = faults(here, replace(found, sessions=sessions[1:]))
    assert (check.subject, check.found) == (str(links[0]), None)


def test_an_address_that_is_not_in_the_model_is_that_of_the_network_on_the_port() -> None:
    here = site("leaf01")
    found = right(here)
    links = [port for port in here.own if port.kind == "uplink"]
    ports = {
        name: tuple(port._replace(address=None) if port.kind != "host" else port for port in each)
        for name, each in here.ports.items()
    }
    assert not faults(replace(here, ports=ports), found)
    interfaces = {
        **(found.interfaces or {}),
        links[0].name: RoutedInterface(("192.0.2.1/31",), 9216),
    }
    (check,) = faults(replace(here, ports=ports), replace(found, interfaces=interfaces))
    assert (check.name, check.subject) == ("underlay_session", str(links[0]))


def test_another_routing_protocol_is_judged_by_its_routes() -> None:
    here = site("leaf01")
    loopback = [BgpSession("10.255.0.9", "established", 65001)]
    checks = compare(here, replace(right(here), sessions=loopback))
    assert {check.name: check.status for check in checks} == {
        "underlay_gateway": "ok",
        "underlay_session": "not_applicable",
        "underlay_paths": "ok",
    }


def test_links_in_port_channels_are_not_compared() -> None:
    here = site("leaf01")
    own = tuple(port._replace(bundled=port.kind == "uplink") for port in here.own)
    bundled = replace(here, ports={**here.ports, "leaf01": own})
    checks = compare(bundled, replace(right(here), sessions=[], routes={}))
    assert [(check.name, check.status) for check in checks] == [
        ("underlay_gateway", "ok"),
        ("underlay_session", "not_applicable"),
    ]
    (group, _other) = ports_of(
        [
            {
                "kind": "uplink",
                "peer_interface": "a",
                "mtu": 1,
                "peers": {"x": "s", "y": "s"},
                **CHANNEL,
            }
        ]
    )
    assert group.bundled and not _other.bundled


CHANNEL = {"channels": {"x": ""}}


@pytest.mark.parametrize(
    "found",
    [
        Underlay(reasons={"underlay_gateway": "`vtysh` is missing"}),
        Underlay({}, [], {}),
        Underlay(
            {"eth0": RoutedInterface(("10.0.1.1/20",), 1500)}, [], {(0, 0): frozenset(("eth0",))}
        ),
    ],
)
def test_a_switch_without_routed_rails_is_not_applicable(found: Underlay) -> None:
    (check,) = compare(site("leaf01"), found)
    assert (check.name, check.status) == ("underlay", "not_applicable")
    assert "no BGP session" in check.reason
    assert ("vtysh" in check.reason) == bool(found.reasons)


def test_parts_that_are_not_reported_are_not_applicable_with_their_reason() -> None:
    here = site("leaf01")
    reasons = {"underlay_gateway": "one", "underlay_paths": "two"}
    found = replace(right(here), interfaces=None, routes=None, reasons=reasons)
    shown = {check.name: (check.status, check.reason) for check in compare(here, found)}
    assert shown == {
        "underlay_gateway": ("not_applicable", "one"),
        "underlay_session": ("ok", ""),
        "underlay_paths": ("not_applicable", "two"),
    }


def test_rails_in_another_vrf_are_not_compared() -> None:
    here = site("leaf01")
    found = right(here)
    interfaces = {
        name: replace(each, vrf="tenant") if name.startswith("Vlan") else each
        for name, each in (found.interfaces or {}).items()
    }
    checks = compare(here, replace(found, interfaces=interfaces, routes={}))
    (paths,) = [check for check in checks if check.name == "underlay_paths"]
    assert paths.status == "not_applicable" and "tenant" in paths.reason


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"source port", "src_ip"}, "ok"), ({"src_ip", "dst_ip"}, "failed"), (set(), "failed")],
)
def test_the_hash_needs_the_source_port(fields: set[str], status: str) -> None:
    here = site("leaf01")
    checks = compare(here, replace(right(here), hash_fields=frozenset(fields)))
    assert [check.status for check in checks if check.name == "underlay_hash"] == [status]


def test_a_model_whose_rails_need_no_gateway_is_not_read() -> None:
    text = MODEL.replace("nodes_per_set: 4, ", "").replace("count: 4, m", "count: 2, m")
    groups, variables = hostvars(text=text)
    assert site_of("leaf01", groups, variables) is None
