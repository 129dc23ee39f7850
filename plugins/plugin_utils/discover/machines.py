# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One machine, as read by the module rdma_facts, and the majority of machines."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional, TypeVar

from ...module_utils.hardware.inventory import RAIL, VIRTUAL, describe
from ..answers import (
    INTERFACE,
    NAME,
    PCI,
    PORT,
    VERSION,
    AnswerError,
    amount,
    mapping,
    sentence,
    sequence,
    whole,
)

NUMBERED = re.compile(r"(.*?)(\d+)")
Lane = tuple[int, int]
"""A rail and its plane."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Nic:
    """A NIC with its interface, or only one of them."""

    pci: Optional[str] = None
    interface: str = ""
    kind: str = ""
    """`rail` if it shares a PCIe switch with a GPU."""
    firmware: str = ""
    pcie: str = ""
    """Its current PCIe link, `64 GT/s x16`."""
    speed_gbps: Optional[float] = None
    mtu: Optional[int] = None
    addresses: tuple[ipaddress.IPv4Interface, ...] = ()
    neighbour: Optional[Mapping[str, str]] = None

    @property
    def leaf(self) -> str:
        """The switch according to LLDP, without its domain; empty if there is none."""
        return self.neighbour["system"].split(".")[0].lower() if self.neighbour else ""

    @property
    def port(self) -> str:
        """The port of that switch; its description if the port is a MAC address."""
        if not self.neighbour:
            return ""
        port = self.neighbour["port"]
        return self.neighbour["port_description"] if port.count(":") == 5 else port


@dataclass(frozen=True)
class DiscoveredMachine:
    host: str
    """Its inventory name, possibly an address."""
    name: str
    address: Optional[ipaddress.IPv4Interface]
    """Management address with prefix length."""
    interface: str
    """Its interface."""
    nics: tuple[Nic, ...]
    gpus: tuple[str, ...] = ()
    numa: tuple[Optional[int], ...] = ()
    """The NUMA node of each GPU."""
    rails: Mapping[Lane, str] = field(default_factory=dict)
    """PCI addresses of the rails, as its GPUs identify them; empty if a NIC is missing."""
    cpu: Mapping[str, int] = field(default_factory=dict)
    """Keys of `nodes.cpu` in a model; empty if unknown."""
    system: Mapping[str, Any] = field(default_factory=dict)
    """`rdma_host`, without interfaces."""

    def at(self, place: str) -> Optional[Nic]:
        """The NIC at a PCI address, or the one with a given interface."""
        return next((nic for nic in self.nics if place in (nic.pci, nic.interface)), None)

    @property
    def software(self) -> str:
        """The package of the RDMA drivers, `doca-ofed 3.2.1`, or else rdma-core."""
        found: Mapping[str, str] = self.system["packages"]
        own = [name for name in found if name != "rdma-core"] or list(found)
        return f"{own[0]} {found[own[0]].split('-')[0]}" if own else "none"


def read(host: str, facts: Mapping[str, Any], known_address: str) -> DiscoveredMachine:
    """Parse the facts of rdma_facts. `known_address`: the one that Ansible connects to.

    Raises AnswerError for positions and numbers that are invalid in a draft.
    """
    hardware, system = mapping(facts.get("rdma_hardware")), mapping(facts.get("rdma_host"))
    seen, heard = _interfaces(system), system.get("neighbours")
    neighbours = {name: _neighbour(mapping(item)) for name, item in mapping(heard).items()}
    nics = [_nic(nic) for nic in _entries(hardware.get("nics"), "NICs")]
    known = {nic.interface: nic for nic in sorted(nics, key=lambda nic: bool(nic.pci))}
    found = []
    for name, own in seen.items():
        nic = known.get(name, Nic(interface=name))
        if own.kind == "plain" and nic.kind != VIRTUAL:
            seen_nic = replace(nic, mtu=own.mtu, addresses=own.addresses)
            speed, neighbour = nic.speed_gbps or own.speed_gbps, neighbours.get(name)
            found.append(replace(seen_nic, speed_gbps=speed, neighbour=neighbour))
    found += [nic for nic in nics if nic.kind == RAIL and not nic.interface]
    default = INTERFACE.known(system.get("default_interface"))
    address, interface = _management(seen, system.get("login"), known_address, default)
    gpus = _entries(hardware.get("gpus"), "GPUs")
    name = NAME.known(system.get("name")) if _is_address(host) else host
    versions = mapping(system.get("packages")).items()
    return DiscoveredMachine(
        host=host,
        name=name.split(".")[0].lower(),
        address=address,
        interface=interface,
        nics=tuple(nic for nic in found if nic.interface != interface),
        gpus=tuple(PCI.of(gpu.get("pci"), "the position of a GPU") for gpu in gpus),
        numa=tuple(_number(gpu.get("numa"), "a NUMA node") for gpu in gpus),
        rails=_rails(mapping(mapping(hardware.get("model")).get("rails"))),
        cpu=_cpu(mapping(system.get("cpu"))),
        system={
            "name": NAME.known(system.get("name")),
            "distribution": sentence(system.get("distribution")),
            "kernel": VERSION.known(system.get("kernel")),
            "gpu_driver": VERSION.known(system.get("gpu_driver")),
            "packages": {
                name: str(item)
                for name, item in versions
                if VERSION.fits(name) and VERSION.fits(item)
            },
            "network": [sentence(item) for item in list(mapping(system.get("network")))[:20]],
            "has_lldp": isinstance(heard, Mapping),
        },
    )


MOST_NUMBER = 1 << 20
"""Limit for NUMA nodes, packet sizes, lanes and Gb/s, far above real values."""
MOST_ENTRIES = 4096
"""Maximum number of interfaces or NICs of a machine."""


def _entries(value: Any, what: str) -> list[Mapping[str, Any]]:
    if len(sequence(value)) > MOST_ENTRIES:
        raise AnswerError(f"{what} are {len(value)}, more than {MOST_ENTRIES}")
    return [mapping(item) for item in sequence(value)]


def _number(value: Any, where: str) -> Optional[int]:
    """None if the machine reports none; the kernel writes -1 for no NUMA node."""
    return None if value is None or value == -1 else whole(value, where, MOST_NUMBER)


def _nic(given: Mapping[str, Any]) -> Nic:
    link, pci, interface = mapping(given.get("pcie")), given.get("pci"), given.get("interface")
    width = int(amount(link.get("width"), MOST_NUMBER) or 0)
    speed_gts = amount(link.get("speed_gts"), MOST_NUMBER) or 0.0
    return Nic(
        pci=PCI.of(pci, "the position of a NIC") if pci not in (None, "") else None,
        interface=INTERFACE.of(interface, "an interface") if interface not in (None, "") else "",
        kind=next((kind for kind in (RAIL, VIRTUAL) if given.get("kind") == kind), ""),
        firmware=VERSION.known(given.get("firmware")),
        pcie=describe(speed_gts, width) if width else "",
        speed_gbps=amount(given.get("speed_gbps"), MOST_NUMBER),
    )


def _interfaces(system: Mapping[str, Any]) -> dict[str, Nic]:
    """What the operating system knows of its interfaces; `kind` is `plain` or empty."""
    found = {}
    for name, item in list(mapping(system.get("interfaces")).items())[:MOST_ENTRIES]:
        own = mapping(item)
        found[name] = Nic(
            interface=INTERFACE.of(name, "an interface"),
            kind="plain" if own.get("plain") else "",
            speed_gbps=amount(own.get("speed_gbps"), MOST_NUMBER),
            mtu=_number(own.get("mtu"), f"the MTU of {name}"),
            addresses=tuple(filter(None, map(_ipv4, sequence(own.get("addresses"))))),
        )
    return found


CPU = ("sockets", "cores", "threads", "numa_nodes", "memory_mb")
MOST_MEMORY_MB = 1 << 30


def _cpu(given: Mapping[str, Any]) -> dict[str, int]:
    if any(key not in given for key in CPU):
        return {}
    most = {"memory_mb": MOST_MEMORY_MB}
    found = {key: whole(given[key], f"cpu.{key}", most.get(key, MOST_NUMBER)) for key in CPU}
    return found if all(found[key] for key in CPU if key != "numa_nodes") else {}


def _rails(given: Mapping[str, Any]) -> dict[Lane, str]:
    rails = [sequence(item) or [item] for item in sequence(given.get("pci"))]
    if len({len(planes) for planes in rails}) > 1:
        raise AnswerError("its rails have different numbers of planes")
    return {
        (rail, plane): PCI.of(pci, "the position of a rail")
        for rail, planes in enumerate(rails)
        for plane, pci in enumerate(planes)
    }


def _neighbour(heard: Mapping[str, Any]) -> dict[str, str]:
    """Text sent by the other end of a cable, which may be anything."""
    address = heard.get("address")
    return {
        "system": NAME.known(heard.get("system")),
        "description": sentence(heard.get("description")),
        "address": str(address) if _is_address(address) and ":" not in str(address) else "",
        "port": PORT.known(heard.get("port")),
        "port_description": PORT.known(heard.get("port_description")),
    }


def _ipv4(text: Any) -> Optional[ipaddress.IPv4Interface]:
    try:
        return ipaddress.IPv4Interface(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _is_address(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _management(
    interfaces: Mapping[str, Nic], login: Any, known: str, default: str
) -> tuple[Optional[ipaddress.IPv4Interface], str]:
    """The address that SSH reached, Ansible's address, or that of the default route."""
    there = [(address, name) for name, own in interfaces.items() for address in own.addresses]
    for wanted in (login, known):
        for address, name in there:
            if str(address.ip) == wanted:
                return address, name
    return next((address for address, name in there if name == default), None), default


