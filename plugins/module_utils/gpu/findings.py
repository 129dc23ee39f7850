# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's GPUs must be, where each is, and the findings about them: each fault once.

What could not be read because of a fault that has its own finding is `not_applicable` and names
that finding: neither passed nor a second failure. What all GPUs have in common is one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional
from xml.etree import ElementTree

from ..core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    Check,
    differs,
    not_applicable,
)
from ..core.part import Node
from ..core.reboots import Reason
from ..hardware import Function
from .reading import Gpus
from .smi import GpuReading

AUTO, DMABUF, PEERMEM, NONE = "auto", "dmabuf", "peermem", "none"
FABRIC_MODULES = ("ib_umad", "mlx5_ib")
"""What NVLSM reaches the NVSwitches of NVLink 5 through."""


@dataclass(frozen=True)
class GpuTarget:
    """`gpus` and `rails` are `cluster_gpus` and `cluster_rails` of the model.

    Every threshold has the published default (docs/gpu.md).
    """

    driver: str
    """Version of the set, `580.95.05`: of kernel module, libraries and fabric manager. Empty with
    a driver that others installed: what the next boot loads."""
    gpus: Sequence[Mapping[str, Any]]
    rails: Sequence[Mapping[str, Any]] = ()
    managed: bool = True
    """Whether a run installs the driver, and mends what its packages and services lack."""
    product: str = ""
    """`NVIDIA B300`; empty: any, as long as all are alike."""
    vbios: str = ""
    """Empty: any, as long as all are alike."""
    open_modules: bool = True
    fabric: bool = True
    """Whether the GPUs are connected by NVSwitches, which the fabric manager configures."""
    nvlinks: int = 18
    mig: bool = False
    """Whether GPUs may be split. A rank of MPI wants a whole one."""
    persistence: bool = True
    ecc: bool = True
    volatile_uncorrectable: int = 0
    remapped_rows: int = 512
    """More than these: replace the GPU."""
    pcie_width: int = 16
    pcie_gts: float = 64.0
    """GT/s of a lane; 0: the most that both ends of the link can."""
    xids: Optional[frozenset[int]] = None
    """Xids and SXids after which a GPU is not to be used; None: by NVIDIA's catalogue (xids.py)."""
    xids_ignored: frozenset[int] = frozenset()
    gpudirect: str = AUTO
    """`auto`: dma-buf or nvidia_peermem, either will do."""

    @property
    def by_address(self) -> bool:
        """Whether the model has the address of each GPU."""
        return bool(self.gpus) and all(entry.get("pci") for entry in self.gpus)


@dataclass(frozen=True)
class Place:
    """One GPU: its place in the model, the function on the bus there, and the driver's view."""

    index: int
    pci: str
    entry: Mapping[str, Any]
    """Of the model; empty for a GPU that the model does not name."""
    function: Optional[Function]
    gpu: GpuReading
    """Without any value where the driver does not list it."""
    listed: bool

    @property
    def name(self) -> str:
        """The subject of its checks."""
        return f"gpu{self.index}"

    @property
    def where(self) -> str:
        """`GPU 3 at 0000:60:00.0 (GPU-b3..., serial 165...)`"""
        serial = self.gpu.text("serial")
        known = [self.gpu.text("uuid"), f"serial {serial}" if serial else ""]
        shown = ", ".join(each for each in known if each)
        return f"GPU {self.index} at {self.pci}" + (f" ({shown})" if shown else "")


