# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which network service this system uses."""

from __future__ import annotations

from pathlib import Path

from ..core.commands import CommandError, Runner
from .backend import BACKENDS, NETPLAN, NETWORKD, NETWORKMANAGER, Backend
from .netplan import Netplan
from .networkd import Networkd
from .networkmanager import NetworkManager

AUTO = "auto"


def backend_named(name: str, run: Runner, root: Path = Path("/")) -> Backend:
    """The backend of that name."""
    if name == NETPLAN:
        return Netplan(run, root)
    if name == NETWORKMANAGER:
        return NetworkManager(run, root)
    if name == NETWORKD:
        return Networkd(run, root)
    raise ValueError(f"backend {name!r}; it must be one of {', '.join((AUTO, *BACKENDS))}")


def detect(run: Runner, root: Path = Path("/")) -> str:
    """netplan where it has files; else NetworkManager where it runs; else netplan or networkd.

    netplan goes first because a system configured by it also runs one of the other two, and would
    overwrite what is said to that one. Raises CommandError when there is none.
    """
    netplan = (root / "usr/sbin/netplan").exists()
    if netplan and any((root / "etc/netplan").glob("*.yaml")):
        return NETPLAN
    if _active(run, "NetworkManager"):
        return NETWORKMANAGER
    if netplan:
        return NETPLAN
    installed = ("lib/systemd/systemd-networkd", "usr/lib/systemd/systemd-networkd")
    if any((root / path).exists() for path in installed):
        return NETWORKD
    raise CommandError(
        "no network service found: NetworkManager does not run, and neither netplan nor "
        "systemd-networkd is installed. Install one, or name it (roce_rails_backend)."
    )


def _active(run: Runner, unit: str) -> bool:
    return run(("systemctl", "is-active", "--quiet", unit), check=False).rc == 0
