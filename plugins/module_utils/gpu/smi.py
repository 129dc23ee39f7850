# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`nvidia-smi -q -x`: its XML as plain data, and what it prints in place of it.

In one and the same element it writes a value, `N/A` where the GPU does not know such a thing, or an
error. The three are kept apart: what is not known is None, what failed is in `unread`, and a GPU
that is gone says so in `lost`. An element that is missing is not known either; that must never
compare as fine, so nothing here has a default that is well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Optional
from xml.etree import ElementTree

from ..dataclass import dataclass
from .found import Gpu, Memory

COMMAND = ("nvidia-smi", "-q", "-x")
MISMATCH_RC = 18
MISMATCH = "driver/library version mismatch"

UNKNOWN = frozenset(["", "n/a", "[n/a]", "not supported", "[not supported]"])
LOST = frozenset(["gpu is lost", "gpu is inaccessible"])
ERRORS = frozenset(
    [
        *LOST,
        "unknown error",
        "gpu requires reset",
        "insufficient permissions",
        "insufficient resources",
        "timeout",
        "in use",
    ]
)
TRUE = frozenset(["enabled", "yes", "true", "active", "on"])
FALSE = frozenset(["disabled", "no", "false", "not active", "off"])

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_UNREACHABLE = re.compile(r"unable to determine the device handle for\s+(gpu\s*\d*)", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+")
_END = "</nvidia_smi_log>"

SLOWDOWNS: Mapping[str, str] = MappingProxyType(
    {"hw_thermal_slowdown": "heat", "hw_power_brake_slowdown": "power brake"}
)


@dataclass(frozen=True)
class Smi:
    """What one run of nvidia-smi said."""

    gpus: tuple[Gpu, ...] = ()
    error: str = ""
    mismatch: bool = False
    unreachable: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()


def parse(rc: int, text: str) -> Smi:
    """What `nvidia-smi -q -x` printed and how it ended."""
    start = text.find("<?xml")
    if start < 0:
        start = text.find("<nvidia_smi_log")
    if start < 0:
        said = " ".join(text.split()) or "it printed nothing"
        mismatch = rc == MISMATCH_RC or MISMATCH in said.lower()
        error = f"exit status {rc}: {said[:500]}"
        return Smi((), error, mismatch, _unreachable(text.splitlines()))
    end = text.find(_END, start)
    document = text[start : end + len(_END)] if end >= 0 else text[start:]
    beside = text[:start] + (text[end + len(_END) :] if end >= 0 else "")
    lines = [line.strip() for line in beside.splitlines() if line.strip()]
    unreachable = _unreachable(lines)
    warnings = tuple(line for line in lines if not _UNREACHABLE.search(line))
    try:
        log = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        tail = " ".join(document.split())[-100:]
        return Smi((), f"exit status {rc}, XML that breaks off or is none ({error}): ...{tail}")
    gpus = tuple(_gpu(index, element) for index, element in enumerate(log.findall("gpu")))
    if not gpus:
        return Smi((), f"exit status {rc}: XML without a GPU", False, unreachable, warnings)
    if rc != 0 and not lines:
        warnings = (f"exit status {rc} without a word",)
    return Smi(gpus, "", False, unreachable, warnings)


def address(text: str) -> str:
    """`0000:14:00.0` of `00000000:14:00.0` and any other case; nothing of anything else."""
    match = _ADDRESS.search(text)
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _unreachable(lines: list[str]) -> Mapping[str, str]:
    found = {}
    for line in lines:
        match = _UNREACHABLE.search(line)
        if match:
            found[address(line) or match.group(1)] = line.strip()
    return MappingProxyType(found)


class _Reader:
    """The values of one `<gpu>`, and what went wrong with them."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.element = element
        self.unread: list[str] = []

    def text(self, path: str) -> Optional[str]:
        """The value at a path, or None. An error may stand in place of the whole group as well."""
        here: Optional[ElementTree.Element] = self.element
        for part in path.split("/"):
            here = here.find(part) if here is not None else None
            value = (here.text or "").strip() if here is not None else ""
            if value.strip("[]").lower() in ERRORS:
                self.unread.append(f"{path}: {value}")
                return None
        return None if value.lower() in UNKNOWN else value

    def number(self, path: str) -> Optional[int]:
        match = _NUMBER.match(self.text(path) or "")
        return int(match.group()) if match else None

    def flag(self, path: str) -> Optional[bool]:
        value = (self.text(path) or "").lower()
        return True if value in TRUE else False if value in FALSE else None

    def lost(self) -> str:
        """The words for a GPU that is gone, wherever they stand."""
        for each in self.element.iter():
            value = (each.text or "").strip()
            if value.strip("[]").lower() in LOST:
                return value
        return ""


def _gpu(index: int, element: ElementTree.Element) -> Gpu:
    read = _Reader(element)
    lost = read.lost()
    return Gpu(
        index=index,
        pci=address(read.text("pci/pci_bus_id") or element.get("id") or ""),
        product=read.text("product_name") or "",
        uuid=read.text("uuid") or "",
        serial=read.text("serial") or "",
        vbios=read.text("vbios_version") or "",
        persistence=read.flag("persistence_mode"),
        mig=read.flag("mig_mode/current_mig"),
        mig_pending=read.flag("mig_mode/pending_mig"),
        fabric_state=read.text("fabric/state") or "",
        fabric_status=_status(element),
        fabric_health=_fabric_health(read),
        memory=_memory(read),
        performance_state=read.text("performance_state") or "",
        pcie_width=read.number("pci/pci_gpu_link_info/link_widths/current_link_width"),
        pcie_gen=read.number("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        slowdown=_slowdown(read),
        recovery_action=read.text("gpu_recovery_action") or "",
        lost=lost,
        unread=tuple(dict.fromkeys(read.unread)),
    )


def _status(element: ElementTree.Element) -> str:
    """Here the words for errors are the value."""
    text = (element.findtext("fabric/status") or "").strip()
    return "" if text.lower() in UNKNOWN else text


def _fabric_health(read: _Reader) -> Mapping[str, str]:
    """What is not well. Where the summary is given it decides, the others say why."""
    summary = read.text("fabric/health/summary")
    wrong = {}
    bandwidth = read.text("fabric/health/bandwidth")
    if bandwidth is not None and bandwidth.lower() != "full":
        wrong["bandwidth"] = bandwidth
    for name in ("route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery"):
        if read.flag(f"fabric/health/{name}"):
            wrong[name] = "True"
    configuration = read.text("fabric/health/incorrect_configuration")
    if configuration is not None and configuration.lower() not in ("none", "false"):
        wrong["incorrect_configuration"] = configuration
    if summary is None:
        return MappingProxyType(wrong)
    if summary.lower() == "healthy":
        return MappingProxyType({})
    return MappingProxyType({"summary": summary, **wrong})


def _memory(read: _Reader) -> Memory:
    repairs = {
        "row": "remapped_rows/remapped_row_pending",
        "channel": "ecc_errors/channel_repair_pending",
        "TPC": "ecc_errors/tpc_repair_pending",
        "page": "retired_pages/pending_retirement",
    }
    return Memory(
        ecc=read.flag("ecc_mode/current_ecc"),
        ecc_pending=read.flag("ecc_mode/pending_ecc"),
        volatile_uncorrectable=_uncorrectable(read, "volatile"),
        aggregate_uncorrectable=_uncorrectable(read, "aggregate"),
        sram_threshold_exceeded=read.flag("ecc_errors/aggregate/sram_threshold_exceeded"),
        unrepairable=read.flag("ecc_errors/unrepairable_memory"),
        repair_pending=tuple(what for what, path in repairs.items() if read.flag(path)),
        remap_pending=read.flag("remapped_rows/remapped_row_pending"),
        remapped_correctable=read.number("remapped_rows/remapped_row_corr"),
        remapped_uncorrectable=read.number("remapped_rows/remapped_row_unc"),
        remap_failure=read.flag("remapped_rows/remapped_row_failure"),
    )


def _uncorrectable(read: _Reader, scope: str) -> Optional[int]:
    """SRAM and DRAM together. SRAM is one number before Ampere and two since."""
    base = f"ecc_errors/{scope}"
    dram = read.number(f"{base}/dram_uncorrectable")
    parity = read.number(f"{base}/sram_uncorrectable_parity")
    secded = read.number(f"{base}/sram_uncorrectable_secded")
    sram = read.number(f"{base}/sram_uncorrectable")
    if sram is None and parity is not None and secded is not None:
        sram = parity + secded
    return None if dram is None or sram is None else dram + sram


def _slowdown(read: _Reader) -> tuple[str, ...]:
    base = "clocks_event_reasons/clocks_event_reason_"
    known = [why for name, why in SLOWDOWNS.items() if read.flag(base + name)]
    if not known and read.flag(f"{base}hw_slowdown"):
        known = ["unknown cause"]
    return tuple(known)
