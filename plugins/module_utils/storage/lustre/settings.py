# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a node is a client of Lustre, as one value: the variable `shared_storage_lustre`.

The controller has checked it and filled in its defaults (keys.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Optional

from ...core.dataclass import dataclass
from ..file_system import LUSTRE, FileSystem
from .source import O2IB, Nid, kind, read_net, read_nid, read_source

DKMS, PREBUILT, PRESENT = "dkms", "prebuilt", "present"
TUNABLES = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
"""As lnetctl names and orders them."""
DRIVER_TUNABLES = ("conns_per_peer",)


@dataclass(frozen=True)
class Network:
    """One network of LNet. What is in neither table is left to the driver."""

    net: str
    """In LNet's spelling: `o2ib`, not `o2ib0`."""
    interfaces: tuple[str, ...] = ()
    """Of this host, in order; several are multi-rail."""
    tunables: Mapping[str, int] = field(default_factory=dict)
    driver_tunables: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Packages:
    method: str = PRESENT
    version: str = ""
    repository: Optional[Mapping[str, Any]] = None
    names: Sequence[str] = ()
    """Instead of those of the catalogue."""


@dataclass(frozen=True)
class Stripes:
    """Where files that are made in a directory are spread; 0 and empty leave it as it is."""

    directory: str
    count: int = 0
    size_mib: int = 0
    pool: str = ""


@dataclass(frozen=True)
class LustreSettings:
    networks: tuple[Network, ...] = ()
    discovery: bool = True
    """Whether nodes exchange all their interfaces, which is what multi-rail needs."""
    peers: tuple[tuple[Nid, ...], ...] = ()
    """All NIDs of each server, its first one first: for servers without discovery."""
    routes: tuple[tuple[str, Nid], ...] = ()
    """Each network that this host is not in, with its router."""
    packages: Packages = field(default_factory=Packages)
    modprobe: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kernel module to its options."""
    stripes: tuple[Stripes, ...] = ()
    time_limit_s: int = 30
    """Of each look at what may hang."""
    full_percent: int = 95
    """From here on a target counts as full; 0: not judged."""

    @property
    def interfaces(self) -> set[str]:
        return {name for network in self.networks for name in network.interfaces}

    @property
    def uses_rdma(self) -> bool:
        return any(kind(network.net) == O2IB for network in self.networks)


def read_settings(
    value: Mapping[str, Any],
    rails: Sequence[Mapping[str, Any]] = (),
    filesystems: Sequence[FileSystem] = (),
) -> LustreSettings:
    """Settings of this host; {} are the defaults. `rails` as `cluster_rails`; `filesystems` those
    that this host mounts, of any type."""
    sources = [fs.source for fs in filesystems if fs.type == LUSTRE]
    # All servers are in the network of the first one's first NID, as a rule.
    default = [{"net": read_source(sources[0]).first.net}] if sources else []
    entries = default if value.get("networks") is None else value["networks"]
    names = tuple(str(rail["interface"]) for rail in rails)
    return LustreSettings(
        **{
            **value,
            "networks": tuple(
                _network(x, names) for x in (default if entries is None else entries)
            ),
            "peers": tuple(tuple(map(read_nid, x["nids"])) for x in value.get("peers", ())),
            "routes": tuple(
                (read_net(x["net"]), read_nid(x["gateway"])) for x in value.get("routes", ())
            ),
            "packages": Packages(**value.get("packages", {})),
            "stripes": tuple(Stripes(**entry) for entry in value.get("stripes", ())),
        }
    )


def _network(entry: Mapping[str, Any], rails: tuple[str, ...]) -> Network:
    names = entry.get("interfaces", "rails")
    return Network(
        read_net(entry["net"]),
        rails if names == "rails" else tuple(names),
        {name: entry[name] for name in TUNABLES if entry.get(name)},
        {name: entry[name] for name in DRIVER_TUNABLES if entry.get(name)},
    )
