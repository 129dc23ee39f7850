# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Interfaces through which the host is reached: none becomes a rail, whatever the model says, as
the host would become unreachable."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from ..hardware.iproute import MAIN_TABLE, NetworkState

_Interface = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]


@dataclass(frozen=True)
class ManagementNetwork:
    """The known addresses by which the host is reached."""

    address: Optional[_Interface] = None
    """Address with the prefix length of the management network."""
    login: str = ""
    """Local address of this run's SSH connection, if known."""

    @classmethod
    def of(cls, variable: Mapping[str, Any], login: str = "") -> ManagementNetwork:
        """Return the network of `cluster_management`; a missing or invalid address is ignored."""
        text, prefix = variable.get("address") or "", variable.get("prefix")
        with contextlib.suppress(ValueError):
            return cls(ipaddress.ip_interface(f"{text}/{prefix}" if prefix else text), login)
        return cls(None, login)

    def holds(self, cidr: str) -> str:
        """Return the role of an address in the management of this host, or None."""
        address = ipaddress.ip_interface(cidr).ip
        with contextlib.suppress(ValueError):
            if address == ipaddress.ip_address(self.login):
                return f"{address}, where the SSH connection of this run arrives"
        if self.address is None:
            return ""
        if address == self.address.ip:
            return f"{address}, the management address of this host"
        if address in self.address.network:
            return f"{address}, which is in the management network {self.address.network}"
        return ""

    def interfaces(self, state: NetworkState, rails: Iterable[str] = ()) -> dict[str, str]:
        """Return the interfaces through which the host is reached, with the reason, and those below
        them.

        A default route on one of `rails` does not count if another interface has one too.
        """
        found: dict[str, str] = {}
        for name, link in state.links.items():
            held = [self.holds(address) for address in link.addresses]
            if self.login.endswith(f"%{name}"):  # an IPv6 link-local address
                held = [f"{self.login}, where the SSH connection of this run arrives"]
            for use in filter(None, held):
                found.setdefault(name, f"carries {use}")
        ours = set(rails)
        outward = {
            name
            for name, routes in state.routes.items()
            if name
            and any(
                route.table == MAIN_TABLE and route.destination == "default" for route in routes
            )
        }
        for name in sorted(outward - ours or outward):
            found.setdefault(name, "has this host's default route")
        waiting = list(found)
        while waiting:
            upper = waiting.pop()
            for name in _below(state, upper):
                if name not in found:
                    found[name] = f"is below {upper}, which {found[upper]}"
                    waiting.append(name)
        return found


def _below(state: NetworkState, upper: str) -> list[str]:
    """Return the ports of a bond or bridge, and the lower interface of a VLAN."""
    ports = [name for name, link in state.links.items() if link.master == upper]
    lower = state.links[upper].lower if upper in state.links else None
    return [*ports, lower] if lower else ports
