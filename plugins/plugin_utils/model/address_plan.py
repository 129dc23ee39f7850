# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The address plan: which address every rail of every node has, and whose an address is.

A lane is one plane of one rail, counted rail by rail. Both plans are pure arithmetic on (node,
lane): no table is kept, and adding a node at the end changes nobody's address.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Union

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import counted
from .addresses import Network


class Owner(NamedTuple):
    """Whose an address is: that of a node's rail, or the gateway's beside it."""

    node: int
    lane: int
    gateway: bool


class Exhausted(ValueError):
    """The pool does not hold what the cluster needs; the text says how much is missing.

    `value`: what is needed, and what there is.
    """

    def __init__(self, code: str, value: tuple[int, int], text: str) -> None:
        super().__init__(text)
        self.code = code
        self.value = value


@dataclass(frozen=True)
class SubnetPerRail:
    """One subnet per lane and set of leaves; the gateway is its first address."""

    pool: Network
    lanes: int
    nodes_per_set: int
    subnet_prefix: int
    first_host: int = 2

    @property
    def prefix(self) -> int:
        return self.subnet_prefix

    def network(self, node: int, lane: int) -> Network:
        size = 1 << (32 - self.subnet_prefix)
        number = (node // self.nodes_per_set) * self.lanes + lane
        return Network(self.pool.first + number * size, self.subnet_prefix)

    def address(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + self.first_host + node % self.nodes_per_set

    def gateway(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + 1

    def owner(self, address: int) -> Optional[Owner]:
        """Whose `address` is; a gateway is given with the first node of its set."""
        if address not in self.pool:
            return None
        size = 1 << (32 - self.subnet_prefix)
        number, place = divmod(address - self.pool.first, size)
        leaf_set, lane = divmod(number, self.lanes)
        first = leaf_set * self.nodes_per_set
        if place == 1:
            return Owner(first, lane, gateway=True)
        index = place - self.first_host
        if not 0 <= index < self.nodes_per_set or place == size - 1:
            return None
        return Owner(first + index, lane, gateway=False)

    def require_room(self, nodes: int) -> None:
        """Raise Exhausted unless every rail of `nodes` nodes gets an address."""
        size = 1 << (32 - self.subnet_prefix)
        if self.subnet_prefix < self.pool.prefix:
            raise Exhausted(
                "model.subnet_above_pool",
                (self.subnet_prefix, self.pool.prefix),
                f"one /{self.subnet_prefix} subnet is larger than the pool {self.pool}",
            )
        sets = -(-nodes // self.nodes_per_set)
        wanted, there = sets * self.lanes, self.pool.size // size
        if wanted > there:
            raise Exhausted(
                "model.pool_without_subnets",
                (wanted, there),
                f"{wanted} subnets of /{self.subnet_prefix} are needed "
                f"({self.lanes} for each of {counted(sets, 'set')} of leaves), "
                f"the pool {self.pool} holds {there}",
            )
        in_one_set = min(nodes, self.nodes_per_set)
        room = max(0, size - 1 - self.first_host)
        if in_one_set > room:
            raise Exhausted(
                "model.subnet_without_addresses",
                (in_one_set, room),
                f"{in_one_set} nodes need an address in each subnet, a /{self.subnet_prefix} "
                f"has room for {room} from place {self.first_host} on",
            )


@dataclass(frozen=True)
class PointToPoint:
    """A /31 per lane and node: the even address is the leaf's, the odd one the node's."""

    pool: Network
    lanes: int

    @property
    def prefix(self) -> int:
        return 31

    def network(self, node: int, lane: int) -> Network:
        return Network(self.pool.first + 2 * (node * self.lanes + lane), 31)

    def address(self, node: int, lane: int) -> int:
        return self.network(node, lane).first + 1

    def gateway(self, node: int, lane: int) -> int:
        return self.network(node, lane).first

    def owner(self, address: int) -> Optional[Owner]:
        if address not in self.pool:
            return None
        link, end = divmod(address - self.pool.first, 2)
        node, lane = divmod(link, self.lanes)
        return Owner(node, lane, gateway=end == 0)

    def require_room(self, nodes: int) -> None:
        wanted, there = nodes * self.lanes, self.pool.size // 2
        if wanted > there:
            raise Exhausted(
                "model.pool_without_links",
                (wanted, there),
                f"{wanted} links of /31 are needed ({nodes} nodes, {self.lanes} each), "
                f"the pool {self.pool} holds {there}",
            )


AddressPlan = Union[SubnetPerRail, PointToPoint]
