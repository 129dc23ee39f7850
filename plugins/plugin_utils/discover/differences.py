# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences between each machine and the majority, or its model, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import columns, some
from .machines import DiscoveredMachine, Lane, Nic, Shape, majority

HEADINGS = ("machine", "where", "what", "found", "expected")
MISSING = "missing"
MODEL = "model"
NIC_PROPERTIES = {"firmware": "firmware", "PCIe": "pcie", "Gb/s": "speed_gbps", "MTU": "mtu"}
"""What a difference is called, and the attribute of a NIC."""


class MachineDifference(NamedTuple):
    host: str
    where: str
    what: str
    found: str
    expected: str


@dataclass(frozen=True)
class ExpectedLane:
    """Expected values of one lane of one machine. `source`: the model, or the share of machines."""

    label: str
    place: str
    """PCI address or interface."""
    own: str
    """The place in this machine: another one if all of its NICs are elsewhere."""
    values: Mapping[str, tuple[Any, str]]
    """By property: the value and its source."""
    leaf: str
    port: str
    """Empty if only the leaf is compared."""
    source: str

    @property
    def end(self) -> str:
        return f"{self.leaf} {self.port}".strip() + f" ({self.source})"


Wanteds = Mapping[str, Mapping[Lane, ExpectedLane]]
"""By host and lane."""


