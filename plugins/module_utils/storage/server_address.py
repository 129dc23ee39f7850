# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether an NFS mount is from the server that its source names, by the address that it runs to.

The kernel keeps the address that a name led to when it was mounted. Another one is another server
where the addresses of the server are known: it is a host of this cluster, or version 3 of the
protocol is spoken with what the source or /etc/hosts says. A name of DNS may lead to many, and by
version 4 a server says itself which addresses are its own, so that the kernel may go on with the
connections that it has: neither fails.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from typing import Optional

from ..checks import FAILED, OK, Check, not_applicable
from ..commands import CommandError, Runner
from ..node.part import Node
from .mounted import Mount
from .wanted_mounts import WantedMount

CHECK = "storage_address"
HOSTS = "etc/hosts"
BY_VERSION_4 = "nfs4"
"""Type of such a mount in the kernel's table."""
RESOLVE_S = 10
"""Seconds for a name: without an answer nothing is known, and nothing fails."""
NO_ANSWER = 124
"""Exit status of timeout(1)."""
Resolved = Callable[[str], tuple[list[str], str]]


def check(
    node: Node, each: WantedMount, runs: Mount, known: Collection[str], resolved: Resolved
) -> Optional[Check]:
    """None where the mount tells no address. `known`: addresses of the host of this cluster that
    serves it, empty for any other server. `resolved`: `resolve`, of each name once."""
    words = (word.partition("=") for word in runs.options)
    told = next((plain(value) for name, _equals, value in words if name == "addr"), "")
    if not each.is_nfs or not told:
        return None
    server = each.fs.server.strip("[]").rstrip(".").lower()
    ours = sorted({plain(address) for address in known} - {""})
    literal = plain(server)
    in_file = [] if literal else in_hosts(node.read(HOSTS) or "", server)
    right = [literal] if literal else [*ours, *in_file]
    found: list[str] = []
    why = ""
    if not literal and told not in right:
        found, why = resolved(server)
        right += found
    if told in right:
        return Check(CHECK, each.fs.server, told, OK, each.point)
    sure = bool(literal or in_file or (ours and found))
    leads = ", ".join(dict.fromkeys(right)) or "nothing"
    way = (
        f"End what uses it, then systemctl stop '{each.unit.mount}': its next use mounts it from "
        "where its source leads then"
    )
    if sure and (ours or runs.kind != BY_VERSION_4):
        more = ""
        if each.fs.serve is not None:
            more = (
                f". If {told} is of {each.fs.serve.host} as well, add it to "
                "shared_storage_client_addresses of that host; from version 4.1 on the kernel "
                "takes the connections of what was mounted from a server first, on this host"
            )
        reason = f"it is mounted from another address; {server} has {leads}. {way}{more}"
        return Check(CHECK, each.fs.server, told, FAILED, each.point, reason)
    reason = (
        f"mounted from {told}, and {server} leads to {leads} now{why and f' ({why})'}: another "
        f"address of the same server, or the server was moved. Then: {way}"
    )
    return not_applicable(CHECK, each.fs.server, reason, subject=each.point)


def plain(text: str) -> str:
    """One spelling of an address; empty for what is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def in_hosts(text: str, name: str) -> list[str]:
    found = []
    for line in text.split("\n"):
        address, *names = line.partition("#")[0].split() or [""]
        if name in (each.lower() for each in names) and plain(address):
            found.append(plain(address))
    return found


def resolve(look: Runner, name: str) -> tuple[list[str], str]:
    """Addresses of a name as mount.nfs finds them, or none and why."""
    try:
        told = look(["timeout", str(RESOLVE_S), "getent", "ahosts", name], check=False)
    except CommandError as error:
        return [], str(error)
    if told.rc == NO_ANSWER:
        return [], f"getent ahosts {name}: no answer within {RESOLVE_S} s; see /etc/resolv.conf"
    found = {plain(line.split()[0]) for line in told.stdout.split("\n") if line.strip()}
    if told.rc != 0 or not found - {""}:
        return [], f"getent ahosts {name}: exit status {told.rc}, the name is not known here"
    return sorted(found - {""}), ""
