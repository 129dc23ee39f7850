# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machine as plain data. What sysfs does not have is None or empty, never a guess.

With it PCI addresses, the way from the root complex, and what a link can carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Optional

RAIL = "rail"
"""Physical Ethernet function of a NIC that shares a PCIe switch with a GPU."""
NVSWITCH_BRIDGE = "nvswitch_bridge"
"""Manages NVSwitches; SW_MNG in its vital product data. The fabric manager needs it."""
DATA_DIRECT = "data_direct"
"""The NIC's second way to GPU memory. It has neither a network interface nor a port."""
BLUEFIELD = "bluefield"
"""A DPU, for storage and management."""
VIRTUAL = "virtual"
"""A virtual function: never a rail on bare metal."""
SOFTWARE = "software"
"""Soft-RoCE and the like: RDMA over any network interface, without a PCI function."""
OTHER = "other"
"""Any other NIC: management, storage."""

ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"
ROCE_V2 = "RoCE v2"
MELLANOX = "15b3"
MLX5_CORE = "mlx5_core"
"""The driver of a ConnectX."""
NVIDIA = "10de"


@dataclass(frozen=True)
class PcieLink:
    """The link of one PCI function, now and at best. Speeds in GT/s per lane."""

    speed_gts: Optional[float] = None
    width: Optional[int] = None
    max_speed_gts: Optional[float] = None
    max_width: Optional[int] = None


@dataclass(frozen=True)
class Function:
    """One PCI function."""

    pci: str
    """`0000:5d:00.0`"""
    vendor: str = ""
    """`15b3`"""
    device_id: str = ""
    """`1023`"""
    class_code: str = ""
    """`020000`"""
    driver: str = ""
    """Empty when none is bound."""
    numa: Optional[int] = None
    bridges: tuple[str, ...] = ()
    """PCI addresses on the way to it, the root port first."""
    link: PcieLink = PcieLink()
    physfn: Optional[str] = None
    """The physical function that this is a virtual function of."""

    @property
    def network(self) -> bool:
        return self.class_code.startswith("02")

    @property
    def gpu(self) -> bool:
        return self.vendor == NVIDIA and self.class_code.startswith("03")

    def __str__(self) -> str:
        """`0000:14:00.0 (10de:3182, class 030200, driver nvidia)`"""
        what = f"{self.vendor}:{self.device_id}, class {self.class_code}"
        return f"{self.pci} ({what}, driver {self.driver or 'none'})"


@dataclass(frozen=True)
class Gid:
    """One used entry of a port's GID table."""

    index: int
    address: str
    """In IPv6 notation; an IPv4 address is `::ffff:10.100.3.11`."""
    type: str
    """`RoCE v2` or `IB/RoCE v1`, as the kernel calls them."""
    netdev: str


@dataclass(frozen=True)
class RdmaDevice:
    """One port: an RDMA device, a network interface, or both, and the function they belong to."""

    kind: str
    name: str = ""
    """RDMA device, `mlx5_0`; empty when the function has none."""
    port: int = 1
    netdev: str = ""
    """Network interface, `rail0`; empty when there is none."""
    up: bool = False
    """Whether that interface is set up, with a link or without."""
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
    """`Ethernet` or `InfiniBand`"""
    speed_gbps: Optional[float] = None
    """None while the link is down, and where nothing real stands behind the rate."""
    link: PcieLink = PcieLink()
    gpus: tuple[str, ...] = ()
    """PCI addresses of the GPUs behind the nearest switch that this function shares with one."""
    sriov_totalvfs: Optional[int] = None
    """None where the function knows no SR-IOV, or its firmware has it off."""
    sriov_numvfs: int = 0
    physfn: Optional[str] = None
    """The physical function that a virtual one belongs to."""
    gids: tuple[Gid, ...] = ()

    @property
    def gpu_pci(self) -> Optional[str]:
        """The GPU of this NIC, where there is exactly one behind its switch."""
        return self.gpus[0] if len(self.gpus) == 1 else None

    def roce_gid(self, address: str) -> Optional[Gid]:
        """The entry of RoCE v2 with an IPv4 address: packets leave with that address."""
        wanted = f"::ffff:{address}"
        return next((g for g in self.gids if (g.type, g.address) == (ROCE_V2, wanted)), None)


