# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules on file systems: keys that need or exclude each other, and names, places and devices that
overlap."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import combinations
from typing import Any, Optional

from ...module_utils.core.mounts import overlap, within
from ...module_utils.core.text import nearest, some
from ...module_utils.storage.file_system import (
    CHECKPOINTS,
    HOME,
    LUSTRE,
    NFS,
    RDMA,
    TCP,
    FileSystem,
    of_variable,
)
from ..schema.findings import Findings, Path, dotted
from .addresses import Addresses
from .storage_keys import PLAIN_PATH

_WITHOUT_MOUNTS = ("all", "leaf", "spine", "ungrouped")
"""Groups that hold switches, or no hosts."""
_WITHOUT_RAILS = ("launcher",)

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS = rf"(?<![\w.-]){_OCTET}(\.{_OCTET}){{3}}(?![\w.-])"
_HOST = rf"({_ADDRESS}|(?![0-9.]+:|-)[A-Za-z0-9-]{{1,63}}(\.[A-Za-z0-9-]{{1,63}})*)"
_NID = rf"{_ADDRESS}@(tcp|o2ib)[0-9]{{0,3}}"
"""The kernel shows addresses, whatever name a source has."""
_SOURCES = {
    NFS: (
        re.compile(rf"({_HOST}|\[[0-9A-Fa-f:.]+\]):/(?!/)[A-Za-z0-9._/+@=~-]*"),
        "server:/directory, such as storage01:/srv/checkpoints",
    ),
    LUSTRE: (
        re.compile(rf"{_NID}([,:]{_NID})*:/[A-Za-z0-9_-]{{1,8}}(/[A-Za-z0-9._/-]+)?"),
        "NIDs and a name of at most 8 characters, such as 10.0.0.5@o2ib:/scratch",
    ),
}

_OF_THE_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root"),
    *("/run", "/sbin", "/snap", "/sys", "/tmp", "/usr", "/var", "/opt/mellanox", "/opt/nvidia"),
)
"""Nothing is mounted over these, nor anywhere in them."""
_OF_USR_LOCAL = (
    *("bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"),
)
"""What a distribution has in /usr/local; other directories there are the operator's."""
_SHARED_BY_MANY = ("/home", "/media", "/mnt", "/opt", "/srv")
"""Directories for directories: with another owner, everything in them suffers."""

_BY_KEY = {
    NFS: {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        **{"port": "port", "nconnect": "connections"},
    },
    LUSTRE: dict.fromkeys(("flock", "localflock", "noflock"), "flock"),
}
"""Options that a key of the type's section sets."""
_LOST = "it ends in an error when the server is slow, and what a job has written is lost"
_LOCKS = "locks that one node takes would not be seen by the others"
_NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    **dict.fromkeys(("nolock", "local_lock"), _LOCKS),
    "bg": "a mount in the background is reported before it is there",
}
"""Options that no file system gets, and why."""

Value = dict[str, Any]
Placed = list[tuple[Path, Value]]
"""Entries with their places."""


@dataclass(frozen=True)
class Site:
    """The cluster around the file systems."""

    groups: tuple[str, ...]
    hosts: Collection[str]
    """Nodes, launcher and storage hosts, by name."""
    addresses: Optional[Addresses] = None
    doubts: Optional[Findings] = None
    """Gets what a network that the model does not know may make right."""


def read_filesystems(
    checked: Sequence[Value], findings: Findings, path: Path, site: Optional[Site]
) -> tuple[FileSystem, ...]:
    """The file systems of a value in which FILE_SYSTEMS.check found nothing.

    `site`: None where the cluster around them has findings of its own; then groups and hosts are
    taken as they are written.
    """
    entries: Placed = [((*path, index), entry) for index, entry in enumerate(checked)]
    for at, entry in entries:
        _check_one(entry, findings, at, site)
    _check_together(entries, findings)
    return tuple(of_variable(entry) for _at, entry in entries)


