# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd-networkd and NetworkManager. A backend has one *block* of text per rail, in a separate
file; with netplan, networkd's files sort before the generated ones."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..core import systemd
from ..core.commands import CommandError
from ..core.files import FilePlan, with_header
from ..core.part import NAME, Node
from ..hardware.iproute import MAIN_TABLE
from .naming import LINK_DIRECTORY, NETWORK_PREFIX
from .plan import RailPlan

AUTO = "auto"
READY = "active, starts at boot"
Blocks = Mapping[str, str]
"""Maps an interface to its block."""


class Backend(ABC):
    """One network service on this node."""

    name = ""
    unit = ""
    """Systemd unit that configures the rails, now and at boot."""
    directory = ""
    prefix = ""
    suffix = ""
    mode = 0o644

    def __init__(self, node: Node) -> None:
        self.node = node

    def file(self, interface: str) -> str:
        return f"{self.directory}/{self.prefix}{interface}{self.suffix}"

    def read(self) -> dict[str, str]:
        """Return the blocks on disk."""
        found = {}
        for path in sorted(self.node.path(self.directory).glob(f"{self.prefix}*{self.suffix}")):
            interface = path.name[len(self.prefix) : -len(self.suffix)]
            found[interface] = self.node.read(self.file(interface)) or ""
        return found

    def files(self, blocks: Blocks) -> list[FilePlan]:
        """Plan the files of exactly these blocks; the collection's others are removed."""
        return [
            self.node.record(self.file(interface), blocks.get(interface), mode=self.mode)
            for interface in sorted({*blocks, *self.read()})
        ]

    def state(self) -> str:
        """Return `READY`, or the state of the service."""
        values = systemd.show(self.node, self.unit, ("ActiveState", "UnitFileState"))
        active, file = values.get("ActiveState", "unknown"), values.get("UnitFileState", "")
        if active in ("active", "reloading") and file in systemd.AT_BOOT:
            return READY
        return f"{active}, {file or 'not installed'}"

    @abstractmethod
    def render(self, rail: RailPlan) -> str: ...

    @abstractmethod
    def owner(self, interface: str) -> str:
        """Return the name of the rail's configuration, as `owners` reports it once active."""

    @abstractmethod
    def owners(self, interfaces: Sequence[str]) -> dict[str, str]: ...

    @abstractmethod
    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        """Activate the blocks of `written`, set up the rails in `again` from scratch, and touch no
        other. Returns the errors of single rails. Raises CommandError.
        """


class Networkd(Backend):
    """Files in /etc/systemd/network, activated by `networkctl reload`."""

    name = "networkd"
    unit = "systemd-networkd.service"
    directory = LINK_DIRECTORY
    prefix, suffix = NETWORK_PREFIX, ".network"

    def render(self, rail: RailPlan) -> str:
        lines = [
            "[Match]",
            f"Name={rail.interface}",
            "",
            "[Link]",
            "# A pulled cable must not keep the host from booting.",
            "RequiredForOnline=no",
            f"MTUBytes={rail.mtu}",
            "",
            "[Network]",
            f"Address={rail.cidr}",
            "DHCP=no",
            "IPv6AcceptRA=no",
            "LinkLocalAddressing=ipv6",
            "# Keep the address, and with it the RoCE GID, while the link is down.",
            "ConfigureWithoutCarrier=yes",
        ]
        for route in rail.routes:
            lines += ["", "[Route]", f"Destination={route.cidr}"]
            lines += [f"Gateway={route.gateway}"] if route.gateway else ["Scope=link"]
            if route.table != MAIN_TABLE:
                lines.append(f"Table={route.table}")
            if route.metric is not None:
                lines.append(f"Metric={route.metric}")
        if rail.rule:
            lines += ["", "[RoutingPolicyRule]", f"From={rail.rule.source}"]
            lines += [f"Table={rail.rule.table}", f"Priority={rail.rule.priority}"]
        return _text(lines)

    def owner(self, interface: str) -> str:
        return f"/{self.file(interface)}"

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        if not interfaces:
            return {}
        argv = ("networkctl", "--no-pager", "--lines=0", "status", "--", *interfaces)
        return parse_status(self.node.run(argv, check=False).stdout)

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        # A reload touches only links whose file is new or changed; those in `again` have drifted
        # from a file that networkd knows.
        self.node.run(("networkctl", "reload"))
        if again:
            self.node.run(("networkctl", "reconfigure", *again))
        return {}