@dataclass(frozen=True)
class Machine:
    """What one look at a machine found."""

    ports: tuple[RdmaDevice, ...] = ()
    """Every RDMA port and every PCI network function, ordered by PCI address; software last."""
    functions: Mapping[str, Function] = field(default_factory=lambda: MappingProxyType({}))
    """Every PCI function by its address."""
    slots: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Name of the physical slot by the address of what is in it, without function."""
    modules: frozenset[str] = frozenset()
    """Kernel modules that are loaded or built in."""

    @property
    def devices(self) -> tuple[RdmaDevice, ...]:
        """Those with an RDMA device."""
        return tuple(port for port in self.ports if port.name)

    @property
    def netdevs(self) -> tuple[RdmaDevice, ...]:
        """PCI network functions, those without RDMA included."""
        return tuple(port for port in self.ports if port.pci)

    @property
    def gpus(self) -> tuple[Function, ...]:
        """NVIDIA GPUs, ordered by PCI address."""
        return tuple(function for _pci, function in sorted(self.functions.items()) if function.gpu)

    def of_kind(self, kind: str) -> tuple[RdmaDevice, ...]:
        return tuple(port for port in self.ports if port.kind == kind)

    def device_of(self, netdev: str) -> Optional[RdmaDevice]:
        """The port behind a network interface, one with RDMA first."""
        found = [port for port in self.ports if port.netdev == netdev]
        return max(found, key=lambda port: bool(port.name), default=None)

    def first_of(self, port: RdmaDevice) -> Optional[RdmaDevice]:
        """The first function of a card, where this one shares its RDMA device; None otherwise.

        So do planes that the NIC balances by hardware (Mellanox/nic-configuration-operator
        632f1295): then no function of a rail's card has one but the first. Whether they are planes
        the model says, and firmware.
        """
        rails = [each for each in self.of_kind(RAIL) if each.pci and each.driver == MLX5_CORE]
        if port.name or port not in rails or any(e.name and _further(e) for e in rails):
            return None
        card = card_of(port.pci or "")
        return next((e for e in rails if e.name and card_of(e.pci or "") == card), None)

    def at(self, pci: str) -> Optional[RdmaDevice]:
        """The port of a function."""
        return next((port for port in self.ports if port.pci == pci), None)


def _further(port: RdmaDevice) -> bool:
    """Whether it is a function of its card after the first one."""
    return not (port.pci or "").endswith(".0")


# PCI

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def way(path: PurePath) -> tuple[str, ...]:
    """The PCI functions on a path below /sys/devices, the root port first, itself last."""
    return tuple(part for part in path.parts if _ADDRESS.fullmatch(part))


def card_of(address: str) -> str:
    """The address without its function: all functions of a card have one link and one slot."""
    return address.rpartition(".")[0]


def common(first: Sequence[str], second: Sequence[str]) -> int:
    """How many bridges two ways have in common, from the root port down."""
    count = 0
    for one, other in zip(first, second):
        if one != other:
            break
        count += 1
    return count


def parse_speed(text: str) -> Optional[float]:
    """GT/s of `64.0 GT/s PCIe`; None of `Unknown` and of nothing."""
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match.group(1)) if match else None


def parse_width(text: str) -> Optional[int]:
    """Lanes of `16`; None where the kernel does not know."""
    return int(text) if text.isdigit() and text not in ("0", "255") else None


def capacity_gbps(speed_gts: float, width: int) -> float:
    """What a link carries one way, after its line code, before packet headers."""
    if speed_gts <= 5:
        code = 8 / 10
    elif speed_gts <= 32:
        code = 128 / 130
    else:
        code = 242 / 256  # FLITs of 256 bytes with 14 of check and correction
    return speed_gts * width * code


def describe(speed_gts: Optional[float], width: Optional[int]) -> str:
    """`64 GT/s x16`, in the words of lspci."""
    speed = "unknown speed" if speed_gts is None else f"{speed_gts:g} GT/s"
    return f"{speed} x{'?' if width is None else width}"


def best(device: PcieLink, port: Optional[PcieLink]) -> PcieLink:
    """What a link could be: the least of what the device and the port above it are made for."""
    ends = [device, port or PcieLink()]
    speeds = [each.max_speed_gts for each in ends if each.max_speed_gts is not None]
    widths = [each.max_width for each in ends if each.max_width is not None]
    return PcieLink(min(speeds, default=None), min(widths, default=None))
