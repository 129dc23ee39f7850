# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPUs of a node as plain data. What nobody answered is None or empty, never a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Optional

from ..dataclass import dataclass
from ..hardware import Machine

SIMULATED = "(simulated)"
"""How the product name of a stand-in ends."""


@dataclass(frozen=True)
class Memory:
    """Errors and repairs of one GPU's memory. Counts are None where the GPU does not answer."""

    ecc: Optional[bool] = None
    ecc_pending: Optional[bool] = None
    """What ECC will be after the next reset."""
    volatile_uncorrectable: Optional[int] = None
    """Since the driver was loaded: SRAM (parity and SEC-DED) and DRAM together."""
    aggregate_uncorrectable: Optional[int] = None
    """In the life of the GPU."""
    sram_threshold_exceeded: Optional[bool] = None
    unrepairable: Optional[bool] = None
    repair_pending: tuple[str, ...] = ()
    """`row`, `channel`, `TPC`, `page`: repairs that wait for the next reset."""
    remap_pending: Optional[bool] = None
    remapped_correctable: Optional[int] = None
    remapped_uncorrectable: Optional[int] = None
    remap_failure: Optional[bool] = None


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver sees it."""

    index: int
    """Its place in the driver's order, which is that of PCI addresses."""
    pci: str
    """`0000:14:00.0`"""
    product: str = ""
    uuid: str = ""
    serial: str = ""
    vbios: str = ""
    persistence: Optional[bool] = None
    mig: Optional[bool] = None
    """Whether it is split into instances."""
    mig_pending: Optional[bool] = None
    """What that will be after the next reset."""
    fabric_state: str = ""
    """`Completed`, `In Progress`, `Not Started`, ...; empty where there is no fabric (N/A)."""
    fabric_status: str = ""
    fabric_health: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What is said of the fabric's health and is not well, by the name of the element."""
    memory: Memory = Memory()
    performance_state: str = ""
    """`P0`; at `P8` an idle GPU may slow its PCIe link down."""
    pcie_width: Optional[int] = None
    pcie_gen: Optional[int] = None
    slowdown: tuple[str, ...] = ()
    """Why hardware slows its clocks now: heat, power brake."""
    recovery_action: str = ""
    """What the driver asks for: `None`, `Reset`, `Reboot`, `Drain P2P`, `Drain and Reset`."""
    lost: str = ""
    """How the driver says that it does not reach the GPU any more; empty when it does."""
    unread: tuple[str, ...] = ()
    """Elements with an error where a value should be, such as `ecc_mode/current_ecc`."""


@dataclass(frozen=True)
class Nvml:
    """What NVML answered. `error` says why it did not."""

    error: str = ""
    code: int = 0
    """NVML's number of the error; 18 is a library and a kernel module of different versions."""
    absent: bool = False
    """The module that asks NVML is not on the node yet."""
    library: str = ""
    """Version of the library without CUDA's: `580.95.05`."""
    links: Mapping[str, Sequence[bool]] = field(default_factory=lambda: MappingProxyType({}))
    """PCI address to its NVLinks in order, active or not."""
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """PCI address, or `GPU 3`, to what NVML said instead of its NVLinks."""


@dataclass(frozen=True)
class Service:
    """One unit of systemd. `error` says why systemctl did not answer."""

    name: str
    load: str = ""
    active: str = ""
    """`active`, `inactive`, `failed`, ..."""
    enabled: str = ""
    result: str = ""
    error: str = ""

    @property
    def runs(self) -> bool:
        return self.active == "active"


@dataclass(frozen=True)
class Xid:
    """One error that the driver wrote to the kernel log."""

    number: int
    pci: str
    """`0000:14:00.0`"""
    text: str


@dataclass(frozen=True)
class Driver:
    """The driver's parts. Each may be of another version until the next reboot."""

    module: str = ""
    """Version of the kernel module that runs; empty when none is loaded."""
    open: Optional[bool] = None
    """Whether that is the open one; None when nobody says."""
    on_disk: str = ""
    """Version of the kernel module that the next boot loads."""
    on_disk_open: Optional[bool] = None
    fabric_manager: str = ""
    """Version of the fabric manager on disk."""
    fabric_manager_error: str = ""
    kernel: str = ""
    """Release of the kernel that runs."""


@dataclass(frozen=True)
class Gpus:
    """What one look at a node found."""

    machine: Machine
    driver: Driver = Driver()
    gpus: tuple[Gpu, ...] = ()
    error: str = ""
    """Why nvidia-smi gave no GPU at all."""
    hung: bool = False
    """It never ended."""
    mismatch: bool = False
    """Its error is that library and kernel module are of different versions."""
    unreachable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """PCI address of a GPU that the driver names and cannot open, to its words."""
    warnings: tuple[str, ...] = ()
    """Whatever else nvidia-smi said beside its XML, such as a corrupted infoROM."""
    nvml: Nvml = Nvml()
    fabric_manager: Service = Service("nvidia-fabricmanager.service")
    persistenced: Service = Service("nvidia-persistenced.service")
    xids: tuple[Xid, ...] = ()
    xid_error: str = ""
    """Why the kernel log could not be read."""
    simulated: tuple[str, ...] = ()
    """Why this is no real hardware, one line each; empty when it is."""
