# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pairs of rails: every rail sends and receives, for any hosts of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import EXCHANGES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import (
    Part,
    parts,
    schedule,
)
from hypothesis import given
from hypothesis import strategies as st


def entry(number: int, rails: list[int], **more: Any) -> dict[str, Any]:
    return {
        "name": f"node{number:02d}",
        "role": "compute",
        "drained": False,
        "rails": [
            {
                "rail": rail,
                "plane": 0,
                "interface": f"rail{rail}",
                "address": f"10.{rail}.0.{number}",
            }
            for rail in rails
        ],
        **more,
    }


directories = st.lists(
    st.tuples(st.sets(st.integers(0, 7), max_size=8), st.booleans(), st.booleans()), max_size=12
)


@given(directories)
def test_every_rail_sends_once_and_receives_once(drawn: list[tuple[set[int], bool, bool]]) -> None:
    directory = [
        entry(number, sorted(rails), drained=drained)
        for number, (rails, drained, _here) in enumerate(drawn, 1)
    ]
    here = [one["name"] for one, (_rails, _drained, there) in zip(directory, drawn) if there]
    found = parts(directory, here, 18515)
    assert set(found) == set(here)

    able = [one for one in directory if one["name"] in here and not one["drained"]]
    have = Counter(rail["interface"] for one in able for rail in one["rails"])
    wanted = sorted(
        (one["name"], rail["interface"])
        for one in able
        for rail in one["rails"]
        if have[rail["interface"]] >= 2
    )
    drives = [(name, half) for name, part in found.items() for half in part.drives]
    serves = [(name, half) for name, part in found.items() for half in part.serves]
    assert sorted((name, half.rail) for name, half in drives) == wanted
    assert sorted((name, half.rail) for name, half in serves) == wanted

    # The two halves of a pair match each other only.
    there = {(half.peer, half.rail): (name, half) for name, half in serves}
    for name, half in drives:
        assert half.peer != name
        other, mirror = there[name, half.rail]
        assert other == half.peer
        assert (mirror.address, mirror.peer_address) == (half.peer_address, half.address)
        assert mirror.port == half.port

    # Ports of a node are unique, including all exchanges of each pair.
    for part in found.values():
        ports = [half.port + place for half in part.serves for place in range(len(EXCHANGES))]
        assert len(ports) == len(set(ports))

    # Every rail that is not measured is reported.
    for one in directory:
        if one["name"] not in here:
            continue
        part = found[one["name"]]
        if one["drained"] or not one["rails"]:
            assert set(part.alone) == {""}
        else:
            lonely = {r["interface"] for r in one["rails"] if have[r["interface"]] < 2}
            assert set(part.alone) == lonely


def many(count: int) -> dict[str, Part]:
    directory = [entry(number, [0, 1]) for number in range(count)]
    return parts(directory, [one["name"] for one in directory], 18515)


def test_hosts_drive_together_but_two_alone_take_turns() -> None:
    limits = {"at_once": 0, "forks": 32, "exchange_s": 40}
    assert schedule(many(3), **limits).at_once == 32
    assert schedule(many(3), **{**limits, "at_once": 2}).at_once == 2
    assert schedule(many(3), **{**limits, "at_once": 64}).at_once == 32
    assert schedule(many(2), **limits).at_once == 1


def test_a_single_host_has_no_pairs() -> None:
    directory = [entry(1, [0, 1]), entry(2, [0, 1])]
    found = parts(directory, ["node02"], 18515)
    assert found["node02"].drives == found["node02"].serves == []
    assert found["node02"].alone == {
        "rail0": "no other host of this run has this rail",
        "rail1": "no other host of this run has this rail",
    }


def test_hosts_that_run_no_ranks_take_no_part() -> None:
    directory = [entry(1, [0]), entry(2, [0]), entry(3, [0], role="launcher")]
    assert set(parts(directory, ["node01", "node02", "node03"], 18515)) == {"node01", "node02"}
