# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A machine as plain data: PCI functions, their paths from the root complex, links and ports.

Values that sysfs lacks are None or empty, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from types import MappingProxyType
from typing import Optional

RAIL = "rail"
"""Physical Ethernet function of a NIC that shares a PCIe switch with a GPU."""
NVSWITCH_BRIDGE = "nvswitch_bridge"
"""Bridge that manages NVSwitches for the fabric manager; SW_MNG in its vital product data."""
DATA_DIRECT = "data_direct"
"""Second path of a NIC to GPU memory, without a network interface or port."""
BLUEFIELD = "bluefield"
"""A DPU, for storage and management."""
VIRTUAL = "virtual"
"""A virtual function: never a rail on bare metal."""
SOFTWARE = "software"
"""RDMA in software over any network interface, without a PCI function, such as Soft-RoCE."""
OTHER = "other"
"""Any other NIC: management, storage."""

ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"
ROCE_V2 = "RoCE v2"
MELLANOX = "15b3"
NVIDIA = "10de"


@dataclass(frozen=True)
class PcieLink:
    """Current and maximum link of a PCI function. Speeds in GT/s per lane."""

    speed_gts: Optional[float] = None
    width: Optional[int] = None
    max_speed_gts: Optional[float] = None
    max_width: Optional[int] = None


@dataclass(frozen=True)
class Function:
    pci: str
    """`0000:5d:00.0`"""
    vendor: str = ""
    device_id: str = ""
    class_code: str = ""
    driver: str = ""
    """Empty if none is bound."""
    numa: Optional[int] = None
    bridges: tuple[str, ...] = ()
    """PCI addresses on the path to it, starting with the root port."""
    link: PcieLink = PcieLink()
    physfn: Optional[str] = None

    @property
    def network(self) -> bool:
        return self.class_code.startswith("02")

    @property
    def gpu(self) -> bool:
        return self.vendor == NVIDIA and self.class_code.startswith("03")

    def __str__(self) -> str:
        """`0000:14:00.0 (10de:3182, class 030200, driver nvidia)`"""
        kind = f"{self.vendor}:{self.device_id}, class {self.class_code}"
        return f"{self.pci} ({kind}, driver {self.driver or 'none'})"


@dataclass(frozen=True)
class Gid:
    """One used entry of a port's GID table."""

    index: int
    address: str
    """An IPv4 address is `::ffff:10.100.3.11`."""
    type: str
    """`RoCE v2` or `IB/RoCE v1`, the kernel's names."""
    netdev: str


