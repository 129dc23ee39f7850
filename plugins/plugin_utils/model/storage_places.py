# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sources, directories and options of file systems: what is written wrongly, and what is taken.

A path is written in unit names, unit files, exports and /proc, each of which has its own way for
blanks, percent signs and the like. What all of them write as it is, is allowed.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import Any, Optional

from ...module_utils.core.mounts import within
from ...module_utils.storage.file_system import CHECKPOINTS, LUSTRE, NFS, SCRATCH
from ...module_utils.storage.units import subject, unit_name
from ..schema.findings import Findings, Path, dotted
from ..schema.kinds import Wrong

FINE = "letters, digits, and . _ -"
OF_THE_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root"),
    *("/run", "/sbin", "/snap", "/sys", "/tmp", "/usr", "/var", "/opt/mellanox", "/opt/nvidia"),
)
"""Nothing is mounted over these, nor anywhere in them."""
OF_USR_LOCAL = (
    *("bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"),
)
"""What a distribution has in /usr/local; other directories there are the operator's."""
CLEANED = ("/tmp", "/var/tmp")
SHARED_BY_MANY = ("/home", "/media", "/mnt", "/opt", "/srv")
"""Directories for directories: mounted over or given an owner, all that is in them suffers."""

UNIT_NAME = 255
"""The longest name of a unit that systemd takes."""


def wrong_form(path: str, further: str = "") -> Optional[Wrong]:
    """What is wrong with how a directory is written. `further`: characters that are fine too."""
    fine = FINE + "".join(f" {character}" for character in further)
    if not path.startswith("/"):
        return Wrong(
            "storage.path_relative",
            f"{path!r} does not begin at the root",
            "Write all of the path, from / on",
        )
    for character in path:
        if not re.fullmatch(r"[A-Za-z0-9._/-]", character) and character not in further:
            return Wrong(
                "storage.path_character",
                f"{path!r} has {character!r} in it, which units, exports and /proc write "
                "differently",
                f"Use {fine}",
            )
    if ".." in path.split("/"):
        return Wrong(
            "storage.path_goes_up",
            f"{path!r} goes up by '..'",
            f"Write where it leads: {normal(path)}",
        )
    if path != normal(path):
        return Wrong(
            "storage.path_not_plain", f"{path!r} is not the plain path", f"Write {normal(path)}"
        )
    return None


def normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def wrong_mount(path: str) -> Optional[Wrong]:
    """Why nothing can be mounted there."""
    instead = "Mount it somewhere such as /mnt/checkpoints"
    if path == "/":
        return Wrong("storage.mount_on_root", "'/' is the root file system of the host", instead)
    if path == "/opt":
        return Wrong(
            "storage.mount_on_opt",
            "'/opt' would hide what packages have installed there",
            "Mount it below, at /opt/NAME",
        )
    taken = of_the_system(path)
    if taken is not None:
        return Wrong("storage.mount_in_system", taken, instead)
    length = len(unit_name(path, "automount"))
    if length > UNIT_NAME:
        return Wrong(
            "storage.mount_too_long",
            f"{path[:40]!r}... makes a unit name of {length} characters, and systemd takes "
            f"{UNIT_NAME}",
            "Write a shorter one; each - counts four times",
        )
    return None


def wrong_served(path: str) -> Optional[Wrong]:
    """Why nothing can be served from there."""
    wrong = wrong_form(path)
    if wrong is not None:
        return wrong
    instead = "Serve a directory of its own, such as /srv/checkpoints"
    if path == "/":
        return Wrong("storage.serves_root", "'/' would hand out the whole host", instead)
    if path in SHARED_BY_MANY:
        return Wrong(
            "storage.serves_shared",
            f"{path!r} would be given the owner and mode of this file system, with all else that "
            "is in it",
            instead,
        )
    taken = of_the_system(path)
    return None if taken is None else Wrong("storage.serves_system", taken, instead)


def of_the_system(path: str) -> Optional[str]:
    """`'/etc/x' is in /etc, ...`, where a path is the system's own."""
    for cleaned in CLEANED:
        if within(path, cleaned):
            return f"{path!r} is where the system deletes files that are old, on all hosts"
    if within(path, "/usr/local") and path != "/usr/local":
        top = path.split("/")[3]
        if top not in OF_USR_LOCAL:
            return None
    for directory in OF_THE_SYSTEM:
        if within(path, directory):
            where = "is" if path == directory else f"is in {directory},"
            return f"{path!r} {where} a directory of the system"
    return None


NFS_EXAMPLE = "Write server:/directory, such as storage01:/srv/checkpoints"
LUSTRE_EXAMPLE = "Write NIDs and the name, such as 10.0.0.5@o2ib:/scratch"
FURTHER = "+@=~"
"""Fine in a directory of a server that is not ours."""
_HOST = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?"
_NETWORK = r"(tcp|o2ib)(\d{1,3})?"


def wrong_nfs(source: str) -> Optional[Wrong]:
    """What is wrong with `server:/directory`."""
    if "://" in source:
        return Wrong("storage.source_is_url", f"{source!r} is a URL", NFS_EXAMPLE)
    if source.startswith("/"):
        return Wrong("storage.source_is_path", f"{source!r} names no server", NFS_EXAMPLE)
    server, sign, path = source.partition(":/")
    if re.fullmatch(r"[0-9A-Fa-f:.]+:", server + sign[:1]) and server.count(":") > 1:
        return Wrong(
            "storage.source_without_brackets",
            f"{server!r} is an IPv6 address without brackets",
            f"Write [{server}]:/{path}",
        )
    if not sign:
        if ":" in source:
            directory = source.partition(":")[2]
            return Wrong(
                "storage.source_relative",
                f"{source!r} has a directory that does not begin at the root",
                f"Write {source.partition(':')[0]}:/{directory}, if that is what is meant",
            )
        return Wrong(
            "storage.source_without_directory", f"{source!r} names no directory", NFS_EXAMPLE
        )
    return _wrong_server(source, server) or wrong_form("/" + path, FURTHER)


