# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rates of link downs over boots: nothing is lost, nothing is invented, a boot is no fault."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import FAILED, OK
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import rates
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check.rates import (
    DAY_S,
    ERRORS,
    GRACE_S,
    HOUR_S,
    LINK_DOWNS,
    Series,
    advance,
    parsed,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
LATE = GRACE_S + 1
growths = st.lists(st.tuples(st.integers(1, 7200), st.integers(0, 9)), max_size=60)


def series(steps, boot="a", start=None, now=NOW, first=5):
    """Readings of a counter that grows by `growth` every `seconds`, after the grace of the boot."""
    value = first
    found = advance(start, boot, value, now, LATE)
    for seconds, growth in steps:
        now, value = now + seconds, value + growth
        found = advance(found, boot, value, now, LATE)
    return found, now


@given(growths)
def test_in_one_boot_every_growth_counts_once(steps) -> None:
    found, now = series(steps)
    assert found.total == sum(growth for _seconds, growth in steps)
    times = [NOW + each for each in accumulate(seconds for seconds, _growth in steps)]
    for window in (HOUR_S, DAY_S):
        expected = sum(g for at, (_s, g) in zip(times, steps) if at > now - window)
        assert found.within(now, window) == expected


@given(growths, growths, st.integers(0, 1000), st.integers(1, 100_000))
def test_a_boot_neither_adds_nor_forgets(before, after, first, pause) -> None:
    known, now = series(before)
    found, later = series(after, "b", known, now + pause, first)
    assert found.total == known.total + sum(growth for _seconds, growth in after)
    old = [event for event in known.events if event[0] > later - DAY_S]
    assert list(found.events)[: len(old)] == [tuple(event) for event in old]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_links_are_set_up_in_the_first_half_hour_of_a_boot(values) -> None:
    found = None
    for number, value in enumerate(sorted(values)):
        found = advance(found, "a", value, NOW + number, float(number))
    assert (found.total, list(found.events)) == (0, [])
    assert advance(found, "a", max(values) + 2, NOW + 9000, 9000.0).total == 2


@given(st.integers(1, 100), st.integers(0, 99))
def test_a_port_that_was_created_again_was_down(before, after) -> None:
    after = min(after, before - 1)
    found = advance(Series("a", before), "a", after, NOW, LATE, reset=1)
    assert found.total == after + 1
    assert advance(Series("a", before), "a", after, NOW, LATE).total == after


@given(growths, st.floats(-1e6, 1e6))
def test_a_clock_that_is_set_never_hides_or_keeps_events_forever(steps, jump) -> None:
    known, now = series(steps)
    moved = advance(known, "a", known.value, now + jump, LATE)
    assert all(at <= now + jump for at, _growth in moved.events)
    last = advance(moved, "a", known.value, now + jump + DAY_S + 1, LATE)
    assert last.within(now + jump + DAY_S + 1, DAY_S) == 0


@given(growths)
def test_events_are_bounded_and_survive_the_state_file(steps) -> None:
    found, now = series(steps * 20)
    assert len(found.events) <= rates.MOST_EVENTS
    again = parsed(json.loads(json.dumps(found.as_list())))
    assert again is not None
    assert again.as_list() == found.as_list() and again.within(now, DAY_S) == found.within(
        now, DAY_S
    )


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=8))
def test_a_state_of_another_form_begins_a_new_series(value) -> None:
    known = parsed(value)
    assert known is None or isinstance(known, Series)


@pytest.mark.parametrize(
    ("hour", "day", "status"), [(3, 0, OK), (4, 0, FAILED), (0, 10, OK), (0, 11, FAILED)]
)
def test_thresholds_are_the_greatest_accepted_values(hour, day, status) -> None:
    events = [(NOW - 2 * HOUR_S, day)] * bool(day) + [(NOW - 60, hour)] * bool(hour)
    known = {f"rail0 {LINK_DOWNS}": ["a", 20, 99, events]}
    limits = {LINK_DOWNS: (3, 10), ERRORS: (120, None)}
    ((key, row, check),) = rates.evaluated(
        known, {"rail0": {LINK_DOWNS: 20}}, limits, "a", NOW, LATE
    )
    assert (key, row[2]) == (f"rail0 {LINK_DOWNS}", 99)
    assert (check.name, check.subject, check.status) == (LINK_DOWNS, "rail0", status)
    assert check.found == {"per_hour": hour, "per_day": hour + day, "in_all": 99}


class Port:
    def __init__(self, counters=None):
        self.counters = counters

    def statistics(self, _interface):
        if self.counters is None:
            raise OSError(95, "Operation not supported")
        return self.counters


def test_counters_of_the_port_precede_those_of_the_kernel(tmp_path: Path) -> None:
    net = tmp_path / "sys/class/net/rail0"
    net.mkdir(parents=True)
    (net / "carrier_down_count").write_text("7\n")
    assert rates.read(tmp_path, "rail0", Port()) == {LINK_DOWNS: 7}
    assert rates.read(tmp_path, "rail0", Port({"rx_packets": 1})) == {LINK_DOWNS: 7}
    port = Port({"link_down_events_phy": 2, "rx_symbol_err_phy": 3, "rx_pcs_symbol_err_phy": 4})
    assert rates.read(tmp_path, "rail0", port) == {LINK_DOWNS: 2, ERRORS: 7}
    assert rates.read(tmp_path, "rail1", Port()) == {}
