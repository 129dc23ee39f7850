# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One machine, as read by the module rdma_facts, and the majority of machines."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, TypeVar

from ...module_utils.hardware.inventory import RAIL, VIRTUAL, describe
from ..answers import (
    INTERFACE,
    NAME,
    PCI,
    PORT,
    VERSION,
    AnswerError,
    Form,
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

    pci: Optional[str]
    interface: str
    rail: bool = False
    """Whether it shares a PCIe switch with a GPU."""
    gpu: Optional[str] = None
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
    model: Mapping[str, Any] = field(default_factory=dict)
    """The keys `gpus` and `rails` that rdma_facts derives; empty if a NIC is missing."""
    system: Mapping[str, Any] = field(default_factory=dict)
    """`rdma_host`, unchanged."""

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
    hardware, system = _hardware(facts.get("rdma_hardware")), _system(facts.get("rdma_host"))
    interfaces = system["interfaces"]
    by_interface = {
        nic["interface"]: nic
        for nic in sorted(hardware["nics"], key=lambda nic: bool(nic["pci"]))
        if nic["interface"]
    }
    found = [
        (name, by_interface.get(name, {}))
        for name, interface in interfaces.items()
        if interface["plain"] and by_interface.get(name, {}).get("kind") != VIRTUAL
    ]
    found += [("", nic) for nic in hardware["nics"] if nic["kind"] == RAIL and not nic["interface"]]
    address, interface = _management(system, known_address)
    return DiscoveredMachine(
        host=host,
        name=(system["name"] if _is_address(host) else host).split(".")[0].lower(),
        address=address,
        interface=interface,
        nics=tuple(_nic(name, nic, system) for name, nic in found if name != interface),
        gpus=tuple(gpu["pci"] for gpu in hardware["gpus"]),
        numa=tuple(gpu["numa"] for gpu in hardware["gpus"]),
        model=hardware["model"],
        system=system,
    )


MOST_NUMBER = 1 << 20
"""Limit for NUMA nodes, packet sizes, lanes and Gb/s, far above real values."""
MOST_ENTRIES = 4096
"""Maximum number of interfaces or NICs of a machine."""


def _entries(value: Any, what: str) -> list[Mapping[str, Any]]:
    if len(sequence(value)) > MOST_ENTRIES:
        raise AnswerError(f"{what} are {len(value)}, more than {MOST_ENTRIES}")
    return [mapping(item) for item in sequence(value)]


def _maybe(form: Form, value: Any, where: str) -> str:
    """Empty if the machine has none."""
    return form.of(value, where) if value not in (None, "") else ""


def _number(value: Any, where: str) -> Optional[int]:
    """None if the machine reports none; the kernel writes -1 for no NUMA node."""
    return None if value is None or value == -1 else whole(value, where, MOST_NUMBER)


def _hardware(given: Any) -> dict[str, Any]:
    """Those parts of `rdma_hardware` that are used, checked only for their types."""
    found = mapping(given)
    nics = []
    for nic in _entries(found.get("nics"), "NICs"):
        link = mapping(nic.get("pcie"))
        nics.append(
            {
                "kind": next((kind for kind in (RAIL, VIRTUAL) if nic.get("kind") == kind), ""),
                "pci": _maybe(PCI, nic.get("pci"), "the position of a NIC") or None,
                "interface": _maybe(INTERFACE, nic.get("interface"), "an interface") or None,
                "gpus": [
                    PCI.of(item, "the position of a GPU") for item in sequence(nic.get("gpus"))
                ],
                "firmware": VERSION.known(nic.get("firmware")),
                "speed_gbps": amount(nic.get("speed_gbps"), MOST_NUMBER),
                "pcie": {
                    "speed_gts": amount(link.get("speed_gts"), MOST_NUMBER) or 0.0,
                    "width": int(amount(link.get("width"), MOST_NUMBER) or 0),
                },
            }
        )
    gpus = [
        {
            "pci": PCI.of(gpu.get("pci"), "the position of a GPU"),
            "numa": _number(gpu.get("numa"), "a NUMA node"),
        }
        for gpu in _entries(found.get("gpus"), "GPUs")
    ]
    return {"nics": nics, "gpus": gpus, "model": _model(mapping(found.get("model")))}


def _model(given: Mapping[str, Any]) -> dict[str, Any]:
    if not given:
        return {}
    gpus, rails = mapping(given.get("gpus")), mapping(given.get("rails"))
    lanes: list[Any] = []
    for item in sequence(rails.get("pci")):
        planes = [PCI.of(one, "the position of a rail") for one in sequence(item) or [item]]
        lanes.append(planes if isinstance(item, list) else planes[0])
    return {
        "gpus": {
            "count": len(sequence(gpus.get("pci"))),
            "numa": [_number(item, "a NUMA node") for item in sequence(gpus.get("numa"))],
            "pci": [PCI.of(item, "the position of a GPU") for item in sequence(gpus.get("pci"))],
        },
        "rails": {"pci": lanes},
    }


def _system(given: Any) -> dict[str, Any]:
    """`rdma_host`. Names and addresses must be valid; displayed values are optional."""
    found = mapping(given)
    interfaces = {}
    for name, item in list(mapping(found.get("interfaces")).items())[:MOST_ENTRIES]:
        own = mapping(item)
        interfaces[INTERFACE.of(name, "an interface")] = {
            "mtu": _number(own.get("mtu"), f"the MTU of {name}"),
            "speed_gbps": amount(own.get("speed_gbps"), MOST_NUMBER),
            "addresses": [item for item in sequence(own.get("addresses")) if _is_interface(item)],
            "plain": bool(own.get("plain")),
        }
    neighbours = None
    if isinstance(found.get("neighbours"), Mapping):
        neighbours = {
            name: _neighbour(mapping(item)) for name, item in mapping(found["neighbours"]).items()
        }
    versions = mapping(found.get("packages"))
    return {
        "name": NAME.known(found.get("name")),
        "distribution": sentence(found.get("distribution")),
        "kernel": VERSION.known(found.get("kernel")),
        "gpu_driver": VERSION.known(found.get("gpu_driver")),
        "packages": {
            name: str(item)
            for name, item in versions.items()
            if VERSION.fits(name) and VERSION.fits(item)
        },
        "interfaces": interfaces,
        "default_interface": INTERFACE.known(found.get("default_interface")),
        "login": str(found["login"]) if _is_address(found.get("login")) else "",
        "network": [sentence(item) for item in list(mapping(found.get("network")))[:20]],
        "neighbours": neighbours,
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


def _nic(name: str, nic: Mapping[str, Any], system: Mapping[str, Any]) -> Nic:
    interface = system["interfaces"].get(name, {})
    gpus: Sequence[str] = nic.get("gpus") or ()
    link = nic.get("pcie") or {}
    speed = nic.get("speed_gbps") or interface.get("speed_gbps")
    return Nic(
        pci=nic.get("pci"),
        interface=name,
        rail=nic.get("kind") == RAIL,
        gpu=gpus[0] if len(gpus) == 1 else None,
        firmware=nic.get("firmware") or "",
        pcie=describe(link["speed_gts"], link["width"]) if link.get("width") else "",
        speed_gbps=speed,
        mtu=interface.get("mtu"),
        addresses=tuple(_ipv4(interface)),
        neighbour=(system["neighbours"] or {}).get(name),
    )


def _ipv4(interface: Mapping[str, Any]) -> list[ipaddress.IPv4Interface]:
    texts = interface.get("addresses", ())
    return [ipaddress.IPv4Interface(text) for text in texts if ":" not in text]


def _is_address(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _is_interface(text: Any) -> bool:
    try:
        return isinstance(text, str) and bool(ipaddress.ip_interface(text))
    except ValueError:
        return False


def _management(
    system: Mapping[str, Any], known: str
) -> tuple[Optional[ipaddress.IPv4Interface], str]:
    """The address that SSH reached, Ansible's address, or that of the default route."""
    there = [
        (address, name)
        for name, interface in system["interfaces"].items()
        for address in _ipv4(interface)
    ]
    for wanted in (system["login"], known):
        for address, name in there:
            if str(address.ip) == wanted:
                return address, name
    beside = (address for address, name in there if name == system["default_interface"])
    return next(beside, None), system["default_interface"]


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
    numa: tuple[int, ...] = ()

    @property
    def rails(self) -> int:
        return len({rail for rail, _plane in self.lanes})

    @property
    def planes(self) -> int:
        return len(self.lanes) // self.rails

    def label(self, lane: Lane) -> str:
        rail, plane = lane
        return f"rail{rail}" if self.planes == 1 else f"rail{rail}p{plane}"

    def own(self, machine: DiscoveredMachine) -> Mapping[Lane, str]:
        """The positions in one machine: the machine's own if its GPUs identify as many rails."""
        if machine.model:
            lanes = lanes_of(machine.model["rails"]["pci"])
            if lanes.keys() == self.lanes.keys():
                return lanes
        return self.lanes


def lanes_of(pci: Sequence[Any]) -> dict[Lane, str]:
    """The key `rails.pci` of a model, by lane."""
    planes = [item if isinstance(item, list) else [item] for item in pci]
    return {
        (rail, plane): place
        for rail, places in enumerate(planes)
        for plane, place in enumerate(places)
    }


def shape_of(machines: Sequence[DiscoveredMachine]) -> Optional[Shape]:
    """None if no machine has a NIC close to a GPU, or interfaces numbered from 0."""
    models = [machine.model for machine in machines if machine.model]
    if models:
        keys = [json.dumps([of["gpus"], of["rails"]["pci"]], sort_keys=True) for of in models]
        gpus, pci = json.loads(majority(keys)[0] or "")
        numa = gpus["numa"] if None not in gpus["numa"] else ()
        return Shape(lanes_of(pci), True, "", tuple(gpus["pci"]), tuple(numa))
    numbered, _share = majority(_numbered(machine) for machine in machines)
    if not numbered:
        return None
    prefix, count = numbered
    names = [f"{prefix}{number}" for number in range(count)]
    lanes = {(number, 0): name for number, name in enumerate(names)}
    nics = [[machine.at(name) for machine in machines] for name in names]
    pci = [majority(nic.pci for nic in of if nic)[0] for of in nics]
    if None in pci or len(set(pci)) < count:
        return Shape(lanes, False, prefix)
    return Shape({(number, 0): str(item) for number, item in enumerate(pci)}, True, prefix)


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
