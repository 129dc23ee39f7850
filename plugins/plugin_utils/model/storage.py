# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules for file systems: keys that require or exclude each other, and overlapping names, paths and
devices.
"""

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
from .addresses import HostAddresses
from .storage_keys import PLAIN_PATH

_WITHOUT_MOUNTS = ("all", "leaf", "spine", "ungrouped")
"""Groups that contain switches, or no hosts."""
_WITHOUT_RAILS = ("launcher",)

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ADDRESS = rf"(?<![\w.-]){_OCTET}(\.{_OCTET}){{3}}(?![\w.-])"
_HOST = rf"({_ADDRESS}|(?![0-9.]+:|-)[A-Za-z0-9-]{{1,63}}(\.[A-Za-z0-9-]{{1,63}})*)"
_NID = rf"{_ADDRESS}@(tcp|o2ib)[0-9]{{0,3}}"
"""Only addresses are allowed, as the kernel reports them, whatever name a source has."""
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
"""No mount is allowed over these or below them."""
_OF_USR_LOCAL = (
    *("bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"),
)
"""Directories in /usr/local that the distribution creates; others belong to the operator."""
_SHARED_BY_MANY = ("/home", "/media", "/mnt", "/opt", "/srv")
"""Parent directories of unrelated data, whose owner must not change."""

_BY_KEY = {
    NFS: {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        **{"port": "port", "nconnect": "connections"},
    },
    LUSTRE: dict.fromkeys(("flock", "localflock", "noflock"), "flock"),
}
"""Options set by a key in the section of the type."""
_LOST = "a slow server causes I/O errors, and data written by jobs is lost"
_LOCKS = "other nodes would not see the locks of a node"
_NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    **dict.fromkeys(("nolock", "local_lock"), _LOCKS),
    "bg": "a background mount is reported before it exists",
}
"""Options that are never allowed, and the reason."""

Value = dict[str, Any]
PlacedEntry = tuple[Path, Value]
"""An entry with its path in the model."""
Placed = list[PlacedEntry]


@dataclass(frozen=True)
class Site:
    """Groups, hosts and addresses of the cluster."""

    groups: tuple[str, ...]
    hosts: Collection[str]
    """Nodes, launcher and storage hosts, by name."""
    addresses: Optional[HostAddresses] = None
    doubts: Optional[Findings] = None
    """Receives problems that may have an explanation in a network outside the model."""


def read_filesystems(
    checked: Sequence[Value], findings: Findings, path: Path, site: Optional[Site]
) -> tuple[FileSystem, ...]:
    """The file systems described by a value that has passed FILE_SYSTEMS.check.

    `site`: None if the rest of the model has errors; groups and hosts are then not checked.
    """
    entries: Placed = [((*path, index), entry) for index, entry in enumerate(checked)]
    for at, entry in entries:
        _check_one(entry, findings, at, site)
    _check_pairs(entries, findings)
    return tuple(of_variable(entry) for _at, entry in entries)


def _check_one(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    kind, mount = entry["type"], entry["mount"]
    system = _system_directory(mount)
    if system or mount == "/opt" or (mount == "/home" and entry["purpose"] != HOME):
        findings.add(
            "storage.mount_in_system",
            (*at, "mount"),
            f"{mount!r} would hide {system or mount}, a directory of the system",
            "Mount it in /mnt, for example; /home needs purpose: home",
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
            f"belongs to type {other}, but the type is {kind}",
            "Remove it, or change type",
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
            findings.add("storage.option_never", path, problem, "Remove it", name)
    if entry["serve"] is not None:
        _check_served(entry, findings, at, site)
    if site is not None and site.addresses is not None:
        doubts = Findings() if site.doubts is None else site.doubts
        _check_addresses(entry, findings, doubts, at, site.addresses)


def _check_addresses(
    entry: Value, findings: Findings, doubts: Findings, at: Path, addresses: HostAddresses
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
    if host in addresses.hosts and not linked and _route(entry)[2] == RDMA:
        problem = f"RDMA needs links to leaves, and {host} has none"
        remedy, path = "Describe its cables under storage.links, or write tcp", (*at, "nfs")
        doubts.add("storage.served_without_link", (*path, "transport"), problem, remedy, host)


def _system_directory(path: str) -> Optional[str]:
    """The system directory that contains a path, if any."""
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
                f"{group!r} is not a group whose hosts mount file systems",
                nearest(group, known or ()),
                group,
            )
    without = [group for group in entry["hosts"] if group in _WITHOUT_RAILS]
    if without and (entry["nfs"] or {}).get("transport") == RDMA:
        findings.add(
            "storage.groups_without_rails",
            (*at, "hosts"),
            f"{some(without)} has no rails, but {dotted((*at, 'nfs', 'transport'))} is rdma",
            "Write hosts: [compute], or transport: tcp",
            tuple(without),
        )


def _check_served(entry: Value, findings: Findings, at: Path, site: Optional[Site]) -> None:
    server, serve, path = entry["source"].rpartition(":/")[0], entry["serve"], (*at, "serve")
    if entry["type"] == LUSTRE:
        findings.add(
            "storage.lustre_not_served",
            path,
            "this collection does not set up Lustre servers",
            "Remove it, and write their NIDs in source",
        )
        return
    directory = _directory(entry)
    plain = re.fullmatch(PLAIN_PATH, directory) is not None
    if not plain or directory in _SHARED_BY_MANY or _system_directory(directory):
        findings.add(
            "storage.served_directory",
            (*at, "source"),
            f"{directory!r} is a system directory or has special characters; its owner and mode "
            "would change",
            "Serve a separate directory, such as /srv/checkpoints",
            directory,
        )
    if serve["format"] and not serve["device"]:
        findings.add(
            "storage.format_without_device",
            (*path, "format"),
            f"{serve['format']!r} has no device to format",
            "Write device, or remove it",
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
            f"it begins with {server!r}, but {dotted((*path, 'host'))} is {serve['host']!r}",
            "Write the same host",
            (server, serve["host"]),
        )


# Rules for pairs of file systems


def _check_pairs(entries: Placed, findings: Findings) -> None:
    """Every rule for two file systems; each reports the later one."""
    for first, second in combinations(entries, 2):
        for rule in PAIR_RULES:
            rule(first, second, findings)
    served = [(path, entry) for path, entry in entries if entry["serve"] is not None]
    for first, second in combinations(served, 2):
        if first[1]["serve"]["host"] == second[1]["serve"]["host"]:
            for rule in SERVER_RULES:
                rule(first, second, findings)
    for entry in entries:
        for other in served:
            _check_mount_over_served(other, entry, findings)


def _check_name(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    (path, entry), name = second, second[1]["name"]
    if entry["name"] == first[1]["name"]:
        problem = f"{name!r} is also the name of {findings.place(first[0])}"
        findings.add("storage.name_twice", (*path, "name"), problem, "Rename one of them", name)


def _check_purpose(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    if first[1]["purpose"] == second[1]["purpose"] == CHECKPOINTS:
        findings.add(
            "storage.checkpoints_twice",
            (*second[0], "purpose"),
            f"{findings.place(first[0])} is also for checkpoints, and jobs use only one",
            "Write scratch for one of them",
        )


def _check_mounts(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    (path, entry), other = second, first[1]["mount"]
    if overlap(entry["mount"], other):
        findings.add(
            "storage.mounts_overlap",
            (*path, "mount"),
            f"{entry['mount']!r} overlaps {other!r} of {findings.place(first[0])}: one would hide "
            "the other",
            "Mount them in separate directories",
            (entry["mount"], other),
        )


def _check_transport(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    (path, entry), other = second, first[1]
    (server, version, transport), route = _route(entry), _route(other)
    if (
        (server, version) == route[:2]
        and version not in ("", "3")
        and transport != route[2]
        and set(entry["hosts"]) & set(other["hosts"])
    ):
        findings.add(
            "storage.transports_of_one_server",
            (*path, "nfs", "transport"),
            f"{transport!r}, but {findings.place(first[0])} uses {route[2]!r} to {server} with the "
            "same version, and the kernel shares one connection",
            "Use the same transport, or another nfs.version for one of them",
            (transport, route[2]),
        )


def _check_device(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    (path, entry), device = second, second[1]["serve"]["device"]
    if device and device == first[1]["serve"]["device"]:
        findings.add(
            "storage.device_twice",
            (*path, "serve", "device"),
            f"{device!r} of {entry['serve']['host']} is also used by {findings.place(first[0])}",
            "Use a separate device for each file system",
            device,
        )


def _check_directory(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    path, entry = second
    directory, other = _directory(entry), _directory(first[1])
    if overlap(directory, other):
        findings.add(
            "storage.served_overlap",
            (*path, "source"),
            f"{directory!r} overlaps {other!r} of {findings.place(first[0])} on "
            f"{entry['serve']['host']}, but owner, space and exports are separate",
            "Serve separate directories",
            (directory, other),
        )


def _check_mount_over_served(served: PlacedEntry, mounted: PlacedEntry, findings: Findings) -> None:
    """A file system may only be mounted over its own directory on its server."""
    (path, entry), directory = mounted, _directory(served[1])
    mount = entry["mount"]
    if overlap(mount, directory) and not (path == served[0] and mount == directory):
        findings.add(
            "storage.mount_hides_served",
            (*path, "mount"),
            f"{mount!r} overlaps {directory!r}, which {served[1]['serve']['host']} serves for "
            f"{findings.place(served[0])}: the mount would hide it",
            "Mount it elsewhere, such as in /mnt",
            (mount, directory),
        )


PAIR_RULES = (_check_name, _check_purpose, _check_mounts, _check_transport)
SERVER_RULES = (_check_device, _check_directory)
"""For two file systems that one host serves."""


def _route(entry: Value) -> tuple[str, str, str]:
    """Server, version and transport of NFS. Since version 4, mounts share a connection."""
    nfs = entry["nfs"] if entry["type"] == NFS else {"version": ""}
    server = (entry["serve"] or {}).get("host") or entry["source"].rpartition(":/")[0]
    return str(server), (nfs or {}).get("version", "4.2"), (nfs or {}).get("transport", TCP)


def _directory(entry: Value) -> str:
    return "/" + str(entry["source"]).rpartition(":/")[2]