def lines(differences: Sequence[MachineDifference]) -> list[str]:
    """The table as lines. Equal differences on several lanes are merged into one line."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for item in differences:
        key = (item.host, item.what, item.found, item.expected)
        rows.setdefault(key, []).append(item.where)
    shown = [
        (host, some(where, 8) if any(where) else "-", what, found, expected)
        for (host, what, found, expected), where in rows.items()
    ]
    return columns([HEADINGS, *shown], left=range(len(HEADINGS)))


# Expected values


def by_majority(
    machines: Sequence[DiscoveredMachine], shape: Shape, addresses: Mapping[str, Mapping[Lane, str]]
) -> dict[str, dict[Lane, ExpectedLane]]:
    """Most frequent values per lane. Leaves are compared within a leaf set."""
    common = {
        machine.host: values
        for group in shape.groups(machines)
        for values in [_common(group, {machine.host: shape.own(machine) for machine in group})]
        for machine in group
    }
    sets = leaf_sets(machines, shape)
    wanted: dict[str, dict[Lane, ExpectedLane]] = {}
    for machine in machines:
        leaves = own_set(machine, shape, sets)
        port = _own_port(machine, shape, leaves)
        own, address = shape.own(machine), addresses.get(machine.host, {})
        wanted[machine.host] = {
            lane: ExpectedLane(
                shape.label(lane),
                place,
                own[lane],
                {**common[machine.host][lane], "address": (address.get(lane), "plan of most")},
                leaves.get(lane, ""),
                port,
                "most",
            )
            for lane, place in shape.of(machine).lanes.items()
        }
    return wanted


def by_model(
    machines: Sequence[DiscoveredMachine], variables: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[Lane, ExpectedLane]]:
    """Values of `cluster_rails`; values that the model lacks come from the majority."""
    rails = {
        machine.host: {
            (rail["rail"], rail["plane"]): rail for rail in variables[machine.host]["cluster_rails"]
        }
        for machine in machines
    }
    places = {
        host: {lane: str(rail["pci"] or rail["interface"]) for lane, rail in of.items()}
        for host, of in rails.items()
    }
    common = _common(machines, places)
    return {
        host: {
            lane: ExpectedLane(
                rail["interface"],
                places[host][lane],
                places[host][lane],
                {
                    **common[lane],
                    "Gb/s": (float(rail["speed_gbps"]), MODEL),
                    "MTU": (rail["mtu"], MODEL),
                    "address": (f"{rail['address']}/{rail['prefix']}", MODEL),
                },
                rail["leaf"],
                rail["leaf_port"],
                MODEL,
            )
            for lane, rail in of.items()
        }
        for host, of in rails.items()
    }


def _common(
    machines: Sequence[DiscoveredMachine], places: Mapping[str, Mapping[Lane, str]]
) -> dict[Lane, dict[str, tuple[Any, str]]]:
    nics: dict[Lane, list[Nic]] = {}
    for machine in machines:
        for lane, place in places[machine.host].items():
            nic = machine.at(place)
            nics.setdefault(lane, []).extend([nic] if nic else [])
    return {
        lane: {
            what: majority(getattr(nic, name) for nic in of)
            for what, name in NIC_PROPERTIES.items()
        }
        for lane, of in nics.items()
    }


def leaf_sets(machines: Sequence[DiscoveredMachine], shape: Shape) -> list[dict[Lane, str]]:
    """The leaf of each lane according to LLDP, per leaf set; sets have no leaves in common."""
    heard = Counter(tuple(_heard(machine, shape).values()) for machine in machines)
    sets: list[dict[Lane, str]] = []
    for leaves, _times in heard.most_common():
        known = {leaf for item in sets for leaf in item.values()}
        if any(leaves) and not known.intersection(leaves):
            sets.append({lane: leaf for lane, leaf in zip(shape.lanes, leaves) if leaf})
    return sets


def own_set(
    machine: DiscoveredMachine, shape: Shape, sets: Sequence[Mapping[Lane, str]]
) -> Mapping[Lane, str]:
    """The leaf set to which most lanes belong; empty if there are several and a machine receives
    LLDP from none.
    """
    heard = set(_heard(machine, shape).values())
    own = max(sets, key=lambda each: len(heard.intersection(each.values())), default={})
    return own if len(sets) == 1 or heard.intersection(own.values()) else {}


def _heard(machine: DiscoveredMachine, shape: Shape) -> dict[Lane, str]:
    own = shape.own(machine)
    nics = {lane: machine.at(own[lane]) if lane in own else None for lane in shape.lanes}
    return {lane: nic.leaf if nic else "" for lane, nic in nics.items()}


def _own_port(machine: DiscoveredMachine, shape: Shape, leaves: Mapping[Lane, str]) -> str:
    """The port common to more than half of the lanes, each on a different leaf; otherwise empty."""
    lanes = shape.own(machine)
    if len({leaves[lane] for lane in lanes if lane in leaves}) < len(lanes):
        return ""
    nics = [machine.at(place) for place in lanes.values()]
    ports = Counter(nic.port for nic in nics if nic and nic.port)
    port, times = next(iter(ports.most_common(1)), ("", 0))
    return port if 2 * times > len(lanes) else ""


# Differences


def of_rails(
    machines: Sequence[DiscoveredMachine], wanted: Wanteds, aliases: bool = False
) -> list[MachineDifference]:
    """Differences of NICs and cables. `aliases`: compare only the ports that `wanted` names,
    because a SONiC switch may send an alias of a port of the model.
    """
    found: list[MachineDifference] = []
    for machine in machines:
        lanes = wanted[machine.host]
        for item in lanes.values():
            nic = machine.at(item.own)
            place = nic and (nic.pci if nic.pci and ":" in item.place else nic.interface)
            if place != item.place:
                # If another device now has this name, report which one.
                named = nic or machine.at(item.label)
                place = named.pci if named and named.pci else MISSING
                found.append(MachineDifference(machine.host, item.label, "NIC", place, item.place))
            if nic is not None:
                found += _of_nic(machine.host, nic, item)
        taken = {place for item in lanes.values() for place in (item.own, item.place)}
        found += [
            MachineDifference(machine.host, "", "NIC", str(nic.pci), "none")
            for nic in machine.nics
            if nic.kind == "rail" and nic.pci not in taken
        ]
    return [*found, *_of_cables(machines, wanted, aliases)]


def _of_nic(host: str, nic: Nic, wanted: ExpectedLane) -> Iterator[MachineDifference]:
    texts = [str(address) for address in nic.addresses]
    for what, (value, source) in wanted.values.items():
        if value is None:
            continue
        expected = f"{_text(value)} ({source})"
        if what == "address":
            here: Any = value if value in texts else some(texts)
            # Before the first run, no rail has an address: report all in one line.
            expected = expected if texts else f"its own ({source})"
        else:
            here = getattr(nic, NIC_PROPERTIES[what]) or None
        if here != value:
            yield MachineDifference(host, wanted.label, what, _text(here), expected)


def _text(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


End = tuple[str, Lane]
"""Host and lane: one end of a cable."""


def _of_cables(
    machines: Sequence[DiscoveredMachine], wanted: Wanteds, aliases: bool
) -> Iterator[MachineDifference]:
    """Cables at a leaf or port other than expected; two swapped cables count as one difference."""
    known = {(item.leaf, item.port) for of in wanted.values() for item in of.values()}
    heard: dict[End, tuple[str, str]] = {}
    for machine in machines:
        for lane, item in wanted[machine.host].items():
            nic = machine.at(item.own)
            if nic is None or not machine.system["has_lldp"] or not item.leaf:
                continue
            if not nic.leaf:
                yield MachineDifference(machine.host, item.label, "cable", "no neighbour", item.end)
                continue
            port = nic.port
            if aliases and nic.neighbour:
                sent = (nic.neighbour["port"], nic.neighbour["port_description"])
                port = next((port for port in sent if (nic.leaf, port) in known), "")
            if not _fits((nic.leaf, port), item):
                heard[machine.host, lane] = (nic.leaf, port)
    at = {(wanted[host][lane].leaf, wanted[host][lane].port): (host, lane) for host, lane in heard}
    on = {(host, wanted[host][lane].leaf): (host, lane) for host, lane in heard}
    done: set[End] = set()
    for end, (leaf, port) in heard.items():
        host, lane = end
        item, found = wanted[host][lane], f"{leaf} {port}".strip()
        for other in (on.get((host, leaf)), at.get((leaf, port))):
            if other and other != end and _fits(heard[other], item):
                there = wanted[other[0]][other[1]].label
                found += f", swapped with {there if other[0] == host else f'{other[0]} {there}'}"
                done.add(other)
                break
        if end not in done:
            yield MachineDifference(host, item.label, "cable", found, item.end)


def _fits(heard: tuple[str, str], wanted: ExpectedLane) -> bool:
    leaf, port = heard
    return leaf == wanted.leaf and (not port or not wanted.port or port == wanted.port)


def of_gpus(
    machines: Sequence[DiscoveredMachine], wanted: Mapping[str, Sequence[str]]
) -> list[MachineDifference]:
    """Compare PCI addresses, if any are expected."""
    found = []
    for machine in machines:
        host, expected = machine.host, wanted[machine.host]
        for index, pci in enumerate(expected):
            if pci not in machine.gpus:
                found.append(MachineDifference(host, f"GPU {index}", "GPU", MISSING, pci))
        for pci in machine.gpus if expected else ():
            if pci not in expected:
                found.append(MachineDifference(host, "", "GPU", pci, "none"))
    return found


def of_systems(
    machines: Sequence[DiscoveredMachine], model: Optional[Mapping[str, Mapping[str, str]]] = None
) -> list[MachineDifference]:
    """Differences between operating systems. `model`: a model's expected values, by host."""
    seen = {machine.host: _system(machine) for machine in machines}
    found = []
    for what in next(iter(seen.values()), {}):
        own_to_each = what in ("host name", "management address")
        most = (None, "") if own_to_each else majority(of[what] for of in seen.values())
        for host, of in seen.items():
            own = (model or {}).get(host, {}).get(what)
            wanted, source = (own, MODEL) if own else most
            if wanted is not None and of[what] != wanted:
                expected = f"{wanted} ({source})"
                found.append(MachineDifference(host, "", what, of[what] or "none", expected))
    return found


