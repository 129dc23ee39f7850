# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IPv4 networks, and the address plan for the rails of all nodes.

A lane is one plane of one rail, numbered rail by rail. Both plans compute addresses from (node,
lane), so adding a node at the end changes no other address. Addresses are integers, as a cluster of
10,000 nodes has some 250,000.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ...module_utils.core.text import counted, some


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


class Exhausted(ValueError):
    """The pool is too small; the message has the required size.

    `value`: required and available numbers.
    """

    def __init__(self, code: str, value: tuple[int, int], problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.value: Any = value


@dataclass(frozen=True)
class SubnetPerRail:
    """One subnet per lane and leaf set; its first address is the gateway on the leaf."""

    pool: Subnet
    lanes: int
    nodes_per_set: int
    prefix: int
    first_host: int = 2

    def network(self, node: int, lane: int) -> Subnet:
        number = (node // self.nodes_per_set) * self.lanes + lane
        return Subnet(self.pool.first + (number << (32 - self.prefix)), self.prefix)

    def address(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + self.first_host + node % self.nodes_per_set

    def gateway(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + 1

    def holder(self, address: int, nodes: int) -> Union[str, tuple[int, int]]:
        """The role of an address in the pool, or its node and lane; otherwise empty."""
        number, place = divmod(address - self.pool.first, 1 << (32 - self.prefix))
        leaf_set, lane = divmod(number, self.lanes)
        if leaf_set * self.nodes_per_set >= nodes:
            return ""
        network = self.network(leaf_set * self.nodes_per_set, lane)
        what = {0: "network address", 1: "gateway", network.size - 1: "broadcast address"}
        if place in what:
            return f"the {what[place]} of {network}"
        of_set = place - self.first_host
        fits = 0 <= of_set < self.nodes_per_set
        return (leaf_set * self.nodes_per_set + of_set, lane) if fits else ""

    def require_capacity(self, nodes: int) -> None:
        """Raise Exhausted unless the pool has an address for every rail of `nodes` nodes."""
        size = 1 << (32 - self.prefix)
        sets = -(-nodes // self.nodes_per_set)
        wanted, there = sets * self.lanes, self.pool.size // size
        if wanted > there:
            problem = f"{wanted} subnets of /{self.prefix} are needed ({self.lanes} for each of "
            problem += f"{counted(sets, 'set')} of leaves), the pool {self.pool} holds {there}"
            raise Exhausted("model.pool_without_subnets", (wanted, there), problem)
        in_one_set = min(nodes, self.nodes_per_set)
        room = max(0, size - 1 - self.first_host)
        if in_one_set > room:
            problem = f"{in_one_set} nodes need an address in each subnet, a /{self.prefix} "
            problem += f"holds only {room} from place {self.first_host} on"
            raise Exhausted("model.subnet_without_addresses", (in_one_set, room), problem)


@dataclass(frozen=True)
class PointToPoint:
    """One /31 per lane and node: the leaf has the even address, the node the odd one."""

    pool: Subnet
    lanes: int
    prefix: int = 31

    def network(self, node: int, lane: int) -> Subnet:
        return Subnet(self.pool.first + 2 * (node * self.lanes + lane), 31)

    def address(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + 1

    def gateway(self, node: int, lane: int) -> int:
        return self.network(node, lane).first

    def holder(self, address: int, nodes: int) -> Union[str, tuple[int, int]]:
        """See SubnetPerRail.holder."""
        number, odd = divmod(address - self.pool.first, 2)
        if number >= nodes * self.lanes:
            return ""
        node, lane = divmod(number, self.lanes)
        return (node, lane) if odd else f"the leaf's address of {self.network(node, lane)}"

    def require_capacity(self, nodes: int) -> None:
        """Raise Exhausted unless the pool has a link for every rail of `nodes` nodes."""
        wanted, there = nodes * self.lanes, self.pool.size // 2
        if wanted > there:
            problem = f"{wanted} links of /31 are needed ({nodes} nodes, {self.lanes} each), "
            problem += f"the pool {self.pool} holds {there}"
            raise Exhausted("model.pool_without_links", (wanted, there), problem)


AddressPlan = Union[SubnetPerRail, PointToPoint]


@dataclass(frozen=True)
class HostAddresses:
    """Addresses of all hosts, to check those that an operator wrote."""

    management: Subnet
    plan: AddressPlan
    nodes: Mapping[int, str]
    """By index in the plan."""
    hosts: Mapping[str, int]
    """Management addresses of nodes, launcher and storage hosts."""
    links: Mapping[str, Sequence[Subnet]]
    """Networks of the leaves to which each storage host is connected."""

    def problem(self, address: int, server: str) -> str:
        """Why no host, or not the host `server`, has the address; empty if it may."""
        here = Subnet(address, 32)
        what = here.no_hosts
        owner = next((name for name, own in self.hosts.items() if own == address), "")
        if address in (self.management.first, self.management.last):
            what = f"the first or last address of the management network {self.management}"
        if self.plan.pool.overlaps(here):
            holder = self.plan.holder(address, max(self.nodes) + 1)
            if isinstance(holder, str):
                what = holder
            else:
                owner = self.nodes.get(holder[0], "")
        if what:
            return f"is {what}, which no server has"
        if server not in self.hosts or owner == server:
            return ""
        if owner:
            return f"is an address of {owner}, and not of {server}"
        links = self.links.get(server, ())
        if not self.plan.pool.overlaps(here) or any(map(here.overlaps, links)):
            return ""  # possibly another address, unknown to the model
        rails = "those of its rails" if server in self.nodes.values() else "no link to a leaf"
        more = f"one in {some(links)}" if links else rails
        return f"is no address of {server}, which has {text(self.hosts[server])} and {more}"
