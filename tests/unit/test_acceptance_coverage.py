# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expected share of cable directions that carry a test of verbs, on published designs."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from statistics import mean

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import rail_pairs
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import plan
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.coverage import (
    Fabric,
    Link,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import Topology
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.pairs import Way
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts, inventory_of

from tests.unit.test_examples import example


@cache
def ring(name: str) -> tuple[Fabric, Counter[Link], rail_pairs.Schedule]:
    """The fabric of an example, and the pairs of verbs by their leaves."""
    inventory = inventory_of(example(name))
    hosts = {host.name: inventory.merged(host) for host in inventory.hosts}
    switches = {name: own for name, own in hosts.items() if own.get("cluster_ports")}
    units = {name: own["cluster_unit"] for name, own in switches.items() if "cluster_unit" in own}
    directory = facts.build(hosts)
    found = rail_pairs.parts(directory, hosts, 18515, units)
    schedule = rail_pairs.schedule(found, at_once=0, forks=32, exchange_s=42, duration_s=2)
    return Fabric.of_switches(switches), rail_pairs.by_leaves(directory, found), schedule


@pytest.mark.parametrize(
    ("name", "pairs", "crossing", "directions", "with_4", "with_8", "minutes"),
    [
        ("superpod-b300-1su", 512, 512, 1024, 98.28, 99.97, 4),
        ("superpod-b300-4su", 2048, 2048, 4096, 98.28, 99.97, 16),
        ("superpod-b300-16su", 8192, 8192, 16384, 98.28, 99.97, 64),
        ("superpod-b300-twin-4su", 4096, 4096, 4096, 99.97, 100.00, 32),
        ("rack-switches", 3072, 3072, 6144, 98.39, 99.97, 24),
        ("unequal-pods", 384, 256, 1152, 93.39, 99.22, 4),
        # All nodes share the leaf of each rail: only traffic between rails uses spines.
        ("superpod-b300-twin-1su", 1024, 0, 1024, 0, 0, 8),
    ],
)
def test_share_of_cable_directions(
    name: str,
    pairs: int,
    crossing: int,
    directions: int,
    with_4: float,
    with_8: float,
    minutes: int,
) -> None:
    fabric, leaves, schedule = ring(name)
    found = {number: fabric.coverage(leaves, number) for number in (4, 8)}
    one = found[4]
    assert (one.pairs, one.crossing, one.directions) == (pairs, crossing, directions)
    shares = [round(100 * each.expected / directions, 2) for each in found.values()]
    assert shares == [with_4, with_8]
    assert f"{with_8:.2f}% of the {directions} directions" in found[8].sentence()
    assert schedule.expected_s == minutes * 60


@pytest.mark.parametrize(
    ("name", "nodes", "directions", "share", "seconds", "probes"),
    [
        ("superpod-b300-1su", 64, 1024, 99.97, 184, 162),
        ("superpod-b300-4su", 256, 4096, 99.97, 184, 162),
        ("superpod-b300-16su", 1024, 16384, 99.97, 184, 162),
        ("superpod-b300-twin-4su", 256, 4096, 100.00, 368, 153),
        ("unequal-pods", 48, 1152, 99.22, 184, 162),
        ("rack-switches", 384, 6144, 99.97, 184, 162),
    ],
)
def test_three_rounds_of_acceptance(
    name: str, nodes: int, directions: int, share: float, seconds: int, probes: int
) -> None:
    """Two of them across spines, whatever the size; the rest of an hour is for a search."""
    inventory = inventory_of(example(name))
    topology = Topology.of({host.name: inventory.merged(host) for host in inventory.hosts})
    made = plan.made(topology, Way(), budget_s=3600, count=3)
    cables = made.cables()
    assert (len(topology.nodes), cables.directions) == (nodes, directions)
    assert round(100 * cables.expected / directions, 2) == share
    assert (round(made.seconds), made.searches) == (seconds, probes)
    left = f"at most {plan.duration(3600 - seconds)}, about {probes} probes"
    assert any(left in line for line in made.lines())


def test_a_third_tier_is_covered_too() -> None:
    spines = [(leaf, f"s{leaf}{number}") for leaf in "ab" for number in (1, 2)]
    fabric = Fabric.of([*spines, *((spine, above) for _leaf, spine in spines for above in "xyz")])
    # Two ways up, six to the third tier, six down to the spines, two down to the leaf.
    assert fabric.coverage({("a", "b"): 1}, 1).expected == pytest.approx(4)
    several = fabric.coverage({("a", "b"): 3}, 1).expected
    assert several == pytest.approx(2 * (2 * (1 - (1 / 2) ** 3) + 6 * (1 - (5 / 6) ** 3)))


@pytest.mark.parametrize("name", ["unequal-pods", "superpod-b300-1su"])
def test_the_model_agrees_with_a_simulation(name: str) -> None:
    fabric, leaves, _schedule = ring(name)
    distances = {far: distances_to(fabric, far) for _near, far in leaves}
    choose = random.Random(40).choice
    counts = []
    for _run in range(8):
        used = set()
        for near, far in leaves.elements():
            for _queue_pair in range(2):
                here = near
                while here != far:
                    there, cable = choose(
                        [
                            (one, cable)
                            for one, cables in fabric.adjacent[here].items()
                            if distances[far][one] < distances[far][here]
                            for cable in range(cables)
                        ]
                    )
                    used.add((here, there, cable))
                    here = there
        counts.append(len(used))
    covered = fabric.coverage(leaves, 2)
    assert mean(counts) == pytest.approx(covered.expected, abs=0.01 * covered.directions)


def distances_to(fabric: Fabric, far: str) -> dict[str, int]:
    found, here = {far: 0}, [far]
    for switch in here:
        for one in fabric.adjacent[switch]:
            if one not in found:
                found[one] = found[switch] + 1
                here.append(one)
    return found


def test_leaves_without_a_path_and_without_cables() -> None:
    fabric = Fabric.of([("a", "s"), ("a", "s"), ("s", "b")])
    assert fabric.coverage({("a", "c"): 1, ("c", "a"): 1, ("c", "d"): 2}, 4).expected == 0
    assert fabric.coverage({("a", "a"): 5}, 4).expected == 0
    assert fabric.coverage({("a", "b"): 1}, 1).expected == pytest.approx(2)
    assert fabric.coverage({("b", "a"): 1}, 2).expected == pytest.approx(1 + 2 * 0.75)
    assert "0.00% of the 0 directions" in Fabric.of([]).coverage({("a", "b"): 1}, 4).sentence()
