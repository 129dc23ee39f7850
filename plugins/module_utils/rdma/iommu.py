# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The IOMMU: asked for on the kernel command line, and read back where the kernel puts devices.

`pt` lets devices of the host reach memory directly, which is what GPUDirect RDMA wants, and leaves
interrupt remapping on. Which arguments say so depends on the processor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ..core.checks import FAILED, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Verdict
from ..hardware import tree as sysfs
from .hardware import Hardware

PASS_THROUGH, TRANSLATED, OFF, KEEP = "pt", "on", "off", ""
CHOICES = (PASS_THROUGH, TRANSLATED, OFF, KEEP)
INTEL, AMD = "GenuineIntel", "AuthenticAMD"

_MODES = {PASS_THROUGH: "pt", TRANSLATED: "nopt", OFF: "off"}
_TYPES = {PASS_THROUGH: ("identity",), TRANSLATED: ("DMA", "DMA-FQ")}
"""Types of a group, as the kernel calls them."""
TABLES = ("DMAR", "IVRS")
"""How the firmware of Intel and AMD machines describes an IOMMU that is turned on."""
CHECK = "iommu_group"
GROUPS = "sys/kernel/iommu_groups"
_LEFT = "it is still on: see in dmesg what turned it on (DMAR, AMD-Vi)"


def arguments(setting: str, root: Path = Path("/")) -> list[str]:
    """Arguments of the kernel command line for `setting` on this machine's processor."""
    if setting == KEEP:
        return []
    vendor, found = _vendor(root), [f"iommu={_MODES[setting]}"]
    if vendor == INTEL:
        return [f"intel_iommu={'off' if setting == OFF else 'on'}", *found]
    return ["amd_iommu=off", *found] if (vendor, setting) == (AMD, OFF) else found


def _vendor(root: Path) -> str:
    match = re.search(r"^vendor_id\s*:\s*(\S+)", sysfs.text(root / "proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else ""


@dataclass(frozen=True)
class IommuGroups:
    """What became of the arguments: how the kernel treats the DMA of each rail's NIC and GPU."""

    setting: str
    rails: Sequence[Mapping[str, Any]] = ()
    gpus: Sequence[Mapping[str, Any]] = ()
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        types = _TYPES.get(self.setting)
        wanted = types[0] if types else "no IOMMU"
        if self.setting == KEEP:
            return Verdict()
        missing = self.hardware.missing(node, "the IOMMU is the host's")
        if missing:
            return Verdict([not_applicable(CHECK, wanted, missing)])
        if not self.hardware.simulated and not self._running(node):
            # The arguments wait for a reboot, which is said there.
            return Verdict()
        if types is None:
            groups = len(sysfs.names(self.hardware.root / GROUPS))
            found = f"{groups} groups" if groups else wanted
            return Verdict([compare(CHECK, wanted, found, reason=_LEFT)])
        return Verdict(self._groups(wanted, types))

    def _running(self, node: Node) -> bool:
        running = (node.read("proc/cmdline") or "").split()
        return all(each in running for each in arguments(self.setting, node.root))

    def _groups(self, wanted: str, types: Sequence[str]) -> list[Check]:
        if not sysfs.names(self.hardware.root / GROUPS):
            acpi = self.hardware.root / "sys/firmware/acpi/tables"
            tables = [name for name in TABLES if (acpi / name).exists()]
            if tables:
                reason = (
                    f"the firmware describes one ({tables[0]}), and the kernel does not use it: "
                    "look for DMAR or AMD-Vi in dmesg"
                )
                return [Check(CHECK, wanted, "no IOMMU", FAILED, reason=reason)]
            why = "the firmware describes no IOMMU: this is a virtual machine, or it is off there"
            return [not_applicable(CHECK, wanted, why)]
        return [self._group(pci, wanted, types) for pci in self._functions()]

    def _functions(self) -> list[str]:
        given = [each.get("pci") for each in (*self.rails, *self.gpus)]
        there = self.hardware.machine.functions
        return sorted({str(pci) for pci in given if pci and pci in there})

    def _group(self, pci: str, wanted: str, types: Sequence[str]) -> Check:
        root = self.hardware.root
        number = sysfs.target(root / "sys/bus/pci/devices" / pci / "iommu_group")
        found = sysfs.text(root / GROUPS / number / "type") if number else "none"
        if found in types:
            return compare(CHECK, found, found, subject=pci)
        reason = (
            "something else chose it: /sys/kernel/iommu_groups, a kernel built with another "
            "default, or a device that the kernel does not trust"
        )
        return Check(CHECK, wanted, found, FAILED, pci, reason)
