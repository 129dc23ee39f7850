# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Desired state of a node's GPUs, their identity, and findings about them, one per fault.

A check that another fault prevents is `not_applicable` and names the finding of that fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional
from xml.etree import ElementTree

from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check, differs, not_applicable
from ..core.part import Node
from ..core.reboots import Reason
from ..hardware import Function
from .reading import Gpus
from .smi import GpuReading

AUTO, DMABUF, PEERMEM, NONE = "auto", "dmabuf", "peermem", "none"
FABRIC_MODULES = ("ib_umad", "mlx5_ib")
"""Modules through which NVLSM reaches the NVSwitches of NVLink 5."""


@dataclass(frozen=True)
class GpuTarget:
    """`gpus` and `rails` are `cluster_gpus` and `cluster_rails`. Defaults: docs/gpu.md."""

    driver: str
    """Version of kernel module, libraries and fabric manager (`580.95.05`). Empty for an unmanaged
    driver: the version that the next boot loads applies."""
    gpus: Sequence[Mapping[str, Any]]
    rails: Sequence[Mapping[str, Any]] = ()
    managed: bool = True
    """Whether a run installs the driver and repairs its packages and services."""
    product: str = ""
    """If empty, all GPUs must be of the same product; likewise `vbios`."""
    vbios: str = ""
    open_modules: bool = True
    fabric: bool = True
    nvlinks: int = 18
    mig: bool = False
    persistence: bool = True
    ecc: bool = True
    volatile_uncorrectable: int = 0
    remapped_rows: int = 512
    pcie_width: int = 16
    pcie_gts: float = 64.0
    """GT/s per lane; 0 for the maximum that both ends support."""
    xids: Optional[frozenset[int]] = None
    """Xids and SXids after which a GPU must not be used; None: NVIDIA's catalogue (xids.py)."""
    xids_ignored: frozenset[int] = frozenset()
    gpudirect: str = AUTO

    @property
    def by_address(self) -> bool:
        return bool(self.gpus) and all(entry.get("pci") for entry in self.gpus)


@dataclass(frozen=True)
class GpuSlot:
    index: int
    pci: str
    entry: Mapping[str, Any]
    """Empty if the GPU is not in the model."""
    function: Optional[Function]
    gpu: GpuReading
    listed: bool

    @property
    def name(self) -> str:
        return f"gpu{self.index}"

    @property
    def where(self) -> str:
        """`GPU 3 at 0000:60:00.0 (GPU-b3..., serial 165...)`"""
        serial = self.gpu.text("serial")
        known = [self.gpu.text("uuid"), f"serial {serial}" if serial else ""]
        shown = ", ".join(each for each in known if each)
        return f"GPU {self.index} at {self.pci}" + (f" ({shown})" if shown else "")


def slots_of(found: Gpus, wanted: GpuTarget) -> list[GpuSlot]:
    """Match the GPUs of model (first), PCI bus and driver by PCI address.

    If the model has no addresses, all GPUs on the bus are used.
    """
    functions = {function.pci: function for function in found.machine.gpus}
    gpus = {gpu.pci: gpu for gpu in found.smi.gpus}
    named = (pci for pci in found.smi.unreachable if ":" in pci)
    addresses = sorted({*functions, *gpus, *named})
    entries = {int(entry["index"]): entry for entry in wanted.gpus}
    at = {index: str(entry["pci"]) for index, entry in entries.items()}
    if wanted.by_address:
        more = [pci for pci in addresses if pci not in at.values()]
        at.update(enumerate(more, max(at) + 1))
    else:
        at = dict(enumerate(addresses))
    return [
        GpuSlot(
            index,
            pci,
            entries.get(index, {}),
            functions.get(pci),
            gpus.get(pci) or GpuReading(index, pci, ElementTree.Element("gpu")),
            pci in gpus,
        )
        for index, pci in at.items()
    ]


@dataclass(frozen=True)
class GpuResult:
    """Neither `what` nor `remedy` names the GPU. An empty `remedy` stands for the check's own."""

    wanted: Any
    found: Any
    what: str = ""
    remedy: str = ""
    status: str = OK
    reason: Optional[Reason] = None


