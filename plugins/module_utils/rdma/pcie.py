# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Paths between GPUs and NICs: IOMMU and PCIe ACS, set for every boot and read back.

With IOMMU mode `pt`, host devices access memory directly, as GPUDirect RDMA needs, and interrupt
remapping stays on. The kernel arguments for it depend on the processor. ACS redirection is turned
off on every bridge between a GPU and a NIC, immediately and at every boot.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.files import HEADER, FilePlan
from ..core.part import Node, Plan, Step, Verdict
from ..hardware import tree as sysfs
from . import Hardware, Reads, acs

PASS_THROUGH, TRANSLATED, OFF = "pt", "on", "off"
INTEL, AMD = "GenuineIntel", "AuthenticAMD"

_MODES = {PASS_THROUGH: "pt", TRANSLATED: "nopt", OFF: "off"}
_TYPES = {PASS_THROUGH: ("identity",), TRANSLATED: ("DMA", "DMA-FQ"), OFF: ("no IOMMU",)}
"""Types of an IOMMU group in the kernel's terms."""
TABLES = ("DMAR", "IVRS")
"""Firmware tables that describe an enabled IOMMU of Intel and AMD machines."""
IOMMU = "iommu_group"
GROUPS = "sys/kernel/iommu_groups"
DMESG = "look for DMAR or AMD-Vi in dmesg"


def arguments(setting: str, root: Path = Path("/")) -> list[str]:
    if not setting:
        return []
    cpus = sysfs.text(root / "proc/cpuinfo")
    match = re.search(r"^vendor_id\s*:\s*(\S+)", cpus, re.MULTILINE)
    vendor, found = match[1] if match else "", [f"iommu={_MODES[setting]}"]
    if vendor == INTEL:
        return [f"intel_iommu={'off' if setting == OFF else 'on'}", *found]
    return ["amd_iommu=off", *found] if (vendor, setting) == (AMD, OFF) else found


@dataclass(frozen=True)
class IommuGroups(Reads):
    """Effect of the arguments: how the kernel handles DMA by each rail's NIC and GPU."""

    setting: str
    rails: Sequence[Mapping[str, Any]] = ()
    gpus: Sequence[Mapping[str, Any]] = ()

    def verify(self, node: Node) -> Verdict:
        if not self.setting:
            return Verdict()
        types = _TYPES[self.setting]
        missing = self.hardware.missing(node, "the IOMMU is the host's")
        if missing:
            return Verdict([not_applicable(IOMMU, types[0], missing)])
        running = (node.read("proc/cmdline") or "").split()
        if not self.hardware.simulated and not {*arguments(self.setting, node.root)} <= {*running}:
            return Verdict()  # the arguments wait for a reboot: see kernel_argument
        groups = sysfs.names(self.hardware.root / GROUPS)
        if self.setting == OFF:
            found = f"{len(groups)} groups" if groups else types[0]
            return Verdict([compare(IOMMU, types[0], found, reason=f"it is still on: {DMESG}")])
        if not groups:
            return Verdict([self._none(types[0])])
        given = [each.get("pci") for each in (*self.rails, *self.gpus)]
        functions = {str(pci) for pci in given if pci in self.hardware.machine.functions}
        return Verdict([self._group(pci, types) for pci in sorted(functions)])

    def _none(self, wanted: str) -> Check:
        acpi = self.hardware.root / "sys/firmware/acpi/tables"
        if any((acpi / name).exists() for name in TABLES):
            reason = f"the firmware describes one, but the kernel does not use it: {DMESG}"
            return Check(IOMMU, wanted, "no IOMMU", FAILED, reason=reason)
        why = "the firmware describes no IOMMU: this is a virtual machine, or it is off there"
        return not_applicable(IOMMU, wanted, why)

    def _group(self, pci: str, types: Sequence[str]) -> Check:
        root = self.hardware.root
        number = sysfs.target(root / "sys/bus/pci/devices" / pci / "iommu_group")
        found = sysfs.text(root / GROUPS / number / "type") if number else "none"
        if found in types:
            return Check(IOMMU, found, found, OK, pci)
        reason = (
            "another setting decides: /sys/kernel/iommu_groups, a kernel with another default, or "
            "a device that the kernel does not trust"
        )
        return Check(IOMMU, types[0], found, FAILED, pci, reason)


