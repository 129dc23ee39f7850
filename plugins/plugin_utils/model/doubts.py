# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Valid settings of a model that are probably mistakes. They are shown as warnings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from ipaddress import IPv4Network
from typing import Any

from ...module_utils.core.text import counted, some
from ...module_utils.software.floors import today
from ...module_utils.software.software_set import SoftwareSet
from ..fabric.asics import (
    ASICS,
    BUFFER_BYTES,
    LARGEST_BUFFER_BYTES,
    WantedError,
    asic_named,
    headroom,
)
from ..fabric.system import PEER, TO_NODES
from ..qos.contract import (
    FRAME_OVERHEAD,
    PATH_MTUS,
    VARIABLE,
    Contract,
    largest_path_mtu,
    needed_ip_mtu,
)
from ..schema.findings import Findings, Path
from .cluster import ClusterSwitch
from .layout import Topology, interface_names
from .node_kinds import DEFAULT, Kinds, NodeKind
from .nodes import NodeSpec, node_blocks
from .paths import Paths
from .schema import PRIVATE
from .software import GPUS
from .software_rules import REFUSED, evaluate
from .wiring import LEAF, Fabric, several_planes

MOST_OVERSUBSCRIBED = 3
"""Ratio of a leaf's capacity to nodes and to spines. Published rail-optimized designs have 1:1 (DGX
SuperPOD; Llama 3, arXiv 2407.21783) or 1.067:1 (Alibaba HPN, SIGCOMM 2024); general ones have up to
3:1 (48 ports of a top-of-rack switch to 16 uplinks in Jupiter Rising, SIGCOMM 2015)."""
MOST_ABOVE_LEAVES = 15
"""The same between higher tiers: 7:1 (Llama 3), 15:1 (Alibaba HPN)."""
_LINKS = ("links_per_spine", "links_per_leaf")
_OF_SYSTEM = re.compile(
    r"(eth|ib|usb|wlan|wwan|bond|dummy|docker|virbr|lxcbr|sit|tunl|gre|gretap|erspan|ip6tnl|ifb)\d"
    r"|(en|ib|sl|wl|ww)[bopsxciavu]\w*\d|lo$"
)
"""Names that the kernel and its modules give in the order of detection, or udev by position
(systemd.net-naming-scheme(7))."""
_FIRST_USER = 1000
"""Installers of Ubuntu, Debian and EL give it to the first account (UID_MIN in login.defs)."""


def check_values(
    model: dict[str, Any], kinds: Kinds, specs: list[NodeSpec], findings: Findings
) -> None:
    """Doubts about values, whatever they compile to."""
    pool, path = str(model["addresses"]["pool"]), ("addresses", "pool")
    if IPv4Network(pool).is_global:
        problem = f"{pool} contains public addresses, which makes hosts of the Internet unreachable"
        remedy = f"Choose one in {PRIVATE}, unless they are yours"
        findings.add("model.public_pool", path, problem, remedy, pool)
    if all(spec.drained for spec in specs):
        problem = "every node is drained, but the layers hostfile and smoke need a rank"
        remedy, path = "Keep one in service", ("nodes", "drained")
        findings.add("model.all_drained", path, problem, remedy, len(specs))
    domain = model["domain"]
    if domain == "local" or domain.endswith(".local"):
        problem = f"{domain!r} is for multicast DNS (RFC 6762): resolvers do not ask a DNS server"
        remedy = "Use a domain of your site"
        findings.add("model.local_domain", ("domain",), problem, remedy, domain)
    if model["mpi"]["uid"] == _FIRST_USER:
        problem = f"{_FIRST_USER} is usually the first account that the installer created"
        remedy = "Use another one, unless that account is the MPI user"
        findings.add("model.first_uid", ("mpi", "uid"), problem, remedy, _FIRST_USER)
    _check_absent(model, findings)
    racks = {spec.rack: spec.rack_path for spec in reversed(specs)}
    _check_case("racks", dict(reversed([*racks.items()])), findings)
    _check_case("kinds", {name: kind.path for name, kind in kinds.items()}, findings)
    _check_slots(specs, findings)
    for kind in kinds.values():
        _check_devices(kind, findings)
    _check_kinds(kinds, findings)
    _check_unused(model, specs, findings)
    mtu, needed = model["rails"]["mtu"], needed_ip_mtu(PATH_MTUS[-1])
    if mtu < needed and model[VARIABLE]["mtu"]["roce_path"] is None:
        problem = f"{mtu} bytes carry RoCE packets of {largest_path_mtu(mtu)}, of up to "
        problem += f"{PATH_MTUS[-1]}: more packets for the same data"
        remedy = f"Write {needed} or more, or roce_qos.mtu.roce_path if the fabric is limited"
        findings.add("model.small_mtu", ("rails", "mtu"), problem, remedy, mtu)
    names = [name for name in interface_names(model["rails"]) if _OF_SYSTEM.match(name)]
    if names:
        problem = f"{some(names, 2)}: the kernel or udev gives such names to other interfaces too"
        remedy = "Use names such as rail{rail}"
        findings.add("model.interface_of_system", ("rails", "interface"), problem, remedy, names[0])


