# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slow nodes and rails stand out of noise, and healthy noise has no outliers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import outliers, rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    NODE,
    RAIL,
    Figure,
    Topology,
)

from tests.unit.acceptance_fabric import Fabric, fabric, gauss, uniform

SMALL = fabric(2, 4, rails=4, spines=4)
LARGE = fabric(4, 16, rails=4, spines=16)


def measured(topology: Topology, count: int | None = None, **of_fabric: Any) -> list[Figure]:
    return Fabric(topology, **of_fabric).run(rounds.probes(topology, count))


def named(found: outliers.Analysis) -> list[tuple[str, str]]:
    return [(outlier.kind, outlier.subject) for outlier in found.outliers]


@pytest.mark.parametrize("noise", [gauss(0.001), gauss(0.01), gauss(0.05), uniform(0.25)])
def test_healthy_noise_has_no_outliers(noise: Any) -> None:
    for seed in range(5):
        figures = measured(LARGE, 6, noise=noise, seed=seed)
        assert named(outliers.analyse(figures, LARGE)) == []


def test_a_tiny_spread_makes_no_outlier() -> None:
    figures = [Figure("rail0", a, b, 800.0) for turn in rounds.rounds(SMALL.nodes) for a, b in turn]
    figures[3] = replace(figures[3], gbits_s=800 * 0.96)
    assert named(outliers.analyse(figures, SMALL)) == []
    figures[3] = replace(figures[3], gbits_s=800 * 0.94)
    assert [kind for kind, _subject in named(outliers.analyse(figures, SMALL))] == [outliers.PAIR]


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ({"node0001": 0.5}, (NODE, "node0001")),
        ({"node0001": 0.9}, (NODE, "node0001")),
        ({"node0001": 0}, (NODE, "node0001")),
        ({("node0002", "rail3"): 0.8}, (RAIL, "node0002 rail3")),
        ({("node0002", "rail3"): 0}, (RAIL, "node0002 rail3")),
    ],
)
@pytest.mark.parametrize("topology", [fabric(1, 4, rails=4), SMALL, LARGE])
def test_a_slow_end_is_named_by_all_its_pairs(
    topology: Topology, slow: Any, expected: tuple[str, str]
) -> None:
    assert named(outliers.analyse(measured(topology, slow=slow), topology)) == [expected]


def test_an_end_slow_in_one_direction_is_named() -> None:
    slow = {("node0002", "rail3", "sends"): 0.3}
    found = outliers.analyse(measured(LARGE, slow=slow), LARGE)
    assert (RAIL, "node0002 rail3") in named(found)


def test_a_failed_pair_is_an_outlier_with_both_ends() -> None:
    figures = measured(SMALL)
    figures[0] = replace(figures[0], gbits_s=None, error="no answer within 30 s")
    (found,) = outliers.analyse(figures, SMALL).outliers
    assert (found.kind, found.nodes, found.found) == (outliers.PAIR, figures[0].pair, None)
    assert found.ratio == 0
    assert outliers.below(figures, SMALL, 0.1) == figures[:1]


def test_a_rail_that_is_slow_on_every_node_is_named() -> None:
    topology = fabric(1, 8, rails=8)
    slow = {(node, "rail3"): 0.7 for node in topology.nodes}
    found = outliers.analyse(measured(topology, slow=slow), topology)
    assert named(found) == [(RAIL, "rail3")]


def test_high_latency_of_a_rail_is_named() -> None:
    figures = measured(SMALL)
    high = [
        replace(figure, latency_us=9.0)
        if "node0002" in figure.pair and figure.rail == "rail1"
        else figure
        for figure in figures
    ]
    floor = outliers.LATENCY_FLOOR
    found = outliers.analyse(high, SMALL, floor, latency=True)
    assert named(found) == [(RAIL, "node0002 rail1")]
    assert found.outliers[0].found == pytest.approx(9.0)
    assert found.cohorts[0].median == pytest.approx(5.0)
    assert named(outliers.analyse(figures, SMALL, floor, latency=True)) == []


def test_nothing_measured() -> None:
    assert outliers.analyse([], SMALL) == outliers.Analysis((), ())
