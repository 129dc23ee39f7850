# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How a node is a client of Lustre, as one value: `shared_storage_lustre` with every default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Optional

from ...dataclass import dataclass
from .nid import Nid

DKMS, PREBUILT, PRESENT = "dkms", "prebuilt", "present"
METHODS = (DKMS, PREBUILT, PRESENT)
RAILS = "rails"


@dataclass(frozen=True)
class Network:
    """One network of LNet. Numbers are 0 where the driver's own choice stays."""

    net: str
    """In LNet's spelling: `o2ib`, not `o2ib0`."""
    interfaces: tuple[str, ...] = ()
    """Of this host, in order; several are multi-rail."""
    peer_timeout: int = 0
    peer_credits: int = 0
    peer_buffer_credits: int = 0
    credits: int = 0
    conns_per_peer: int = 0

    @property
    def tunables(self) -> dict[str, int]:
        """Of any network, as lnetctl names and orders them."""
        names = ("peer_timeout", "peer_credits", "peer_buffer_credits", "credits")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True)
class Route:
    """The way into a network that this host is not in."""

    net: str
    gateway: Nid


@dataclass(frozen=True)
class Repository:
    url: str
    """May hold `{version}`, `{distribution}` and `{architecture}`."""
    key: str
    """File of the public key on the controller."""
    key_sha256: str
    signed_metadata: bool = True


@dataclass(frozen=True)
class Packages:
    method: str = PRESENT
    version: str = ""
    repository: Optional[Repository] = None
    names: tuple[str, ...] = ()
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
    """Whether nodes tell each other all their interfaces, which is what multi-rail needs."""
    peers: tuple[tuple[Nid, ...], ...] = ()
    """All NIDs of each server, its first one first: for servers without discovery."""
    routes: tuple[Route, ...] = ()
    packages: Packages = field(default_factory=Packages)
    modprobe: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Kernel module to its options."""
    stripes: tuple[Stripes, ...] = ()
    time_limit_s: int = 30
    """Of each look at what may hang."""
    full_percent: int = 95
    """From here on a target counts as full; 0: not judged."""

    @property
    def interfaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for net in self.networks for name in net.interfaces))