def bad(wanted: Any, found: Any, what: str, remedy: str = "") -> GpuResult:
    return GpuResult(wanted, found, what, remedy, FAILED)


def unknown(slot: GpuSlot, wanted: Any, path: str) -> GpuResult:
    raw = slot.gpu.raw(path)
    what = f"nvidia-smi gives no {path}" + (f" ({raw})" if raw else "")
    return bad(wanted, None, what, "See nvidia-smi -q.")


def aside(wanted: Any, why: str) -> GpuResult:
    return GpuResult(wanted, None, why, status=NOT_APPLICABLE)


@dataclass
class GpuFindings:
    found: Gpus
    wanted: GpuTarget
    node: Node
    checks: list[Check] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    blamed: dict[str, list[str]] = field(default_factory=dict)
    """Subject to the checks that failed for it."""
    responding: Sequence[GpuSlot] = ()
    without_fabric: str = ""
    """The node's finding that excludes all GPUs from the fabric."""
    settling: bool = False
    """The fabric is still initialising, and there is no other problem: wait, then read again."""

    @property
    def version(self) -> str:
        driver = self.found.driver
        return self.wanted.driver or driver.on_disk or driver.module

    def missing_modules(self) -> str:
        """A sentence about kernel modules that the fabric manager needs and that are missing."""
        loaded = self.found.machine.modules
        lacking = " ".join(name for name in FABRIC_MODULES if name not in loaded)
        if not lacking:
            return ""
        return (
            f"NVLSM reaches no NVSwitch without {lacking}: modprobe -a {lacking} (layer rdma), "
            "then restart the fabric manager. "
        )

    def expect(
        self,
        name: str,
        wanted: Any,
        found: Any,
        good: bool,
        reason: str,
        subject: str = "",
        *,
        fixable: bool = False,
    ) -> bool:
        """Add a check. `reason`: of a failure. `fixable`: a run repairs it, so that check mode
        reports it as pending."""
        if good:
            self.checks.append(Check(name, wanted, found, OK, subject))
            return True
        status = differs(fixable and self.wanted.managed and self.node.check_mode)
        self.checks.append(Check(name, wanted, found, status, subject, reason))
        self.blamed.setdefault(subject, []).append(name)
        return False

    def skip(self, name: str, wanted: Any, reason: str, subject: str = "") -> None:
        self.checks.append(not_applicable(name, wanted, reason, subject=subject))

    def unread(self, names: Iterable[str], see: str, subject: str = "") -> None:
        for name in names:
            self.skip(name, None, f"not read: see {see}", subject)

    def reboot(self, name: str, wanted: Any, found: Any, reason: Reason, subject: str = "") -> None:
        """Add a fault that a reboot fixes; a failure if an earlier one did not. The reason stays
        recorded then, or the next run would ask for a reboot again."""
        self.blamed.setdefault(subject, []).append(name)
        self.reasons.append(reason)
        status, why = self.node.reboot_due(reason, reason.reason)
        self.checks.append(Check(name, wanted, found, status, subject, why))

    def each(
        self, name: str, results: Sequence[tuple[GpuSlot, GpuResult]], remedy: str = ""
    ) -> None:
        """Add one check per GPU; a fault shared by all GPUs becomes one check."""
        faults = [slot for slot, result in results if result.status in (FAILED, PENDING)]
        for slot in faults:
            self.blamed.setdefault(slot.name, []).append(name)
        alike = len({repr(each) for _place, each in results}) == 1
        if faults and alike and len(results) > 1:
            subject = f"all {len(results)} GPUs"
            self.checks.append(_check(name, subject, subject, results[0][1], remedy))
            return
        for slot, result in results:
            if result.status == NOT_APPLICABLE:
                self.skip(name, result.wanted, result.what, slot.name)
            elif result.reason:
                self.reboot(name, result.wanted, result.found, result.reason, slot.name)
            else:
                self.checks.append(_check(name, slot.name, slot.where, result, remedy))


def _check(name: str, subject: str, where: str, result: GpuResult, remedy: str) -> Check:
    reason = result.what
    if result.status != OK:
        reason = f"{where}: {result.what}. {result.remedy or remedy}"
    return Check(name, result.wanted, result.found, result.status, subject, reason)
