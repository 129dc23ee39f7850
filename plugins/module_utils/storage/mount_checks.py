# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is read back of the mounts of a host: units from systemd, mounts from the kernel's table."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Optional

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.commands import CommandError, Runner
from ..core.files import HEADER
from ..core.machine import NO_MOUNTS
from ..core.part import Node
from . import foreign, mount_options, mounted, units
from .mount_options import Difference
from .mounted import Mount
from .units import AUTOMOUNT, ENABLED, MOUNT
from .wanted_mounts import WantedMount, one_way_hint

# Whether an NFS mount is from the server that its source names, by the address that it runs to.
# The kernel keeps the address that a name led to when it was mounted. Another one is another server
# where the addresses of the server are known: it is a host of this cluster, or version 3 of the
# protocol is spoken with what the source or /etc/hosts says. A name of DNS may lead to many, and by
# version 4 a server says itself which addresses are its own, so that the kernel may go on with the
# connections that it has: neither fails.


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


UNIT, AUTO, MOUNTED, OPTIONS, LEFT, ABSENT = (
    "storage_unit",
    "storage_automount",
    "storage_mount",
    "storage_options",
    "storage_leftover",
    "storage_absent",
)


def at_boot(node: Node, each: WantedMount) -> Check:
    """Its automount point, or the bind mount itself."""
    name = UNIT if each.unit.is_bind else AUTO
    wanted, found = ENABLED, systemd.state(node, each.unit.at_boot)
    if node.container:  # where it is enabled, and starts nothing
        wanted, found = wanted.split(", ")[0], found.split(", ")[0]
    return compare(name, wanted, found, subject=each.point, check_mode=node.check_mode)


def running(
    node: Node, each: WantedMount, table: Sequence[Mount], why: str, keeps: str
) -> list[Check]:
    """`why` it could not be mounted; `keeps`: who stands in the way of a change."""
    options = ",".join(each.unit.options)
    if node.container:
        reason = node.not_here(NO_MOUNTS)
        return [
            not_applicable(MOUNTED, each.source, reason, subject=each.point),
            not_applicable(OPTIONS, options, reason, subject=each.point),
        ]
    differs = PENDING if node.check_mode else FAILED
    runs = mounted.on(table, each.point)
    if runs is None:
        # That it cannot be mounted is true whatever a run would change.
        status = FAILED if why else differs
        return [Check(MOUNTED, each.source, mounted.NOTHING, status, each.point, why)]
    refused = f"a run would be refused, because of {keeps}" if keeps else ""
    if each.is_source(runs, table):
        found = [Check(MOUNTED, each.source, each.source, OK, each.point)]
    else:
        found = [Check(MOUNTED, each.source, runs.text, differs, each.point, refused)]
    wrong = differences(node, each, runs)
    if not wrong:
        return [*found, Check(OPTIONS, options, options, OK, each.point)]
    what = ", ".join(difference.text for difference in wrong)
    reason = refused or one_way_hint(wrong)
    return [*found, Check(OPTIONS, options, what, differs, each.point, reason)]


def differences(node: Node, each: WantedMount, runs: Mount) -> list[Difference]:
    """Options that run, or that the unit on disk has, otherwise than wanted."""
    words = each.unit.options
    found = mount_options.differences(words, runs)
    unit = node.read(units.path_of(each.unit.mount)) or ""
    if foreign.value_of(unit, "Type") == each.unit.kind:
        before = foreign.value_of(unit, "Options").split(",")
        found += mount_options.changed(before, words, runs)
    return found


def gone(
    node: Node, absent: Sequence[str], table: Sequence[Mount], in_use: Mapping[str, str]
) -> list[Check]:
    """Mount points that are to have no mount of ours."""
    found = []
    for point in absent:
        left = foreign.our_files(node, point, [AUTOMOUNT, MOUNT])
        runs = None if node.container else mounted.on(table, point)
        if left:
            keeps = in_use.get(point, "")
            reason = f"a run would be refused, because of {keeps}" if keeps else ""
            status = PENDING if node.check_mode else FAILED
            path = f"/{left[0].path.relative_to(node.root)}"
            found.append(Check(ABSENT, "absent", path, status, point, reason))
        elif runs is not None and not _of_another_part(node, point):
            reason = "it was not mounted by this collection, which leaves it alone"
            found.append(Check(ABSENT, "absent", runs.text, FAILED, point, reason))
        else:
            found.append(Check(ABSENT, "absent", "absent", OK, point))
    return found


def _of_another_part(node: Node, point: str) -> bool:
    """A device below a directory that this host served: whoever mounted it speaks for it."""
    text = node.read(units.path_of(units.unit_name(point, MOUNT)))
    return text is not None and HEADER in text.split("\n", 1)[0]


def leftovers(node: Node, known: set[str]) -> list[Check]:
    """Mounts of ours that nothing asks for: they stay until somebody says so."""
    return [
        Check(
            LEFT,
            "a file system of this host",
            path,
            FAILED,
            point,
            "its file system left cluster_filesystems, or this host its list of hosts. Nothing is "
            "unmounted unasked: put it back, or take it away with "
            f'-e \'{{"shared_storage_absent": ["{point}"]}}\', and --limit to these '
            "hosts where others go on mounting it, which refuse",
        )
        for point, path in foreign.our_points(node).items()
        if point not in known
    ]