def _check_one(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    kind, mount = entry["type"], entry["mount"]
    system = _system_directory(mount)
    if system or mount == "/opt" or (mount == "/home" and entry["purpose"] != HOME):
        findings.add(
            "storage.mount_in_system",
            (*at, "mount"),
            f"{mount!r} would hide {system or mount}, a directory of the system",
            "Mount it somewhere such as /mnt/checkpoints; /home needs purpose: home",
            mount,
        )
    form, example = _SOURCES[kind]
    if not form.fullmatch(entry["source"]):
        findings.add(
            "storage.source",
            (*at, "source"),
            f"{entry['source']!r} is not a source of {kind}",
            f"Write {example}",
            entry["source"],
        )
    other = LUSTRE if kind == NFS else NFS
    if entry[other] is not None:
        findings.add(
            "storage.section_of_other_type",
            (*at, other),
            f"is for the type {other}, and this one is {kind}",
            "Leave it out, or change type",
        )
    _check_hosts(entry, findings, at, site)
    for index, option in enumerate(entry["options"]):
        path, name = (*at, "options", index), option.partition("=")[0]
        if name in _BY_KEY[kind]:
            key = _BY_KEY[kind][name]
            problem = f"{name!r} is set by {dotted((*at, kind, key))}"
            findings.add("storage.option_is_key", path, problem, f"Write {key} instead", name)
        elif name in _NEVER:
            problem = f"{name!r} is not allowed: {_NEVER[name]}"
            findings.add("storage.option_never", path, problem, "Leave it out", name)
    if entry["serve"] is not None:
        _check_served(entry, findings, at, site)
    if site is not None and site.addresses is not None:
        doubts = Findings() if site.doubts is None else site.doubts
        _check_addresses(entry, findings, doubts, at, site.addresses)


def _check_addresses(
    entry: Value, findings: Findings, doubts: Findings, at: Path, addresses: Addresses
) -> None:
    host = (entry["serve"] or {}).get("host", "")
    for written in re.finditer(_ADDRESS, entry["source"].rpartition(":/")[0]):
        address = int(IPv4Address(written[0]))
        looks = ((findings, addresses.problem), (doubts, addresses.doubt))
        for found, look in looks:
            problem = look(address, host)
            if problem:
                problem = f"{written[0]} {problem}"
                remedy = f"Write an address or a name of {host or 'the server'}"
                found.add("storage.source_address", (*at, "source"), problem, remedy, written[0])
    linked = host in addresses.nodes.values() or addresses.links.get(host)
    if host in addresses.hosts and not linked and _way(entry)[2] == RDMA:
        problem = f"rdma goes over links to leaves, and {host} has none"
        remedy, path = "Describe its cables under storage.links, or write tcp", (*at, "nfs")
        doubts.add("storage.served_without_link", (*path, "transport"), problem, remedy, host)


def _system_directory(path: str) -> Optional[str]:
    """The directory of the system that a path is, or is in."""
    if within(path, "/usr/local/") and path.split("/")[3] not in _OF_USR_LOCAL:
        return None
    return next((directory for directory in _OF_THE_SYSTEM if within(path, directory)), None)


def _check_hosts(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    known = [group for group in site.groups if group not in _WITHOUT_MOUNTS] if site else None
    for index, group in enumerate(entry["hosts"]):
        if group in _WITHOUT_MOUNTS or (known is not None and group not in known):
            findings.add(
                "storage.unknown_group",
                (*at, "hosts", index),
                f"{group!r} is not a group of hosts that mount file systems",
                nearest(group, known or ()),
                group,
            )
    without = [group for group in entry["hosts"] if group in _WITHOUT_RAILS]
    if without and (entry["nfs"] or {}).get("transport") == RDMA:
        findings.add(
            "storage.groups_without_rails",
            (*at, "hosts"),
            f"{some(without)} has no rails, and {dotted((*at, 'nfs', 'transport'))} is rdma",
            "Write hosts: [compute], or transport: tcp",
            tuple(without),
        )


def _check_served(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    server, serve, path = entry["source"].rpartition(":/")[0], entry["serve"], (*at, "serve")
    if entry["type"] == LUSTRE:
        findings.add(
            "storage.lustre_not_served",
            path,
            "the collection sets up no servers of Lustre",
            "Leave it out, and name their NIDs in source",
        )
        return
    directory = _directory(entry)
    plain = re.fullmatch(PLAIN_PATH, directory) is not None
    if not plain or directory in _SHARED_BY_MANY or _system_directory(directory):
        findings.add(
            "storage.served_directory",
            (*at, "source"),
            f"{directory!r} is a directory of the system, or not plain: it is created with the "
            "owner and mode of the file system",
            "Serve a directory of its own, such as /srv/checkpoints",
            directory,
        )
    if serve["format"] and not serve["device"]:
        findings.add(
            "storage.format_without_device",
            (*path, "format"),
            f"{serve['format']!r} without a device to format",
            "Write device, or leave it out",
            serve["format"],
        )
    if site is not None and serve["host"] not in site.hosts:
        findings.add(
            "storage.unknown_host",
            (*path, "host"),
            f"unknown host {serve['host']!r}",
            nearest(serve["host"], sorted(site.hosts)),
            serve["host"],
        )
    elif site is not None and server in site.hosts and server != serve["host"]:
        findings.add(
            "storage.source_of_other_host",
            (*at, "source"),
            f"it begins with {server!r}, and {dotted((*path, 'host'))} is {serve['host']!r}",
            "Write one and the same host",
            (server, serve["host"]),
        )


# Beside each other


def _check_together(entries: Placed, findings: Findings) -> None:
    served = [(at, entry) for at, entry in entries if entry["serve"] is not None]
    for (other, before), (at, entry) in combinations(entries, 2):
        place = findings.place(other)
        if entry["name"] == before["name"]:
            findings.add(
                "storage.name_twice",
                (*at, "name"),
                f"{entry['name']!r} is also the name of {place}",
                "Rename one of them",
                entry["name"],
            )
        if entry["purpose"] == before["purpose"] == CHECKPOINTS:
            findings.add(
                "storage.checkpoints_twice",
                (*at, "purpose"),
                f"checkpoints are also the purpose of {place}, and jobs know one",
                "Write scratch for the other one",
            )
        if overlap(entry["mount"], before["mount"]):
            findings.add(
                "storage.mounts_overlap",
                (*at, "mount"),
                f"{entry['mount']!r} overlaps {before['mount']!r} of {place}: one would hide the "
                "other",
                "Mount them beside each other",
                (entry["mount"], before["mount"]),
            )
        (server, version, transport), way = _way(entry), _way(before)
        if (
            (server, version) == way[:2]
            and version not in ("", "3")
            and transport != way[2]
            and set(entry["hosts"]) & set(before["hosts"])
        ):
            findings.add(
                "storage.transports_of_one_server",
                (*at, "nfs", "transport"),
                f"{transport!r}, and {place} has {way[2]!r} to {server} by the same version: "
                "the kernel shares one connection",
                "Write another nfs.version for one of them, or the same transport",
                (transport, way[2]),
            )
    for (other, before), (at, entry) in combinations(served, 2):
        host, place = entry["serve"]["host"], findings.place(other)
        if host != before["serve"]["host"]:
            continue
        device = entry["serve"]["device"]
        if device and device == before["serve"]["device"]:
            findings.add(
                "storage.device_twice",
                (*at, "serve", "device"),
                f"{device!r} of {host} is also that of {place}",
                "Give each file system its own",
                device,
            )
        directory, first = _directory(entry), _directory(before)
        if overlap(directory, first):
            findings.add(
                "storage.served_overlap",
                (*at, "source"),
                f"{directory!r} overlaps {first!r} of {place} on {host}: each has its own owner, "
                "space and exports",
                "Serve directories beside each other",
                (directory, first),
            )
    for at, entry in entries:
        for other, before in served:
            # A file system may be mounted at the path that it has on its server.
            mount, directory = entry["mount"], _directory(before)
            if overlap(mount, directory) and not (at == other and mount == directory):
                findings.add(
                    "storage.mount_hides_served",
                    (*at, "mount"),
                    f"{mount!r} overlaps {directory!r}, which {before['serve']['host']} serves for "
                    f"{findings.place(other)}: a mount there would hide what is served",
                    "Mount it elsewhere, such as in /mnt",
                    (mount, directory),
                )


def _way(entry: Value) -> tuple[str, str, str]:
    """Server, version and transport of NFS. From version 4 on, mounts share a connection."""
    nfs = entry["nfs"] if entry["type"] == NFS else {"version": ""}
    server = (entry["serve"] or {}).get("host") or entry["source"].rpartition(":/")[0]
    return str(server), (nfs or {}).get("version", "4.2"), (nfs or {}).get("transport", TCP)


def _directory(entry: Value) -> str:
    return "/" + str(entry["source"]).rpartition(":/")[2]
