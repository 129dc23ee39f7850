# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd `.link` files: at every boot, each rail's interface is named by its PCI address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..files import FilePlan, plan_file, with_header
from .backend import NETWORK_PREFIX, Conflict
from .claims import parse_unit
from .plan import RailPlan

_SUFFIX = ".link"
_DIRECTORIES = ("etc", "run", "usr/lib", "lib")


def link_file(rail: RailPlan) -> str:
    """`Path=` compares udev's ID_PATH, which for a PCI function is `pci-` and its address.

    MAC addresses would not do: ConnectX NICs of one board have been seen to share an identity.
    """
    return with_header(
        f"[Match]\nPath=pci-{rail.pci}\nType=ether\n\n[Link]\nName={rail.interface}\n"
    )


def link_file_path(interface: str, root: Path = Path("/")) -> Path:
    """First in udev's order, before the distribution's 99-default.link and netplan's own."""
    return root / f"etc/systemd/network/{NETWORK_PREFIX}{interface}{_SUFFIX}"


def plan_link_files(
    rails: Sequence[RailPlan], kept: Iterable[str], root: Path = Path("/")
) -> list[FilePlan]:
    """Files for all `rails` with a PCI address; others of ours go, but for those of `kept`."""
    wanted = {link_file_path(rail.interface, root): link_file(rail) for rail in rails if rail.pci}
    keep = {link_file_path(interface, root) for interface in kept}
    there = set((root / "etc/systemd/network").glob(f"{NETWORK_PREFIX}*{_SUFFIX}"))
    return [plan_file(path, wanted.get(path)) for path in sorted((there | set(wanted)) - keep)]


def link_file_conflicts(rails: Sequence[RailPlan], root: Path = Path("/")) -> list[Conflict]:
    """Files of the operator's that give a rail's name away, or name its device otherwise."""
    names = {rail.interface for rail in rails}
    paths: Mapping[str, str] = {f"pci-{rail.pci}": rail.interface for rail in rails if rail.pci}
    conflicts = []
    for directory in _DIRECTORIES:
        for path in sorted((root / directory / "systemd/network").glob(f"*{_SUFFIX}")):
            if path.name.startswith((NETWORK_PREFIX, "10-netplan-")):
                continue
            sections = parse_unit(path.read_text(encoding="utf-8", errors="replace"))
            name = sections.get("Link", {}).get("Name", "")
            at = sections.get("Match", {}).get("Path", "").split()
            rail = (
                name if name in names else next((paths[word] for word in at if word in paths), "")
            )
            # A file that does not name, or that comes after ours, leaves the name to us.
            if (rail and name and path.name < link_file_path(rail).name) or name in names:
                where = "/" + str(path.relative_to(root))
                conflicts.append(
                    Conflict(rail, where, f"it names {' '.join(at) or 'a device'} {name}")
                )
    return conflicts