def parse_status(text: str) -> dict[str, str]:
    """Parse `networkctl status` into network files by interface."""
    files: dict[str, str] = {}
    interface = path = ""
    for line in text.splitlines():
        head = re.match(r"\W*\d+:\s+(\S+)\s*$", line)
        if head:
            interface, path = head.group(1), ""
        key, _separator, value = (part.strip() for part in line.partition(":"))
        if key == "Network File" and interface and value != "n/a":
            path = value
            files[interface] = path
        elif key == "State" and path and "(configured)" not in value:
            files[interface] = f"{path}, {value}"
    return files


class NetworkManager(Backend):
    """Profiles in /etc/NetworkManager; each is loaded and activated separately."""

    name = "networkmanager"
    unit = "NetworkManager.service"
    directory = "etc/NetworkManager/system-connections"
    prefix, suffix = f"{NAME}-", ".nmconnection"
    mode = 0o600

    def files(self, blocks: Blocks) -> list[FilePlan]:
        # Rails retain their addresses, and therefore their RoCE GIDs, while a link is down.
        devices = ",".join(f"interface-name:{name}" for name in blocks)
        text = f"[device-{NAME}-rails]\nmatch-device={devices}\nignore-carrier=yes\n"
        path = f"etc/NetworkManager/conf.d/60-{NAME}-rails.conf"
        return [*super().files(blocks), self.node.file(path, text if blocks else None)]

    def render(self, rail: RailPlan) -> str:
        lines = [
            "[connection]",
            f"id={self.prefix}{rail.interface}",
            f"uuid={self.owner(rail.interface)}",
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
            metric = None if route.metric is None else str(route.metric)
            fields = filter(None, (route.cidr, route.gateway, metric))
            lines.append(f"route{number}={','.join(fields)}")
            if route.table != MAIN_TABLE:
                lines.append(f"route{number}_options=table={route.table}")
        if rail.rule:
            rule = rail.rule
            text = f"priority {rule.priority} from {rule.source} table {rule.table}"
            lines.append(f"routing-rule1={text}")
        lines += [
            "",
            "[ipv6]",
            "# Link-local only: its address is made of the MAC address, as "
            "RoCE's first GID expects.",
            "method=link-local",
            "addr-gen-mode=eui64",
        ]
        return _text(lines)

    def owner(self, interface: str) -> str:
        """Return a UUID that is constant, so that a profile never exists twice."""
        import uuid  # it is slow to import, and a prolog of Slurm does not need it

        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{interface}.rails.{NAME}"))

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        words = ("--terse", "--fields", "DEVICE,UUID", "connection", "show", "--active")
        text = self.node.run(("nmcli", *words), check=False).stdout
        active = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return {name: active[name] for name in interfaces if name in active}

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        self.node.run(("nmcli", "general", "reload", "conf"))
        files = {name: self.node.path(self.file(name)) for name in written}
        present = [name for name in written if files[name].exists()]
        if present:
            self.node.run(("nmcli", "connection", "load", *(str(files[each]) for each in present)))
        for name in set(written).difference(present):
            argv = ("nmcli", "connection", "delete", "uuid", self.owner(name))
            self.node.run(argv, check=False)
        names = [*present, *(name for name in again if name not in written)]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
            errors = dict(zip(names, pool.map(self._up, names)))
        return {name: error for name, error in errors.items() if error}

    def _up(self, interface: str) -> str:
        argv = ("nmcli", "--wait", "15", "connection", "up", "uuid")
        try:
            self.node.run((*argv, self.owner(interface), "ifname", interface))
        except CommandError as error:
            return str(error)
        return ""


def _text(lines: Sequence[str]) -> str:
    return with_header("\n".join(lines) + "\n")


BACKENDS: Mapping[str, type[Backend]] = {each.name: each for each in (NetworkManager, Networkd)}


def backend_of(name: str, node: Node) -> Backend:
    """Return the backend `name`. AUTO is networkd if netplan has files; else NetworkManager if it
    runs; else networkd. Raises CommandError."""
    if name != AUTO:
        return BACKENDS[name](node)
    if node.path("usr/sbin/netplan").exists() and any(node.root.glob("etc/netplan/*.yaml")):
        return Networkd(node)
    argv = ("systemctl", "is-active", "--quiet", NetworkManager.unit)
    if node.run(argv, check=False).rc == 0:
        return NetworkManager(node)
    return Networkd(node)
