# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RDMA devices, their ports and GIDs, and the network interfaces beside them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from ..core.dataclass import dataclass
from . import tree
from .inventory import SOFTWARE, Gid, RdmaDevice, way

ACTIVE = "ACTIVE"
ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"

# A virtual function's, a sub-function's or the host's face on the switch inside a NIC.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf\d+|sf\d+|hpf)?")
_SUBFUNCTION = re.compile(r"\w+\.sf\.\d+")
_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")


@dataclass(frozen=True)
class Interface:
    """An entry of /sys/class/net that has a device."""

    name: str
    path: Path
    """Where its device is, links resolved."""
    port: int
    """Port of the device that it is, from 1."""
    speed_gbps: Optional[float]
    up: bool
    representor: bool

    @property
    def pci(self) -> Optional[str]:
        """The last PCI function on the way: a virtio device sits one step below its own."""
        return next(reversed(way(self.path)), None)

    @property
    def subfunction(self) -> bool:
        """Whether the path leads through a sub-function of a NIC (`mlx5_core.sf.4`)."""
        return any(_SUBFUNCTION.fullmatch(part) for part in self.path.parts)


def interfaces(root: Path) -> list[Interface]:
    """The network interfaces that have a device, physical ones and virtio alike."""
    entries = [root / "class/net" / name for name in tree.names(root / "class/net")]
    return [
        Interface(
            name=entry.name,
            path=(entry / "device").resolve(),
            port=(tree.number(entry / "dev_port") or 0) + 1,
            speed_gbps=interface_speed(entry),
            up=bool((tree.number(entry / "flags") or 0) & 1),
            representor=bool(_REPRESENTOR.fullmatch(tree.text(entry / "phys_port_name"))),
        )
        for entry in entries
        if (entry / "device").exists()
    ]


def interface_speed(entry: Path) -> Optional[float]:
    """Gb/s of an interface, or None: it is down, or virtual (-1)."""
    megabits = tree.number(entry / "speed")
    return megabits / 1000 if megabits and megabits > 0 else None


_UNUSED_IN_A_ROW = 64
"""As many unused entries end the GID table: new addresses take the first that is free, and reading
all of a thousand takes many seconds on an emulated CPU."""


@dataclass(frozen=True)
class Port:
    """A port of an entry of /sys/class/infiniband; `found` lacks what its PCI function says."""

    path: Optional[Path]
    """Where the device is, links resolved; None when it is made of software alone."""
    found: RdmaDevice


def rdma_ports(root: Path) -> Iterator[Port]:
    """The ports of all RDMA devices, by device."""
    directory = root / "class/infiniband"
    for name in tree.names(directory):
        device = directory / name
        path = (device / "device").resolve() if (device / "device").exists() else None
        for number in tree.names(device / "ports"):
            yield Port(path, _port(device, number))


def _port(device: Path, number: str) -> RdmaDevice:
    port = device / "ports" / number
    state = tree.text(port / "state").partition(": ")[2]
    gids = tuple(_gids(port))
    return RdmaDevice(
        kind=SOFTWARE,
        name=device.name,
        port=int(number),
        # What a device made of software says it is on; a VLAN's GID comes after its own.
        netdev=tree.text(device / "parent") or next((gid.netdev for gid in gids), ""),
        port_state=state,
        link_layer=tree.text(port / "link_layer"),
        # Without a link, the rate is nominal.
        speed_gbps=parse_rate(tree.text(port / "rate")) if state == ACTIVE else None,
        gids=gids,
        firmware=tree.text(device / "fw_ver"),
        board_id=tree.text(device / "board_id"),
    )


def parse_rate(text: str) -> Optional[float]:
    """Gb/s of `800 Gb/sec (4X XDR)`."""
    match = _RATE.match(text)
    return float(match.group(1)) if match else None


def _gids(port: Path) -> Iterator[Gid]:
    # The types answer with an error for the unused entries, of which there are up to thousands.
    types = port / "gid_attrs/types"
    unused = 0
    for index in sorted(int(name) for name in tree.names(types)):
        kind = tree.text(types / str(index))
        address = parse_gid(tree.text(port / "gids" / str(index))) if kind else None
        unused = 0 if kind else unused + 1
        if address:
            netdev = tree.text(port / "gid_attrs/ndevs" / str(index))
            yield Gid(index, address, kind, netdev)
        elif unused >= _UNUSED_IN_A_ROW:
            return


def parse_gid(text: str) -> Optional[str]:
    """The address in its short form, IPv4 as `::ffff:10.100.3.11`; None of an unused entry."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if address == ipaddress.IPv6Address(0):
        return None
    mapped = address.ipv4_mapped
    return f"::ffff:{mapped}" if mapped else str(address)


def interface_of(port: Port, found: Iterable[Interface]) -> Optional[Interface]:
    """The interface that is the same port of the same device, by what sysfs links, not by names."""
    here = [each for each in found if each.path == port.path and not each.representor]
    if len(here) > 1:
        here = [each for each in here if each.port == port.found.port] or here
    named = [each for each in here if each.name == port.found.netdev]
    return next(iter(named or here), None)