def _wrong_server(source: str, server: str) -> Optional[Wrong]:
    if not server:
        return Wrong("storage.source_without_server", f"{source!r} names no server", NFS_EXAMPLE)
    if "@" in server:
        return Wrong(
            "storage.source_with_user", f"{source!r} has a user or a NID in front", NFS_EXAMPLE
        )
    if server.startswith("[") and server.endswith("]"):
        try:
            ipaddress.IPv6Address(server[1:-1])
        except ValueError:
            return Wrong("storage.source_ipv6", f"{server!r} is not an IPv6 address", "Correct it")
        return None
    if re.fullmatch(r"[0-9.]+", server):
        try:
            ipaddress.IPv4Address(server)
        except ValueError:
            return Wrong("storage.source_ipv4", f"{server!r} is not an IPv4 address", "Correct it")
        return None
    if not re.fullmatch(_HOST, server):
        return Wrong(
            "storage.source_server",
            f"{server!r} is not the name or address of a server",
            NFS_EXAMPLE,
        )
    return None


def wrong_lustre(source: str) -> Optional[Wrong]:
    """What is wrong with `nid[,nid][:nid...]:/fsname[/directory]`."""
    servers, sign, path = source.partition(":/")
    if not sign or not servers or not path:
        return Wrong(
            "storage.source_not_lustre", f"{source!r} is not a source of Lustre", LUSTRE_EXAMPLE
        )
    networks = set()
    for nid in re.split(r"[,:]", servers):
        address, at, network = nid.partition("@")
        if not at:
            return Wrong(
                "storage.nid_without_network",
                f"{nid!r} has no network of LNet",
                f"Write {nid or '10.0.0.5'}@o2ib or @tcp",
            )
        if not re.fullmatch(_NETWORK, network):
            return Wrong(
                "storage.nid_network",
                f"{network!r} of {nid!r} is no network of LNet that is set up here",
                "Write o2ib or tcp, with or without a number",
            )
        if _wrong_server(source, address) is not None or "[" in address:
            return Wrong(
                "storage.nid_address",
                f"{address!r} of {nid!r} is not a name or IPv4 address",
                LUSTRE_EXAMPLE,
            )
        networks.add(network)
    name = path.partition("/")[0]
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,8}", name):
        return Wrong(
            "storage.lustre_name",
            f"{name!r} is no name of a Lustre file system",
            "Write the one that mkfs.lustre was given: letters, digits, _ and -, at most 8",
        )
    return wrong_form("/" + path)


_BY_KEY = {
    NFS: {
        **dict.fromkeys(("vers", "nfsvers", "minorversion"), "version"),
        **dict.fromkeys(("v2", "v3", "v4", "v4.0", "v4.1", "v4.2"), "version"),
        **dict.fromkeys(("proto", "tcp", "udp", "rdma"), "transport"),
        **{"port": "port", "nconnect": "connections"},
    },
    LUSTRE: dict.fromkeys(("flock", "localflock", "noflock"), "flock"),
}
"""Options that the section of the type says by a key."""
_LOST = "it ends in an error when the server is slow, and what a job has written is lost"
_LOCKS = "locks that one node takes would not be seen by the others"
_NEVER = {
    **dict.fromkeys(("soft", "softerr"), _LOST),
    **dict.fromkeys(("nolock", "local_lock"), _LOCKS),
    "bg": "a mount in the background is reported before it is there",
    "mgsname": "the kernel states it in place of the source",
    **dict.fromkeys(("remount", "bind", "rbind", "move"), "it is an action of mount(8)"),
}
"""Options that no file system gets, and why."""


def check_options(entry: Mapping[str, Any], findings: Findings, at: Path) -> None:
    """`entry` has a type, and options of which each is one word."""
    first: dict[str, str] = {}
    for index, option in enumerate(entry["options"]):
        path, name = (*at, "options", index), option.partition("=")[0]
        key = _BY_KEY[entry["type"]].get(name)
        if key is not None:
            findings.add(
                "storage.option_is_key",
                path,
                f"{option!r} is what {dotted((*at, entry['type'], key))} is for",
                f"Leave it out, and write {key}",
                value=option,
            )
        elif name in _NEVER:
            findings.add(
                "storage.option_never",
                path,
                f"{name!r} is not for these mounts: {_NEVER[name]}",
                "Leave it out",
                value=name,
            )
        elif name == "ro" and entry["purpose"] in (CHECKPOINTS, SCRATCH):
            findings.add(
                "storage.option_read_only",
                path,
                f"'ro' on a file system for {entry['purpose']}, which jobs write",
                "Leave it out, or change purpose",
            )
        said = subject(option)
        if said in first:
            # The names alone: what stands behind them may be a password.
            other = first[said].partition("=")[0]
            findings.add(
                "storage.option_twice",
                path,
                f"{name!r} {'is there twice' if other == name else f'contradicts {other!r}'}",
                "Keep one of them",
                value=(name, other),
            )
        first.setdefault(said, option)