def places(found: Gpus, wanted: GpuTarget) -> list[Place]:
    """Matched by PCI address, the one thing that model, bus and driver have in common.

    Those of the model first, in its order; without addresses in the model, those found.
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
        Place(
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
    """What one check found of one GPU. `what` and `remedy` do not name the GPU.

    Without a `remedy` of its own it has that of its check.
    """

    wanted: Any
    found: Any
    what: str = ""
    remedy: str = ""
    status: str = OK
    reason: Optional[Reason] = None
    """Why a reboot cures it."""


def bad(wanted: Any, found: Any, what: str, remedy: str = "") -> GpuResult:
    return GpuResult(wanted, found, what, remedy, FAILED)


def unknown(place: Place, wanted: Any, path: str) -> GpuResult:
    """An element of nvidia-smi that has no value."""
    raw = place.gpu.raw(path)
    what = f"nvidia-smi gives no {path}" + (f" ({raw})" if raw else "")
    return bad(wanted, None, what, "See nvidia-smi -q.")


def aside(wanted: Any, why: str) -> GpuResult:
    """Not judged here, for another finding or by the nature of the thing."""
    return GpuResult(wanted, None, why, status=NOT_APPLICABLE)


@dataclass
class GpuFindings:
    """Collects the checks of one node."""

    found: Gpus
    wanted: GpuTarget
    node: Node
    checks: list[Check] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    blamed: dict[str, list[str]] = field(default_factory=dict)
    """Subject of a GPU to the checks that found a fault of it."""
    there: Sequence[Place] = ()
    """The GPUs that answer."""
    without_fabric: str = ""
    """The finding of the node that keeps all GPUs out of the fabric."""
    settling: bool = False
    """Nothing is wrong but that the fabric is still being set up: wait, read again."""

    @property
    def version(self) -> str:
        """That all parts of the driver have to have."""
        driver = self.found.driver
        return self.wanted.driver or driver.on_disk or driver.module

    def missing_modules(self) -> str:
        """A sentence about kernel modules that the fabric manager needs and that are not there."""
        loaded = self.found.machine.modules
        lacking = " ".join(name for name in FABRIC_MODULES if name not in loaded)
        if not lacking:
            return ""
        return (
            f"NVLSM reaches no NVSwitch without {lacking}: modprobe -a {lacking} (layer rdma), "
            "then restart the fabric manager. "
        )

    def ok(self, name: str, wanted: Any, found: Any) -> None:
        self.checks.append(Check(name, wanted, found, OK))

    def fail(
        self,
        name: str,
        wanted: Any,
        found: Any,
        reason: str,
        subject: str = "",
        *,
        fixable: bool = False,
    ) -> None:
        """A fault. `fixable`: a run without check mode mends it, so that check mode only waits."""
        status = differs(fixable and self.wanted.managed and self.node.check_mode)
        self.checks.append(Check(name, wanted, found, status, subject, reason))
        self.blamed.setdefault(subject, []).append(name)

    def skip(self, name: str, wanted: Any, reason: str, subject: str = "") -> None:
        self.checks.append(not_applicable(name, wanted, reason, subject=subject))

    def unread(self, names: Iterable[str], see: str, subject: str = "") -> None:
        """Checks that could not be made because of the fault that `see` is the finding of."""
        for name in names:
            self.skip(name, None, f"not read: see {see}", subject)

    def reboot(self, name: str, wanted: Any, found: Any, reason: Reason, subject: str = "") -> None:
        """A reboot cures it; if one was already made for it, it does not.

        The reason stays recorded then: without it the next run would ask for a reboot again.
        """
        self.blamed.setdefault(subject, []).append(name)
        self.reasons.append(reason)
        status, why = self.node.reboot_due(reason, reason.reason)
        self.checks.append(Check(name, wanted, found, status, subject, why))

    def each(self, name: str, results: Sequence[tuple[Place, GpuResult]], remedy: str = "") -> None:
        """One check per GPU; a fault that all have is one."""
        faults = [each for each in results if each[1].status in (FAILED, PENDING)]
        for place, _result in faults:
            self.blamed.setdefault(place.name, []).append(name)
        alike = len({repr(each) for _place, each in results}) == 1
        if faults and alike and len(results) > 1:
            subject = f"all {len(results)} GPUs"
            self.checks.append(_check(name, subject, subject, results[0][1], remedy))
            return
        for place, result in results:
            if result.status == NOT_APPLICABLE:
                self.skip(name, result.wanted, result.what, place.name)
            elif result.reason:
                self.reboot(name, result.wanted, result.found, result.reason, place.name)
            else:
                self.checks.append(_check(name, place.name, place.where, result, remedy))


def _check(name: str, subject: str, where: str, result: GpuResult, remedy: str) -> Check:
    why = result.what
    if result.status != OK:
        why = f"{where}: {result.what}. {result.remedy or remedy}"
    return Check(name, result.wanted, result.found, result.status, subject, why)
