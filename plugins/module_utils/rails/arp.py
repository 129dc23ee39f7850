# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ARP settings that separate the interfaces of one host: without them, one of several rails in one
network receives the traffic of all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan
from ..core.part import NAME, Node

ARP_DEFAULTS: Mapping[str, int] = {
    "arp_ignore": 1,  # reply only for addresses of the interface that received the request
    "arp_announce": 2,  # send requests with the best local address of the interface
    "rp_filter": 2,  # loose: the source must be reachable through some interface
}
ARP_FILE = f"etc/sysctl.d/60-{NAME}-rails.conf"


def read_arp(interface: str, root: Path) -> dict[str, Optional[int]]:
    """Return the running values of one interface; None for a missing value."""
    values: dict[str, Optional[int]] = {}
    for name in ARP_DEFAULTS:
        try:
            values[name] = int(_arp_path(interface, name, root).read_text(encoding="ascii"))
        except OSError:
            values[name] = None
    return values


def arp_writable(interface: str, root: Path) -> bool:
    """Return whether the settings exist and are writable; in an ordinary container they are not."""
    return all(os.access(_arp_path(interface, name, root), os.W_OK) for name in ARP_DEFAULTS)


def write_arp(interface: str, wanted: Mapping[str, int], root: Path) -> str:
    """Set the values that differ. Returns the error, or an empty string."""
    found = read_arp(interface, root)
    for name, value in wanted.items():
        if found.get(name) != value:
            try:
                _arp_path(interface, name, root).write_text(f"{value}\n", encoding="ascii")
            except OSError as error:
                return f"net.ipv4.conf.{interface}.{name}: {error.strerror}"
    return ""


def plan_arp_file(interfaces: Iterable[str], wanted: Mapping[str, int], node: Node) -> FilePlan:
    """Plan the file that udev and systemd-sysctl apply at boot to each interface that appears."""
    lines = [
        f"net.ipv4.conf.{interface}.{name} = {value}\n"
        for interface in interfaces
        for name, value in wanted.items()
    ]
    return node.file(ARP_FILE, "".join(lines) or None)


def _arp_path(interface: str, name: str, root: Path) -> Path:
    return root / "proc/sys/net/ipv4/conf" / interface / name