@dataclass(frozen=True)
class RdmaDevice:
    """A port: an RDMA device, a network interface, or both, and their PCI function."""

    kind: str
    name: str = ""
    """RDMA device, `mlx5_0`; empty if the function has none."""
    port: int = 1
    netdev: str = ""
    """Network interface, `rail0`; empty if there is none."""
    up: bool = False
    """Whether the interface is set up, with or without a link."""
    pci: Optional[str] = None
    numa: Optional[int] = None
    vendor: str = ""
    device_id: str = ""
    driver: str = ""
    firmware: str = ""
    board_id: str = ""
    port_state: str = ""
    """`ACTIVE`, `DOWN`, ...; empty without an RDMA device."""
    link_layer: str = ""
    speed_gbps: Optional[float] = None
    """None while the link is down or if the rate is nominal."""
    link: PcieLink = PcieLink()
    gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs below the nearest switch that this function shares with one."""
    sriov_totalvfs: Optional[int] = None
    """None if the function does not support SR-IOV or its firmware has it disabled."""
    sriov_numvfs: int = 0
    physfn: Optional[str] = None
    gids: tuple[Gid, ...] = ()

    @property
    def gpu_pci(self) -> Optional[str]:
        """The GPU of this NIC if exactly one is below its switch."""
        return self.gpus[0] if len(self.gpus) == 1 else None

    def roce_gid(self, address: str) -> Optional[Gid]:
        """Return the RoCE v2 entry of an IPv4 address, which packets carry as their source."""
        wanted = f"::ffff:{address}"
        return next((g for g in self.gids if (g.type, g.address) == (ROCE_V2, wanted)), None)


@dataclass(frozen=True)
class Machine:
    ports: tuple[RdmaDevice, ...] = ()
    """RDMA ports and PCI network functions, ordered by PCI address; software devices last."""
    functions: Mapping[str, Function] = field(default_factory=lambda: MappingProxyType({}))
    slots: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name of the physical slot by the card's PCI address without its function."""
    modules: frozenset[str] = frozenset()
    """Loaded and built-in kernel modules."""

    @property
    def gpus(self) -> tuple[Function, ...]:
        return tuple(function for _pci, function in sorted(self.functions.items()) if function.gpu)

    def of_kind(self, kind: str) -> tuple[RdmaDevice, ...]:
        return tuple(port for port in self.ports if port.kind == kind)

    def device_of(self, netdev: str) -> Optional[RdmaDevice]:
        """Return the port of a network interface, preferably one with RDMA."""
        found = [port for port in self.ports if port.netdev == netdev]
        return max(found, key=lambda port: bool(port.name), default=None)

    def first_of(self, port: RdmaDevice) -> Optional[RdmaDevice]:
        """Return the first function of the card if this one shares its RDMA device, else None.

        This is the case for planes that the NIC balances in hardware
        (Mellanox/nic-configuration-operator 632f1295): only the first function of each card has a
        device. Model and firmware tell whether they are planes.
        """
        nics = (each for each in self.of_kind(RAIL) if each.driver == "mlx5_core")
        rails = {each.pci: each for each in nics if each.pci}
        further = any(rail.name and not pci.endswith(".0") for pci, rail in rails.items())
        if port.name or port.pci not in rails or further:
            return None
        first = rails.get(f"{card_of(port.pci)}.0")
        return first if first and first.name else None

    def at(self, pci: str) -> Optional[RdmaDevice]:
        return next((port for port in self.ports if port.pci == pci), None)


# PCI

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def pci_path(path: PurePath) -> tuple[str, ...]:
    """Return the PCI functions on a path below /sys/devices, from the root port to the device."""
    return tuple(part for part in path.parts if _ADDRESS.fullmatch(part))


def card_of(address: str) -> str:
    """Return the address without function; the functions of a card share link and slot."""
    return address.rpartition(".")[0]


def common(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of bridges that two PCI paths have in common, from the root port down."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(first, second))])


def parse_speed(text: str) -> Optional[float]:
    """Parse `64.0 GT/s PCIe` into GT/s; None for `Unknown` or an empty text."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match.group(1)) if match else None


def parse_width(text: str) -> Optional[int]:
    """Parse the number of lanes; None if the kernel does not report it."""
    return int(text) if text.isdigit() and text not in ("0", "255") else None


def capacity_gbps(speed_gts: float, width: int) -> float:
    """Return the capacity of a link per direction, after line coding and before packet headers."""
    # 14 of 256 bytes of a FLIT are CRC and FEC.
    code = 8 / 10 if speed_gts <= 5 else 128 / 130 if speed_gts <= 32 else 242 / 256
    return speed_gts * width * code


def describe(speed_gts: Optional[float], width: Optional[int]) -> str:
    """Return a link as lspci prints it: `64 GT/s x16`."""
    speed = "unknown speed" if speed_gts is None else f"{speed_gts:g} GT/s"
    return f"{speed} x{'?' if width is None else width}"


def best(device: PcieLink, port: Optional[PcieLink]) -> PcieLink:
    """Return the best link that both the device and the port above it support."""
    ends = [device, port or PcieLink()]
    speeds = [end.max_speed_gts for end in ends if end.max_speed_gts is not None]
    widths = [each.max_width for each in ends if each.max_width is not None]
    return PcieLink(min(speeds, default=None), min(widths, default=None))
