# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IPv4 networks, and the address plans for the rails of all nodes.

A lane is one plane of one rail, numbered rail by rail. Each group of leaves has a plan. Addresses
are computed from (node, lane), so adding a node at the end changes no other address. They are
integers, as a cluster of 10,000 nodes has some 250,000.
"""

from __future__ import annotations

import socket
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Optional, Union

from ...module_utils.core.text import counted, some
from ..schema.findings import Findings, Path


@dataclass(frozen=True)
class Subnet:
    """A network by its first address and prefix length."""

    first: int
    prefix: int

    @property
    def last(self) -> int:
        return self.first + self.size - 1

    @property
    def size(self) -> int:
        return 1 << (32 - self.prefix)

    def overlaps(self, other: Subnet) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def no_hosts(self) -> str:
        """The range without host addresses that it overlaps; empty if there is none."""
        found = (f"{what} ({net})" for net, what in _NO_HOSTS.items() if net.overlaps(self))
        return next(found, "")

    def __str__(self) -> str:
        return f"{text(self.first)}/{self.prefix}"


@dataclass(frozen=True)
class Subnets:
    """Networks that do not overlap, by address."""

    each: tuple[Subnet, ...]

    @cached_property
    def _firsts(self) -> list[int]:
        return [subnet.first for subnet in self.each]

    def around(self, address: int) -> Optional[Subnet]:
        """The network that contains an address."""
        place = bisect_right(self._firsts, address) - 1
        found = self.each[max(0, place)]
        return found if found.first <= address <= found.last else None

    def has_host(self, address: int) -> bool:
        """Whether a host may have the address: not the first and the last one of a network."""
        found = self.around(address)
        return found is not None and found.first < address < found.last

    def __str__(self) -> str:
        return some(self.each, 4)


HostAddress = tuple[str, int, Path]
"""Host, address and the key that defines it."""
Rows = dict[Path, list[tuple[str, int]]]


def misplaced(
    rows: Iterable[HostAddress], networks: Subnets, owner: dict[int, str]
) -> tuple[Rows, Rows]:
    """Addresses outside of the networks, and those of another host, by key. `owner` is filled."""
    outside: Rows = {}
    taken: Rows = {}
    for name, address, path in rows:
        if not networks.has_host(address):
            outside.setdefault(path, []).append((name, address))
        if owner.setdefault(address, name) != name:
            taken.setdefault(path, []).append((name, address))
    return outside, taken


def shown_hosts(hosts: list[tuple[str, int]]) -> str:
    return some([f"{dotted_quad(address)} ({name})" for name, address in hosts], 1)


def dotted_quad(address: int) -> str:
    """The address as text, also one that a count of hosts or a position puts past the last."""
    past = address - 0xFFFFFFFF
    return text(address) if past <= 0 else f"255.255.255.255 + {past}"


_NO_HOSTS = {
    Subnet(0, 8): "unspecified",
    Subnet(127 << 24, 8): "loopback",
    Subnet((169 << 8 | 254) << 16, 16): "link-local",
    Subnet(224 << 24, 4): "multicast",
    Subnet(240 << 24, 4): "reserved",
}
"""Ranges without routable host addresses (RFC 6890, section 2.2.2; RFC 5771)."""


def text(address: int) -> str:
    """The address in dotted form."""
    return socket.inet_ntoa(struct.pack("!I", address))


MAX_NODES = 1 << 20
"""Above the number of any node."""


@dataclass(frozen=True)
class AddressPlan:
    """One subnet per lane and leaf set. Links of two addresses (/31) are sets of one node."""

    pool: Subnet
    lanes: int
    nodes_per_set: int
    prefix: int
    first_host: int = 2
    """Place of the first node of a set in its subnets."""
    gateway_host: int = 1
    """Place of the leaf."""
    first_node: int = 0
    end: int = MAX_NODES
    """Its nodes are from `first_node` to before this one."""
    first_network: int = 0
    """Number of networks in the pool before those of its first set."""
    lane_span: int = 0
    """Networks reserved for each lane, which are consecutive; 0: those of each set are."""
    planes: int = 1
    """Number of planes, each with one prefix; 1: lanes are in order, rail by rail."""

    @property
    def size(self) -> int:
        return 1 << (32 - self.prefix)

    @property
    def _rails(self) -> int:
        """Number of rails, rounded up to a power of two."""
        return int(1 << (self.lanes // self.planes - 1).bit_length())

    def _part(self, lane: int) -> int:
        """The number of a lane's part of the pool."""
        rail, plane = divmod(lane, self.planes)
        return plane * self._rails + rail if self.planes > 1 else lane

    def plane_network(self, plane: int) -> Subnet:
        """The prefix of a plane, if each has one."""
        bits = (self.size * self.lane_span * self._rails).bit_length() - 1
        return Subnet(self.pool.first + (plane << bits), 32 - bits)

    def network(self, node: int, lane: int) -> Subnet:
        number = (node - self.first_node) // self.nodes_per_set
        if self.lane_span:
            number += self._part(lane) * self.lane_span
        else:
            number = number * self.lanes + lane
        return Subnet(self.pool.first + (self.first_network + number) * self.size, self.prefix)

    def address(self, node: int, lane: int) -> int:
        place = (node - self.first_node) % self.nodes_per_set
        return self.network(node, lane).first + self.first_host + place

    def gateway(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + self.gateway_host

    def holder(self, address: int, nodes: int) -> Union[str, tuple[int, int]]:
        """The role of an address in the pool, or its node and lane; otherwise empty."""
        number, place = divmod(address - self.pool.first, self.size)
        if self.lane_span:
            lane, leaf_set = divmod(number, self.lane_span)
            if self.planes > 1:
                plane, rail = divmod(lane, self._rails)
                known = rail < self.lanes // self.planes and plane < self.planes
                lane = rail * self.planes + plane if known else self.lanes
            leaf_set -= self.first_network
        else:
            leaf_set, lane = divmod(number - self.first_network, self.lanes)
        first = self.first_node + leaf_set * self.nodes_per_set
        if leaf_set < 0 or lane >= self.lanes or first >= min(nodes, self.end):
            return ""
        ends = {0: "network address", self.size - 1: "broadcast address"}
        what = {**(ends if self.prefix < 31 else {}), self.gateway_host: "gateway"}
        if place in what:
            return f"the {what[place]} of {self.network(first, lane)}"
        of_set = place - self.first_host
        return (first + of_set, lane) if 0 <= of_set < self.nodes_per_set else ""

    def check_capacity(self, nodes: int, findings: Findings, path: Path) -> None:
        """Check that the pool has an address for every rail of `nodes` nodes."""
        remedy = "Use a larger pool"
        remedy += ", or another addresses.prefix" if self.prefix < 31 else ""
        nodes = max(0, min(nodes, self.end) - self.first_node)
        sets, in_one_set = -(-nodes // self.nodes_per_set), min(nodes, self.nodes_per_set)
        there, room = self.pool.size // self.size, self.size - self.first_host - (self.prefix < 31)
        wanted, part = self.first_network + sets * self.lanes, "the pool"
        places = f"{counted(sets, 'set')} of nodes" if self.prefix < 31 else counted(nodes, "node")
        what = f"{self.lanes} for each of {places}"
        if self.lane_span:
            wanted, there, part = self.first_network + sets, self.lane_span, "each rail's part of"
            what = f"one for each of {places}"
            parts = self._part(self.lanes - 1) + 1
            if parts > self.pool.size // self.size:
                wanted, there, part = parts, self.pool.size // self.size, "the pool"
                what = "one for each rail and plane"
        if self.first_network:
            what += f" after {self.first_network} of other leaves"
        room = max(0, room)
        if sets and wanted > there:
            problem = f"{wanted} subnets of /{self.prefix} are needed, {what}, {part} {self.pool} "
            problem += f"holds {there}"
            findings.add("model.pool_without_subnets", path, problem, remedy, (wanted, there))
        elif in_one_set > room:
            problem = f"{in_one_set} nodes need an address in each subnet, a /{self.prefix} "
            problem += f"holds only {room} from place {self.first_host} on"
            findings.add(
                "model.subnet_without_addresses", path, problem, remedy, (in_one_set, room)
            )


def point_to_point(pool: Subnet, lanes: int) -> AddressPlan:
    """One /31 per lane and node: the leaf has the even address, the node the odd one."""
    return AddressPlan(pool, lanes, nodes_per_set=1, prefix=31, first_host=1, gateway_host=0)


@dataclass(frozen=True)
class HostAddresses:
    """Addresses of all hosts, to check those that an operator wrote."""

    management: Subnets
    plans: Sequence[AddressPlan]
    nodes: Mapping[int, str]
    """By index in the plan."""
    hosts: Mapping[str, int]
    """Management addresses of nodes, launcher and storage hosts."""
    links: Mapping[str, Sequence[Sequence[Subnet]]]
    """Networks of the leaf at the other end of each link of a storage host."""
    switches: Mapping[str, int]
    """Management addresses of leaves and spines."""
    further: Mapping[int, str] = field(default_factory=dict)
    """Hosts by address in further networks and of links to leaves, and `BMC of NAME`."""
    domain: str = ""
    interfaces: Sequence[str] = ()
    """Of rails: the names of their addresses end with them."""

    def owner_of_name(self, name: str) -> str:
        """The host with this name, short or full, or with a rail of this name; empty if none."""
        short = name.lower().removesuffix(f".{self.domain}") if self.domain else name.lower()
        hosts = {*self.nodes.values(), *self.switches}
        for interface in ("", *self.interfaces):
            host = short.removesuffix(f"-{interface}") if interface else short
            if host in hosts and (not interface or host != short):
                return host
        return ""

    def problem(self, address: int, server: str) -> str:
        """Why no host, or not the host `server`, has the address; empty if it may. An external
        server (no host of the model) has no address of a node or switch."""
        here = Subnet(address, 32)
        what = here.no_hosts
        owner = next((name for name, own in self.hosts.items() if own == address), "")
        around = self.management.around(address)
        if around is not None and not self.management.has_host(address):
            what = f"the first or last address of the management network {around}"
        owner = self.further.get(address, owner)
        if owner.startswith("BMC "):
            what = what or f"the {owner}"
        for plan in self.plans:
            if plan.pool.overlaps(here):
                holder = plan.holder(address, max(self.nodes) + 1)
                if isinstance(holder, str):
                    what = what or holder
                else:
                    owner = self.nodes.get(holder[0], "")
        switch = next((name for name, own in self.switches.items() if own == address), "")
        if what or switch:
            return f"is {what or f'the management address of {switch}'}, which no server has"
        if not server and (owner in self.nodes.values() or owner in self.switches):
            return f"is an address of {owner}, and the file system has no serve.host"
        if server not in self.hosts or owner == server:
            return ""
        if owner:
            return f"is an address of {owner}, and not of {server}"
        return self._elsewhere(here, server) if self._in_pool(here) else ""

    def doubt(self, address: int, server: str) -> str:
        """Why the address, outside all networks of the model, is probably wrong for `server`."""
        here = Subnet(address, 32)
        known = self._in_pool(here) or server not in self.hosts
        known = known or self.further.get(address) == server
        return "" if known else self._elsewhere(here, server)

    def _in_pool(self, here: Subnet) -> bool:
        return any(plan.pool.overlaps(here) for plan in self.plans)

    def _elsewhere(self, here: Subnet, server: str) -> str:
        links = [network for link in self.links.get(server, ()) for network in link]
        if any(map(here.overlaps, (*self.management.each, *links))):
            return ""  # possibly another address, unknown to the model
        rails = "those of its rails" if server in self.nodes.values() else "no link to a leaf"
        more = f"one in {some(links)}" if links else rails
        return f"is no address of {server}, which has {text(self.hosts[server])} and {more}"
