# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ARP and reverse-path settings that keep several interfaces of one host apart.

Linux answers ARP for any of its addresses on any interface, and drops what returns on another way
than it would have sent it. With several rails, one of them ends up with the traffic of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Optional

from ..core.files import FilePlan, plan_file, with_header
from .backend import OWNER

DEFAULTS: Mapping[str, int] = {
    "arp_ignore": 1,  # answer only for addresses of the interface that was asked
    "arp_announce": 2,  # ask with the best local address of that interface
    "rp_filter": 2,  # loose: the source must be reachable, by whatever interface
}
SETTINGS = tuple(DEFAULTS)
FILE = f"60-{OWNER}-rails.conf"


def read_settings(interface: str, root: Path = Path("/")) -> dict[str, Optional[int]]:
    """The values of one interface as they run; None where the kernel has none."""
    values: dict[str, Optional[int]] = {}
    for name in SETTINGS:
        try:
            values[name] = int(_path(interface, name, root).read_text(encoding="ascii"))
        except (OSError, ValueError):
            values[name] = None
    return values


def writable(interface: str, root: Path = Path("/")) -> bool:
    """Whether the settings are there and may be changed; an ordinary container may not."""
    return all(os.access(_path(interface, name, root), os.W_OK) for name in SETTINGS)


def write_settings(interface: str, wanted: Mapping[str, int], root: Path = Path("/")) -> str:
    """Set what differs. Returns why it could not, or nothing."""
    found = read_settings(interface, root)
    for name, value in wanted.items():
        if found.get(name) != value:
            try:
                _path(interface, name, root).write_text(f"{value}\n", encoding="ascii")
            except OSError as error:
                return f"net.ipv4.conf.{interface}.{name}: {error.strerror}"
    return ""


def plan_settings_file(
    interfaces: Iterable[str], wanted: Mapping[str, int], root: Path = Path("/")
) -> FilePlan:
    """The file that udev and systemd-sysctl apply at boot, as each interface appears."""
    lines = [
        f"net.ipv4.conf.{interface}.{name} = {value}\n"
        for interface in interfaces
        for name, value in wanted.items()
    ]
    text = with_header("".join(lines)) if lines else None
    return plan_file(root / "etc/sysctl.d" / FILE, text)


def _path(interface: str, name: str, root: Path) -> Path:
    return root / "proc/sys/net/ipv4/conf" / interface / name
