# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whose files claim a rail besides ours: networkd's own, and Debian's older interfaces file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

from .backend import NETWORK_PREFIX, Conflict, mac_equal, names_match
from .plan import RailPlan
from .state import Link

_DIRECTORIES = ("etc", "run", "usr/lib", "lib")


def network_file_conflicts(
    root: Path,
    rails: Sequence[RailPlan],
    links: Mapping[str, Link],
    ours: Callable[[str], Path],
) -> list[Conflict]:
    """Files that networkd would prefer to ours, or that name a rail outright."""
    conflicts = []
    for path, sections in network_sections(root):
        match = sections.get("Match", {})
        for rail in rails:
            claim = claims(match, rail, links.get(rail.interface))
            literal = rail.interface in match.get("Name", "").split()
            earlier = path.name < ours(rail.interface).name
            if claim and (literal or earlier):
                where = "/" + str(path.relative_to(root))
                conflicts.append(
                    Conflict(rail.interface, where, f"[Match] {claim} claims {rail.interface}")
                )
    return conflicts


def network_sections(root: Path) -> list[tuple[Path, dict[str, dict[str, str]]]]:
    """Every `.network` file that is not ours or netplan's; a name in /etc hides the later ones."""
    seen: dict[str, Path] = {}
    for directory in _DIRECTORIES:
        for path in sorted((root / directory / "systemd/network").glob("*.network")):
            if not path.name.startswith((NETWORK_PREFIX, "10-netplan-")):
                seen.setdefault(path.name, path)
    return [
        (path, parse_unit(path.read_text(encoding="utf-8", errors="replace")))
        for _name, path in sorted(seen.items())
    ]


def parse_unit(text: str) -> dict[str, dict[str, str]]:
    """Sections of a systemd file; a key that is repeated is joined, as lists are."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            section = sections.setdefault(line[1:-1], {})
        elif "=" in line and not line.startswith(("#", ";")):
            key, value = (part.strip() for part in line.split("=", 1))
            section[key] = f"{section[key]} {value}".strip() if key in section else value
    return sections


def claims(match: Mapping[str, str], rail: RailPlan, link: Optional[Link]) -> str:
    """The key of a [Match] section that takes the rail in, or nothing.

    All keys have to match; those that cannot be judged here (Driver= ...) are taken to match.
    """
    mac = link.mac if link else ""
    claim = ""
    for key, value in match.items():
        words = value.split()
        if key == "Name":
            hit = names_match([word for word in words if not word.startswith("!")], rail.interface)
        elif key in ("MACAddress", "PermanentMACAddress"):
            hit = any(mac_equal(mac, word) for word in words)
        elif key == "Path":
            hit = rail.pci is not None and names_match(words, f"pci-{rail.pci}")
        elif key == "Type":
            hit = "ether" in words
        elif key in ("Kind", "WLANInterfaceType", "SSID", "BSSID"):
            hit = False
        else:
            continue
        if not hit:
            return ""
        claim = claim or f"{key}={value}"
    return claim


def ifupdown_conflicts(root: Path, rails: Sequence[RailPlan]) -> list[Conflict]:
    """Stanzas of Debian's older /etc/network/interfaces."""
    paths = [root / "etc/network/interfaces"]
    paths += sorted((root / "etc/network/interfaces.d").glob("*"))
    conflicts = []
    names = {rail.interface for rail in rails}
    for path in paths:
        if not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            words = line.split()
            if len(words) > 1 and words[0] == "iface" and words[1] in names:
                where = f"/{path.relative_to(root)} line {number}"
                conflicts.append(Conflict(words[1], where, f"{line.strip()!r} claims {words[1]}"))
    return conflicts
