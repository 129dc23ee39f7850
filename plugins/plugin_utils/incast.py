# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Incasts to measure: for every leaf and rail, one receiver and several senders, on the same leaf
or on others, whose traffic crosses the spines.

A rail of a node sends to one receiver at most, so that incasts run simultaneously. The rails that
share a leaf have the same receiver, which takes them one after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, Optional

from ..module_utils.verbs.exchanges import Half
from ..module_utils.verbs.incast import LEAST
from .rail_pairs import Part

LEAF, SPINE = "leaf", "spine"
PLACES = {LEAF: "incast on each leaf", SPINE: "incast across spines"}
"""Where senders are: on the receiver's leaf, or on others."""
SENDERS = 4

Rail = Mapping[str, Any]
"""A rail of the directory, with the name of its host."""


def parts(
    directory: Sequence[Mapping[str, Any]],
    hosts: Collection[str],
    first_port: int,
    place: str,
    senders: int,
) -> dict[str, Part]:
    """Incasts by host: a receiver drives them, and senders serve it."""
    running = set(hosts)
    found = {
        entry["name"]: Part()
        for entry in directory
        if entry["role"] == "compute" and entry["name"] in running and not entry.get("drained")
    }
    leaves: dict[str, dict[str, list[Rail]]] = defaultdict(lambda: defaultdict(list))
    for entry in directory:
        for rail in entry.get("rails") or () if entry["name"] in found else ():
            own = {**rail, "host": entry["name"]}
            leaves[rail["interface"]][str(rail.get("leaf"))].append(own)
    receivers = _receivers(leaves)
    for interface, by_leaf in leaves.items():
        free = {leaf: [*rails] for leaf, rails in by_leaf.items()}
        taken = {receivers[leaf] for leaf in by_leaf}
        for leaf, rails in by_leaf.items():
            receiver = next((rail for rail in rails if rail["host"] == receivers[leaf]), rails[0])
            others = [leaf] if place == LEAF else [*_after(list(by_leaf), leaf)]
            chosen = _senders([free[one] for one in others], receiver, taken, senders)
            reason = _unfit(receiver, chosen, place)
            if reason:
                found[receiver["host"]].alone[interface] = reason
                continue
            for sender in chosen:
                free[str(sender.get("leaf"))].remove(sender)
            _plan(found, receiver, chosen, first_port)
    return found


def _receivers(leaves: Mapping[str, Mapping[str, Sequence[Rail]]]) -> dict[str, str]:
    """The receiver of each leaf: another node for each of the leaves of a set of nodes."""
    receivers: dict[str, str] = {}
    turns: dict[str, int] = defaultdict(int)
    for by_leaf in leaves.values():
        for leaf, rails in by_leaf.items():
            if leaf not in receivers:
                first = rails[0]["host"]
                receivers[leaf] = rails[turns[first] % len(rails)]["host"]
                turns[first] += 1
    return receivers


def _after(leaves: Sequence[str], leaf: str) -> Iterable[str]:
    """The other leaves, beginning with the next one."""
    at = leaves.index(leaf)
    return chain(leaves[at + 1 :], leaves[:at])


def _senders(
    free: Iterable[Sequence[Rail]], receiver: Rail, receivers: Collection[str], count: int
) -> list[Rail]:
    """Take senders from all leaves in turn; other receivers only if there are no others."""
    rails = [
        rail
        for those in zip_longest(*free)
        for rail in those
        if rail is not None and rail["host"] != receiver["host"]
    ]
    rails.sort(key=lambda rail: rail["host"] in receivers)
    return rails[:count]


def _unfit(receiver: Rail, senders: Sequence[Rail], place: str) -> str:
    """Why these cause no congestion."""
    where = "on its leaf" if place == LEAF else "on other leaves"
    if len(senders) < LEAST:
        return f"fewer than {LEAST} nodes of this run are free to send {where}"
    if _fair(receiver, senders) == 1:
        return f"the nodes that are free to send {where} are together not faster than it"
    return ""


def _fair(receiver: Rail, senders: Sequence[Rail]) -> Optional[float]:
    """The share of their line rates that the senders can have; None if the model has no speeds."""
    speeds = [float(rail.get("speed_gbps") or 0) for rail in (receiver, *senders)]
    return min(1.0, speeds[0] / sum(speeds[1:])) if all(speeds) else None


def _plan(
    found: Mapping[str, Part], receiver: Rail, senders: Sequence[Rail], first_port: int
) -> None:
    rail, target, fair = receiver["interface"], receiver["address"], _fair(receiver, senders)
    for sender in senders:
        serves = found[sender["host"]].serves
        port, source = first_port + len(serves), sender["address"]
        serves.append(Half(rail, source, receiver["host"], target, port, fair=fair))
        half = Half(rail, target, sender["host"], source, port, fair=fair)
        found[receiver["host"]].drives.append(half)
