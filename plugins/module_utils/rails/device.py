# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which network interface a PCI address is, whether it can get its name now, and the `.link` files.

Read from sysfs under a root, so that a recorded tree serves as well as a live machine. At every
boot systemd's `.link` files name each rail's interface by its PCI address.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Optional

from ..core.dataclass import dataclass
from ..core.files import FilePlan, plan_file, with_header
from ..hardware.inventory import way
from ..hardware.survey import interfaces
from .claims import NETWORK_PREFIX
from .plan import RailPlan
from .state import Link

NAMED = "named"
"""The interface carries its name, at its PCI address where one is given."""
RENAME = "rename"
"""It is found by its PCI address, is idle, and can be renamed now."""
REBOOT = "reboot"
"""It is in use under another name; the link file names it at the next boot."""
REFUSED = "refused"
"""Missing, or the name belongs to another device. Nothing is guessed and nothing is touched."""


@dataclass(frozen=True)
class Naming:
    """What has to be done about one rail's name."""

    verdict: str
    interface: Optional[str]
    """Its present name."""
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

    Interfaces `in_use` are not renamed. `management` gives why the host is reached by an
    interface; that one is refused, by its name and by its PCI address, before anything else.
    """
    name, pci = rail.interface, rail.pci
    here = by_pci.get(pci or "", [])
    for device in (*here, name):
        if device in management:
            place = f"{device} at {pci}" if device != name else device
            return Naming(
                REFUSED,
                device if device in links else None,
                f"{place} {management[device]}; as the rail {name} ({rail.cidr}) it would cut this "
                "host off. Correct interface or pci of this rail in the model, or move what "
                f"{device} carries to another interface first.",
            )
    if name in here or (pci is None and name in links):
        return Naming(NAMED, name)
    if pci is None:
        others = ", ".join(sorted(links.keys() - {"lo"})) or "none"
        return Naming(
            REFUSED, None, f"no interface {name}; found: {others}. Give its pci in the model."
        )
    if name in links:
        at = next((place for place, names in by_pci.items() if name in names), None)
        return Naming(
            REFUSED,
            here[0] if here else None,
            f"the interface {name} is at {at or 'no PCI address (a virtual interface)'}, the model "
            f"has {pci}, where {' and '.join(here) or 'nothing'} is. Correct pci of {name} in the "
            f"model, or free the name (ip link set {name} down; ip link set {name} name OTHER).",
        )
    if len(here) != 1:
        nics = ", ".join(f"{place} ({' '.join(names)})" for place, names in sorted(by_pci.items()))
        return Naming(
            REFUSED,
            None,
            f"{len(here) or 'no'} network interfaces at PCI address {pci}. Look at the NIC and its "
            f"driver (lspci -s {pci} -k), or correct pci. NICs found: {nics or 'none'}.",
        )
    current = here[0]
    link = links.get(current)
    busy = ""
    if link is None:
        busy = "is not visible to ip"
    elif link.addresses:
        busy = f"carries {', '.join(link.addresses)}"
    elif link.master:
        busy = f"belongs to {link.master}"
    elif current in in_use:
        busy = "is used by another interface or a route"
    if busy:
        reason = f"{current} at {pci} {busy}; it becomes {name} at the next boot"
        return Naming(REBOOT, current, reason)
    return Naming(RENAME, current, f"{current} at {pci} becomes {name}")


def link_file(rail: RailPlan) -> str:
    """`Path=` compares udev's ID_PATH, which for a PCI function is `pci-` and its address.

    MAC addresses would not do: ConnectX NICs of one board have been seen to share an identity.
    """
    return with_header(
        f"[Match]\nPath=pci-{rail.pci}\nType=ether\n\n[Link]\nName={rail.interface}\n"
    )


def link_file_path(interface: str, root: Path) -> Path:
    """First in udev's order, before the distribution's 99-default.link and netplan's own."""
    return root / f"etc/systemd/network/{NETWORK_PREFIX}{interface}.link"


def plan_link_files(
    rails: Sequence[RailPlan], kept: Iterable[str], root: Path = Path("/")
) -> list[FilePlan]:
    """Files for all `rails` with a PCI address; others of ours go, but for those of `kept`."""
    wanted = {link_file_path(rail.interface, root): link_file(rail) for rail in rails if rail.pci}
    keep = {link_file_path(interface, root) for interface in kept}
    there = set((root / "etc/systemd/network").glob(f"{NETWORK_PREFIX}*.link"))
    return [plan_file(path, wanted.get(path)) for path in sorted((there | set(wanted)) - keep)]
