# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual functions of one NIC, and what each of them is used for.

Read below a root, so that a recorded tree serves as well. `ip` is asked for addresses only when
there are virtual functions at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from ..dataclass import dataclass

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

    `addresses` are the IP addresses of each interface; `keep` says of interfaces why this host
    needs them (it is reached by them).
    """
    physical = root / "sys/bus/pci/devices" / pci
    links = sorted(physical.glob("virtfn*"), key=lambda link: int(link.name[len("virtfn") :]))
    functions = [link.resolve() for link in links]
    opened = _openers(root, {node for each in functions for node in _device_nodes(each)})
    return [_function(each, root, addresses, keep, opened) for each in functions]


def _function(
    path: Path,
    root: Path,
    addresses: Mapping[str, tuple[str, ...]],
    keep: Mapping[str, str],
    opened: Mapping[str, list[str]],
) -> VirtualFunction:
    driver = _target(path / "driver")
    interfaces, devices = _names(path / "net"), _names(path / "infiniband")
    openers = [who for node in _device_nodes(path) for who in opened.get(node, ())]
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


def _openers(root: Path, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Who has each of these files open, containers' processes included: `qemu (process 812)`."""
    wanted = frozenset(nodes)
    found: dict[str, list[str]] = {}
    for process in sorted((root / "proc").glob("[0-9]*")) if wanted else ():
        # A process that ends meanwhile uses nothing.
        with contextlib.suppress(OSError):
            links = {str(link.readlink()) for link in (process / "fd").iterdir()}
            name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            for node in sorted(wanted & links):
                found.setdefault(node, []).append(f"{name} (process {process.name})")
    return found
