# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems of a model: keys that need or exclude each other, and names, places and devices that
meet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.mounts import overlap
from ...module_utils.core.text import nearest, some
from ...module_utils.storage.file_system import (
    CHECKPOINTS,
    HOME,
    LUSTRE,
    NFS,
    PORTS,
    RDMA,
    SCRATCH,
    TCP,
    FileSystem,
    of_variable,
)
from ..schema.findings import Findings, Path, RefusedError, dotted
from ..schema.kinds import Wrong, check
from .storage_keys import FILE_SYSTEMS, NFS_KEYS, VARIABLE
from .storage_places import check_options, wrong_lustre, wrong_nfs, wrong_served

WITH_SWITCHES = ("all", "leaf", "spine", "ungrouped")
"""Groups that hold switches or nobody: nothing is mounted there."""
WITHOUT_RAILS = ("launcher",)
"""Groups that have no RDMA: the layer `rdma` is of compute hosts."""

Value = dict[str, Any]
Placed = list[tuple[Path, Value]]
"""Entries that are mappings, with their places."""


@dataclass(frozen=True)
class Site:
    groups: tuple[str, ...]
    """All there are."""
    hosts: Collection[str]
    """Nodes, launcher and storage hosts, by name."""
    names: Callable[[str], frozenset[str]]
    """Names and addresses by which others reach a host; asked only for hosts that matter."""
    more: frozenset[str] = frozenset()
    """Hosts that may have addresses besides: cables of storage hosts have addresses that no model
    knows."""

    def owner(self, server: str) -> Optional[str]:
        """The host that a name or address is of."""
        if server in self.hosts:
            return server
        return next((host for host in self.hosts if server in self.names(host)), None)


