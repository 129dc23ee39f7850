# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cables by the counters of their ends: each fault is named at its direction, and what hashing by
chance explains raises no alarm."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import cables, readings
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    Direction,
    Figure,
    Port,
    Topology,
    Uplink,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.counters import (
    Growth,
    PortCounters,
    grown,
    growth,
    read_ports,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.results import UNDERLAY
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.underlay import (
    Underlay,
    rails_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_fabric_underlay import hostvars, right, site

SECONDS = 60.0
Ports = dict[str, dict[str, Growth]]


def fabric(leaves: int = 2, spines: int = 4) -> Topology:
    links = [
        Uplink(f"leaf{leaf}", f"swp{spine}", f"spine{spine}", f"swp{leaf}")
        for leaf in range(1, leaves + 1)
        for spine in range(1, spines + 1)
    ]
    ports = {f"node{leaf}": {"rail0": Port(f"leaf{leaf}", 400.0)} for leaf in range(1, leaves + 1)}
    return Topology(ports, tuple(links), dict.fromkeys(links, 400.0))


def counted(topology: Topology, byte_counts: Mapping[Direction, int]) -> Ports:
    """Both ends of each cable, which agree."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for cable in topology.cables:
        for direction in (Direction(cable, True), Direction(cable, False)):
            lower, upper = (cable.lower, cable.lower_port), (cable.upper, cable.upper_port)
            ends = (lower, upper) if direction.up else (upper, lower)
            for (switch, port), side in zip(ends, ("tx", "rx")):
                own = found.setdefault(switch, {}).setdefault(port, {})
                own[f"{side}_bytes"] = byte_counts.get(direction, 0)
                own[f"{side}_packets"] = byte_counts.get(direction, 0) // 4096
    return {
        switch: {port: Growth(PortCounters.of(own), SECONDS) for port, own in ports.items()}
        for switch, ports in found.items()
    }


def hashed(
    topology: Topology, flows: int, seed: int, sizes: float = 0.0
) -> Mapping[Direction, int]:
    """Bytes if each leaf sends and receives this many flows, which switches hash independently."""
    rng = random.Random(seed)
    found: Counter[Direction] = Counter()
    for leaf in sorted({cable.lower for cable in topology.cables}):
        own = [cable for cable in topology.cables if cable.lower == leaf]
        for up in (True, False):
            for _flow in range(flows):
                size = int(10**9 * rng.lognormvariate(0, sizes))
                found[Direction(rng.choice(own), up)] += size
    return found


def all_flows(topology: Topology, number: float) -> cables.Flows:
    leaves = {cable.lower for cable in topology.cables}
    return cables.Flows({(leaf, up): number for leaf in leaves for up in (True, False)})


def kinds(found: list[cables.CableFinding]) -> list[tuple[str, str]]:
    return [(finding.kind, str(finding.direction)) for finding in found]


def test_an_even_fabric_has_no_finding() -> None:
    topology = fabric()
    ports = counted(topology, dict.fromkeys(cables._directions(topology), 10**12))
    assert cables.findings(topology, ports, all_flows(topology, 64)) == []
    assert set(cables.carried(topology, ports).values()) == {10**12}


@pytest.mark.parametrize("flows", [4, 16, 200])
def test_hashing_by_chance_raises_no_alarm(flows: int) -> None:
    """200 fabrics of 128 directions: one alarm in a thousand fabrics is accepted."""
    topology = fabric(8, 8)
    alarms = 0
    for seed in range(200):
        ports = counted(topology, hashed(topology, flows, seed))
        found = cables.findings(topology, ports, all_flows(topology, flows))
        alarms += any(finding.kind != cables.UNTESTED for finding in found)
    assert alarms <= 1


def test_a_cable_shaped_to_a_tenth_is_uneven_and_no_other_is() -> None:
    topology = fabric(8, 8)
    slow = Direction(topology.cables[10], True)
    for seed in range(20):
        byte_counts = dict(hashed(topology, 400, seed))
        byte_counts[slow] //= 10
        ports = counted(topology, byte_counts)
        found = cables.findings(topology, ports, all_flows(topology, 400))
        assert kinds(found) == [(cables.UNEVEN, str(slow))]


def test_faults_do_not_make_other_cables_uneven_however_many_flows_there_are() -> None:
    topology = fabric(4, 8)
    slow, removed = (Direction(topology.cables[number], False) for number in (3, 4))
    byte_counts = {**hashed(topology, 20_000, 1), removed: 0}
    byte_counts[slow] //= 10
    ports = counted(topology, byte_counts)
    found = cables.findings(topology, ports, all_flows(topology, 10**6))
    assert kinds(found) == [(cables.UNEVEN, str(slow)), (cables.SILENT, str(removed))]


def test_a_slow_cable_is_found_where_most_others_are_removed() -> None:
    topology = fabric(1, 8)
    byte_counts = dict(hashed(topology, 1000, 1))
    removed = [Direction(cable, True) for cable in topology.cables[:5]]
    slow = Direction(topology.cables[6], True)
    byte_counts.update({**dict.fromkeys(removed, 0), slow: byte_counts[slow] // 10})
    found = cables.findings(topology, counted(topology, byte_counts), all_flows(topology, 1000))
    silent = [(cables.SILENT, str(direction)) for direction in removed]
    assert kinds(found) == [*silent, (cables.UNEVEN, str(slow))]


def test_the_other_one_of_two_cables_is_not_named() -> None:
    topology = fabric(2, 2)
    slow = Direction(topology.cables[1], False)
    byte_counts = dict(hashed(topology, 1000, 1))
    byte_counts[slow] //= 10
    found = cables.findings(topology, counted(topology, byte_counts), all_flows(topology, 1000))
    assert kinds(found) == [(cables.UNEVEN, str(slow))]


def test_a_cable_with_more_than_its_share_is_uneven_where_none_has_less() -> None:
    topology = fabric(2, 8)
    more = Direction(topology.cables[5], True)
    byte_counts = dict(hashed(topology, 1000, 1))
    byte_counts[more] *= 2
    found = cables.findings(topology, counted(topology, byte_counts), all_flows(topology, 1000))
    assert kinds(found) == [(cables.UNEVEN, str(more))]


@pytest.mark.parametrize(("flows", "kind"), [(0, "untested"), (8, "untested"), (200, "silent")])
def test_a_cable_without_traffic_is_silent_only_after_enough_flows(flows: int, kind: str) -> None:
    topology = fabric()
    byte_counts = dict.fromkeys(cables._directions(topology), 10**10)
    removed = Direction(topology.cables[1], False)
    byte_counts[removed] = 2000  # LLDP and BGP
    found = cables.findings(topology, counted(topology, byte_counts), all_flows(topology, flows))
    assert (kind, str(removed)) in kinds(found)
    assert kinds(found) == [(kind, str(removed))]


@pytest.mark.parametrize(
    ("end", "counters", "kind", "up"),
    [
        ("lower", {"rx_errors": 3, "rx_packets": 90}, "errors", False),
        ("upper", {"rx_errors": 3}, "errors", True),
        ("lower", {"fec_uncorrected": 1}, "errors", False),
        ("lower", {"pre_fec_ber": 3e-4}, "errors", False),
        ("lower", {"pre_fec_ber": 1e-6}, "", False),
        ("lower", {"fec_corrected": 10**6, "ecn_marked": 9}, "", False),
        ("upper", {"rx_discards": 61}, "discards", True),
        ("upper", {"rx_discards": 60}, "", True),
        ("lower", {"tx_discards": 1}, "discards", True),
        ("lower", {"tx_errors": 1}, "errors", True),
        ("upper", {"rx_pause_us": {"3": 4 * 10**6}}, "pauses", False),
        ("upper", {"rx_pause_us": {"3": 2 * 10**6}, "rx_pause": {"3": 10**9}}, "", False),
        ("lower", {"rx_pause": {"all": 40_000}}, "pauses", True),
        ("lower", {"rx_pause": {"all": 10_000}}, "", True),
        ("lower", {"tx_pause": {"3": 10**6}}, "", True),
        ("lower", {"watchdog": 1}, "watchdog", True),
    ],
)
def test_each_counter_names_the_direction(
    end: str, counters: dict[str, Any], kind: str, up: bool
) -> None:
    topology = fabric()
    cable = topology.cables[2]
    ports = counted(topology, dict.fromkeys(cables._directions(topology), 10**10))
    switch, port = getattr(cable, end), getattr(cable, f"{end}_port")
    former = ports[switch][port].counters.as_dict()
    ports[switch][port] = Growth(PortCounters.of({**former, **counters}), SECONDS)
    found = cables.findings(topology, ports, all_flows(topology, 64))
    assert kinds(found) == ([(kind, str(Direction(cable, up)))] if kind else [])
    assert all(switch in finding.evidence and str(cable) in finding.sentence() for finding in found)


def test_one_end_is_enough_and_without_any_a_cable_is_unread() -> None:
    topology = fabric()
    ports = counted(topology, dict.fromkeys(cables._directions(topology), 10**10))
    del ports["spine1"]
    assert cables.findings(topology, ports, all_flows(topology, 64)) == []
    del ports["leaf1"]
    found = cables.findings(topology, ports, all_flows(topology, 64))
    cable = topology.cables[0]
    assert kinds(found) == [("unread", str(Direction(cable, up))) for up in (True, False)]


def test_flows_of_figures_count_at_both_leaves() -> None:
    topology = fabric()
    there = Figure("rail0", "node1", "node2", 100.0)
    same = Figure("rail0", "node1", "node1", 100.0)
    lost = Figure("rail0", "node2", "node1", None, error="no answer")
    flows = cables.Flows.of(topology, [there, there, same, lost], 4)
    assert flows.counts == {("leaf1", True): 8.0, ("leaf2", False): 8.0}
    slow = Figure("rail0", "node1", "node2", 1.0)
    assert 4 < cables.Flows.of(topology, [there, slow], 4).counts["leaf1", True] < 4.1


@given(st.integers(1, 60), st.integers(2, 9), st.data())
def test_the_tail_is_that_of_a_binomial_distribution(
    trials: int, groups: int, data: st.DataObject
) -> None:
    seen = data.draw(st.integers(0, trials))
    exact = sum(
        math.comb(trials, n) * (1 / groups) ** n * (1 - 1 / groups) ** (trials - n)
        for n in range(seen, trials + 1)
    )
    found = cables._upper(seen, trials, 1 / groups)
    assert found == pytest.approx(exact, rel=1e-9) or (found == 1 and seen <= trials / groups)


# Growth

COUNTERS = st.builds(
    PortCounters,
    rx_bytes=st.none() | st.integers(0, 2**64 - 1),
    rx_pause=st.dictionaries(st.sampled_from(["3", "4", "all"]), st.integers(0, 2**40)),
    pre_fec_ber=st.none() | st.floats(0, 1),
)


@given(COUNTERS, COUNTERS)
def test_growth_is_never_negative_and_knows_a_reset(
    before: PortCounters, after: PortCounters
) -> None:
    found = growth(before, after, 1.0)
    old, new = before.rx_bytes, after.rx_bytes
    if old is None or new is None:
        assert found.counters.rx_bytes is None
    else:
        assert found.counters.rx_bytes == (new - old if new >= old else new)
        assert found.reset or new >= old
    for priority, count in found.counters.rx_pause.items():
        assert 0 <= count <= after.rx_pause[priority]
    assert set(found.counters.rx_pause) == set(before.rx_pause) & set(after.rx_pause)
    assert found.counters.pre_fec_ber == after.pre_fec_ber


def test_two_results_of_the_step_grow_by_port() -> None:
    before = {"ports": {"swp1": {"rx_bytes": 5}, "swp2": {"rx_bytes": 1}}, "read_s": 10.0}
    after = {"ports": {"swp1": {"rx_bytes": 8}, "swp3": {"rx_bytes": 9}}, "read_s": 70.0}
    assert grown({"before": before, "after": after}) == {
        "swp1": Growth(PortCounters(rx_bytes=3), 60.0)
    }
    assert grown({"before": None, "after": after}) == {}


@given(
    st.dictionaries(
        st.text(max_size=8) | st.just("swp1"),
        st.dictionaries(
            st.sampled_from(["rx_bytes", "rx_pause", "pre_fec_ber", "further"]),
            st.none() | st.text(max_size=9) | st.integers() | st.floats() | st.lists(st.none()),
        )
        | st.none(),
    )
)
def test_counters_of_any_form_are_read(answer: Any) -> None:
    for name, counters in read_ports(answer).items():
        assert read_ports({name: counters.as_dict()}) == {name: counters}


# Routing


class Routed:
    """Four leaves with two cables to each of two spines, as their switches report them."""

    def __init__(self) -> None:
        self.groups, self.hostvars = hostvars()
        self.topology = Topology.of(self.hostvars)
        self.reported = {
            name: right(site(name)) for name in (*self.groups["leaf"], *self.groups["spine"])
        }

    def between(self, leaf: str, spine: str) -> list[Uplink]:
        return [each for each in self.topology.cables if (each.lower, each.upper) == (leaf, spine)]

    def cut(self, lost: Collection[Uplink], state: str = "idle") -> None:
        """As BGP does: no session on these cables, and no route that needs them."""
        ends = {
            end
            for each in lost
            for end in ((each.lower, each.lower_port), (each.upper, each.upper_port))
        }
        for name, known in self.reported.items():
            here = replace(site(name), lost=ends)
            hops = here.expected_hops()
            routes = {prefix: hops[leaf] for leaf in hops for prefix in rails_of(here.ports[leaf])}
            addresses = {
                port.address
                for end, port in ((end, port) for end in ends for port in here.ports[end[0]])
                if port.name == end[1]
            }
            sessions = [
                replace(each, state=state) if each.peer in addresses else each
                for each in known.sessions or ()
            ]
            self.reported[name] = replace(known, sessions=sessions, routes=routes)

    def read(self) -> readings.Routing:
        for name, found in self.reported.items():
            self.hostvars[name][UNDERLAY] = {"found": found.as_dict(), "problem": ""}
        return readings.routing(self.groups, self.hostvars, self.topology)


def test_a_fabric_as_in_the_model_has_no_cable_that_is_down() -> None:
    assert Routed().read() == readings.Routing()


@pytest.mark.parametrize("count", [1, 2])
def test_a_removed_cable_is_named_and_nothing_that_follows_from_it(count: int) -> None:
    """Without both cables, the spine has no route to the leaf, and other leaves one spine less."""
    fabric = Routed()
    lost = fabric.between("leaf02", "spine01")[:count]
    fabric.cut(lost)
    found = fabric.read()
    assert [(check.name, check.subject, check.found) for check in found.checks] == [
        ("acceptance_cable", str(each), "down") for each in lost
    ]
    assert list(found.down) == lost
    assert {"idle", "leaf02", "spine01"} <= {*found.down[lost[0]].split()}
    left = fabric.topology.without(found.down)
    assert {*fabric.topology.cables} - {*left.cables} == {*lost}
    spines = {each.ends[1] for each in left.hops("leaf01", "leaf02")[0]}
    assert spines == ({"spine01", "spine02"} if count == 1 else {"spine02"})


def test_other_faults_of_routing_remain() -> None:
    fabric = Routed()
    fabric.cut(fabric.between("leaf02", "spine01"))
    leaf = fabric.reported["leaf04"]
    wrong = replace((leaf.sessions or [])[0], asn=1)
    fabric.reported["leaf04"] = replace(
        leaf, routes={}, sessions=[wrong, *(leaf.sessions or [])[1:]]
    )
    found = fabric.read()
    faults = [(check.name, check.subject.partition(" ")[0]) for check in found.checks]
    assert faults == [
        *[("acceptance_cable", "leaf02")] * 2,
        ("underlay_session", "leaf04"),
        ("underlay_paths", "leaf04"),
    ]
    assert not any(cable.lower == "leaf04" for cable in found.down)


def test_switches_that_cannot_be_read_are_listed() -> None:
    fabric = Routed()
    fabric.reported = {}
    fabric.hostvars["leaf01"][UNDERLAY] = {"found": None, "problem": "no answer"}
    fabric.hostvars["leaf02"][UNDERLAY] = {"found": Underlay().as_dict(), "problem": ""}
    assert fabric.read() == readings.Routing(unread={"leaf01": "no answer"})
