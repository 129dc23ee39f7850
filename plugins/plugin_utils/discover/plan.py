# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names, positions and addresses of a draft, derived from machines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Optional

from ...module_utils.core.text import some
from ..model.addresses import AddressPlan, Subnet, point_to_point
from ..model.schema import HOST_NAME
from .machines import NUMBERED, DiscoveredMachine, Shape, majority

PATTERN = "node{:02d}"
WIDEST = 9
"""Prefix length of a management network: 10.0.0.0/8 would leave no addresses for rails."""
POOLS = (("10.100.0.0", 16), ("10.96.0.0", 12), ("172.16.0.0", 12))
"""Pools for rails without addresses: the first one that is large enough and free is used."""


class NoDraftError(Exception):
    """The machines are not sufficient for a draft; the message gives the reason and the remedy."""


@dataclass(frozen=True)
class DraftNames:
    """Names of compute nodes: a pattern or a list."""

    by_host: Mapping[str, str]
    """Inventory name to model name, in the order of the model."""
    pattern: str = ""
    start: int = 1
    every: Sequence[str] = ()
    """All names of the pattern, those of absent nodes too."""
    made: bool = False
    """Whether the names were invented because those of the machines are unusable."""

    @property
    def places(self) -> dict[str, int]:
        """Inventory name to index in the model."""
        at = {name: place for place, name in enumerate(self.every or self.by_host.values())}
        return {host: at[name] for host, name in self.by_host.items()}


def names_of(nodes: Sequence[DiscoveredMachine]) -> DraftNames:
    """Names from the inventory, or host names of the machines."""
    found = [node.name for node in nodes]
    valid = all(re.fullmatch(HOST_NAME.form, name) and name != "localhost" for name in found)
    if not valid or len(set(found)) < len(found):
        ordered = sorted(nodes, key=lambda node: int(node.address.ip) if node.address else 0)
        by_host = {node.host: PATTERN.format(at) for at, node in enumerate(ordered, 1)}
        return DraftNames(by_host, PATTERN, 1, list(by_host.values()), made=True)
    ordered = sorted(nodes, key=lambda node: (len(node.name), node.name))
    listed = DraftNames({node.host: node.name for node in ordered})
    matches = [match for name in found if (match := NUMBERED.fullmatch(name))]
    prefixes = {match.group(1) for match in matches}
    if len(matches) < len(found) or len(prefixes) > 1:
        return listed
    numbers = [int(match.group(2)) for match in matches]
    first, count = min(numbers), max(numbers) - min(numbers) + 1
    width = min(len(match.group(2)) for match in matches)
    if count > 2 * len(found) or width > 9:  # with wide gaps, a list is better
        return listed
    pattern = prefixes.pop() + ("{}" if width == 1 else f"{{:0{width}d}}")
    every = [pattern.format(number) for number in range(first, first + count)]
    return DraftNames(listed.by_host, pattern, first, every) if {*found} <= {*every} else listed


def subnet_of(machines: Sequence[DiscoveredMachine]) -> IPv4Network:
    """The smallest network that contains the management networks of all machines."""
    lost = [machine.host for machine in machines if machine.address is None]
    if lost:
        raise NoDraftError(f"{some(lost)}: no IPv4 management address was found")
    networks = {machine.address.network for machine in machines if machine.address}
    subnet = min(networks)
    while not all(network.subnet_of(subnet) for network in networks):
        subnet = subnet.supernet()
    if subnet.prefixlen < WIDEST:
        raise NoDraftError(
            f"the management addresses {some(sorted(map(str, networks)))} have no common "
            "network. Exclude machines of other clusters with --limit"
        )
    return subnet


def take(subnet: IPv4Network, taken: set[int], count: int) -> IPv4Address:
    """The first of several consecutive free addresses, searched from the end of the network, which
    are added to `taken`.
    """
    first, last = int(subnet.network_address) + 1, int(subnet.broadcast_address) - 1
    for start in range(last - count + 1, first - 1, -1):
        row = range(start, start + count)
        if taken.isdisjoint(row):
            taken.update(row)
            return IPv4Address(start)
    raise NoDraftError(
        f"the management network has no {count} consecutive free addresses for leaves and "
        "launcher. Check the prefix length of the machines' management addresses"
    )


def addresses_of(
    nodes: Sequence[DiscoveredMachine],
    places: Mapping[str, int],
    shape: Shape,
    nodes_per_set: int,
    management: IPv4Network,
) -> tuple[AddressPlan, bool]:
    """The plan that most rail addresses follow, and True; a new one and False if there are none."""
    lanes = list(shape.lanes)
    seen: dict[tuple[int, int], IPv4Interface] = {}
    for node in nodes:
        for lane, place in shape.own(node).items():
            nic = node.at(place)
            for address in (nic.addresses if nic else ())[:1]:
                if not address.is_link_local and address.ip not in management:
                    seen[places[node.host], lanes.index(lane)] = address
    own = Subnet(int(management.network_address), management.prefixlen)
    count = max(places.values()) + 1
    plan = _plan(seen, len(lanes), nodes_per_set, count, own)
    if plan is not None:
        fits = [plan.address(*end) == int(address.ip) for end, address in seen.items()]
        if 2 * sum(fits) > len(fits):
            return plan, True
    prefix = min(24, 32 - (nodes_per_set + 3).bit_length())
    needed = -(-count // nodes_per_set) * len(lanes) << (32 - prefix)
    for first, length in POOLS:
        pool = Subnet(int(IPv4Address(first)), length)
        if pool.size >= needed and not pool.overlaps(own):
            return AddressPlan(pool, len(lanes), nodes_per_set, prefix), False
    raise NoDraftError(f"the rails need {needed} addresses, more than {POOLS[-1]} has")


def _plan(
    seen: Mapping[tuple[int, int], IPv4Interface],
    lanes: int,
    nodes_per_set: int,
    nodes: int,
    management: Subnet,
) -> Optional[AddressPlan]:
    prefix, _share = majority(address.network.prefixlen for address in seen.values())
    if prefix is None or not (prefix == 31 or 8 <= prefix <= 30):
        return None
    per_set = 1 if prefix == 31 else nodes_per_set
    size, bases, hosts = 1 << (32 - prefix), [], []
    for (place, lane), address in seen.items():
        leaf_set, in_set = divmod(place, per_set)
        network = int(address.network.network_address)
        bases.append(network - (leaf_set * lanes + lane) * size)
        hosts.append(int(address.ip) - network - in_set)
    base, first_host = majority(bases)[0] or 0, majority(hosts)[0] or 0
    needed = lanes * -(-nodes // per_set) * size
    for length in range(16, prefix + 1):
        pool = Subnet(base, length)
        if base % pool.size == 0 and not pool.overlaps(management):
            if not 0 < needed <= pool.size:
                return None
            if prefix == 31:
                return point_to_point(pool, lanes)
            return AddressPlan(pool, lanes, per_set, prefix, max(2, first_host))
    return None


def addressed(
    names: DraftNames, nodes: Sequence[DiscoveredMachine]
) -> tuple[IPv4Address, dict[str, IPv4Address]]:
    """The first management address, and by name those that do not follow in order."""
    places = names.places
    ordered = sorted(nodes, key=lambda node: places[node.host])
    at = [(places[node.host], node.address.ip, node.host) for node in ordered if node.address]
    first = majority(int(address) - place for place, address, _host in at)[0] or 0
    moved = {
        names.by_host[host]: address for place, address, host in at if int(address) != first + place
    }
    return IPv4Address(first), moved
