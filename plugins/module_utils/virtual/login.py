# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How virtual nodes of either kind are logged in to: verified host keys, and a file for people."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol


class Reachable(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...


def known_hosts(nodes: Iterable[Reachable], keys: Mapping[str, str]) -> str:
    """One verified line per node, under its address and its name."""
    return "".join(f"{node.address},{node.name} {keys[node.name]}\n" for node in nodes)


def ssh_config(nodes: Iterable[Reachable], user: str, identity: str, known: str) -> str:
    """For people: `ssh -F <this file> node01`."""
    return "".join(
        f"Host {node.name}\n  HostName {node.address}\n  HostKeyAlias {node.name}\n"
        f"  User {user}\n  IdentityFile {identity}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n"
        for node in nodes
    )


def files(
    nodes: Sequence[Reachable], keys: Mapping[str, str], wanted: Mapping[str, Any]
) -> dict[str, str]:
    """Both files as the modules return them; `wanted` are a module's options."""
    return {
        "known_hosts": known_hosts(nodes, keys),
        "ssh_config": ssh_config(
            nodes, wanted["login_user"], wanted["identity"], wanted["known_hosts"]
        ),
    }


def answers_ssh(address: str, timeout_s: float = 2.0) -> bool:
    """Whether an SSH server greets at this address."""
    try:
        with socket.create_connection((address, 22), timeout=timeout_s) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
