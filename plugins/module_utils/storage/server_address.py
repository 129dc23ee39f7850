# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether an NFS mount is from the server that its source names, by the address that it runs to.

The kernel keeps the address that a name led to when it was mounted, for as long as it is mounted.
An address that is written, one of a host of this cluster, and one in /etc/hosts are what they are:
another one is another server. A name of DNS is none of that: names of scale-out servers lead to
another of their addresses each time. What it leads to now is told, and nothing fails for it.

A server that is none of this cluster may have more addresses than are known here. By version 4 it
says itself which are its own, and the kernel goes on with what it has of them: no other server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Sequence
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
SHOWN = 8
Resolved = Callable[[str], tuple[list[str], str]]


def check(
    node: Node,
    each: WantedMount,
    runs: Mount,
    known: Collection[str],
    resolved: Resolved,
    table: Iterable[Mount] = (),
) -> Optional[Check]:
    """None where the mount tells no address. `known`: addresses of the host of this cluster that
    serves it, empty for any other server. `resolved`: `resolve`, of each name once. `table`: what
    else is mounted."""
    told = runs_to(runs) if each.is_nfs else ""
    if not told:
        return None
    server = _plain_name(each.fs.server)
    known = sorted({plain(address) for address in known} - {""})
    if plain(server):
        return _by_address(each, plain(server), told, known, runs)
    hosts = node.read(HOSTS) or ""
    in_file = in_hosts(hosts, server)
    if told in known or told in in_file:
        return Check(CHECK, each.fs.server, told, OK, each.point)
    found, why = resolved(server)
    if told in found:
        return Check(CHECK, each.fs.server, told, OK, each.point)
    if known and (in_file or found):
        right = list(dict.fromkeys([*known, *in_file, *found]))
        return _another(each, told, f"{server} has {_shown(right)}")
    if in_file:
        first = _mounted_first(runs, told, table, hosts)
        if first:
            return _of_its_own(each, told, f", as {first} is")
        return _another(each, told, f"/{HOSTS} says {_shown(in_file)}")
    if not found:
        doubt = f"whether that is {server} is not known: {why}"
    else:
        doubt = (
            f"{server} leads to {_shown(found)} now. Names of servers with many addresses do that; "
            f"where this one was moved: {_way(each)}"
        )
    why = f"mounted from {told}; {doubt}"
    return not_applicable(CHECK, each.fs.server, why, subject=each.point)


def _by_address(
    each: WantedMount, server: str, told: str, known: Collection[str], runs: Mount
) -> Check:
    if told == server:
        return Check(CHECK, each.fs.server, told, OK, each.point)
    if not known and runs.kind == BY_VERSION_4:
        return _of_its_own(each, told)
    if told not in known:
        return _another(each, told, "its source is an address")
    reason = (
        "that is another address of the same server: from version 4.1 on the kernel takes the "
        "connections of what was mounted from it first. Unmount that, here and elsewhere on this "
        f"host; {_way(each)}"
    )
    return Check(CHECK, each.fs.server, told, FAILED, each.point, reason)


def _mounted_first(runs: Mount, told: str, table: Iterable[Mount], hosts: str) -> str:
    """Where something is mounted from that address by its own source, which `runs` may share."""
    for other in table:
        if other.kind != BY_VERSION_4 or runs.kind != BY_VERSION_4 or runs_to(other) != told:
            continue
        server = _plain_name(other.source.rpartition(":/")[0])
        if told in (plain(server), *in_hosts(hosts, server)):
            return other.point
    return ""


def _of_its_own(each: WantedMount, told: str, beside: str = "") -> Check:
    why = (
        f"mounted from {told}{beside}: an address of the same server, by its own word, from which "
        f"something was mounted first. The kernel has no connection with {each.fs.server} then, "
        "and what is asked of both goes over one way. For two, write another nfs.version for one"
    )
    return not_applicable(CHECK, each.fs.server, why, subject=each.point)


def _another(each: WantedMount, told: str, why: str) -> Check:
    reason = f"it is mounted from another server: {why}. {_way(each)}"
    if each.fs.serve is not None:
        reason += (
            f". If {told} is of {each.fs.serve.host} as well, add it to "
            "shared_storage_client_addresses of that host"
        )
    return Check(CHECK, each.fs.server, told, FAILED, each.point, reason)


def _plain_name(server: str) -> str:
    return server.strip("[]").rstrip(".").lower()


def runs_to(runs: Mount) -> str:
    words = (word.partition("=") for word in runs.options)
    return next((plain(value) for name, _equals, value in words if name == "addr"), "")


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


def _way(each: WantedMount) -> str:
    return (
        f"End what uses it, then systemctl stop '{each.unit.mount}': its next use mounts it from "
        "where its name leads then"
    )


def _shown(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - SHOWN} more" if len(addresses) > SHOWN else ""
    return ", ".join(addresses[:SHOWN]) + more
