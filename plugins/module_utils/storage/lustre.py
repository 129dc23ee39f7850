# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Lustre client: sources of mounts, the variable `shared_storage_lustre`, kernel state.

In `nid[,nid][:nid[,nid]]:/fsname[/subdirectory]`, colons separate servers that can take over from
one another, commas the NIDs of one server (mount.lustre(8)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner
from ..core.mounts import read as read_mounts
from ..core.part import Node
from .file_system import LUSTRE, FileSystem

TCP, O2IB = "tcp", "o2ib"
PROGRAMS = ("lnetctl", "lctl", "lfs", "mount.lustre")
ALIKE = ("lustre", "lustre_tgt")
"""Types in mountinfo of clients and of a server's targets."""


def kind(net: str) -> str:
    """`o2ib` for `o2ib2`."""
    return net.rstrip("0123456789")


def read_net(text: str) -> str:
    """The network in LNet's spelling, which omits the number 0."""
    number = int(text[len(kind(text)) :] or 0)
    return f"{kind(text)}{number or ''}"


def read_nid(text: str) -> str:
    """A NID in LNet's spelling: `10.0.0.1@o2ib`, never `10.0.0.1@o2ib0`."""
    address, _at, net = text.partition("@")
    return f"{address}@{read_net(net)}"


def net_of(nid: str) -> str:
    return nid.partition("@")[2]


@dataclass(frozen=True)
class LustreSource:
    """The source of a mount. `str` gives the kernel's spelling."""

    servers: tuple[tuple[str, ...], ...]
    """Servers of the management service (MGS), each as a tuple of NIDs."""
    name: str
    """Name of the file system, at most eight characters."""
    directory: str = ""
    """Subdirectory with a leading slash; empty for the top directory."""

    @property
    def nids(self) -> set[str]:
        return {nid for server in self.servers for nid in server}

    def __str__(self) -> str:
        return f"{':'.join(map(','.join, self.servers))}:/{self.name}{self.directory}"


def read_source(text: str) -> LustreSource:
    """Parse any source, as the kernel may have sources that the model would refuse."""
    servers, _sign, path = text.partition(":/")
    name, _slash, below = path.partition("/")
    return LustreSource(
        tuple(tuple(map(read_nid, server.split(","))) for server in servers.split(":")),
        name,
        "".join(f"/{part}" for part in below.split("/") if part),
    )


# The variable `shared_storage_lustre`, validated and completed by the controller

DKMS, PREBUILT, PRESENT = "dkms", "prebuilt", "present"
TUNABLES = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
"""In the spelling and order of lnetctl."""
DRIVER_TUNABLES = ("conns_per_peer",)


@dataclass(frozen=True)
class LnetNetwork:
    """One network, in LNet's spelling. The driver chooses tunables that are not listed."""

    net: str
    interfaces: tuple[str, ...] = ()
    """Several mean multi-rail."""
    tunables: Mapping[str, int] = field(default_factory=dict)
    driver_tunables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LustrePackages:
    method: str = PRESENT
    version: str = ""
    repository: Optional[Mapping[str, Any]] = None
    names: Sequence[str] = ()


@dataclass(frozen=True)
class LustreSettings:
    networks: tuple[LnetNetwork, ...] = ()
    discovery: bool = True
    """Whether nodes exchange their interfaces, which multi-rail requires."""
    routes: tuple[tuple[str, str], ...] = ()
    """Routed networks and their routers."""
    packages: LustrePackages = field(default_factory=LustrePackages)
    modprobe: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Maps a kernel module to its options."""
    time_limit_s: int = 30


def read_settings(
    value: Mapping[str, Any],
    rails: Sequence[Mapping[str, Any]] = (),
    filesystems: Sequence[FileSystem] = (),
) -> LustreSettings:
    """Settings of this host, with defaults. `filesystems` are those that it mounts, of any type."""
    entries = value.get("networks")
    if entries is None:
        # A file system's servers are usually in the network of the first server's first NID.
        sources = [read_source(fs.source) for fs in filesystems if fs.type == LUSTRE]
        # Other networks are reached through a router in one of this host's networks.
        routes = value.get("routes", ())
        routed = {read_net(route["net"]) for route in routes}
        nids = [source.servers[0][0] for source in sources]
        nids += [read_nid(route["gateway"]) for route in routes]
        entries = [{"net": net} for net in dict.fromkeys(map(net_of, nids)) if net not in routed]
    names = tuple(str(rail["interface"]) for rail in rails)
    return LustreSettings(
        **{
            **value,
            "networks": tuple(_network(entry, names) for entry in entries),
            "routes": tuple(
                (read_net(x["net"]), read_nid(x["gateway"])) for x in value.get("routes", ())
            ),
            "packages": LustrePackages(**value.get("packages", {})),
        }
    )


def _network(entry: Mapping[str, Any], rails: tuple[str, ...]) -> LnetNetwork:
    names = entry.get("interfaces", "rails")
    return LnetNetwork(
        read_net(entry["net"]),
        rails if names == "rails" else tuple(names),
        {name: entry[name] for name in TUNABLES if entry.get(name)},
        {name: entry[name] for name in DRIVER_TUNABLES if entry.get(name)},
    )


@dataclass(frozen=True)
class LustreKernel:
    """The kernel's Lustre state below `root`, on this machine or from a stand-in."""

    root: Path
    look: Runner
    simulated: bool = False

    def missing(self, node: Node) -> str:
        """Why Lustre is not applicable here; empty if it is."""
        if node.container is None or self.simulated:
            return ""
        return node.not_here("Lustre and LNet are modules of the host's kernel")

    def points(self) -> list[str]:
        """Mount points of Lustre, including mounts made by hand."""
        return [mount.point for mount in read_mounts(self.root) if mount.kind in ALIKE]

    def module(self, name: str) -> Path:
        return self.root / "sys/module" / name

    @property
    def has_lnet(self) -> bool:
        return self.module("lnet").exists()


def read_text(path: Path) -> Optional[str]:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def lacking_programs(node: Node) -> str:
    """Missing programs of the client; empty if all are present."""
    directories = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    missing = [
        name
        for name in PROGRAMS
        if not any(node.path(f"{directory}/{name}").exists() for directory in directories)
    ]
    return f"no {', '.join(missing)}" if missing else ""
