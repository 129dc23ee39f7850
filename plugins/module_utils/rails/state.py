# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel has: links, addresses, routes, rules, and which interface is at a PCI address.

And the ARP settings that keep several interfaces of one host apart: Linux answers ARP for any of
its addresses on any interface, and drops what returns by another interface than it would send by.
With several rails, one of them would get the traffic of all.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner
from ..core.files import FilePlan
from ..core.part import NAME, Node
from ..core.text import some
from ..hardware.inventory import way
from ..hardware.survey import interfaces
from .plan import MAIN_TABLE, RailPlan, Route, Rule


@dataclass(frozen=True)
class Link:
    """One network interface as it runs."""

    name: str
    mtu: int
    up: bool
    carrier: bool
    mac: str
    addresses: tuple[str, ...]
    """IPv4 and IPv6 with prefix length, without the IPv6 link-local ones that the kernel makes."""
    master: Optional[str] = None
    """The bond or bridge it is a port of."""
    lower: Optional[str] = None
    """The interface it is stacked on, as a VLAN is."""


@dataclass(frozen=True)
class State:
    """The network of this host at one moment."""

    links: Mapping[str, Link] = field(default_factory=dict)
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """Per interface, without those that the kernel makes of an address; those that lead nowhere
    under NOWHERE."""
    rules: tuple[Rule, ...] = ()
    """Those that choose by an IPv4 source and look up a table."""

    @property
    def in_use(self) -> frozenset[str]:
        """Interfaces that a route or another interface depends on."""
        lowers = {link.lower for link in self.links.values() if link.lower}
        routed = {device for device, routes in self.routes.items() if device and routes}
        return frozenset(lowers | routed)

    def detours(self, network: str, table: Optional[int], rails: Collection[str]) -> list[Route]:
        """What leads a rail's network, or a part of it, elsewhere than to a rail.

        MPI and UCX connect without a source address, so the main table chooses.
        """
        inside = ipaddress.IPv4Network(network, strict=False)
        return [
            replace(route, device=device)
            for device, routes in self.routes.items()
            if device not in rails
            for route in routes
            if route.table in (MAIN_TABLE, table)
            and route.destination != "default"
            and ipaddress.IPv4Network(route.destination).subnet_of(inside)
        ]


