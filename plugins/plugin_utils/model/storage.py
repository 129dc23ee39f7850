# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules for file systems: keys that require or exclude each other, and overlapping names, paths and
devices.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
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
_WITHOUT_RAILS = "launcher"

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
_PRODUCTS = {**dict.fromkeys(("vast", "vastnfs"), NFS), "exascaler": LUSTRE}
"""Products whose file systems are mounted as a type."""
_OTHER_SOURCE = (
    re.compile(r"[A-Za-z0-9._:/@,+=~\[\]-]+"),
    "what its client mounts, such as backend01/scratch",
)

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
_READ_ONLY = "ro"
_NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    **dict.fromkeys(("nolock", "local_lock"), _LOCKS),
}
"""Options that are never allowed, and the reason."""
_MOST_CONNECTIONS = 16
"""NFS_MAX_CONNECTIONS in the kernel's fs/nfs/fs_context.c. VAST's client has 64 there."""
_OF_VAST = ("remoteports", "localports", "mdconnect", "pconnect", "spread_reads", "spread_writes")
"""Options that only VAST's client has (vastnfs.vastdata.com/docs/4.0/usage/mount-params.html,
kb.vastdata.com/kb/docs/7-vast-client-nfs-multipathing)."""

Value = dict[str, Any]
PlacedEntry = tuple[Path, Value]
"""An entry with its path in the model."""


@dataclass(frozen=True)
class Site:
    """Groups, hosts and addresses of the cluster."""

    groups: tuple[str, ...] = ()
    without_rails: frozenset[str] = frozenset()
    """Groups with a node without rails."""
    hosts: Collection[str] = ()
    """Nodes, launcher and storage hosts, by name."""
    addresses: Optional[HostAddresses] = None
    doubts: Findings = field(default_factory=Findings)
    """Receives problems that may have an explanation in a network outside the model."""


def read_filesystems(
    checked: Sequence[Value], findings: Findings, path: Path, site: Site
) -> tuple[FileSystem, ...]:
    """The file systems described by a value that has passed FILE_SYSTEMS.check."""
    entries = [((*path, index), entry) for index, entry in enumerate(checked)]
    for at, entry in entries:
        _check_one(entry, findings, at, site)
        if entry["serve"] is not None:
            _check_served(entry, findings, at, site)
        _check_addresses(entry, findings, at, site)
    _check_pairs(entries, findings)
    return tuple(of_variable(entry) for _at, entry in entries)


def _check_one(entry: Value, findings: Findings, at: Path, site: Site) -> None:
    kind, mount, source = entry["type"], entry["mount"], entry["source"]

    def _add(code: str, key: Path, problem: str, remedy: str, value: Any = None) -> None:
        findings.add(code, (*at, *key), problem, remedy, value)

    system = _system_directory(mount)
    if system or mount == "/opt" or (mount == "/home" and entry["purpose"] != HOME):
        problem = f"{mount!r} would hide {system or mount}, a directory of the system"
        remedy = "Mount it in /mnt, for example; /home needs purpose: home"
        _add("storage.mount_in_system", ("mount",), problem, remedy, mount)
    form, example = _SOURCES.get(kind, _OTHER_SOURCE)
    if entry["managed"] and kind not in _SOURCES:
        problem = f"{kind!r} has a client that this collection does not install"
        remedy = f"{nearest(kind, _SOURCES)}. If others mount it, write managed: false: then it is "
        remedy += "only verified"
        if kind in _PRODUCTS:
            problem, remedy = f"{kind!r} is a product", f"Its type is {_PRODUCTS[kind]}"
        _add("storage.type_of_others", ("type",), problem, remedy, kind)
    if not form.fullmatch(source):
        problem = f"{source!r} is not a source of {kind}"
        _add("storage.source", ("source",), problem, f"Write {example}", source)
    for other in (NFS, LUSTRE):
        if entry[other] is not None and other != kind:
            problem = f"belongs to type {other}, but the type is {kind}"
            _add("storage.section_of_other_type", (other,), problem, "Remove it, or change type")
    unused = [] if entry["managed"] else [key for key in (kind, "serve") if entry.get(key)]
    if not entry["managed"] and entry["options"] not in ([], [_READ_ONLY]):
        unused.append("options")
    for key in unused:
        problem = f"has no effect with {dotted((*at, 'managed'))}: false"
        remedy = f"Remove one of them, or all options but {_READ_ONLY}"
        remedy = remedy if key == "options" else "Remove one of them"
        _add("storage.of_managed", (key,), problem, remedy)
    connections = (entry[NFS] or {}).get("connections", 1)
    names = {option.partition("=")[0] for option in entry["options"]}
    if connections > _MOST_CONNECTIONS and not names.intersection(_OF_VAST):
        problem = f"{connections} is above {_MOST_CONNECTIONS}, the limit of the kernel's client"
        remedy = f"Write {_MOST_CONNECTIONS} or fewer. With VAST's client, also write one of its "
        remedy += f"options: {', '.join(_OF_VAST)}"
        _add("storage.connections", (NFS, "connections"), problem, remedy, connections)
    known = [group for group in site.groups if group not in _WITHOUT_MOUNTS]
    for index, group in enumerate(entry["hosts"]):
        if site.groups and group not in known:
            problem = f"{group!r} is not a group whose hosts mount file systems"
            _add("storage.unknown_group", ("hosts", index), problem, nearest(group, known), group)
    lacking = {_WITHOUT_RAILS, *site.without_rails}
    without = tuple(group for group in entry["hosts"] if group in lacking)
    if without and (entry["nfs"] or {}).get("transport") == RDMA:
        problem = f"{some(without)} has hosts without rails, but "
        problem += f"{dotted((*at, 'nfs', 'transport'))} is rdma"
        others = [each for each in known if each.startswith("kind_") and each not in lacking]
        remedy = f"Write hosts: [{', '.join(others or ['compute'])}], or transport: tcp"
        _add("storage.groups_without_rails", ("hosts",), problem, remedy, without)
    for index, option in enumerate(entry["options"]):
        path, name = ("options", index), option.partition("=")[0]
        if not entry["managed"]:
            break
        if name in _BY_KEY.get(kind, ()):
            key = _BY_KEY[kind][name]
            problem = f"{name!r} is set by {dotted((*at, kind, key))}"
            _add("storage.option_is_key", path, problem, f"Write {key} instead", name)
        elif name in _NEVER:
            problem = f"{name!r} is not allowed: {_NEVER[name]}"
            _add("storage.option_never", path, problem, "Remove it", name)


