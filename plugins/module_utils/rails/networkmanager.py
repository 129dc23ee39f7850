# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NetworkManager: one keyfile per rail."""

from __future__ import annotations

import configparser
import re
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..core.commands import CommandError, Runner
from ..core.files import FilePlan, plan_file, with_header
from ..core.part import NAME
from .backend import NETWORKMANAGER, Blocks, Conflict, FilePerRail, mac_equal
from .plan import MAIN_TABLE, RailPlan
from .state import Link

_PREFIX = f"{NAME}-"
_SUFFIX = ".nmconnection"
_DIRECTORIES = ("etc/NetworkManager", "usr/lib/NetworkManager")
"""Of profiles. Those under /run are made up by NetworkManager itself; ours take over from them."""
_PROFILES = "system-connections"
_CARRIER = f"conf.d/60-{NAME}-rails.conf"
_ACTIVATION_S = 15


class NetworkManager(FilePerRail):
    """Profiles in /etc/NetworkManager; each is loaded and brought up by itself."""

    name = NETWORKMANAGER
    unit = "NetworkManager.service"

    def __init__(self, run: Runner, root: Path = Path("/")) -> None:
        name = f"{_PREFIX}RAIL{_SUFFIX}"
        super().__init__(run, root, f"etc/NetworkManager/{_PROFILES}", name, 0o600)

    def render(self, rail: RailPlan) -> str:
        return with_header(keyfile(rail))

    def files(self, blocks: Blocks) -> list[FilePlan]:
        text = with_header(carrier(blocks)) if blocks else None
        path = self._root / "etc/NetworkManager" / _CARRIER
        return [*super().files(blocks), plan_file(path, text)]

    def conflicts(self, rails: Sequence[RailPlan], links: Mapping[str, Link]) -> list[Conflict]:
        found: dict[str, Path] = {}
        for directory in _DIRECTORIES:
            for path in sorted((self._root / directory / _PROFILES).glob(f"*{_SUFFIX}")):
                if not path.name.startswith(_PREFIX):
                    found.setdefault(path.name, path)
        for path in sorted((self._root / "etc/sysconfig/network-scripts").glob("ifcfg-*")):
            found[path.name] = path
        conflicts = []
        for path in found.values():
            parse = parse_profile if path.suffix == _SUFFIX else parse_ifcfg
            interface, mac = parse(path.read_text(encoding="utf-8", errors="replace"))
            for rail in rails:
                link = links.get(rail.interface)
                same_mac = link is not None and mac_equal(link.mac, mac)
                if interface == rail.interface or same_mac:
                    where = f"/{path.relative_to(self._root)}"
                    why = f"this profile is for {interface or mac}, which is {rail.interface}"
                    conflicts.append(Conflict(rail.interface, where, why))
        return conflicts

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


def parse_profile(text: str) -> tuple[str, str]:
    """Interface name and MAC address that a keyfile is bound to; either may be empty."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return "", ""
    interface = parser.get("connection", "interface-name", fallback="")
    for section in ("ethernet", "802-3-ethernet"):
        interface = interface or parser.get(section, "interface-name", fallback="")
        mac = parser.get(section, "mac-address", fallback="")
        if mac:
            return interface, mac
    return interface, ""


def parse_ifcfg(text: str) -> tuple[str, str]:
    """The same of a file in the older format of Red Hat's systems."""
    found = dict(re.findall(r"""^\s*(DEVICE|HWADDR)=["']?([^"'\s]*)""", text, re.MULTILINE))
    return found.get("DEVICE", ""), found.get("HWADDR", "")