def read_state(run: Runner) -> State:
    """Ask the kernel, by three programs for all rails. Raises CommandError."""

    def ask(*words: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = json.loads(run(("ip", *words)).stdout or "[]")
        return answer

    return State(
        parse_links(ask("-N", "-j", "address", "show")),
        parse_routes(ask("-4", "-N", "-j", "route", "show", "table", "all")),
        parse_rules(ask("-4", "-N", "-j", "rule", "show")),
    )


def parse_links(answer: list[dict[str, Any]]) -> dict[str, Link]:
    """The links of `ip -j address show`, by name."""
    return {
        entry["ifname"]: Link(
            name=entry["ifname"],
            mtu=entry["mtu"],
            up="UP" in entry.get("flags", []),
            carrier="LOWER_UP" in entry.get("flags", []),
            mac=entry.get("address", ""),
            addresses=tuple(_addresses(entry.get("addr_info", []))),
            master=entry.get("master"),
            lower=entry.get("link"),
        )
        for entry in answer
        if "ifname" in entry
    }


def _addresses(infos: list[dict[str, Any]]) -> list[str]:
    # IPv6 link-local addresses come from the kernel; IPv4 ones (169.254) from a failed DHCP.
    return [
        f"{info['local']}/{info['prefixlen']}"
        for info in infos
        if "local" in info
        and not (info["family"] == "inet6" and ipaddress.ip_address(info["local"]).is_link_local)
    ]


NOWHERE = ""
KINDS = {"6": "blackhole", "7": "unreachable", "8": "prohibit", "9": "throw"}
"""Numbers of rtnetlink."""


def parse_routes(answer: list[dict[str, Any]]) -> dict[str, tuple[Route, ...]]:
    """The routes of `ip -4 -N -j route show table all` by interface, sorted."""
    routes: dict[str, list[Route]] = {}
    for entry in answer:
        table = int(entry.get("table", MAIN_TABLE))
        type_ = str(entry.get("type", "1"))
        kind = KINDS.get(type_, type_ if type_ in KINDS.values() else "")
        by_kernel = entry.get("protocol") in ("2", "kernel")
        if by_kernel or (not kind and type_ not in ("1", "unicast")):
            continue
        # The metric distinguishes routes of the main table; in a rail's own table the network
        # service chooses it.
        metric = entry.get("metric", 0) if table == MAIN_TABLE else None
        if kind:
            lost = Route(table, _destination(entry["dst"]), None, metric, kind)
            routes.setdefault(NOWHERE, []).append(lost)
            continue
        for hop in entry.get("nexthops", [entry]):
            if "dev" in hop:
                route = Route(table, _destination(entry["dst"]), hop.get("gateway"), metric)
                routes.setdefault(hop["dev"], []).append(route)
    return {device: tuple(sorted(found, key=str)) for device, found in routes.items()}


def read_neighbours(run: Runner) -> dict[str, list[str]]:
    """Static neighbour entries by interface, as `ip neigh` takes them: what ARP cannot correct."""
    answer = json.loads(run(("ip", "-j", "neigh", "show", "nud", "permanent")).stdout or "[]")
    found: dict[str, list[str]] = {}
    for entry in answer:
        text = f"{entry['dst']} lladdr {entry.get('lladdr', 'none')}"
        found.setdefault(entry["dev"], []).append(text)
    return found


def _destination(text: str) -> str:
    """`ip` leaves the prefix length of a single address out."""
    if text == "default" or "/" in text:
        return "default" if text == "0.0.0.0/0" else text
    return f"{text}/32"


def parse_rules(answer: list[dict[str, Any]]) -> tuple[Rule, ...]:
    """The source rules of `ip -4 -N -j rule show`."""
    rules = []
    for entry in answer:
        source, table = entry.get("src", "all"), str(entry.get("table", ""))
        if source != "all" and table.isdigit():
            length = entry.get("srclen", 32)
            source = source if length == 32 else f"{source}/{length}"
            rules.append(Rule(entry["priority"], source, int(table)))
    return tuple(sorted(rules))


# ARP

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


# Names by PCI address: at every boot systemd's `.link` files give them

NAMED = "named"
"""The interface carries its name, at its PCI address where one is given."""
RENAME = "rename"
"""It is found by its PCI address, is idle, and can be renamed now."""
REBOOT = "reboot"
"""It is in use under another name; the link file names it at the next boot."""
REFUSED = "refused"
"""Missing, or the name belongs to another device. Nothing is guessed and nothing is touched."""

LINK_DIRECTORY = "etc/systemd/network"
NETWORK_PREFIX = f"10-{NAME}-"
"""Of our files there: before 99-default.link and before what netplan generates."""


@dataclass(frozen=True)
class Naming:
    """What has to be done about one rail's name."""

    verdict: str
    interface: Optional[str]
    """Its present name."""
    reason: str = ""


def interfaces_by_pci(root: Path = Path("/")) -> dict[str, list[str]]:
    """PCI address to the interfaces of the function at it, usually one."""
    found: dict[str, list[str]] = {}
    for entry in interfaces(root / "sys"):
        if entry.pci and not entry.representor and not entry.subfunction:
            found.setdefault(entry.pci, []).append(entry.name)
    return found


def pci_address(interface: Path) -> Optional[str]:
    """The PCI function that a `/sys/class/net` entry belongs to: the last one on its way.

    A virtio device sits one step below its PCI function, so the device's own name is not enough.
    """
    device = interface / "device"
    steps = way(device.resolve()) if device.exists() else ()
    return steps[-1] if steps else None


def naming(
    rail: RailPlan,
    state: State,
    by_pci: Mapping[str, list[str]],
    reached_by: Mapping[str, str],
    held: str = "",
) -> Naming:
    """Whether the rail's interface is there under its name.

    `reached_by` has why the host is reached by an interface, `held` what the rail's address is to
    its management: such rails are refused before anything else.
    """
    here = by_pci.get(rail.pci or "", [])
    refusal = _refusal(rail, state.links, by_pci, reached_by)
    if not refusal and held:
        refusal = f"its address is {held}. Correct the rail's address in the model"
    if refusal:
        return Naming(REFUSED, here[0] if here else None, refusal)
    if rail.pci is None or rail.interface in here:
        return Naming(NAMED, rail.interface)
    busy = _busy(here[0], state)
    if busy:
        reason = f"{here[0]} at {rail.pci} {busy}; it becomes {rail.interface} at the next boot"
        return Naming(REBOOT, here[0], reason)
    return Naming(RENAME, here[0], f"{here[0]} at {rail.pci} becomes {rail.interface}")


def _refusal(
    rail: RailPlan,
    links: Mapping[str, Link],
    by_pci: Mapping[str, list[str]],
    reached_by: Mapping[str, str],
) -> str:
    name, pci = rail.interface, rail.pci
    here = by_pci.get(pci or "", [])
    for interface in (*here, name):
        if interface in reached_by:
            return (
                f"{interface}{f' at {pci}' if interface in here else ''} {reached_by[interface]}; "
                f"as the rail {name} ({rail.cidr}) it would cut this host off. Correct interface "
                "or pci of this rail in the model"
            )
    if name in here or (pci is None and name in links):
        return ""
    if pci is None:
        return f"no interface {name}; found: {some(sorted(links))}. Give its pci in the model"
    if name in links:
        at = next((place for place, names in by_pci.items() if name in names), "no PCI address")
        return (
            f"the interface {name} is at {at}, the model has {pci}, where {some(here)} is. Correct "
            f"pci of {name} in the model, or free the name (ip link set {name} name OTHER)"
        )
    if len(here) != 1:
        nics = [f"{place} ({' '.join(names)})" for place, names in sorted(by_pci.items())]
        return (
            f"{len(here) or 'no'} network interfaces at PCI address {pci}. Look at the NIC and its "
            f"driver (lspci -s {pci} -k), or correct pci. NICs found: {some(nics)}"
        )
    return ""


def _busy(interface: str, state: State) -> str:
    """Why it cannot be renamed now."""
    link = state.links.get(interface)
    if link is None:
        return "is not visible to ip"
    if link.addresses:
        return f"carries {', '.join(link.addresses)}"
    if link.master:
        return f"belongs to {link.master}"
    return "is used by another interface or a route" if interface in state.in_use else ""


def plan_link_files(rails: Sequence[RailPlan], kept: Iterable[str], node: Node) -> list[FilePlan]:
    """Files for all `rails` with a PCI address; others of ours go, but for those of `kept`.

    `Path=` compares udev's ID_PATH, which for a PCI function is `pci-` and its address. MAC
    addresses would not do: ConnectX NICs of one board have been seen to share an identity.
    """
    wanted = {
        _link_file(rail.interface): f"[Match]\nPath=pci-{rail.pci}\nType=ether\n\n"
        f"[Link]\nName={rail.interface}\n"
        for rail in rails
        if rail.pci
    }
    folder = node.path(LINK_DIRECTORY)
    there = {f"{LINK_DIRECTORY}/{path.name}" for path in folder.glob(f"{NETWORK_PREFIX}*.link")}
    keep = {_link_file(interface) for interface in kept}
    return [node.file(name, wanted.get(name)) for name in sorted((there | set(wanted)) - keep)]


def _link_file(interface: str) -> str:
    return f"{LINK_DIRECTORY}/{NETWORK_PREFIX}{interface}.link"
