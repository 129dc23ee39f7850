# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which network interface a PCI address is, and whether the name can be given to it now.

Read from sysfs under a root, so that a recorded tree serves as well as a live machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Optional

from ..core.dataclass import dataclass
from ..hardware.pci import way
from ..hardware.ports import interfaces
from .plan import RailPlan
from .state import Link

NO_PCI = "no PCI address in the model"

NAMED = "named"
"""The interface carries its name, at its PCI address where one is given."""
RENAME = "rename"
"""It is known by its PCI address, idle, and can be renamed now."""
REBOOT = "reboot"
"""It is in use under another name; the link file names it at the next boot."""
REFUSED = "refused"
"""Missing, or the name belongs to another device. Nothing is guessed and nothing is touched."""


@dataclass(frozen=True)
class Naming:
    """What is to be done about one rail's name."""

    verdict: str
    interface: Optional[str]
    """What it is called now."""
    reason: str = ""


def interfaces_by_pci(root: Path = Path("/")) -> dict[str, list[str]]:
    """PCI address to the interfaces of the function at it, usually one."""
    found: dict[str, list[str]] = {}
    for entry in interfaces(root / "sys"):
        if entry.pci and not entry.representor and not entry.subfunction:
            found.setdefault(entry.pci, []).append(entry.name)
    return found


def pci_address(interface: Path) -> Optional[str]:
    """The PCI function that a `/sys/class/net` entry belongs to: the last one on its way.

    A virtio device sits one step below its PCI function, so the device's own name is not enough.
    """
    device = interface / "device"
    steps = way(device.resolve()) if device.exists() else ()
    return steps[-1] if steps else None


def naming(
    rail: RailPlan,
    links: Mapping[str, Link],
    by_pci: Mapping[str, list[str]],
    in_use: frozenset[str] = frozenset(),
    management: Mapping[str, str] = MappingProxyType({}),
) -> Naming:
    """Whether the rail's interface is there under its name.

    `in_use` must never be renamed. `management` says why the host is reached by an interface; such
    a one is refused by its name and by its PCI address alike, before anything else is considered.
    """
    name = rail.interface
    for device in (*by_pci.get(rail.pci or "", ()), name):
        if device in management:
            place = f"{device} at {rail.pci}" if device != name and rail.pci else device
            return Naming(
                REFUSED,
                device if device in links else None,
                f"{place} {management[device]}; the rail {name} ({rail.cidr}) would cut this host "
                "off. Nothing was changed on it. Correct interface or pci of this rail in the "
                f"model; if {device} is to be a rail, move what it carries to another interface "
                "first.",
            )
    if rail.pci is None:
        if name in links:
            return Naming(NAMED, name)
        return Naming(
            REFUSED,
            None,
            f"there is no interface {name}, and the model gives no PCI address to find it by; "
            f"this host has {_listed(links)}. Give its pci in the model, or name the interface.",
        )
    here = by_pci.get(rail.pci, [])
    if name in here:
        return Naming(NAMED, name)
    if name in links:
        at = next((pci for pci, names in by_pci.items() if name in names), None)
        found = f"the interface {name} is at {at or 'no PCI address (a virtual interface)'}"
        there = f"at {rail.pci} is {' and '.join(here) or 'nothing'}"
        return Naming(
            REFUSED,
            here[0] if here else None,
            f"{found}, the model says {rail.pci}, and {there}. Correct pci of {name} in the model; "
            f"if the model is right, free the name (ip link set {name} down; ip link set {name} "
            "name OTHER) and run again.",
        )
    if not here:
        nics = ", ".join(f"{pci} ({names[0]})" for pci, names in sorted(by_pci.items()))
        return Naming(
            REFUSED,
            None,
            f"no network interface at PCI address {rail.pci}: the NIC is missing, or has no driver "
            f"(lspci -s {rail.pci} -k). NICs found: {nics or 'none'}.",
        )
    if len(here) > 1:
        return Naming(
            REFUSED,
            None,
            f"{len(here)} interfaces at PCI address {rail.pci}: {', '.join(here)}; none is called "
            f"{name}, and nothing says which it is.",
        )
    current = here[0]
    link = links.get(current)
    busy = _busy(link, current in in_use)
    if busy:
        return Naming(
            REBOOT, current, f"{current} at {rail.pci} {busy}; it becomes {name} at the next boot"
        )
    return Naming(RENAME, current, f"{current} at {rail.pci} becomes {name}")


def _busy(link: Optional[Link], in_use: bool) -> str:
    if link is None:
        return "is not visible to ip"
    if link.addresses:
        return f"carries {', '.join(link.addresses)}"
    if link.master:
        return f"belongs to {link.master}"
    return "is used by another interface or a route" if in_use else ""


def _listed(links: Mapping[str, Link]) -> str:
    names = sorted(name for name in links if name != "lo")
    return ", ".join(names) or "no interface at all"
