# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""IPv4 addresses and networks: netaddr reads and judges them, whole numbers carry them.

A cluster of 10,000 nodes has some 250,000 addresses: numbers cost little to add and compare.
"""

from __future__ import annotations

import re
import socket
import struct
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass

try:
    import netaddr  # type: ignore[import-untyped]
except ImportError as error:
    NETADDR_MISSING: Optional[ImportError] = error
else:
    NETADDR_MISSING = None


@dataclass(frozen=True)
class Network:
    """A network by its first address and prefix length."""

    first: int
    prefix: int

    @property
    def last(self) -> int:
        return self.first + self.size - 1

    @property
    def size(self) -> int:
        return 1 << (32 - self.prefix)

    def __contains__(self, address: int) -> bool:
        return self.first <= address <= self.last

    def overlaps(self, other: Network) -> bool:
        return self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        return f"{text(self.first)}/{self.prefix}"


def text(address: int) -> str:
    """The address as people write it."""
    return socket.inet_ntoa(struct.pack("!I", address))


def number(address: Any) -> Optional[int]:
    """The address as a number, or None when it is none; ten times as fast as netaddr."""
    if not isinstance(address, str):
        return None
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big")
    except OSError:
        return None


def parse_address(value: Any) -> int:
    """The address as a number. Raises ValueError that goes on after "VALUE is"."""
    if not isinstance(value, str):
        raise ValueError("not an IPv4 address")
    try:
        address = netaddr.IPAddress(value, flags=netaddr.INET_PTON)
    except (netaddr.AddrFormatError, ValueError) as error:
        raise ValueError("not an IPv4 address") from error
    if address.version != 4:
        raise ValueError("an IPv6 address, and this model has IPv4 only")
    return int(address)


def parse_network(value: Any) -> Network:
    """The network. Raises ValueError that goes on after "VALUE is"; a remedy may follow "; "."""
    if not isinstance(value, str):
        raise ValueError("not an IPv4 network")
    if not re.fullmatch(r"[^/]*/[0-9]{1,2}", value):
        raise ValueError("a network without a prefix length; Write one, as in 10.0.0.0/24")
    try:
        network = netaddr.IPNetwork(value)
    except (netaddr.AddrFormatError, ValueError) as error:
        raise ValueError("not an IPv4 network") from error
    if network.version != 4:
        raise ValueError("an IPv6 network, and this model has IPv4 only")
    if network.ip != network.network:
        raise ValueError(f"an address inside a network; Write {network.cidr}")
    return Network(int(network.network), network.prefixlen)