DISABLE, VERIFY, KEEP = "disable", "verify", "keep"
ACS, ACS_BOOT = "acs_redirect", "acs_boot"
REDIRECTS, DIRECT = "redirects", "does not redirect"

UNIT = "baremetal-mpi-roce-acs.service"
UNIT_FILE = f"etc/systemd/system/{UNIT}"
PROGRAM = "usr/local/libexec/baremetal-mpi-roce/acs"

_UNIT_BODY = f"""[Unit]
Description=PCIe ACS redirection off between GPUs and NICs (baremetal.mpi_roce)
After=systemd-modules-load.service
Before=nvidia-fabricmanager.service slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/{PROGRAM} --apply

[Install]
WantedBy=multi-user.target
"""


def program_text() -> str:
    """The module acs.py as a program, with the same code as here."""
    text = pkgutil.get_data(__name__.rpartition(".")[0], "acs.py") or b""
    end = '\n\nif __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n'
    return f"#!/usr/bin/python3 -IS\n# {HEADER}\n{text.decode().rstrip()}\n{end}"


@dataclass(frozen=True)
class Acs:
    hardware: Hardware
    setting: str = DISABLE

    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        root = self.hardware.root
        bridges = acs.bridges(root)
        wanted = self.setting == DISABLE and bool(bridges)
        files = self._files(node, wanted)
        steps = [
            Step(f"ACS of bridge {each.pci}", REDIRECTS, DIRECT, partial(acs.clear, each.pci, root))
            for each in (bridges if self._clears() else ())
            if each.redirects
        ]
        enabled = systemd.linked(node, UNIT)
        if enabled != wanted or any(planned.changed for planned in files):
            act = partial(systemd.link, node, UNIT, wanted)
            steps.append(Step(UNIT, _enabled(enabled), _enabled(wanted), act))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if self.setting == KEEP:
            return Verdict()
        missing = self.hardware.missing(node, "PCIe bridges are the host's")
        bridges: list[acs.Bridge] = []
        try:
            bridges = [] if missing else acs.bridges(self.hardware.root)
        except OSError as error:
            if not self.hardware.simulated:
                return Verdict([Check(ACS, DIRECT, "cannot be read", FAILED, reason=str(error))])
            missing = "the recorded machine has no configuration spaces"
        if not bridges:
            reason = missing or "no GPU and NIC of this machine share a PCIe switch"
            return Verdict([not_applicable(ACS, DIRECT, reason)])
        checks = [self._check(node, bridge) for bridge in bridges]
        if self.setting == DISABLE and node.container is None:
            found, check_mode = _enabled(systemd.linked(node, UNIT)), node.check_mode
            checks.append(compare(ACS_BOOT, "enabled", found, subject=UNIT, check_mode=check_mode))
        return Verdict(checks)

    def _clears(self) -> bool:
        """Whether registers are written; a locked-down kernel would refuse that."""
        if self.setting != DISABLE or self.hardware.simulated:
            return False
        return not acs.locked_down(self.hardware.root)

    def _check(self, node: Node, bridge: acs.Bridge) -> Check:
        if not bridge.redirects:
            return Check(ACS, DIRECT, DIRECT, OK, bridge.pci)
        if node.check_mode and self._clears():
            return Check(ACS, DIRECT, REDIRECTS, PENDING, bridge.pci)
        if self.setting == VERIFY:
            reason = "turn it off: rdma_stack_acs: disable, or ACS in the BIOS setup"
        elif acs.locked_down(self.hardware.root):
            reason = acs.LOCKED.format(pci=bridge.pci)
        else:
            reason = "the firmware locks the register: turn ACS off in the BIOS setup"
        return Check(ACS, DIRECT, REDIRECTS, FAILED, bridge.pci, reason)

    def _files(self, node: Node, wanted: bool) -> list[FilePlan]:
        if not wanted and not any(node.path(each).exists() for each in (PROGRAM, UNIT_FILE)):
            return []
        return [
            node.record(PROGRAM, program_text() if wanted else None, mode=0o755),
            node.file(UNIT_FILE, _UNIT_BODY if wanted else None),
        ]


def _enabled(yes: bool) -> str:
    return "enabled" if yes else "not enabled"
