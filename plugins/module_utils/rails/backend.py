# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the three network services have in common.

A backend keeps one *block* of text per rail: a file of its own, or a stanza of one file. Blocks are
what is compared, written and, when a rail does not come up with its new block, put back.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Optional, Protocol

from ..core import systemd
from ..core.commands import Runner
from ..core.dataclass import dataclass
from ..core.files import FilePlan, plan_file
from ..core.part import NAME, Node
from .plan import RailPlan
from .state import Link

NETWORK_PREFIX = f"10-{NAME}-"
"""Of files in /etc/systemd/network: before the distribution's and netplan's own."""

NETPLAN = "netplan"
NETWORKD = "networkd"
NETWORKMANAGER = "networkmanager"
BACKENDS = (NETPLAN, NETWORKMANAGER, NETWORKD)

Blocks = Mapping[str, str]
"""Interface to its block."""

READY = "active, starts at boot"
_DIRECTORIES = ("etc", "run", "usr/lib", "lib")


@dataclass(frozen=True)
class Conflict:
    """A file of the operator's that claims a rail as well."""

    interface: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


class Backend(Protocol):
    """One network service."""

    name: str
    unit: str
    """The systemd unit that configures the rails, now and at boot."""

    def render(self, rail: RailPlan) -> str:
        """The block of a rail."""

    def read(self) -> dict[str, str]:
        """The blocks that are on disk."""

    def files(self, blocks: Blocks) -> list[FilePlan]:
        """Every file of ours, as it is and as these blocks want it; superfluous ones go."""

    def conflicts(self, rails: Sequence[RailPlan], links: Mapping[str, Link]) -> list[Conflict]:
        """What else on this system claims the rails."""

    def validate(self, blocks: Blocks) -> None:
        """Refuse before anything is written what the service would. Raises CommandError."""

    def owner(self, interface: str) -> str:
        """What the service names as the rail's configuration once it has taken it over."""

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        """What it names now."""

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        """Take over the blocks of `written` and set `again` up anew; leave all else alone.

        Returns the service's errors about single rails. Raises CommandError.
        """


class FilePerRail:
    """A backend whose blocks are files of their own, named after the rails."""

    def __init__(self, run: Runner, root: Path, directory: str, name: str, mode: int) -> None:
        self._run = run
        self._root = root
        self._directory = root / directory
        self._prefix, self._suffix = name.split("RAIL")
        self._mode = mode

    def _path(self, interface: str) -> Path:
        return self._directory / f"{self._prefix}{interface}{self._suffix}"

    def _owned(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._prefix}*{self._suffix}"))

    def read(self) -> dict[str, str]:
        return {
            path.name[len(self._prefix) : -len(self._suffix)]: path.read_text(
                encoding="utf-8", errors="surrogateescape"
            )
            for path in self._owned()
        }

    def files(self, blocks: Blocks) -> list[FilePlan]:
        wanted = {self._path(interface): text for interface, text in blocks.items()}
        paths = sorted({*wanted, *self._owned()})
        return [plan_file(path, wanted.get(path), mode=self._mode) for path in paths]


def service_state(unit: str, node: Node) -> str:
    """`READY`, or how systemd has it instead."""
    values = systemd.show(node, unit, ("ActiveState", "UnitFileState"))
    active, file = values.get("ActiveState", "unknown"), values.get("UnitFileState", "unknown")
    if active in ("active", "reloading") and file in systemd.AT_BOOT:
        return READY
    return f"{active}, {file or 'not installed'}"


def names_match(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the shell patterns that systemd and netplan use."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def mac_equal(left: str, right: str) -> bool:
    return bool(left) and left.lower().replace("-", ":") == right.lower().replace("-", ":")


def network_file_conflicts(
    root: Path,
    rails: Sequence[RailPlan],
    links: Mapping[str, Link],
    ours: Callable[[str], Path],
) -> list[Conflict]:
    """Files that networkd would prefer to ours, or that name a rail outright."""
    conflicts = []
    for path, sections in systemd_files(root, ".network"):
        match = sections.get("Match", {})
        for rail in rails:
            claim = _claims(match, rail, links.get(rail.interface))
            literal = rail.interface in match.get("Name", "").split()
            if claim and (literal or path.name < ours(rail.interface).name):
                where = "/" + str(path.relative_to(root))
                why = f"[Match] {claim} claims {rail.interface}"
                conflicts.append(Conflict(rail.interface, where, why))
    return conflicts


def systemd_files(root: Path, suffix: str) -> list[tuple[Path, dict[str, dict[str, str]]]]:
    """Files of systemd-networkd and udev, except ours and netplan's; /etc hides the later ones."""
    seen: dict[str, Path] = {}
    for directory in _DIRECTORIES:
        for path in sorted((root / directory / "systemd/network").glob(f"*{suffix}")):
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


def _claims(match: Mapping[str, str], rail: RailPlan, link: Optional[Link]) -> str:
    """The key of a [Match] section that takes the rail in, or nothing.

    All keys have to match; those that cannot be judged here (Driver= ...) are taken to match.
    """
    claim = ""
    for key, value in match.items():
        words = value.split()
        if key == "Name":
            hit = names_match([word for word in words if not word.startswith("!")], rail.interface)
        elif key in ("MACAddress", "PermanentMACAddress"):
            hit = any(mac_equal(link.mac if link else "", word) for word in words)
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
