# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which switches have a path to each other, and what nodes reach by each rail because of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, collapse_addresses

from ..schema.findings import Findings
from .cluster import ClusterSwitch, ComputeNode

Lane = tuple[int, int]
"""A rail and a plane."""
MOST_ROUTES = 64
"""Networks of one lane, each of them a route of the main table on every node."""


class Paths:
    """Switches by the part of the fabric to which they belong."""

    def __init__(self, switches: Iterable[ClusterSwitch]) -> None:
        self._above: dict[str, str] = {}
        for switch in switches:
            for ports in switch.ports:
                if ports.kind in ("uplink", "peer"):
                    for peer in set(ports.peers.values()):
                        self._join(switch.name, peer)

    def part(self, name: str) -> str:
        """The name of one switch, which is the same for all with a path to each other."""
        above = self._above
        while name in above:
            above[name] = name = above.get(above[name], above[name])
        return name

    def _join(self, name: str, peer: str) -> None:
        own, other = self.part(name), self.part(peer)
        if own != other:
            self._above[other] = own


def planes_apart(nodes: Iterable[ComputeNode], paths: Paths) -> bool:
    """Whether the rails of different planes have no path to each other."""
    leaves = {(rail.plane, rail.leaf) for node in nodes for rail in node.rails}
    parts: dict[str, set[int]] = {}
    for plane, leaf in leaves:
        parts.setdefault(paths.part(leaf), set()).add(plane)
    several = len({plane for plane, _leaf in leaves}) > 1
    return several and all(len(planes) == 1 for planes in parts.values())


def one_network_each(nodes: Sequence[ComputeNode]) -> bool:
    """Whether every node is in the network of every rail: on one leaf set, with all rails."""
    networks = {tuple(rail.network for rail in node.rails) for node in nodes if node.rails}
    return len(networks) <= 1


def assign_networks(
    nodes: Sequence[ComputeNode], paths: Paths, prefixes: Sequence[str], doubts: Findings
) -> None:
    """Limit what a rail reaches to the networks of the same rail and plane, where planes are apart.

    Otherwise traffic that is not bound to a rail would take the first one, which has no path to
    the other planes. Networks of rails that a node does not have are behind the first rail of their
    plane. `prefixes`: one per plane, or none.
    """
    if not planes_apart(nodes, paths):
        return
    for rail in (rail for node in nodes for rail in node.rails):
        rail.networks = []
        if prefixes:
            rail.plane_network = prefixes[rail.plane]
    found: dict[Lane, dict[str, None]] = {}
    for node in nodes:
        for rail in node.rails:
            found.setdefault((rail.rail, rail.plane), {})[rail.network] = None
    reached = {
        lane: [str(network) for network in collapse_addresses(map(IPv4Network, networks))]
        for lane, networks in found.items()
    }
    if one_network_each(nodes):
        return
    if (most := max(map(len, reached.values()))) > MOST_ROUTES:
        problem = f"planes without a path to each other need {most} routes for each rail"
        remedy = "Write order: rail, so that each plane of a rail has one prefix of the pool"
        doubts.add("model.plane_routes", ("addresses", "order"), problem, remedy, most)
    for node in nodes:
        missing = [*reached.keys() - {(rail.rail, rail.plane) for rail in node.rails}]
        for rail in node.rails:
            lanes = [(rail.rail, rail.plane), *(lane for lane in missing if lane[1] == rail.plane)]
            missing = [lane for lane in missing if lane not in lanes]
            networks = [network for lane in sorted(lanes) for network in reached[lane]]
            rail.networks = [network for network in networks if network != rail.network]
