# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names of rails: which interface is at a rail's PCI address, and when it can be renamed.

systemd's `.link` files give the names at every boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan
from ..core.part import NAME, Node
from ..core.text import some
from ..hardware.iproute import IpLink, NetworkState
from ..hardware.survey import interfaces
from .plan import RailPlan

NAMED, RENAME, AT_BOOT, REFUSED = "named", "rename", "at_boot", "refused"
"""It has its name; it is idle and can be renamed now; it is in use, and the link file names it at
the next boot; it is missing, or another device has its name: nothing is changed."""

LINK_DIRECTORY = "etc/systemd/network"
NETWORK_PREFIX = f"10-{NAME}-"
"""Prefix of the collection's files there, which sort before 99-default.link and netplan's files."""


@dataclass(frozen=True)
class RailName:
    """What a run does about the interface that is now named `interface`."""

    action: str
    interface: Optional[str]
    reason: str = ""


def interfaces_by_pci(root: Path = Path("/")) -> dict[str, list[str]]:
    """Return the interfaces of each PCI function, usually one, by its address."""
    found: dict[str, list[str]] = {}
    for entry in interfaces(root / "sys"):
        if entry.pci and not entry.virtual:
            found.setdefault(entry.pci, []).append(entry.name)
    return found


def rail_name(
    rail: RailPlan,
    state: NetworkState,
    by_pci: Mapping[str, list[str]],
    reached_by: Mapping[str, str],
    held: str = "",
) -> RailName:
    """A rail is refused if its interface is in `reached_by`, through which the host is reached, or
    if its address is `held`: the text says how the management of this host uses it.
    """
    here = by_pci.get(rail.pci or "", [])
    refusal = _refusal(rail, state.links, by_pci, reached_by)
    if not refusal and held:
        refusal = f"its address is {held}. Correct the rail's address in the model"
    if refusal:
        return RailName(REFUSED, here[0] if here else None, refusal)
    if rail.pci is None or rail.interface in here:
        return RailName(NAMED, rail.interface)
    busy = _busy(here[0], state)
    if busy:
        reason = f"{here[0]} at {rail.pci} {busy}; it becomes {rail.interface} at the next boot"
        return RailName(AT_BOOT, here[0], reason)
    return RailName(RENAME, here[0], f"{here[0]} at {rail.pci} becomes {rail.interface}")


def elsewhere(
    rails: Iterable[RailPlan], by_pci: Mapping[str, list[str]], reached_by: Mapping[str, str]
) -> str:
    """Return a sentence with the probable addresses of the rails, if none of them is where the
    model has it and as many other NICs are present: another machine took the place of this node.
    NICs are assumed to be in the same order.
    """
    wanted = {rail.pci: rail.interface for rail in rails if rail.pci}
    found = sorted(pci for pci, names in by_pci.items() if not reached_by.keys() & set(names))
    if not wanted or len(found) != len(wanted) or wanted.keys() & by_pci.keys():
        return ""
    places = (f"{wanted[before]} {after}" for before, after in zip(sorted(wanted), found))
    return (
        "All NICs are at other addresses, as after a replacement of the machine: write them as pci"
        f" of this node in nodes.overrides; in the same order: {', '.join(places)}"
    )


def _refusal(
    rail: RailPlan,
    links: Mapping[str, IpLink],
    by_pci: Mapping[str, list[str]],
    reached_by: Mapping[str, str],
) -> str:
    name, pci = rail.interface, rail.pci
    here = by_pci.get(pci or "", [])
    for interface in (*here, name):
        if interface in reached_by:
            return (
                f"{interface}{f' at {pci}' if interface in here else ''} {reached_by[interface]}; "
                f"as the rail {name} ({rail.cidr}) it would cut this host off: correct it in the "
                "model"
            )
    if name in here or (pci is None and name in links):
        return ""
    if pci is None:
        return f"no interface {name}; found: {some(sorted(links))}. Give its pci in the model"
    if name in links:
        address = next((pci for pci, names in by_pci.items() if name in names), "no PCI address")
        return (
            f"the interface {name} is at {address}; the model has {pci}, where {some(here)} is. "
            f"Correct pci of {name} in the model, or free the name"
        )
    if len(here) != 1:
        nics = [f"{address} ({' '.join(names)})" for address, names in sorted(by_pci.items())]
        return (
            f"{len(here) or 'no'} network interfaces at PCI address {pci}. Check NIC and driver, "
            f"or correct pci. NICs found: {some(nics)}"
        )
    return ""


def _busy(interface: str, state: NetworkState) -> str:
    """Return why an interface cannot be renamed now, or None."""
    link = state.links.get(interface)
    if link is None:
        return "is not visible to ip"
    if link.addresses:
        return f"carries {', '.join(link.addresses)}"
    if link.master:
        return f"belongs to {link.master}"
    return "is used by another interface or a route" if interface in state.in_use else ""


def plan_link_files(rails: Sequence[RailPlan], kept: Iterable[str], node: Node) -> list[FilePlan]:
    """Plan link files for `rails` with a PCI address; others are removed, except `kept`. MAC
    addresses are not reliable: ConnectX NICs of one board have been seen with the same identity."""
    wanted = {
        _link_file(rail.interface): f"[Match]\nPath=pci-{rail.pci}\nType=ether\n\n"
        f"[Link]\nName={rail.interface}\n"
        for rail in rails
        if rail.pci
    }
    existing = node.path(LINK_DIRECTORY).glob(f"{NETWORK_PREFIX}*.link")
    names = {f"{LINK_DIRECTORY}/{path.name}" for path in existing} | set(wanted)
    keep = {_link_file(interface) for interface in kept}
    return [node.file(name, wanted.get(name)) for name in sorted(names - keep)]


def _link_file(interface: str) -> str:
    return f"{LINK_DIRECTORY}/{NETWORK_PREFIX}{interface}.link"