def _check_absent(model: dict[str, Any], findings: Findings) -> None:
    for path, nodes in node_blocks(model):
        drained = {
            *nodes["drained"],
            *(entry["name"] for entry in nodes["list"] or () if entry["drained"]),
            *(name for name, entry in nodes["overrides"].items() if entry["drained"]),
        }
        for index, name in enumerate(nodes["absent"]):
            if name in drained:
                problem = f"{name!r} is also drained, which has no effect on an absent node"
                remedy, at = "Keep one of them", (*path, "absent", index)
                findings.add("model.drained_and_absent", at, problem, remedy, name)


def _check_case(what: str, paths: Mapping[str, Path], findings: Findings) -> None:
    """Names that differ only in case have different groups."""
    first: dict[str, str] = {}
    for name, path in paths.items():
        other = first.setdefault(name.lower(), name)
        if other != name:
            problem = f"the {what} {other!r} and {name!r} differ only in case"
            remedy, value = "Use one spelling, if they are the same", (other, name)
            findings.add("model.differ_in_case", path, problem, remedy, value)


def _check_slots(specs: list[NodeSpec], findings: Findings) -> None:
    numbers = {(spec.slots, spec.kind.gpus["count"]): spec.name for spec in reversed(specs)}
    for (slots, gpus), name in numbers.items():
        if gpus and slots and slots % gpus and gpus % slots:
            problem = f"{name} has {counted(slots, 'slot')} for {counted(gpus, 'GPU')}: ranks would"
            problem += " share GPUs unevenly"
            remedy = "Use a multiple or a divisor of the number of GPUs"
            value = (slots, gpus)
            findings.add("model.slots_per_gpu", ("nodes", "slots"), problem, remedy, value)


def _check_kinds(kinds: Kinds, findings: Findings) -> None:
    """Kinds that lose the PCI addresses of the default one."""
    for kind in kinds.values():
        for section in kind.own:
            values, common = getattr(kind, section), getattr(kinds[DEFAULT], section)
            if common["pci"] and values["count"] and not values["pci"]:
                problem = f"no PCI addresses: {section}.pci at the top level is for other nodes"
                remedy = "Write pci here as well, or remove the section if the devices are the same"
                findings.add("model.kind_devices", (*kind.path, section), problem, remedy)


