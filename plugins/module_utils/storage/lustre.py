# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The client of Lustre: sources of mounts, the variable `shared_storage_lustre`, and the kernel.

A source is `nid[,nid][:nid[,nid]]:/fsname[/subdirectory]`: a colon stands between servers that can
take over from one another, a comma between several NIDs of one server (mount.lustre(8)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner
from ..core.mounts import read as read_mounts
from ..core.part import Node
from .file_system import LUSTRE, FileSystem

TCP, O2IB = "tcp", "o2ib"
CLIENT = "lustre_client"
PROGRAMS = ("lnetctl", "lctl", "lfs", "mount.lustre")
ALIKE = ("lustre", "lustre_tgt")
"""What mountinfo calls clients, and targets of a server."""


def kind(net: str) -> str:
    """`o2ib` of `o2ib2`."""
    return net.rstrip("0123456789")


def read_net(text: str) -> str:
    """The network in LNet's own spelling, in which the number 0 is left out."""
    number = int(text[len(kind(text)) :] or 0)
    return f"{kind(text)}{number or ''}"


def read_nid(text: str) -> str:
    """A NID in LNet's own spelling: `10.0.0.1@o2ib`, never `10.0.0.1@o2ib0`."""
    address, _at, net = text.partition("@")
    return f"{address}@{read_net(net)}"


def net_of(nid: str) -> str:
    return nid.partition("@")[2]


@dataclass(frozen=True)
class LustreSource:
    """Where a file system is mounted from. `str` spells it as the kernel does."""

    servers: tuple[tuple[str, ...], ...]
    """Of the management service (MGS): one tuple of NIDs per server that it may run on."""
    name: str
    """Of the file system, at most eight characters."""
    directory: str = ""
    """Below its top, with a slash in front; empty for the top."""

    @property
    def nids(self) -> set[str]:
        """Of the management service."""
        return {nid for server in self.servers for nid in server}

    def __str__(self) -> str:
        return f"{':'.join(map(','.join, self.servers))}:/{self.name}{self.directory}"


def read_source(text: str) -> LustreSource:
    """Any text is read: the kernel's table may hold sources that the model refuses."""
    servers, _sign, path = text.partition(":/")
    name, _slash, below = path.partition("/")
    return LustreSource(
        tuple(tuple(map(read_nid, server.split(","))) for server in servers.split(":")),
        name,
        "".join(f"/{part}" for part in below.split("/") if part),
    )


# The variable `shared_storage_lustre`, which the controller has checked and filled in

DKMS, PREBUILT, PRESENT = "dkms", "prebuilt", "present"
TUNABLES = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
"""As lnetctl names and orders them."""
DRIVER_TUNABLES = ("conns_per_peer",)


@dataclass(frozen=True)
class LnetNetwork:
    """One network of LNet. What is in neither table is left to the driver."""

    net: str
    """In LNet's spelling: `o2ib`, not `o2ib0`."""
    interfaces: tuple[str, ...] = ()
    """Of this host, in order; several are multi-rail."""
    tunables: Mapping[str, int] = field(default_factory=dict)
    driver_tunables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LustrePackages:
    method: str = PRESENT
    version: str = ""
    repository: Optional[Mapping[str, Any]] = None
    names: Sequence[str] = ()
    """Instead of those of the catalogue."""


@dataclass(frozen=True)
class LustreSettings:
    networks: tuple[LnetNetwork, ...] = ()
    discovery: bool = True
    """Whether nodes exchange all their interfaces, which is what multi-rail needs."""
    routes: tuple[tuple[str, str], ...] = ()
    """Each network that this host is not in, with its router."""
    packages: LustrePackages = field(default_factory=LustrePackages)
    modprobe: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kernel module to its options."""
    time_limit_s: int = 30
    """Of each look at what may hang."""

    @property
    def interfaces(self) -> set[str]:
        return {name for network in self.networks for name in network.interfaces}


def read_settings(
    value: Mapping[str, Any],
    rails: Sequence[Mapping[str, Any]] = (),
    filesystems: Sequence[FileSystem] = (),
) -> LustreSettings:
    """Settings of this host; {} are the defaults. `rails` as `cluster_rails`; `filesystems` those
    that this host mounts, of any type."""
    entries = value.get("networks")
    if entries is None:
        # The servers of a file system are in the network of the first one's first NID, as a rule.
        sources = [read_source(fs.source) for fs in filesystems if fs.type == LUSTRE]
        # Another one is reached by a router, which is in a network of this host.
        routes = value.get("routes", ())
        routed = {read_net(each["net"]) for each in routes}
        nids = [source.servers[0][0] for source in sources]
        nids += [read_nid(each["gateway"]) for each in routes]
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


# The kernel


@dataclass(frozen=True)
class LustreKernel:
    """Where the kernel's side of Lustre is read: this machine, or a stand-in for it.

    `root` holds sys, and proc/self/mountinfo. `look` is what has the time limit of one look.
    """

    root: Path
    look: Runner
    simulated: bool = False

    def missing(self, node: Node) -> str:
        """Why nothing of it can hold here; empty where it can."""
        if node.container is None or self.simulated:
            return ""
        return node.not_here("Lustre and LNet are modules of the host's kernel")

    def points(self) -> list[str]:
        """Where Lustre is mounted, also by hand."""
        return [each.point for each in read_mounts(self.root) if each.kind in ALIKE]

    def module(self, name: str) -> Path:
        return self.root / "sys/module" / name

    @property
    def has_lnet(self) -> bool:
        return self.module("lnet").exists()

    def lacking(self, settings: LustreSettings) -> Iterator[str]:
        """Interfaces that LNet cannot use, one line each."""
        ports = (self.root / "sys/class/infiniband").glob("*/ports/*/gid_attrs/ndevs/*")
        rdma = {read_text(path) for path in ports}
        for network in settings.networks:
            place = f"shared_storage_lustre.networks: {network.net}"
            if not network.interfaces:
                yield f"{place}: no interface of this host is named, and it has no rails"
            for name in network.interfaces:
                if not (self.root / "sys/class/net" / name).exists():
                    yield f"{place}: {name} is not an interface of this host; see --tags rails"
                elif kind(network.net) == O2IB and name not in rdma:
                    yield f"{place}: {name} has no RDMA device; see --tags rdma,rails"


def read_text(path: Path) -> Optional[str]:
    """Of a file in sys; None where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def lacking_programs(node: Node) -> str:
    """Programs of the client that are not there; empty where all are."""
    places = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
    there = {name for name in PROGRAMS for at in places if node.path(f"{at}/{name}").exists()}
    missing = [name for name in PROGRAMS if name not in there]
    return f"no {', '.join(missing)}" if missing else ""
