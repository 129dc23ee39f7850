# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names, positions and addresses of a draft, derived from machines."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from ...module_utils.core.text import some
from ..model.addresses import AddressPlan, PointToPoint, Subnet, SubnetPerRail
from ..model.schema import HOST_NAME
from .machines import NUMBERED, DiscoveredMachine, Lane, Shape, majority

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
    count: int = 0
    absent: tuple[str, ...] = ()
    made: bool = False
    """Whether the names were invented because those of the machines are unusable."""

    @cached_property
    def places(self) -> dict[str, int]:
        """Inventory name to index in the model."""
        if not self.pattern:
            return {host: place for place, host in enumerate(self.by_host)}
        at = {self.pattern.format(self.start + place): place for place in range(self.count)}
        return {host: at[name] for host, name in self.by_host.items()}


def names_of(nodes: Sequence[DiscoveredMachine]) -> DraftNames:
    """Names from the inventory, or host names of the machines."""
    found = [node.name for node in nodes]
    valid = all(re.fullmatch(HOST_NAME.form, name) and name != "localhost" for name in found)
    if not valid or len(set(found)) < len(found):
        ordered = sorted(nodes, key=lambda node: int(node.address.ip) if node.address else 0)
        by_host = {node.host: PATTERN.format(at) for at, node in enumerate(ordered, 1)}
        return DraftNames(by_host, PATTERN, 1, len(by_host), made=True)
    matches = [match for name in found if (match := NUMBERED.fullmatch(name))]
    prefixes = {match.group(1) for match in matches}
    if len(matches) < len(found) or len(prefixes) > 1:
        return DraftNames({node.host: node.name for node in nodes})
    numbers = sorted(int(match.group(2)) for match in matches)
    width = min(len(match.group(2)) for match in matches)
    (prefix,) = prefixes
    pattern = prefix + ("{}" if width == 1 else f"{{:0{width}d}}")
    by_number = {
        node.host: node.name for node in sorted(nodes, key=lambda node: (len(node.name), node.name))
    }
    first, count = numbers[0], numbers[-1] - numbers[0] + 1
    if count > 2 * len(found) or width > 9:  # with wide gaps, a list is better
        return DraftNames(by_number)
    every = [pattern.format(number) for number in range(first, first + count)]
    there = set(found)
    if not there <= set(every):
        return DraftNames(by_number)
    absent = tuple(name for name in every if name not in there)
    return DraftNames(by_number, pattern, first, count, absent)


def subnet_of(machines: Sequence[DiscoveredMachine]) -> ipaddress.IPv4Network:
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


class Spare:
    """Free addresses of the management network, for hosts that were not read."""

    def __init__(self, subnet: ipaddress.IPv4Network, taken: Sequence[int]) -> None:
        self._first, self._last = int(subnet.network_address) + 1, int(subnet.broadcast_address) - 1
        self._taken = set(taken)

    def take(self, count: int) -> ipaddress.IPv4Address:
        """The first of several consecutive free addresses, searched from the end of the network."""
        for first in range(self._last - count + 1, self._first - 1, -1):
            row = range(first, first + count)
            if self._taken.isdisjoint(row):
                self._taken.update(row)
                return ipaddress.IPv4Address(first)
        raise NoDraftError(
            f"the management network has no {count} consecutive free addresses for leaves and "
            "launcher. Check the prefix length of the machines' management addresses"
        )


@dataclass(frozen=True)
class DraftAddresses:
    """Section `addresses`."""

    plan: AddressPlan
    found: bool
    """Whether these are addresses of the machines."""


def addresses_of(
    nodes: Sequence[DiscoveredMachine],
    places: Mapping[str, int],
    shape: Shape,
    nodes_per_set: int,
    management: ipaddress.IPv4Network,
) -> DraftAddresses:
    """The plan that most rail addresses follow; a new one if there are none."""
    lanes = list(shape.lanes)
    seen: dict[tuple[int, Lane], ipaddress.IPv4Interface] = {}
    for node in nodes:
        for lane, place in shape.own(node).items():
            nic = node.at(place)
            for address in (nic.addresses if nic else ())[:1]:
                if not address.is_link_local and address.ip not in management:
                    seen[places[node.host], lane] = address
    plan = _plan(seen, lanes, nodes_per_set, max(places.values()) + 1, management)
    if plan is not None:
        fits = [
            plan.address(place, lanes.index(lane)) == int(address.ip)
            for (place, lane), address in seen.items()
        ]
        if 2 * sum(fits) > len(fits):
            return DraftAddresses(plan, True)
    prefix = min(24, 32 - (nodes_per_set + 3).bit_length())
    own = Subnet(int(management.network_address), management.prefixlen)
    needed = (max(places.values()) // nodes_per_set + 1) * len(lanes) << (32 - prefix)
    for first, length in POOLS:
        pool = Subnet(int(ipaddress.IPv4Address(first)), length)
        if pool.size >= needed and not pool.overlaps(own):
            return DraftAddresses(SubnetPerRail(pool, len(lanes), nodes_per_set, prefix), False)
    raise NoDraftError(f"the rails need {needed} addresses, more than {POOLS[-1]} has")


def _plan(
    seen: Mapping[tuple[int, Lane], ipaddress.IPv4Interface],
    lanes: Sequence[Lane],
    nodes_per_set: int,
    nodes: int,
    management: ipaddress.IPv4Network,
) -> Optional[AddressPlan]:
    prefix, _share = majority(address.network.prefixlen for address in seen.values())
    if prefix is None or not (prefix == 31 or 8 <= prefix <= 30):
        return None
    count, size = len(lanes), 1 << (32 - prefix)
    links = prefix == 31
    bases, hosts = [], []
    for (place, lane), address in seen.items():
        leaf_set, in_set = divmod(place, nodes_per_set)
        number = (place if links else leaf_set) * count + lanes.index(lane)
        network = int(address.network.network_address)
        bases.append(network - number * size)
        hosts.append(int(address.ip) - network - in_set)
    base, first_host = majority(bases)[0], majority(hosts)[0]
    subnets = count * (nodes if links else -(-nodes // nodes_per_set))
    for length in range(16, prefix + 1):
        pool = Subnet(base or 0, length)
        held = ipaddress.IPv4Network((base or 0, length), strict=False)
        if base == int(held.network_address) and not held.overlaps(management):
            if pool.size < subnets * size:
                return None
            if links:
                return PointToPoint(pool, count)
            return SubnetPerRail(pool, count, nodes_per_set, prefix, max(2, first_host or 0))
    return None


def addressed(
    names: DraftNames, nodes: Sequence[DiscoveredMachine]
) -> tuple[ipaddress.IPv4Address, dict[str, ipaddress.IPv4Address]]:
    """The first management address, and by name those that do not follow in order."""
    places = names.places
    by_place = {
        places[node.host]: (node.address.ip, names.by_host[node.host])
        for node in nodes
        if node.address
    }
    first, _share = majority(int(address) - place for place, (address, _name) in by_place.items())
    first = first or 0
    others = {
        name: address
        for place, (address, name) in sorted(by_place.items())
        if int(address) != first + place
    }
    return ipaddress.IPv4Address(first), others