def _check_served(entry: Value, findings: Findings, at: Path, site: Site) -> None:
    def _add(code: str, key: Path, problem: str, remedy: str, value: Any = None) -> None:
        findings.add(code, (*at, *key), problem, remedy, value)

    if entry["type"] == LUSTRE:
        remedy = "Remove it, and write their NIDs in source"
        _add("storage.lustre_not_served", ("serve",), "Lustre servers are not set up", remedy)
        return
    server, host, directory = _server(entry), entry["serve"]["host"], _directory(entry)
    plain = re.fullmatch(PLAIN_PATH, directory) is not None
    if not plain or directory in _SHARED_BY_MANY or _system_directory(directory):
        problem = f"{directory!r} is of the system, whose owner must not change, or is not plain"
        remedy = "Serve a separate directory, such as /srv/checkpoints"
        _add("storage.served_directory", ("source",), problem, remedy, directory)
    if (made := entry["serve"]["format"]) and not entry["serve"]["device"]:
        problem, remedy = f"{made!r} has no device to format", "Write device, or remove it"
        _add("storage.format_without_device", ("serve", "format"), problem, remedy, made)
    if site.hosts and host not in site.hosts:
        remedy = nearest(host, sorted(site.hosts))
        _add("storage.unknown_host", ("serve", "host"), f"unknown host {host!r}", remedy, host)
    elif server in site.hosts and server != host:
        problem = f"begins with {server!r}, but {dotted((*at, 'serve', 'host'))} is {host!r}"
        value = (server, host)
        _add("storage.source_of_other_host", ("source",), problem, "Write the same host", value)


def _check_addresses(entry: Value, findings: Findings, at: Path, site: Site) -> None:
    host, addresses = (entry["serve"] or {}).get("host", ""), site.addresses
    if addresses is None:
        return
    server = _server(entry) if entry["type"] in _SOURCES else str(entry["source"])
    texts = [((*at, "source"), server)]
    for index, option in enumerate(entry["options"]):
        if option.startswith("remoteports="):
            texts.append(((*at, "options", index), option.replace("-", " ")))  # a range
    for path, text in texts:
        for written in re.finditer(_ADDRESS, text):
            for found, look in ((findings, addresses.problem), (site.doubts, addresses.doubt)):
                if problem := look(int(IPv4Address(written[0])), host):
                    remedy = f"Write an address or a name of {host or 'the server'}"
                    problem = f"{written[0]} {problem}"
                    found.add("storage.source_address", path, problem, remedy, written[0])
    owner = "" if host else addresses.owner_of_name(server)
    if owner:
        of_switch = owner in addresses.switches
        problem = f"{server} is a {'switch' if of_switch else 'node, and serve.host is missing'}"
        remedy = f"Write the name of the server{'' if of_switch else ', or serve'}"
        findings.add("storage.source_name", (*at, "source"), problem, remedy, server)
    known = (*addresses.nodes.values(), *addresses.further.values())
    linked = host in known or addresses.links.get(host)
    if host in addresses.hosts and not linked and _route(entry)[2] == RDMA:
        problem = f"RDMA needs links to leaves, and {host} has none"
        remedy, path = "Describe its cables under storage.links, or write tcp", (*at, "nfs")
        site.doubts.add("storage.served_without_link", (*path, "transport"), problem, remedy, host)


