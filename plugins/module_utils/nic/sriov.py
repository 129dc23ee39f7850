# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails are physical functions: no virtual function is left on them, and none in use is taken away.

This is the running kernel. The firmware's own switch (SRIOV_EN) is in `firmware`. What the kernel
does with virtual functions that others make (`sriov_drivers_autoprobe`) is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import processes
from ..core.commands import Runner
from ..hardware import tree as sysfs
from ..hardware.iproute import parse_links
from ..hardware.survey import pci_address
from .setting import NicSetting, RailNic, Reading

ALLOW = "roce_rails_remove_vfs_in_use"
"""The role's variable that allows removing what is used."""
_PASS_THROUGH = frozenset({"pci-stub", "pciback", "xen-pciback", "uio_pci_generic", "igb_uio"})
"""Drivers that hand a function to a guest or to a program; those of VFIO besides."""
_UP = 0x1


@dataclass(frozen=True)
class VirtualFunction:
    pci: str
    names: tuple[str, ...]
    """Of its network interfaces in this network namespace, its RDMA devices and its driver."""
    users: tuple[str, ...] = ()
    """What it is used for; nothing when it is idle."""
    holders: tuple[str, ...] = ()
    """Why it must not be removed whatever is allowed: the kernel would wait, or the host be cut."""

    def line(self) -> str:
        """One line for the operator: `0000:09:10.0 (eth3, igbvf): eth3 is up`."""
        use = "; ".join((*self.users, *self.holders)) or "idle"
        return f"{self.pci} ({', '.join(self.names)}): {use}"


def sriov_settings(
    run: Runner,
    remove_in_use: bool,
    keep: Mapping[str, str],
    root: Path,
    rail: RailNic,
) -> list[NicSetting]:
    """One setting for each rail that is a PCI function, with an RDMA device or without.

    `keep`: interfaces that the host is reached by, and why; their functions are never removed.
    """
    pci = pci_address(root / "sys/class/net" / rail.interface)
    return [NoVirtualFunctions(rail.name, pci, run, remove_in_use, keep, root)] if pci else []


class NoVirtualFunctions(NicSetting):
    """`sriov_numvfs` of one rail at 0. Its value is the list of virtual functions, for a reader."""

    name = "virtual_functions"

    def __init__(
        self,
        rail: str,
        pci: str,
        run: Runner,
        remove_in_use: bool,
        keep: Mapping[str, str],
        root: Path,
    ) -> None:
        self.wanted: list[str] = []
        self.rail = rail
        self.pci = pci
        self._run = run
        self._remove_in_use = remove_in_use
        self._keep = keep
        self._root = root
        self._directory = root / "sys/bus/pci/devices" / pci

    def read(self) -> Reading:
        physical = sysfs.target(self._directory / "physfn")
        if physical:
            return Reading(
                [self.pci],
                refused=f"{self.pci} is itself a virtual function, of {physical}; a rail is a "
                f"physical function. Correct pci of {self.rail} in the model.",
            )
        functions = self._functions()
        return Reading([each.line() for each in functions], refused=self._refusal(functions))

    def set(self, value: Any) -> None:
        """As many as `value` lists; what they were used for is not brought back."""
        (self._directory / "sriov_numvfs").write_text(f"{len(value)}\n", encoding="ascii")

    def _functions(self) -> list[VirtualFunction]:
        """In the device's own order."""
        entries = self._directory.glob("virtfn*")
        ordered = sorted(entries, key=lambda entry: int(entry.name[len("virtfn") :]))
        if not ordered:
            return []
        links = parse_links(json.loads(self._run(("ip", "-N", "-j", "address", "show")).stdout))
        addresses = {name: link.addresses for name, link in links.items()}
        return [self._function(entry.resolve(), addresses) for entry in ordered]

    def _function(self, path: Path, addresses: Mapping[str, tuple[str, ...]]) -> VirtualFunction:
        driver = sysfs.target(path / "driver")
        interfaces, devices = sysfs.names(path / "net"), sysfs.names(path / "infiniband")
        # The files in /dev by which programs use the function past the kernel's network.
        nodes = [f"/dev/infiniband/{name}" for name in sysfs.names(path / "infiniband_verbs")]
        group = sysfs.target(path / "iommu_group")
        nodes += [f"/dev/vfio/{group}"] if group else []
        found = processes.openers(self._root, nodes.__contains__) if nodes else []
        openers = ", ".join(f"{each.name} (process {each.pid})" for each in found)
        users: list[str] = []
        holders = [f"{name} {self._keep[name]}" for name in interfaces if name in self._keep]
        if driver.startswith("vfio") or driver.endswith("vfio_pci") or driver in _PASS_THROUGH:
            users.append(f"handed to a guest or a program by {driver}")
            # Taking it away waits until the last of them has closed it.
            holders += [f"held open by {openers}"] if openers else []
        else:
            if driver and not interfaces:
                where = "is not here but in another network namespace (a container's)"
                users.append(f"{driver} drives it, and its interface {where}")
            users += [f"RDMA used by {openers}"] if openers else []
        for name in interfaces:
            users += self._interface_users(name, addresses.get(name, ()))
        names = (*interfaces, *devices, driver or "no driver")
        return VirtualFunction(path.name, names, tuple(users), tuple(holders))

    def _interface_users(self, name: str, addresses: tuple[str, ...]) -> Iterator[str]:
        path = self._root / "sys/class/net" / name
        if (sysfs.number(path / "flags") or 0) & _UP:
            yield f"{name} is up"
        if addresses:
            yield f"{name} carries {', '.join(addresses)}"
        uppers = [upper.name[len("upper_") :] for upper in sorted(path.glob("upper_*"))]
        if uppers:
            yield f"{name} is used by {', '.join(uppers)}"
        for device in sorted((self._root / "sys/class/infiniband").glob("*/parent")):
            if sysfs.text(device) == name:
                yield f"{name} carries the RDMA device {device.parent.name}"

    def _refusal(self, functions: list[VirtualFunction]) -> str:
        held = [each for each in functions if each.holders]
        used = [each for each in functions if each.users]
        if held:
            uses = "; ".join(f"{each.pci}: {', '.join(each.holders)}" for each in held)
            return (
                f"virtual functions of {self.pci} cannot be removed, nor does {ALLOW} allow it: "
                f"{uses}. End what uses them, then run again."
            )
        if used and not self._remove_in_use:
            uses = "; ".join(f"{each.pci}: {', '.join(each.users)}" for each in used)
            return (
                f"{len(used)} of {len(functions)} virtual functions of {self.pci} are in use: "
                f"{uses}. They and the NIC settings of {self.rail} were left alone; its name, "
                "address and MTU are set all the same. End what uses them and run again; or set "
                f"{ALLOW}: true, which takes them away from what uses them."
            )
        return ""
