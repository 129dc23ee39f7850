# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The source of a file system: server and directory of NFS, NIDs and name of Lustre."""

from __future__ import annotations

import ipaddress
import re
from typing import Optional

from ..schema.kinds import Wrong
from .paths import wrong_form

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