def _system_directory(path: str) -> Optional[str]:
    """The system directory that contains a path, if any."""
    if within(path, "/usr/local/") and path.split("/")[3] not in _OF_USR_LOCAL:
        return None
    return next((directory for directory in _OF_THE_SYSTEM if within(path, directory)), None)


# Rules for pairs of file systems


def _check_pairs(entries: Sequence[PlacedEntry], findings: Findings) -> None:
    """Every rule for two file systems; each reports the later one."""
    for first, second in combinations(entries, 2):
        _check_pair(first, second, findings)
    served = [(path, entry) for path, entry in entries if entry["serve"] is not None]
    for path, entry in entries:
        for other_path, other in served:
            mount, directory = entry["mount"], _directory(other)
            # A server may mount a file system at its served directory, but not elsewhere over it.
            if overlap(mount, directory) and not (path == other_path and mount == directory):
                findings.add(
                    "storage.mount_hides_served",
                    (*path, "mount"),
                    f"{mount!r} would hide {directory!r}, which {other['serve']['host']} serves "
                    f"for {findings.place(other_path)}",
                    "Mount it elsewhere, such as in /mnt",
                    (mount, directory),
                )


def _check_pair(first: PlacedEntry, second: PlacedEntry, findings: Findings) -> None:
    (first_path, other), (path, entry) = first, second
    place = findings.place(first_path)

    def _add(code: str, key: Path, problem: str, remedy: str, value: Any = None) -> None:
        findings.add(code, (*path, *key), f"{problem} {place}", remedy, value)

    if (name := entry["name"]) == other["name"]:
        problem = f"{name!r} is also the name of"
        _add("storage.name_twice", ("name",), problem, "Rename one of them", name)
    if entry["purpose"] == other["purpose"] == CHECKPOINTS:
        problem, remedy = "jobs use only one for checkpoints:", "Write scratch for one of them"
        _add("storage.checkpoints_twice", ("purpose",), problem, remedy)
    mounts = (entry["mount"], other["mount"])
    if overlap(*mounts):
        problem, remedy = (
            f"{mounts[0]!r} overlaps {mounts[1]!r} of",
            "Mount them in separate directories",
        )
        _add("storage.mounts_overlap", ("mount",), problem, remedy, mounts)
    # Since version 4, mounts from one server share a connection.
    (server, version, transport), route = _route(entry), _route(other)
    shared = (server, version) == route[:2] and version not in ("", "3")
    if shared and transport != route[2] and set(entry["hosts"]) & set(other["hosts"]):
        problem = f"{transport!r}, but the kernel shares the connection with {route[2]!r} of"
        remedy = "Use the same transport, or another nfs.version for one of them"
        key, value = ("nfs", "transport"), (transport, route[2])
        _add("storage.transports_of_one_server", key, problem, remedy, value)
    serve, other_serve = entry["serve"], other["serve"]
    if serve is None or other_serve is None:
        return
    if serve["host"] != other_serve["host"]:
        if (address := _server(entry)) == _server(other):
            problem = f"{serve['host']} and {other_serve['host']} both serve at {address!r}:"
            remedy, value = "Give each server a separate address", (address, other_serve["host"])
            _add("storage.servers_share_address", ("source",), problem, remedy, value)
        return
    if (device := serve["device"]) and device == other_serve["device"]:
        problem, remedy = f"{device!r} is also used by", "Use a separate device for each"
        _add("storage.device_twice", ("serve", "device"), problem, remedy, device)
    directories = (_directory(entry), _directory(other))
    if overlap(*directories):
        problem = f"{directories[0]!r} overlaps {directories[1]!r} of"
        remedy = "Serve separate directories: owner, space and exports are separate"
        _add("storage.served_overlap", ("source",), problem, remedy, directories)


def _route(entry: Value) -> tuple[str, str, str]:
    """Server, version and transport of NFS."""
    nfs = (entry["nfs"] or {}) if entry["type"] == NFS else {"version": ""}
    server = (entry["serve"] or {}).get("host") or _server(entry)
    return server, nfs.get("version", "4.2"), nfs.get("transport", TCP)


def _server(entry: Value) -> str:
    return str(entry["source"]).rpartition(":/")[0]


def _directory(entry: Value) -> str:
    return "/" + str(entry["source"]).rpartition(":/")[2]