# The majority


def majority(values: Iterable[Optional[Value]]) -> tuple[Optional[Value], str]:
    """The most frequent known value and its share (`3 of 4`); the first one in a tie."""
    counted = Counter(value for value in values if value not in (None, ""))
    if not counted:
        return None, ""
    value, times = counted.most_common(1)[0]
    return value, f"{times} of {sum(counted.values())}"


@dataclass(frozen=True)
class Shape:
    """Rails of most machines, and the GPUs closest to them."""

    lanes: Mapping[Lane, str]
    """PCI address of each plane of each rail; the interface if it has none."""
    by_pci: bool
    interfaces: str
    """Prefix of numbered interface names; empty if GPUs identify the rails."""
    gpus: tuple[str, ...] = ()
    numa: tuple[Optional[int], ...] = ()
    others: Mapping[str, Shape] = field(default_factory=dict)
    """The shape of each machine of another kind, by host."""

    @property
    def rails(self) -> int:
        return len({rail for rail, _plane in self.lanes})

    @property
    def planes(self) -> int:
        return len(self.lanes) // self.rails

    def label(self, lane: Lane) -> str:
        rail, plane = lane
        return f"rail{rail}" if self.planes == 1 else f"rail{rail}p{plane}"

    def of(self, machine: DiscoveredMachine) -> Shape:
        """The shape of the kind to which a machine belongs."""
        return self.others.get(machine.host, self)

    def own(self, machine: DiscoveredMachine) -> Mapping[Lane, str]:
        """The positions in one machine: the machine's own if its GPUs identify as many rails."""
        lanes = self.of(machine).lanes
        return machine.rails if machine.rails.keys() == lanes.keys() else lanes

    def groups(self, machines: Sequence[DiscoveredMachine]) -> list[list[DiscoveredMachine]]:
        """Machines by kind, those of most first."""
        found: dict[int, list[DiscoveredMachine]] = {id(self): []}
        for machine in machines:
            found.setdefault(id(self.of(machine)), []).append(machine)
        return list(found.values())


