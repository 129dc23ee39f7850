# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NetworkManager: one keyfile per rail."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file, with_header
from ..core.part import NAME
from .backend import NETWORKMANAGER, Blocks, FilePerRail
from .plan import MAIN_TABLE, RailPlan

_PREFIX = f"{NAME}-"
_SUFFIX = ".nmconnection"
_CARRIER = f"conf.d/60-{NAME}-rails.conf"
_ACTIVATION_S = 15


class NetworkManager(FilePerRail):
    """Profiles in /etc/NetworkManager; each is loaded and brought up by itself."""

    name = NETWORKMANAGER
    unit = "NetworkManager.service"

    def __init__(self, run: Runner, root: Path = Path("/")) -> None:
        name = f"{_PREFIX}RAIL{_SUFFIX}"
        super().__init__(run, root, "etc/NetworkManager/system-connections", name, 0o600)

    def render(self, rail: RailPlan) -> str:
        return with_header(keyfile(rail))

    def files(self, blocks: Blocks) -> list[FilePlan]:
        text = with_header(carrier(blocks)) if blocks else None
        path = self._root / "etc/NetworkManager" / _CARRIER
        return [*super().files(blocks), plan_file(path, text)]

    def validate(self, blocks: Blocks) -> None:
        """NetworkManager tests a profile when it loads it, which changes nothing by itself."""

    def owner(self, interface: str) -> str:
        return profile_uuid(interface)

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        text = self._run(
            ("nmcli", "--terse", "--fields", "DEVICE,UUID", "connection", "show", "--active"),
            check=False,
        ).stdout
        active = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return {name: active[name] for name in interfaces if name in active}

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        self._run(("nmcli", "general", "reload", "conf"))
        present = [name for name in written if self._path(name).exists()]
        if present:
            self._run(("nmcli", "connection", "load", *(str(self._path(name)) for name in present)))
        for name in set(written).difference(present):
            self._run(("nmcli", "connection", "delete", "uuid", profile_uuid(name)), check=False)
        names = [*present, *(name for name in again if name not in written)]
        with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
            errors = dict(zip(names, pool.map(self._up, names)))
        return {name: error for name, error in errors.items() if error}

    def _up(self, interface: str) -> str:
        argv = ("nmcli", "--wait", str(_ACTIVATION_S), "connection", "up", "uuid")
        try:
            self._run((*argv, profile_uuid(interface), "ifname", interface))
        except CommandError as error:
            return str(error)
        return ""


def profile_uuid(interface: str) -> str:
    """The same on every host and in every run, so that a profile is replaced and never doubled."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{interface}.rails.{NAME}"))


def keyfile(rail: RailPlan) -> str:
    """The profile of one rail."""
    lines = [
        "[connection]",
        f"id={_PREFIX}{rail.interface}",
        f"uuid={profile_uuid(rail.interface)}",
        "type=ethernet",
        f"interface-name={rail.interface}",
        "autoconnect=true",
        "# Before the profile that NetworkManager makes up for a device it does not know.",
        "autoconnect-priority=100",
        "",
        "[ethernet]",
        f"mtu={rail.mtu}",
        "",
        "[ipv4]",
        "method=manual",
        f"address1={rail.cidr}",
    ]
    for number, route in enumerate(rail.routes, 1):
        parts = [route.cidr]
        if route.gateway:
            parts.append(route.gateway)
        if route.metric is not None:
            parts.append(str(route.metric))
        lines.append(f"route{number}={','.join(parts)}")
        if route.table != MAIN_TABLE:
            lines.append(f"route{number}_options=table={route.table}")
    if rail.rule:
        lines.append(
            f"routing-rule1=priority {rail.rule.priority} from {rail.rule.source} "
            f"table {rail.rule.table}"
        )
    lines += [
        "",
        "[ipv6]",
        "# Link-local only: its address is made of the MAC address, as RoCE's first GID expects.",
        "method=link-local",
        "addr-gen-mode=eui64",
    ]
    return "\n".join(lines) + "\n"


def carrier(blocks: Blocks) -> str:
    """The rails keep their addresses, and with them the RoCE GIDs, while a link is down."""
    devices = ",".join(f"interface-name:{name}" for name in blocks)
    return f"[device-{NAME}-rails]\nmatch-device={devices}\nignore-carrier=yes\n"
