# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pairs of rails to measure: for every rail, a ring of the nodes of this run that have it. Every
rail is verified in both directions, by a number of pairs that is linear in the nodes. Neighbours in
a ring are on different leaves where possible, so that the pairs load the links to the spines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from ..module_utils.verbs.exchanges import EXCHANGES, Half


@dataclass
class Part:
    drives: list[Half] = field(default_factory=list)
    """Exchanges in which it sends, one after another. Nodes of a leaf begin with different rails:
    together on one rail, their queue pairs would share links to the spines, as they are hashed."""
    serves: list[Half] = field(default_factory=list)
    """Exchanges that it serves, during the whole run."""
    alone: dict[str, str] = field(default_factory=dict)
    """The reason for each rail without a peer; under the empty name, the one for the whole host."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parts(
    directory: Sequence[Mapping[str, Any]],
    hosts: Collection[str],
    first_port: int,
    units: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Part]:
    """Pairs by host. `units`: the unit of each leaf, if there are several."""
    running = set(hosts)
    found: dict[str, Part] = {}
    rings: dict[str, dict[tuple[Any, ...], list[Mapping[str, Any]]]] = {}
    for entry in directory:
        if entry["role"] != "compute" or entry["name"] not in running:
            continue
        part = found.setdefault(entry["name"], Part())
        if entry.get("drained"):
            part.alone[""] = "drained in the model"
            continue
        if not entry.get("rails"):
            part.alone[""] = "no rails in the model"
        for rail in entry.get("rails") or []:
            alike = (rail.get("speed_gbps"), rail.get("gpu") is None)
            of_rail = rings.setdefault(rail["interface"], {})
            of_rail.setdefault(alike, []).append({**rail, "host": entry["name"]})
    for rail, ring in ((rail, ring) for rail, own in rings.items() for ring in _joined(own)):
        if len(ring) == 1:
            found[ring[0]["host"]].alone[rail] = "no other host of this run has this rail"
            continue
        ring = alternated(ring, units)
        for sender, receiver in zip(ring, [*ring[1:], ring[0]]):
            server = found[receiver["host"]]
            port = first_port + len(server.serves) * len(EXCHANGES)
            source, target = sender["address"], receiver["address"]
            gpus = sender.get("gpu"), receiver.get("gpu")
            near, far = gpus if None not in gpus else (None, None)
            slower = receiver.get("speed_gbps") or 0
            most = slower if slower < (sender.get("speed_gbps") or 0) else None
            server.serves.append(Half(rail, target, sender["host"], source, port, far))
            peer = Half(rail, source, receiver["host"], target, port, near, most)
            found[sender["host"]].drives.append(peer)
    turns: Counter[Any] = Counter()
    for entry in directory:
        drives = found[entry["name"]].drives if entry["name"] in found else []
        if drives:
            leaf = entry["rails"][0].get("leaf")
            first = turns[leaf] % len(drives)
            drives[:] = [*drives[first:], *drives[:first]]
            turns[leaf] += 1
    return found


def by_leaves(
    directory: Sequence[Mapping[str, Any]], found: Mapping[str, Part]
) -> Counter[tuple[str, str]]:
    """Number of pairs by the leaf of the sender and that of the receiver."""
    leaf = {
        (entry["name"], rail["interface"]): str(rail.get("leaf"))
        for entry in directory
        for rail in entry.get("rails") or []
    }
    return Counter(
        (leaf[host, half.rail], leaf[half.peer, half.rail])
        for host, part in found.items()
        for half in part.drives
    )


LEAST = 3
"""Hosts of a ring in which no two are peers in both directions."""


def _joined(
    rings: Mapping[tuple[Any, ...], list[Mapping[str, Any]]],
) -> list[list[Mapping[str, Any]]]:
    """Rings of nodes with equal rails, which measure their speed and the memory of their GPUs. A
    few nodes of another kind join the largest ring."""
    ordered = sorted(rings.values(), key=len, reverse=True)
    large = [ring for ring in ordered if len(ring) >= LEAST] or ordered[:1]
    few = [node for ring in ordered[len(large) :] for node in ring]
    return [[*large[0], *few], *large[1:]]


def alternated(
    ring: Sequence[Mapping[str, Any]], units: Mapping[str, int]
) -> list[Mapping[str, Any]]:
    """The order of a ring in which as many neighbours as possible are on different leaves, and in
    different units.

    The largest group is on the even places, and on odd ones if it has more than half of the n
    nodes: n neighbours differ, or 2 (n - m) if a group has m of them, more than half.
    """
    leaves = [rail.get("leaf") for rail in ring]
    if len(set(leaves)) < 2:
        return list(ring)
    keys = []
    for names in ([units.get(str(leaf)) for leaf in leaves], leaves):
        size, first = Counter(names), {name: at for at, name in reversed([*enumerate(names)])}
        keys.append([(-size[name], first[name]) for name in names])
    by_size = [ring[at] for *_groups, at in sorted(zip(*keys, range(len(ring))))]
    order, half = [*by_size], (len(ring) + 1) // 2
    order[::2], order[1::2] = by_size[:half], by_size[half:]
    return order


START_S = 1
"""Seconds of an exchange in addition to its measurement. An estimate."""
SLACK_S = 120
"""Share of the servers' time limit reserved for connections and the start of modules."""


@dataclass(frozen=True)
class Schedule:
    at_once: int
    """Number of hosts that send at the same time."""
    limit_s: int
    """Time limit within which all of them finish."""
    expected_s: int


def schedule(
    found: Mapping[str, Part],
    *,
    at_once: int,
    forks: int,
    exchange_s: int,
    duration_s: int,
    exchanges: int = len(EXCHANGES),
) -> Schedule:
    """Compute the schedule of a number of exchanges of each rail. `at_once` of 0 means as many
    hosts as there are forks."""
    drivers = [part for part in found.values() if part.drives]
    at_once = min(at_once or forks, forks)
    sends = {(half.rail, host, half.peer) for host, part in found.items() for half in part.drives}
    if any((rail, peer, host) in sends for rail, host, peer in sends):
        at_once = 1  # two rails are peers in both directions: packets could not be distinguished
    rounds = math.ceil(len(drivers) / at_once)
    longest = max((len({half.rail for half in part.drives}) for part in drivers), default=0)
    count = rounds * longest * exchanges
    return Schedule(at_once, SLACK_S + count * exchange_s, count * (duration_s + START_S))