def shape_of(machines: Sequence[DiscoveredMachine]) -> Optional[Shape]:
    """None if no machine has a NIC close to a GPU, or interfaces numbered from 0."""
    if kinds := _kinds(machines):
        shapes = [(_identified(kind), kind) for kind in kinds]
        others = {machine.host: shape for shape, kind in shapes[1:] for machine in kind}
        return replace(shapes[0][0], others=others)
    numbered, _share = majority(_numbered(machine) for machine in machines)
    if not numbered:
        return None
    prefix, count = numbered
    names = [f"{prefix}{number}" for number in range(count)]
    nics = [[nic for machine in machines if (nic := machine.at(name))] for name in names]
    pci = [majority(nic.pci for nic in of)[0] for of in nics]
    by_pci = None not in pci and len(set(pci)) == count
    places = [str(item) for item in pci] if by_pci else names
    return Shape({(rail, 0): place for rail, place in enumerate(places)}, by_pci, prefix)


LEAST_OF_KIND = 2
"""Machines with the same other devices that are a kind; a single one is more likely broken."""


def _kinds(machines: Sequence[DiscoveredMachine]) -> list[list[DiscoveredMachine]]:
    """Machines whose GPUs identify their rails, by kind, and all the others in the first one.

    Kinds have devices at other positions, and another number or speed of them. The first one has
    the most and fastest rails, as a model requires; one with other planes is none.
    """
    alike: dict[Any, list[DiscoveredMachine]] = {}
    for machine in machines:
        if machine.rails:
            alike.setdefault((tuple(machine.rails.items()), machine.gpus), []).append(machine)
    if not alike:
        return []
    ordered = sorted(alike.values(), key=len, reverse=True)
    usual = [ordered[0], *(each for each in ordered[1:] if len(each) >= LEAST_OF_KIND)]
    capacity = [(len(each[0].rails), speed_of(each) or 0.0) for each in usual]
    first = usual[capacity.index(max(capacity))]
    planes = {lane[1] for lane in first[0].rails}
    found = [first]
    for each in usual:
        devices = [(len(of[0].rails), len(of[0].gpus), speed_of(of)) for of in (first, each)]
        if devices[0] != devices[1] and {lane[1] for lane in each[0].rails} == planes:
            found.append(each)
    return found


def speed_of(machines: Sequence[DiscoveredMachine]) -> Optional[float]:
    """Gb/s of most rails."""
    places = [(machine, place) for machine in machines for place in machine.rails.values()]
    return majority(nic.speed_gbps for of, at in places if (nic := of.at(at)) is not None)[0]


def _identified(machines: Sequence[DiscoveredMachine]) -> Shape:
    found, _share = majority(
        (tuple(machine.rails.items()), machine.gpus, machine.numa) for machine in machines
    )
    rails, gpus, numa = found or ((), (), ())
    return Shape(dict(rails), True, "", gpus, () if None in numa else numa)


def _numbered(machine: DiscoveredMachine) -> Optional[tuple[str, int]]:
    """Prefix and number of consecutive interfaces `rail0`, `rail1`, ..., or the longest others."""
    names = {nic.interface for nic in machine.nics}
    matches = [match for name in names if (match := NUMBERED.fullmatch(name))]
    rows = []
    for prefix in sorted({match.group(1) for match in matches}):
        count = 0
        while f"{prefix}{count}" in names:
            count += 1
        rows.append((prefix == "rail", count, prefix))
    _usual, count, prefix = max(rows, default=(False, 0, ""))
    return (prefix, count) if count else None