def wanted_by_model(machine: DiscoveredMachine, variables: Mapping[str, Any]) -> dict[str, str]:
    """Expected values of the operating system of a host; empty if the model has none."""
    software, management = variables["cluster_software"], variables["cluster_management"]
    rdma, driver = software["rdma"]["version"], software["driver"]
    gpus = variables["cluster_gpus"] if machine.gpus else ()
    return {
        "host name": machine.host,
        "management address": f"{management['address']}/{management['prefix']}",
        "management interface": management["interface"],
        "kernel": software["kernel"],
        "RDMA packages": machine.software if machine.software.endswith(rdma) else f"doca {rdma}",
        "NVIDIA driver": driver["version"] if driver else "",
        "NUMA nodes of GPUs": _numa([gpu["numa"] for gpu in gpus]),
        "processors": _processors(variables.get("cluster_cpu", {})),
    }


def _numa(nodes: Sequence[Optional[int]]) -> str:
    """Compare two values; no difference if one is unknown."""
    return "" if None in nodes else " ".join(map(str, nodes))


def _processors(cpu: Mapping[str, int]) -> str:
    """Sockets, cores of each, and threads of each of these; empty if unknown."""
    return " x ".join(str(cpu[key]) for key in ("sockets", "cores", "threads")) if cpu else ""


def _system(machine: DiscoveredMachine) -> dict[str, str]:
    system = machine.system
    return {
        "host name": system["name"].split(".")[0],
        "management address": str(machine.address or ""),
        "distribution": system["distribution"],
        "kernel": system["kernel"],
        "RDMA packages": machine.software,
        "NVIDIA driver": system["gpu_driver"],
        "NUMA nodes of GPUs": _numa(machine.numa),
        "processors": _processors(machine.cpu),
        "network service": ", ".join(system["network"]),
        "management interface": machine.interface,
        "LLDP": "answers" if system["has_lldp"] else "no answer",
    }
