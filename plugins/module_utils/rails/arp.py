# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ARP settings that separate the interfaces of one host.

Linux answers ARP for any of its addresses on any interface, and drops a packet that arrives on an
interface other than the one it would send to the source. Without these settings, one of several
rails in one network receives the traffic of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan
from ..core.part import NAME, Node

ARP_DEFAULTS: Mapping[str, int] = {
    "arp_ignore": 1,  # answer only for addresses of the interface that was asked
    "arp_announce": 2,  # ask with the best local address of that interface
    "rp_filter": 2,  # loose: the source must be reachable, by whatever interface
}
ARP_FILE = f"etc/sysctl.d/60-{NAME}-rails.conf"


def read_arp(interface: str, root: Path) -> dict[str, Optional[int]]:
    """The values of one interface as they run; None where the kernel has none."""
    values: dict[str, Optional[int]] = {}
    for name in ARP_DEFAULTS:
        try:
            values[name] = int(_arp_path(interface, name, root).read_text(encoding="ascii"))
        except OSError:
            values[name] = None
    return values


def arp_writable(interface: str, root: Path) -> bool:
    """Whether the settings are there and may be changed; an ordinary container may not."""
    return all(os.access(_arp_path(interface, name, root), os.W_OK) for name in ARP_DEFAULTS)


def write_arp(interface: str, wanted: Mapping[str, int], root: Path) -> str:
    """Set what differs. Returns why it could not, or nothing."""
    found = read_arp(interface, root)
    for name, value in wanted.items():
        if found.get(name) != value:
            try:
                _arp_path(interface, name, root).write_text(f"{value}\n", encoding="ascii")
            except OSError as error:
                return f"net.ipv4.conf.{interface}.{name}: {error.strerror}"
    return ""


def plan_arp_file(interfaces: Iterable[str], wanted: Mapping[str, int], node: Node) -> FilePlan:
    """The file that udev and systemd-sysctl apply at boot, as each interface appears."""
    lines = [
        f"net.ipv4.conf.{interface}.{name} = {value}\n"
        for interface in interfaces
        for name, value in wanted.items()
    ]
    return node.file(ARP_FILE, "".join(lines) or None)


def _arp_path(interface: str, name: str, root: Path) -> Path:
    return root / "proc/sys/net/ipv4/conf" / interface / name
