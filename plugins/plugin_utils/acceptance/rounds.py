# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rounds of pairs: in each round, every node is in at most one pair.

All pairs take n-1 rounds by the circle method of round-robin tournaments, n rounds if n is odd
(https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method). Large clusters run a chosen
number of rounds, of which all but the last cross leaf sets and so the spines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import islice, zip_longest
from typing import Optional

from .figures import Pair, Probe, Topology

Round = tuple[Pair, ...]


def rounds(nodes: Sequence[str], count: Optional[int] = None) -> list[Round]:
    """Round robin: every pair once. With `count`, only this number of rounds."""
    seats: list[Optional[str]] = [*nodes, *([None] if len(nodes) % 2 else [])]
    half, last = len(seats) // 2, len(seats) - 1
    found = []
    for turn in range(last if count is None else min(last, count)):
        moving = [seats[(place + turn) % last] for place in range(last)]
        circle = [seats[last], *moving]
        pairs = list(zip(circle[:half], reversed(circle[half:])))
        if turn % 2:  # the fixed node would otherwise always send
            pairs[0] = pairs[0][::-1]
        found.append(tuple((a, b) for a, b in pairs if a is not None and b is not None))
    return found


def crossing(groups: Sequence[Sequence[str]]) -> Iterator[Round]:
    """Endless rounds in which nodes meet nodes of other groups (leaf sets): every other group in
    turn, then again with other partners. Nodes without a partner elsewhere are paired in their
    group."""
    names = [str(index) for index in range(len(groups))]
    for shift in numbers():
        for turn in rounds(names):
            left = {*names}
            pairs: list[Pair] = []
            spare: list[list[str]] = []
            for one, other in turn:
                left -= {one, other}
                near, far = groups[int(one)], groups[int(other)]
                step = shift % max(1, len(near), len(far))
                moved = [*far[step % len(far) :], *far[: step % len(far)]] if far else []
                if len(near) > len(far):
                    start = step % len(near)
                    near = [*near[start:], *near[:start]]
                pairs += zip(near, moved)
                spare.append([*near[len(moved) :], *moved[len(near) :]])
            spare += [list(groups[int(name)]) for name in sorted(left, key=int)]
            pairs += _across(spare)
            yield tuple(pairs if shift % 2 == 0 else [(b, a) for a, b in pairs])
        if len(groups) < 2:
            return


def _across(spare: Sequence[Sequence[str]]) -> Iterator[Pair]:
    """Pair nodes that are left over, of different groups where possible."""
    lists = sorted((list(nodes) for nodes in spare if nodes), key=len, reverse=True)
    while len(lists) > 1:
        lists.sort(key=len, reverse=True)
        yield lists[0].pop(), lists[1].pop()
        lists = [nodes for nodes in lists if nodes]
    for nodes in lists:
        yield from zip(nodes[::2], nodes[1::2])


def inside(groups: Sequence[Sequence[str]], count: Optional[int] = None) -> list[Round]:
    """Rounds within groups, all groups simultaneously."""
    each = [rounds(group, count) for group in groups]
    return [
        tuple(pair for turn in turns for pair in turn) for turns in zip_longest(*each, fillvalue=())
    ]


def by_leaf(topology: Topology, rail: str, nodes: Sequence[str] = ()) -> list[list[str]]:
    """Nodes of a rail, those of one leaf together."""
    found: dict[str, list[str]] = {}
    for node in nodes or topology.on(rail):
        found.setdefault(topology.leaf(node, rail), []).append(node)
    return list(found.values())


def chosen(topology: Topology, rail: str, count: Optional[int] = None) -> list[Round]:
    """Rounds of a rail; all pairs if there are no more than `count` rounds of these.

    Of fewer rounds, the last is within leaves: its figures show slow nodes and rails without the
    uneven load of spines. `len(leaves) - 1` rounds more let each node meet every other leaf.
    """
    nodes = topology.on(rail)
    groups = by_leaf(topology, rail)
    if count is None or count >= len(nodes) - 1 or len(groups) < 2:
        return rounds(nodes, count)
    within = inside(groups, 1)[:1] if count > 1 else []
    return [*islice(crossing(groups), count - len(within)), *within]


def probes(
    topology: Topology,
    count: Optional[int] = None,
    *,
    cross_rail: bool = False,
    among: Sequence[str] = (),
) -> list[Probe]:
    """Every round, rail by rail. With `cross_rail`, one round more from each rail to the next that
    it reaches, of all rails or `among` these."""
    found = [
        Probe(rail, turn)
        for rail in topology.rails
        for turn in chosen(topology, rail, count)
        if turn
    ]
    if cross_rail:
        rails = among or topology.rails
        found += filter(None, (_to_next_rail(topology, rail, rails) for rail in rails))
    return found


def _to_next_rail(topology: Topology, rail: str, rails: Sequence[str]) -> Optional[Probe]:
    place = rails.index(rail)
    for other in (*rails[place + 1 :], *rails[:place]):
        pairs = tuple(
            (a, b)
            for a, b in next(iter(chosen(topology, rail, 1)), ())
            if other in topology.ports[b] and reaches(topology, (a, b), rail, other)
        )
        if pairs:
            return Probe(rail, pairs, other)
    return None


def reaches(topology: Topology, pair: Pair, rail: str, far_rail: str) -> bool:
    """Whether the model has a path: rails in different planes may have none."""
    near, far = topology.leaf(pair[0], rail), topology.leaf(pair[1], far_rail)
    return near == far or bool(topology.hops(near, far))
