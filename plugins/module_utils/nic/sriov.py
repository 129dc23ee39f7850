# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual functions of a rail, which are removed if idle, because a rail is a physical function.

This concerns the running kernel; SRIOV_EN of the firmware is in `mlx5/firmware`. The kernel's
handling of new virtual functions (`sriov_drivers_autoprobe`) is not changed.
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
_PASS_THROUGH = frozenset({"pci-stub", "pciback", "xen-pciback", "uio_pci_generic", "igb_uio"})
"""Drivers that pass a function to a guest or program, in addition to those of VFIO."""
_UP = 0x1


@dataclass(frozen=True)
class VirtualFunction:
    pci: str
    names: tuple[str, ...]
    """Names of its interfaces in this network namespace, its RDMA devices and its driver."""
    users: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    """Why it is never removed: the kernel would block, or the host would be unreachable."""

    def line(self) -> str:
        """Return a line for the operator: `0000:09:10.0 (eth3, igbvf): eth3 is up`."""
        use = "; ".join((*self.users, *self.holders)) or "idle"
        return f"{self.pci} ({', '.join(self.names)}): {use}"


def sriov_settings(
    run: Runner, remove_in_use: bool, keep: Mapping[str, str], root: Path, rail: RailNic
) -> list[NicSetting]:
    """Return a setting for a rail that is a PCI function, even without an RDMA device.

    `keep`: interfaces through which the host is reached, with the reason; their functions are never
    removed.
    """
    pci = pci_address(root / "sys/class/net" / rail.interface)
    return [NoVirtualFunctions(rail.name, pci, run, remove_in_use, keep, root)] if pci else []


class NoVirtualFunctions(NicSetting):
    """`sriov_numvfs` of one rail, which must be 0, shown as the list of its functions."""

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
        return Reading(
            [function.line() for function in functions], refused=self._refusal(functions)
        )

    def set(self, value: Any) -> None:
        """Set the number of functions in `value`; their former use is not restored."""
        (self._directory / "sriov_numvfs").write_text(f"{len(value)}\n", encoding="ascii")

    def _functions(self) -> list[VirtualFunction]:
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
        # Device files through which programs use the function, bypassing the kernel's network
        # stack.
        nodes = [f"/dev/infiniband/{name}" for name in sysfs.names(path / "infiniband_verbs")]
        group = sysfs.target(path / "iommu_group")
        nodes += [f"/dev/vfio/{group}"] if group else []
        found = processes.openers(self._root, nodes.__contains__) if nodes else []
        openers = ", ".join(f"{each.name} (process {each.pid})" for each in found)
        users: list[str] = []
        holders = [f"{name} {self._keep[name]}" for name in interfaces if name in self._keep]
        if driver.startswith("vfio") or driver.endswith("vfio_pci") or driver in _PASS_THROUGH:
            users.append(f"passed to a guest or program by {driver}")
            # The kernel blocks the removal until the last program has closed the file.
            holders += [f"held open by {openers}"] if openers else []
        else:
            if driver and not interfaces:
                place = "another network namespace (of a container)"
                users.append(f"driver {driver} is bound to it, and its interface is in {place}")
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
        held = [function for function in functions if function.holders]
        used = [each for each in functions if each.users]
        if held:
            uses = "; ".join(f"{each.pci}: {', '.join(each.holders)}" for each in held)
            return (
                f"virtual functions of {self.pci} cannot be removed, nor does {ALLOW} allow it: "
                f"{uses}. Stop these processes, then run again."
            )
        if used and not self._remove_in_use:
            uses = "; ".join(f"{each.pci}: {', '.join(each.users)}" for each in used)
            return (
                f"{len(used)} of {len(functions)} virtual functions of {self.pci} are in use: "
                f"{uses}. They and the NIC settings of {self.rail} were not changed; its name, "
                "address and MTU are set nevertheless. Terminate the users and run again; or set "
                f"{ALLOW}: true, which removes the functions although they are in use."
            )
        return ""
