# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who may have a file system: hosts of the cluster by their addresses, and nobody else.

An address, never a name: what a name resolves to is decided by whoever answers, and a server that
has to ask serves nobody while the answer is missing. Never a network: it has more than the nodes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from ...dataclass import dataclass


class ClientError(ValueError):
    """Not a client that can be let in; the text says which, and why."""


@dataclass(frozen=True)
class Client:
    """A host that mounts."""

    name: str
    addresses: tuple[str, ...]
    """All that its requests may come from."""


def read_clients(entries: Iterable[Mapping[str, Any]]) -> tuple[Client, ...]:
    """From `{name, addresses}`. Raises ClientError, with a line for each mistake."""
    found, wrong = [], []
    for entry in entries:
        name = str(entry.get("name") or "")
        addresses = []
        for text in entry.get("addresses") or ():
            try:
                addresses.append(_address(str(text)))
            except ValueError:
                wrong.append(
                    f"client {name or '?'}: {str(text)!r} is no address of one host, and exports "
                    "are to single addresses only. Correct the inventory"
                )
        if not name or not entry.get("addresses"):
            wrong.append(f"client {name or '?'}: a name and at least one address are needed")
        found.append(Client(name, tuple(addresses)))
    if wrong:
        raise ClientError("\n".join(wrong))
    return tuple(found)


def addresses_of(clients: Iterable[Client]) -> tuple[str, ...]:
    """Every address once, in the order of addresses: that of hosts may be another one tomorrow."""
    return in_order(address for client in clients for address in client.addresses)


def in_order(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(addresses), key=_key))


def _address(text: str) -> str:
    address = ipaddress.ip_address(text)
    if address.is_unspecified or address.is_multicast or address.is_loopback:
        raise ValueError(text)
    return str(address)


def _key(text: str) -> tuple[int, int]:
    address = ipaddress.ip_address(text)
    return address.version, int(address)
