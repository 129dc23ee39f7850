# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Acceptance names the slow part of a cluster whose switches route: inventories/virtual-acceptance.

Traffic, BGP and counters are real; rates are small enough that this machine's CPUs do not limit
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.impair import Bed
from tests.nodes import TOP, Cluster, Run

pytestmark = [pytest.mark.nodes, pytest.mark.long]

ACCEPTANCE = Cluster(TOP / "inventories/virtual-acceptance")
Fault = Callable[[Bed], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    try:
        made = Bed(ACCEPTANCE.converged())
        with made.preferred():
            yield made
    finally:
        ACCEPTANCE.down()


def cable(bed: Bed, number: int = 0) -> str:
    """Name of a cable in checks."""
    lower, upper = bed.cables()[number]
    return f"{lower.host} {lower.port} - {upper.host} {upper.port}"


def accept(bed: Bed, *, passes: bool) -> tuple[Run, set[str]]:
    """Run acceptance from the start, and return the parts that it names."""
    fresh = "--extra-vars=acceptance_resume=never"
    done = bed.nodes.play("playbooks/acceptance.yml", fresh, expect=0 if passes else 2)
    failed = done.failed("acceptance")
    return done, {check["subject"] for check in failed if check["name"] != "acceptance_rail"}


def test_a_healthy_cluster_passes(bed: Bed) -> None:
    _done, named = accept(bed, passes=True)
    assert named == set()


FAULTS: dict[str, Fault] = {
    "slow cable": lambda bed: bed.slow(*bed.cables()[0]),
    "lossy cable": lambda bed: bed.lossy(*bed.cables()[0]),
    "removed cable": lambda bed: bed.removed(bed.cables()[0][0]),
    "slow rail": lambda bed: bed.slow(*bed.rail("node02", "rail1")),
    "slow node": lambda bed: bed.busy("node03", cpus=0.08),
}


def test_a_lossy_cable_is_named_by_the_counters(bed: Bed) -> None:
    with FAULTS["lossy cable"](bed):
        done, _named = accept(bed, passes=False)
    cables = [check for check in done.failed("acceptance") if check["name"] == "acceptance_cable"]
    assert cables and {check["found"] for check in cables} == {"errors"}
    assert {check["subject"].partition(" (")[0] for check in cables} == {cable(bed)}


def test_a_slow_cable_is_named(bed: Bed) -> None:
    with FAULTS["slow cable"](bed):
        _done, named = accept(bed, passes=False)
    assert named == {cable(bed)}


@pytest.mark.parametrize(
    ("fault", "subject"), [("slow rail", "node02 rail1"), ("slow node", "node03")]
)
def test_a_slow_part_is_named(bed: Bed, fault: str, subject: str) -> None:
    with FAULTS[fault](bed):
        _done, named = accept(bed, passes=False)
    assert named == {subject}


def test_a_removed_cable_is_named_and_the_rest_is_measured(bed: Bed) -> None:
    with FAULTS["removed cable"](bed):
        done, named = accept(bed, passes=False)
    assert named == {cable(bed)}
    assert {"down"} == {
        check["found"] for check in done.failed("acceptance") if check["name"] == "acceptance_cable"
    }
    rails = [each for each in done.checks("acceptance") if each["name"] == "acceptance_rail"]
    assert [each["subject"] for each in rails] == ["rail0", "rail1"]


def test_the_underlay_names_a_removed_cable(bed: Bed) -> None:
    lower, upper = bed.cables()[1]
    with bed.removed(upper):
        done = bed.nodes.play("playbooks/links.yml", expect=2)
    failed = done.failed("links", lower.host)
    assert {check["name"] for check in failed} == {"underlay_session", "underlay_paths"}
    assert {check["subject"] for check in failed} == {cable(bed, 1)}
    assert bed.nodes.play("playbooks/links.yml").failed("links") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_undone_exactly(bed: Bed, fault: str) -> None:
    ends = [*bed.cables()[0], *bed.rail("node02", "rail1")]

    def state() -> list[str]:
        return [*map(bed.state, ends), bed.quota("node03")]

    before = state()
    with FAULTS[fault](bed):
        assert state() != before
    assert state() == before