def _check_unused(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> None:
    if any(nodes["absent"] for _path, nodes in node_blocks(model)):
        return
    used = {spec.kind.name for spec in specs}
    used.update(group["kind"] for group in model["switches"].values())
    for name in sorted(set(model["kinds"]) - used):
        problem, remedy = "no node is of this kind", f"Write kind: {name} under nodes, or remove it"
        findings.add("model.kind_unused", ("kinds", name), problem, remedy, name)


def _check_devices(kind: NodeKind, findings: Findings) -> None:
    """GPUs without a rail next to one with several, and rails on the NUMA node of another GPU."""
    if not kind.own:
        return
    rails, gpus = kind.rails, kind.gpus
    closest = rails["gpu"] or list(range(min(rails["count"], gpus["count"])))
    counts = Counter(gpu for gpu in closest if gpu is not None)
    several = [gpu for gpu in sorted(counts) if counts[gpu] > 1]
    without = [gpu for gpu in range(gpus["count"]) if gpu not in counts]
    if several and without:
        problem = f"GPU {some(several)} has several rails, and GPU "
        problem += f"{some(without)} none"
        remedy = "Distribute the rails evenly, or write null for a rail that belongs to no GPU"
        value = (several[0], without[0])
        path = kind.place("rails", "gpu")
        findings.add("model.gpu_without_rail", path, problem, remedy, value)
    if not rails["numa"] or not gpus["numa"]:
        return
    pairs = [(rail, gpu) for rail, gpu in enumerate(closest) if gpu is not None]
    wrong = [
        (rail, gpu) for rail, gpu in pairs if rails["numa"][rail] not in (None, gpus["numa"][gpu])
    ]
    if wrong:
        rail, gpu = wrong[0]
        problem = f"rail {rail} is on NUMA node {rails['numa'][rail]}, and GPU {gpu}, the closest "
        problem += f"to it, on {gpus['numa'][gpu]}"
        problem += f" ({len(wrong)} such rails)" if wrong[1:] else ""
        remedy = "Compare with `nvidia-smi topo -m`. Leave out rails.numa to use that of the GPU"
        first = (rail, gpu, len(wrong))
        path = kind.place("rails", "numa")
        findings.add("model.numa_of_rail", path, problem, remedy, first)


def check_software(
    common: SoftwareSet,
    of_kinds: Mapping[str, SoftwareSet],
    specs: list[NodeSpec],
    findings: Findings,
) -> None:
    """Doubts about the set of each kind; those about `common`, once."""
    above: Path = ("software",)
    sets = {above: common}
    if specs and all(spec.kind.name in of_kinds for spec in specs):
        sets = {}  # no node has it
    sets.update({("kinds", name, *above): each for name, each in of_kinds.items()})
    for kind in {spec.kind.name: spec.kind for spec in specs if spec.kind.path}.values():
        driver = of_kinds.get(kind.name, common).driver
        gpu = next((gpu for gpu in GPUS if gpu.lower() in kind.name.lower()), None)
        if driver and gpu and kind.gpus["count"] and gpu != driver.gpu:
            problem = f"nodes of the kind {kind.name} get the packages of a driver for {driver.gpu}"
            remedy = f"Write software: {{driver: {{gpu: {gpu}}}}} here, if these are their GPUs"
            value = (gpu, driver.gpu)
            findings.add("software.gpu_of_kind", kind.path, problem, remedy, value)
    for index, each in enumerate(common.accepted):
        if each.expired(today()):
            problem = f"the exception for {each.component} {each.version} expired on {each.until}"
            remedy, at = "Upgrade it, or set a later date", (*above, "accepted", index, "until")
            findings.add("software.accepted_expired", at, problem, remedy, each.until)
    told: set[str] = set()
    for path, software in sets.items():
        for rule in evaluate(software):
            problem = rule.problem(software)
            if rule.status != REFUSED and problem not in told:
                told.add(problem)
                findings.add(
                    f"software.{rule.name}", (*path, *rule.key.split(".")), problem, rule.remedy
                )


def check_fabric(
    model: dict[str, Any],
    topology: Topology,
    built: Mapping[str, Sequence[ClusterSwitch]],
    paths: Paths,
    findings: Findings,
) -> None:
    """Switches without cables, and leaves with few uplinks. `built`: switches by group."""
    for group in topology.fabric.groups.values():
        of_nodes = group.tier == LEAF
        if of_nodes and any(nodes["absent"] for _path, nodes in node_blocks(model)):
            continue  # their ports are reserved
        kinds, what = (("host", "storage"), "node") if of_nodes else (("downlink",), "leaf")
        idle = [
            switch.name
            for switch in built[group.name]
            if not any(ports.kind in kinds for ports in switch.ports)
        ]
        if idle:
            problem = f"{some(idle, 4)}: no {what} is connected"
            remedy = f"Correct {group.name}.count, unless they are for a later extension"
            value, path = (idle[0], len(idle)), (*group.path, "count")
            findings.add("model.idle_switches", path, problem, remedy, value)
    for name, group in topology.fabric.groups.items():
        pairs = zip(built[name], group.uplinks)
        without = [switch.name for switch, links in pairs if not links]
        rules = [rule for rule in topology.fabric.rules if name in rule.lowers]
        if rules and without and any(group.uplinks):
            problem = f"{some(without, 4)}: no link to higher switches, unlike others of {name}"
            remedy = "Correct plane or unit of the higher switches, or add those that are missing"
            value = (without[0], len(without))
            findings.add("model.no_uplink", rules[-1].path, problem, remedy, value)
    _check_rules(topology.fabric, findings)
    _check_paths(topology.fabric, built, paths, findings)
    number = 0
    for group in topology.fabric.groups.values():
        of_nodes, reported = group.tier == LEAF, False
        for switch in built[group.name]:
            down, up = _rate(switch, "downlink"), _rate(switch, "uplink")
            ports = f"{down}G to lower switches"
            if of_nodes:
                count, speed = topology.node_ports(number), topology.speed(number)
                down, ports = count * speed, f"{count} ports of {speed}G for nodes"
                number += 1
            most = MOST_OVERSUBSCRIBED if of_nodes else MOST_ABOVE_LEAVES
            ratio = Fraction(down, up) if up else 0
            if ratio <= most or reported:
                continue
            reported, figure = True, f"{float(ratio):.3g}:1"
            problem = f"{switch.name} has {ports} and {up}G to higher switches: {figure} "
            problem += f"oversubscribed{' when all are used' if of_nodes else ''}"
            fewer = f", or write {group.name}.nodes_per_set if fewer nodes will be connected"
            remedy = f"Use more links or higher switches{fewer if of_nodes else ''}. At most "
            remedy += f"{most}:1 is usual here, for RoCE 1:1"
            rule = next(rule for rule in topology.fabric.rules if group.name in rule.lowers)
            key = "count" if rule.path[0] == "links" else _LINKS[group.tier == LEAF]
            findings.add("model.oversubscribed", (*rule.path, key), problem, remedy, figure)


def _rate(switch: ClusterSwitch, kind: str) -> int:
    """Gb/s of all its links of a kind."""
    return sum(ports.speed_gbps * len(ports.peers) for ports in switch.ports if ports.kind == kind)


def _check_rules(fabric: Fabric, findings: Findings) -> None:
    """Links across planes, links that are described twice, and tiers that connect nothing else."""
    first: dict[tuple[str, str], Path] = {}
    sets = {place.leaf_set for leaves in fabric.leaves for place in leaves.places}
    for rule in fabric.rules:
        places = [place for name in rule.lowers for place in fabric.groups[name].places]
        if rule.divided_by and "plane" not in rule.divided_by and several_planes(places):
            problem = f"{some(rule.lowers)} have several planes, which these links connect"
            remedy = f"Write [{', '.join([*rule.divided_by, 'plane'])}], unless planes share them"
            path = (*rule.path, "divided_by")
            findings.add("model.planes_connected", path, problem, remedy, rule.upper)
        below = [each for each in fabric.rules if each.upper in rule.lowers]
        undivided = not any(each.divided_by for each in below) and len({*places}) == 1
        below = below if {each.upper for each in below} == {*rule.lowers} else []
        if sets - {0} and undivided and len({each.lowers for each in below}) == 1:
            problem = f"{some(rule.lowers)} connect all of {some(below[0].lowers)} already: "
            problem += f"{rule.upper} adds no path between nodes"
            remedy = "Write divided_by: [unit] one tier below (and sets_per_unit), or remove this "
            remedy += "tier, unless it leads out of the cluster"
            findings.add("model.tier_without_path", rule.path, problem, remedy, rule.upper)
        for lower in rule.lowers:
            other = first.setdefault((lower, rule.upper), rule.path)
            if other != rule.path:
                problem = f"{lower} and {rule.upper} are also connected by {findings.place(other)}"
                remedy = "Write one entry with a count, unless both are meant"
                findings.add("model.links_twice", rule.path, problem, remedy, (lower, rule.upper))


def _check_paths(
    fabric: Fabric,
    built: Mapping[str, Sequence[ClusterSwitch]],
    paths: Paths,
    findings: Findings,
) -> None:
    """Leaves of one rail that no higher tier connects."""
    first: dict[tuple[Any, Any], str] = {}
    for leaf in (switch for group in built.values() for switch in group):
        for ports in (ports for ports in leaf.ports if ports.kind == "host"):
            other = first.setdefault((ports.rail, ports.plane), leaf.name)
            if paths.part(other) != paths.part(leaf.name):
                problem = f"{other} and {leaf.name}, both of rail {ports.rail}, have no path to "
                problem += "each other: their nodes cannot communicate on it"
                remedy = "Connect them by a higher tier, unless jobs never span them"
                path = fabric.rules[-1].path if fabric.rules else fabric.leaves[0].path
                findings.add("model.leaves_apart", path, problem, remedy, (other, leaf.name))
                return


def check_contract(
    contract: Contract, switches: Sequence[ClusterSwitch], findings: Findings
) -> None:
    """Thresholds that no queue reaches, or that every packet exceeds."""
    sizes: dict[int, str] = {}
    for chip in sorted({switch.asic for switch in switches}):
        if chip in BUFFER_BYTES:
            sizes[BUFFER_BYTES[chip]] = chip
        elif chip in ASICS or not chip:  # others may have external memory
            sizes[LARGEST_BUFFER_BYTES] = "any chip without external memory"
    packet = needed_ip_mtu(contract.mtu.roce_path) + FRAME_OVERHEAD
    low, high = contract.ecn.minimum_bytes, contract.ecn.maximum_bytes
    ecn = {("ecn", "minimum_bytes"): low, ("ecn", "maximum_bytes"): high}
    values = {**(ecn if contract.dcqcn else {}), ("pfc", "xoff_bytes"): contract.pfc.xoff_bytes}
    for key, value in values.items():
        path = (VARIABLE, *key)
        if value is not None and sizes and value > min(sizes):
            size = min(sizes)
            problem = f"{value} is above the packet buffer of {sizes[size]}, {size} bytes, so that "
            problem += "no queue reaches it"
            remedy = "Write a smaller one. The default is that of Cumulus Linux"
            findings.add("qos.above_buffer", path, problem, remedy, (value, size))
        elif value is not None and value < packet:
            problem = f"{value} is less than one packet of {packet} bytes "
            problem += f"({VARIABLE}.mtu.roce_path): every queue is above it"
            remedy = "Write the length of many packets"
            findings.add("qos.below_packet", path, problem, remedy, (value, packet))
    uncontrolled = contract.dcqcn and not contract.congestion_control.reaction_point
    if uncontrolled and not contract.roce.lossless:
        problem = "RoCE data has neither PFC nor DCQCN: under congestion, packets are lost until "
        problem += "senders time out"
        remedy = "Leave it out, unless NICs run another one"
        findings.add("qos.nothing_slows", (VARIABLE, "congestion_control"), problem, remedy)


def check_headroom(
    contract: Contract,
    asics: Mapping[str, Mapping[str, Any]],
    switches: Sequence[ClusterSwitch],
    findings: Findings,
) -> None:
    """Headroom of all lossless classes above the packet buffer. A switch whose ports share headroom
    needs less, so this is not an error."""
    metres, classes = contract.cable_metres, len(contract.lossless_classes)
    seen: set[tuple[str, frozenset[tuple[tuple[int, int], int]]]] = set()
    for switch in switches:
        links: Counter[tuple[int, int]] = Counter()
        for group in (ports for ports in switch.ports if ports.kind != PEER):
            to_nodes = group.kind in TO_NODES
            length = metres.to_nodes if to_nodes else metres.between_switches
            links[group.speed_gbps, length] += len(group.peers)
        chip, buffer = asic_named(switch.asic, asics), BUFFER_BYTES.get(switch.asic)
        kind = (switch.asic, frozenset(links.items()))
        if chip is None or buffer is None or kind in seen:
            continue
        seen.add(kind)
        try:
            room = sum(
                count * headroom(chip, *link, contract.mtu.fabric_frame).size_bytes
                for link, count in links.items()
            )
        except WantedError:
            continue  # the layer fabric may find it on the switch
        needed = room * classes
        if needed > buffer:
            problem = f"{switch.name} needs {needed} bytes of headroom "
            problem += f"({counted(classes, 'lossless class', 'lossless classes')}, cables of "
            problem += f"{metres.to_nodes} and {metres.between_switches} m), and {switch.asic} has "
            problem += f"a packet buffer of {buffer}"
            remedy = "Write the real lengths, or make fewer classes lossless"
            path, value = (VARIABLE, "cable_metres"), (needed, buffer)
            findings.add("qos.headroom_above_buffer", path, problem, remedy, value)
            return
