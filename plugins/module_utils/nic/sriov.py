# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rails are physical functions: no virtual function is left on them, and none in use is taken away.

This is the running kernel. The firmware's own switch (SRIOV_EN) is in `firmware`. What the kernel
does with virtual functions that others make (`sriov_drivers_autoprobe`) is left alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ..core import processes
from ..core.commands import Runner
from ..core.dataclass import dataclass
from ..rails.device import pci_address
from ..rails.state import parse_links
from .setting import Rail, Reading, Setting

ALLOW = "roce_rails_remove_vfs_in_use"
"""The role's variable that allows removing what is used."""
_PASS_THROUGH = frozenset({"pci-stub", "pciback", "xen-pciback", "uio_pci_generic", "igb_uio"})
"""Drivers that hand a function to a guest or to a program; those of VFIO besides."""
_UP = 0x1


@dataclass(frozen=True)
class VirtualFunction:
    pci: str
    driver: str
    """Empty when none is bound."""
    interfaces: tuple[str, ...]
    """Network interfaces in this network namespace, usually one."""
    devices: tuple[str, ...]
    """RDMA devices."""
    users: tuple[str, ...] = ()
    """What it is used for; nothing when it is idle."""
    holders: tuple[str, ...] = ()
    """Why it must not be removed whatever is allowed: the kernel would wait, or the host be cut."""

    def line(self) -> str:
        """One line for the operator: `0000:09:10.0 (eth3, igbvf): eth3 is up`."""
        what = ", ".join((*self.interfaces, *self.devices, self.driver or "no driver"))
        use = "; ".join((*self.users, *self.holders)) or "idle"
        return f"{self.pci} ({what}): {use}"


def virtual_functions(
    pci: str,
    root: Path = Path("/"),
    addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    keep: Mapping[str, str] = MappingProxyType({}),
) -> list[VirtualFunction]:
    """Those of the function at `pci`, in its own order.

    `addresses` are the IP addresses of each interface; `keep` are interfaces that the
    host is reached by, and why.
    """
    physical = root / "sys/bus/pci/devices" / pci
    links = sorted(physical.glob("virtfn*"), key=lambda link: int(link.name[len("virtfn") :]))
    return [_function(link.resolve(), root, addresses, keep) for link in links]


def _function(
    path: Path,
    root: Path,
    addresses: Mapping[str, tuple[str, ...]],
    keep: Mapping[str, str],
) -> VirtualFunction:
    driver = _target(path / "driver")
    interfaces, devices = _names(path / "net"), _names(path / "infiniband")
    nodes = _device_nodes(path)
    found = processes.openers(root, nodes.__contains__) if nodes else []
    openers = [f"{each.name} (process {each.pid})" for each in found]
    users: list[str] = []
    holders = [f"{name} {keep[name]}" for name in interfaces if name in keep]
    if driver.startswith("vfio") or driver.endswith("vfio_pci") or driver in _PASS_THROUGH:
        users.append(f"handed to a guest or a program by {driver}")
        if openers:
            # Taking it away waits until the last of them has closed it.
            holders.append(f"held open by {', '.join(openers)}")
    else:
        if driver and not interfaces:
            users.append(
                f"{driver} drives it, and its interface is not here but in another network "
                "namespace (a container's)"
            )
        if openers:
            users.append(f"RDMA used by {', '.join(openers)}")
    users += (use for name in interfaces for use in _interface_users(name, root, addresses))
    return VirtualFunction(
        path.name, driver, interfaces, devices, tuple(users), tuple(dict.fromkeys(holders))
    )


def _interface_users(
    name: str, root: Path, addresses: Mapping[str, tuple[str, ...]]
) -> Iterator[str]:
    path = root / "sys/class/net" / name
    with contextlib.suppress(OSError, ValueError):
        if int((path / "flags").read_text(encoding="ascii"), 16) & _UP:
            yield f"{name} is up"
    if addresses.get(name):
        yield f"{name} carries {', '.join(addresses[name])}"
    uppers = [upper.name[len("upper_") :] for upper in sorted(path.glob("upper_*"))]
    if uppers:
        yield f"{name} is used by {', '.join(uppers)}"
    for device in sorted((root / "sys/class/infiniband").glob("*/parent")):
        with contextlib.suppress(OSError):
            if device.read_text(encoding="ascii").strip() == name:
                yield f"{name} carries the RDMA device {device.parent.name}"


def _names(directory: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in directory.iterdir())) if directory.is_dir() else ()


def _device_nodes(path: Path) -> list[str]:
    """The files in /dev by which programs use the function past the kernel's network."""
    nodes = [f"/dev/infiniband/{name}" for name in _names(path / "infiniband_verbs")]
    group = _target(path / "iommu_group")
    return [*nodes, f"/dev/vfio/{group}"] if group else nodes


def _target(link: Path) -> str:
    """The name of what a link names, whether it is in a recorded tree or not."""
    return link.readlink().name if link.is_symlink() else ""


def sriov_settings(
    run: Runner,
    remove_in_use: bool,
    keep: Mapping[str, str],
    root: Path,
    rail: Rail,
) -> list[Setting]:
    """One setting for each rail that is a PCI function, with an RDMA device or without.

    `keep`: interfaces that the host is reached by, and why; their functions are never removed.
    """
    pci = pci_address(root / "sys/class/net" / rail.interface)
    return [NoVirtualFunctions(rail.name, pci, run, remove_in_use, keep, root)] if pci else []


class NoVirtualFunctions(Setting):
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
        self.tool = f"/sys/bus/pci/devices/{pci}/sriov_numvfs"
        self._run = run
        self._remove_in_use = remove_in_use
        self._keep = keep
        self._root = root
        self._directory = root / "sys/bus/pci/devices" / pci

    def read(self) -> Reading:
        physical = self._directory / "physfn"
        if physical.is_symlink():
            return Reading(
                [self.pci],
                refused=f"{self.pci} is itself a virtual function, of {physical.readlink().name}; "
                f"a rail is a physical function. Correct pci of {self.rail} in the model.",
            )
        functions = self._functions()
        return Reading([each.line() for each in functions], refused=self._refusal(functions) or "")

    def set(self, value: Any) -> None:
        """As many as `value` lists; what they were used for is not brought back."""
        (self._directory / "sriov_numvfs").write_text(f"{len(value)}\n", encoding="ascii")

    def _functions(self) -> list[VirtualFunction]:
        if not any(self._directory.glob("virtfn*")):
            return []
        links = parse_links(json.loads(self._run(("ip", "-N", "-j", "address", "show")).stdout))
        addresses = {name: link.addresses for name, link in links.items()}
        return virtual_functions(self.pci, self._root, addresses, self._keep)

    def _refusal(self, functions: Sequence[VirtualFunction]) -> Optional[str]:
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
        return None