def check_one(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    """Each rule where the keys that it looks at are right by themselves."""

    def right(*keys: str) -> bool:
        return findings.clean(*((*at, key) for key in keys))

    if right("mount", "purpose"):
        _mount(entry, findings, at)
    if right("owner", "purpose"):
        _owner(entry, findings, at)
    if right("hosts"):
        _hosts(entry["hosts"], findings, (*at, "hosts"), site)
    if not right("type"):
        return
    if right("source"):
        _tell(wrong_of(entry), entry["source"], findings, (*at, "source"))
    _of_the_other(entry, findings, at)
    if entry["type"] == NFS and entry["nfs"] and right("nfs"):
        _nfs(entry["nfs"], findings, (*at, "nfs"))
        if entry["nfs"]["transport"] == RDMA and right("hosts"):
            _rails(entry["hosts"], findings, at)
    if right("options", "purpose"):
        check_options(entry, findings, at)
    if entry["serve"] is not None and right("source"):
        _serve(entry, findings, at, site)


def wrong_of(entry: Value) -> Optional[Wrong]:
    source: str = entry["source"]
    return wrong_nfs(source) if entry["type"] == NFS else wrong_lustre(source)


def _tell(wrong: Optional[Wrong], source: str, findings: Findings, path: Path) -> None:
    if wrong is not None:
        findings.add(wrong.code, path, wrong.problem, wrong.remedy, source)


def _mount(entry: Value, findings: Findings, at: Path) -> None:
    if entry["mount"] == "/home" and entry["purpose"] != HOME:
        findings.add(
            "storage.mount_on_home",
            (*at, "mount"),
            f"'/home' would hide the homes of every account, and purpose is {entry['purpose']}",
            "Mount it elsewhere, or write purpose: home",
        )


def _owner(entry: Value, findings: Findings, at: Path) -> None:
    owner = entry["owner"]
    if owner in ("nobody", "nfsnobody"):
        findings.add(
            "storage.owner_squashed",
            (*at, "owner"),
            f"{owner!r} is what root of every client is taken for: it would own all of it",
            "Leave it out for the MPI user, or name another account",
            value=owner,
        )
    elif owner == "root" and entry["purpose"] in (CHECKPOINTS, SCRATCH):
        findings.add(
            "storage.owner_root",
            (*at, "owner"),
            f"'root', and jobs of the MPI user write what is for {entry['purpose']}",
            "Leave it out: the MPI user owns it",
        )


def _hosts(hosts: list[str], findings: Findings, path: Path, site: Optional[Site]) -> None:
    if not hosts:
        findings.add(
            "storage.no_groups",
            path,
            "the list is empty: nobody would mount it",
            "Name groups, such as [compute]",
        )
    for index, group in enumerate(hosts):
        if group in hosts[:index]:
            findings.add(
                "storage.group_twice",
                (*path, index),
                f"{group!r} is there twice",
                "Remove one of them",
                value=group,
            )
        elif group in WITH_SWITCHES:
            findings.add(
                "storage.group_with_switches",
                (*path, index),
                f"{group!r} has hosts that mount nothing in it, such as switches",
                "Name those that do: compute, launcher, storage or a rack",
                value=group,
            )
        elif site is not None and group not in site.groups:
            known = [name for name in site.groups if name not in WITH_SWITCHES]
            findings.add(
                "storage.unknown_group",
                (*path, index),
                f"there is no group {group!r}",
                nearest(group, known),
                value=group,
            )


def _of_the_other(entry: Value, findings: Findings, at: Path) -> None:
    other = LUSTRE if entry["type"] == NFS else NFS
    if entry[other] is not None:
        findings.add(
            "storage.section_of_other_type",
            (*at, other),
            f"is for the type {other}, and this one is {entry['type']}",
            "Leave it out, or change type",
        )


def _nfs(nfs: Value, findings: Findings, at: Path) -> None:
    transport, port = nfs["transport"], nfs["port"]
    other = TCP if transport == RDMA else RDMA
    if port == PORTS[other]:
        findings.add(
            "storage.port_of_other_transport",
            (*at, "port"),
            f"{port} is the port of NFS over {other.upper()}, and {dotted((*at, 'transport'))} is "
            f"{transport}: nobody would answer there",
            f"Write {PORTS[transport]}, or leave it out",
            value=port,
        )


def _rails(hosts: list[str], findings: Findings, at: Path) -> None:
    without = [group for group in hosts if group in WITHOUT_RAILS]
    if without:
        rest = [group for group in hosts if group not in without] or ["compute"]
        findings.add(
            "storage.groups_without_rails",
            (*at, "hosts"),
            f"{some(without)} has no rails, and {dotted((*at, 'nfs', 'transport'))} is rdma",
            f"Write hosts: [{', '.join(rest)}], or transport: tcp",
            value=tuple(without),
        )


def _serve(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    serve, path = entry["serve"], (*at, "serve")
    if entry["type"] == LUSTRE:
        findings.add(
            "storage.lustre_not_served",
            path,
            "Lustre is not served from here: its servers have metadata and object targets that "
            "are set up with their own tools",
            "Leave it out, and name their NIDs in source",
        )
        return
    server, _sign, directory = entry["source"].rpartition(":/")
    _tell(wrong_served("/" + directory), entry["source"], findings, (*at, "source"))
    right = findings.clean((*path, "device"), (*path, "format"))
    if right and serve["format"] and not serve["device"]:
        findings.add(
            "storage.format_without_device",
            (*path, "format"),
            f"{serve['format']!r} without a device to put it on",
            "Write device, or leave it out",
            value=serve["format"],
        )
    if site is not None and findings.clean((*path, "host"), (*at, "source")):
        _server(server, serve["host"], findings, at, site)


def _server(server: str, host: str, findings: Findings, at: Path, site: Site) -> None:
    if host not in site.hosts:
        findings.add(
            "storage.unknown_host",
            (*at, "serve", "host"),
            f"there is no host {host!r}",
            nearest(host, sorted(site.hosts)),
            value=host,
        )
        return
    names = site.names(host)
    if server in names:
        return
    owner = site.owner(server)
    if owner is None and host in site.more:
        return
    whose = f"is of {owner}" if owner is not None else f"is no name or address of {host}"
    findings.add(
        "storage.source_of_other_host",
        (*at, "source"),
        f"{server!r} {whose}, and {dotted((*at, 'serve', 'host'))} is {host}",
        f"Begin it with one of {some(sorted(names), 6)}",
        value=(server, owner),
    )


# Beside each other


def check_together(entries: Placed, findings: Findings) -> None:
    """Each rule over the entries that are right in what it looks at."""

    def right(*keys: str) -> Placed:
        return [
            (at, entry) for at, entry in entries if findings.clean(*((*at, key) for key in keys))
        ]

    # What each rule looks at is decided first: what one of them finds hides nothing from the next.
    names, purposes, mounts = right("name"), right("purpose"), right("mount")
    nfs = [
        (at, {**entry, "nfs": entry["nfs"] or NFS_KEYS.defaults()})
        for at, entry in right("source", "serve", "type", "hosts", "nfs")
        if entry["type"] == NFS
    ]
    served = [
        (at, entry) for at, entry in right("source", "serve", "type") if entry["serve"] is not None
    ]
    for at, entry, other in _repeated(names, lambda entry: entry["name"]):
        findings.add(
            "storage.name_twice",
            (*at, "name"),
            f"{entry['name']!r} is also the name of {findings.place(other)}",
            "Rename one of them",
            value=entry["name"],
        )
    checkpoints = [(at, entry) for at, entry in purposes if entry["purpose"] == CHECKPOINTS]
    for at, _entry, other in _repeated(checkpoints, lambda entry: CHECKPOINTS):
        findings.add(
            "storage.checkpoints_twice",
            (*at, "purpose"),
            f"checkpoints are also the purpose of {findings.place(other)}, and jobs are told of "
            "one",
            "Write scratch for the other one",
        )
    for number, (at, entry) in enumerate(mounts):
        mount = entry["mount"]
        for other, before in mounts[:number]:
            if overlap(mount, before["mount"]):
                findings.add(
                    "storage.mounts_overlap",
                    (*at, "mount"),
                    f"{mount!r} meets {before['mount']!r}, that of {findings.place(other)}: one "
                    "would hide the other",
                    "Mount them beside each other",
                    value=(mount, before["mount"]),
                )
                break
    _served(served, findings)
    _transports(nfs, findings)
    for at, entry in mounts:
        for other, before in served:
            # The same path on the server and on its clients is fine, of the same file system.
            mount, directory = entry["mount"], _directory(before)
            if overlap(mount, directory) and not (at == other and mount == directory):
                findings.add(
                    "storage.mount_hides_served",
                    (*at, "mount"),
                    f"{mount!r} meets {directory!r}, which {before['serve']['host']} serves for "
                    f"{findings.place(other)}: a mount there would hide what is served",
                    "Mount it elsewhere, such as in /mnt",
                    value=(mount, directory),
                )
                break


def _served(served: Placed, findings: Findings) -> None:
    for number, (at, entry) in enumerate(served):
        host, directory = entry["serve"]["host"], _directory(entry)
        for other, before in served[:number]:
            if host == before["serve"]["host"] and overlap(directory, _directory(before)):
                findings.add(
                    "storage.served_overlap",
                    (*at, "source"),
                    f"{directory!r} on {host} meets {_directory(before)!r} of "
                    f"{findings.place(other)}: each has its own owner, space and exports",
                    "Serve directories beside each other",
                    value=(directory, _directory(before)),
                )
                break
    devices = [(at, entry) for at, entry in served if entry["serve"]["device"]]
    for at, entry, other in _repeated(
        devices, lambda entry: (entry["serve"]["host"], entry["serve"]["device"])
    ):
        device = entry["serve"]["device"]
        findings.add(
            "storage.device_twice",
            (*at, "serve", "device"),
            f"{device!r} of {entry['serve']['host']} is also that of {findings.place(other)}",
            "Give each file system its own",
            value=device,
        )


def _transports(mounted: Placed, findings: Findings) -> None:
    """From version 4 on, the kernel takes a connection that it has to the same server."""

    def server(entry: Value) -> str:
        return str((entry["serve"] or {}).get("host") or entry["source"].rpartition(":/")[0])

    for number, (at, entry) in enumerate(mounted):
        nfs = entry["nfs"]
        for other, before in mounted[:number]:
            if (
                nfs["version"] == before["nfs"]["version"] != "3"
                and nfs["transport"] != before["nfs"]["transport"]
                and server(entry) == server(before)
                and set(entry["hosts"]) & set(before["hosts"])
            ):
                findings.add(
                    "storage.transports_of_one_server",
                    (*at, "nfs", "transport"),
                    f"{nfs['transport']!r} for {entry['name']!r}, and {before['name']!r} "
                    f"({findings.place(other)}) has {before['nfs']['transport']!r} to "
                    f"{server(entry)} by the same version: the kernel shares one connection",
                    "Write another nfs.version for one of them, or the same transport",
                    value=(nfs["transport"], before["nfs"]["transport"]),
                )
                break


def _repeated(
    entries: Placed, key: Callable[[Value], object]
) -> Iterable[tuple[Path, Value, Path]]:
    """Entries whose key an earlier one has, with its place."""
    first: dict[object, Path] = {}
    for at, entry in entries:
        place = first.setdefault(key(entry), at)
        if place != at:
            yield at, entry, place


def _directory(entry: Value) -> str:
    return "/" + str(entry["source"]).rpartition(":/")[2]


class StorageError(RefusedError):
    what = f"{VARIABLE} cannot be mounted"


def read_filesystems(
    value: Optional[Sequence[Any]], site: Optional[Site] = None
) -> tuple[FileSystem, ...]:
    """The file systems of `value`; None and [] are none. Raises StorageError.

    `site`: the cluster around them, where it is known; without it, groups and servers are taken as
    they are written.
    """
    findings = Findings()
    entries = list(value or ()) if value is None or isinstance(value, tuple) else value
    checked = check(FILE_SYSTEMS, entries, findings, (VARIABLE,))
    found = finish(checked, findings, (VARIABLE,), site)
    if found is None:
        raise StorageError(findings.found)
    return found


def finish(
    checked: Any, findings: Findings, path: Path, site: Optional[Site] = None
) -> Optional[tuple[FileSystem, ...]]:
    """The file systems of a value that went through `check`; None where anything was found.

    Rules speak of what is left after the first look: one wrong type hides no contradiction
    elsewhere.
    """
    if checked is None:
        return None
    entries = [((*path, index), entry) for index, entry in enumerate(checked) if entry is not None]
    for at, entry in entries:
        check_one(entry, findings, at, site)
    check_together(entries, findings)
    if not findings.clean(path):
        return None
    return tuple(of_variable(entry) for _at, entry in entries)
