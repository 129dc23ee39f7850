# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pairs of rails that are measured: for every rail a ring of the nodes that have it.

Each rail of each node sends to the same rail of the next node and receives from that of the node
before. So every rail is proved in both directions with as many pairs as there are rails: linear in
nodes. Only hosts of this run take part, whatever hosts these are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..module_utils.verbs.exchanges import EXCHANGES, Half


@dataclass
class Part:
    """What one host does in this run."""

    drives: list[Half] = field(default_factory=list)
    """It sends to these, one after another."""
    serves: list[Half] = field(default_factory=list)
    """It serves these, all the time."""
    alone: dict[str, str] = field(default_factory=dict)
    """Rails without a peer, and why; the host as a whole under the empty name."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parts(
    directory: Sequence[Mapping[str, Any]], hosts: Collection[str], first_port: int
) -> dict[str, Part]:
    """The part of every compute host of this run, by its name."""
    here = set(hosts)
    found: dict[str, Part] = {}
    rings: dict[str, list[Mapping[str, Any]]] = {}
    for entry in directory:
        if entry["role"] != "compute" or entry["name"] not in here:
            continue
        part = found.setdefault(entry["name"], Part())
        if entry.get("drained"):
            part.alone[""] = "drained in the model"
            continue
        if not entry.get("rails"):
            part.alone[""] = "no rails in the model"
        for rail in entry.get("rails") or []:
            rings.setdefault(rail["interface"], []).append({**rail, "host": entry["name"]})
    for rail, ring in rings.items():
        if len(ring) == 1:
            found[ring[0]["host"]].alone[rail] = "no other host of this run has this rail"
            continue
        for one, other in zip(ring, [*ring[1:], ring[0]]):
            server = found[other["host"]]
            port = first_port + len(server.serves) * len(EXCHANGES)
            here, there = one["address"], other["address"]
            gpus = one.get("gpu"), other.get("gpu")
            near, far = gpus if None not in gpus else (None, None)
            server.serves.append(Half(rail, there, one["host"], here, port, far))
            found[one["host"]].drives.append(Half(rail, here, other["host"], there, port, near))
    return found


SLACK_S = 120
"""Of the servers' time limit, for everything but exchanges: connections, starts of modules."""


@dataclass(frozen=True)
class Schedule:
    at_once: int
    """So many hosts drive at the same time."""
    limit_s: int
    """After so many seconds all of them have ended, whatever happens."""


def schedule(found: Mapping[str, Part], *, at_once: int, forks: int, exchange_s: int) -> Schedule:
    """When hosts drive. `at_once` 0 asks for as many as there are forks."""
    drivers = [part for part in found.values() if part.drives]
    at_once = min(at_once or forks, forks)
    if any(host in _peers(found[peer]) for host in found for peer in _peers(found[host])):
        at_once = 1  # two are each other's peer both ways: packets could not be distinguished
    rounds = math.ceil(len(drivers) / at_once)
    longest = max((len(part.drives) for part in drivers), default=0)
    return Schedule(at_once, SLACK_S + rounds * longest * len(EXCHANGES) * exchange_s)


def _peers(part: Part) -> set[str]:
    """The hosts that a host sends to."""
    return {half.peer for half in part.drives}
