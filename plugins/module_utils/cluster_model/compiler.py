# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a model file to a compiled cluster, or to every reason why not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Optional

from .address_plan import AddressPlan, Exhausted, PointToPoint, SubnetPerRail
from .addresses import Network, text
from .cluster import Cluster, Gpu, Host, Management, Node, PortGroup, Rail, Switch
from .findings import Findings, ModelError, Path, counted, nearest, some
from .kinds import HOST_NAME, INTERFACE, check
from .nodes import NodeSpec, specify
from .schema import MODEL, SUBNET_PER_RAIL
from .source import Source
from .topology import Lane, Ports, Topology, lay_lanes

GROUPS = ("all", "compute", "launcher", "storage", "leaf", "spine", "ungrouped")


def compile_model(source: Source) -> Cluster:
    """The cluster that `source` describes. Raises ModelError with everything that is wrong."""
    findings = Findings(source.line)
    model = check(MODEL, source.data, source, findings)
    if model is None:
        raise ModelError(source.name, findings.found)
    specs = specify(model, findings)
    topology = _topology(model, specs, findings)
    plan = _plan(model, specs, topology, findings)
    switches = _switch_names(model, findings)
    _check_names(model, specs, switches, findings)
    _check_management(model, specs, switches, findings)
    _check_devices(model, specs, findings)
    _check_group_vars(model, specs, findings)
    if findings or specs is None or topology is None or plan is None:
        raise ModelError(source.name, findings.found)
    return _build(model, specs, topology, plan, switches)


# What cannot be -----------------------------------------------------------------------------


def _topology(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> Optional[Topology]:
    if not findings.clean(("rails",), ("leaves",), ("spines",)):
        return None
    rails, leaves, spines = model["rails"], model["leaves"], model["spines"]
    wanted = rails["count"] * rails["planes"]
    what = "rail" if rails["planes"] == 1 else "plane"
    mapping = leaves["rail_to_leaf"]
    if mapping is None:
        mapping = list(range(wanted))
        if leaves["count"] < wanted:
            findings.add(
                ("leaves", "count"),
                f"{_lane_name(leaves['count'], rails['planes'])} has no leaf: "
                f"{counted(leaves['count'], 'leaf', 'leaves')} for {counted(wanted, what)}",
                f"Have {wanted} leaves, or let rails share them by leaves.rail_to_leaf",
            )
            return None
    elif len(mapping) < wanted:
        findings.add(
            ("leaves", "rail_to_leaf"),
            f"{_lane_name(len(mapping), rails['planes'])} has no leaf: "
            f"{counted(len(mapping), 'number')} for {counted(wanted, what)}",
            f"Write {counted(wanted, 'number')}, one per rail and plane",
        )
        return None
    elif len(mapping) > wanted:
        findings.add(
            ("leaves", "rail_to_leaf"),
            f"{counted(len(mapping), 'number')} for {counted(wanted, what)}",
            f"Write {counted(wanted, 'number')}, one per rail and plane",
        )
        return None
    per_set = max(mapping) + 1
    idle = sorted(set(range(per_set)) - set(mapping))
    if idle:
        findings.add(
            ("leaves", "rail_to_leaf"),
            f"leaf {idle[0]} of the set has no rail",
            f"Use every number from 0 to {per_set - 1}",
        )
        return None
    if leaves["count"] % per_set:
        findings.add(
            ("leaves", "count"),
            f"{leaves['count']} leaves are no whole number of sets of {per_set}, "
            "so that rails of the last set have no leaf",
            f"Have a multiple of {per_set}",
        )
        return None
    topology = Topology(
        lanes=lay_lanes(rails["count"], rails["planes"], mapping),
        leaves=leaves["count"],
        leaves_per_set=per_set,
        leaf_ports=_ports(leaves),
        nodes_per_set=1,
        spines=spines["count"] if spines else 0,
        links_per_leaf=spines["links_per_leaf"] if spines else 0,
    )
    return _with_room(model, topology, specs, findings)


def _with_room(
    model: dict[str, Any],
    topology: Topology,
    specs: Optional[list[NodeSpec]],
    findings: Findings,
) -> Optional[Topology]:
    leaves, spines = model["leaves"], model["spines"]
    most_lanes = max(topology.lanes_on(leaf) for leaf in range(topology.leaves_per_set))
    room = (leaves["ports"] - topology.uplinks) // most_lanes
    if room < 1:
        findings.add(
            ("leaves", "ports"),
            f"{counted(leaves['ports'], 'port')} leave none for a node beside "
            f"{counted(topology.uplinks, 'uplink')}",
            "Have more ports, or fewer links to spines",
        )
        return None
    per_set = leaves["nodes_per_set"] or room
    if per_set > room:
        findings.add(
            ("leaves", "nodes_per_set"),
            f"{per_set} nodes do not fit on leaves with {counted(leaves['ports'], 'port')}, "
            f"{topology.uplinks} of them uplinks, at {counted(most_lanes, 'port')} for each node",
            f"Write at most {room}, or have more ports",
        )
        return None
    if spines and topology.leaves * topology.links_per_leaf > spines["ports"]:
        findings.add(
            ("spines", "ports"),
            f"{counted(topology.leaves, 'leaf', 'leaves')} with "
            f"{counted(topology.links_per_leaf, 'link')} each need "
            f"{counted(topology.leaves * topology.links_per_leaf, 'port')} on every spine, "
            f"it has {spines['ports']}",
            "Have more ports, or fewer links_per_leaf",
        )
    sized = Topology(
        lanes=topology.lanes,
        leaves=topology.leaves,
        leaves_per_set=topology.leaves_per_set,
        leaf_ports=topology.leaf_ports,
        nodes_per_set=per_set,
        spines=topology.spines,
        links_per_leaf=topology.links_per_leaf,
    )
    places = specs[-1].index + 1 if specs else 0
    if places > sized.room:
        sets = -(-places // per_set)
        findings.add(
            ("leaves", "count"),
            f"{counted(places, 'node')}, but the leaves have ports for {sized.room} "
            f"({counted(sized.sets, 'set')} for {per_set} each)",
            f"Have {sets * topology.leaves_per_set} leaves, leaves with more ports, or fewer nodes",
        )
    return sized


def _lane_name(number: int, planes: int) -> str:
    rail, plane = divmod(number, planes)
    return f"rail {rail}" if planes == 1 else f"rail {rail} plane {plane}"


def _ports(switch: dict[str, Any]) -> Ports:
    return Ports(switch["ports"], switch["port"], switch["port_start"], switch["port_step"])


def _plan(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    topology: Optional[Topology],
    findings: Findings,
) -> Optional[AddressPlan]:
    if not findings.clean(("addresses",)):
        return None
    addresses = model["addresses"]
    pool: Network = addresses["pool"]
    if findings.clean(("management",)) and pool.overlaps(model["management"]["subnet"]):
        findings.add(
            ("addresses", "pool"),
            f"{pool} overlaps the management subnet {model['management']['subnet']}",
            "Give rails and management networks of their own",
        )
    if specs is None or topology is None:
        return None
    plan: AddressPlan
    if addresses["plan"] == SUBNET_PER_RAIL:
        plan = SubnetPerRail(
            pool=pool,
            lanes=len(topology.lanes),
            nodes_per_set=topology.nodes_per_set,
            subnet_prefix=addresses["prefix"],
            first_host=addresses["first_host"],
        )
        remedy = "Take a larger pool, or another prefix"
    else:
        plan = PointToPoint(pool=pool, lanes=len(topology.lanes))
        remedy = "Take a larger pool"
    try:
        plan.require_room(specs[-1].index + 1)
    except Exhausted as exhausted:
        findings.add(("addresses", "pool"), str(exhausted), remedy)
    return plan


def _switch_names(model: dict[str, Any], findings: Findings) -> dict[str, list[str]]:
    """Names of `leaves` and `spines`; empty where there are none or they are not clear."""
    names: dict[str, list[str]] = {"leaves": [], "spines": []}
    for kind in names:
        switch = model[kind]
        if not switch or not findings.clean((kind,)):
            continue
        if isinstance(switch["name"], str):
            names[kind] = [switch["name"].format(number + 1) for number in range(switch["count"])]
            continue
        names[kind] = switch["name"]
        if len(names[kind]) != switch["count"]:
            findings.add(
                (kind, "name"),
                f"{counted(len(names[kind]), 'name')} for {switch['count']} {kind}",
                "Write as many names as there are switches",
            )
    return names


def _hosts_beside(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Launcher and storage hosts with their places, as far as they can be read."""
    hosts: list[tuple[Path, dict[str, Any]]] = []
    if model["launcher"]:
        hosts.append((("launcher",), model["launcher"]))
    for index, host in enumerate(model["storage"] or []):
        if host:
            hosts.append((("storage", index), host))
    return hosts


def _check_names(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    switches: dict[str, list[str]],
    findings: Findings,
) -> None:
    """Each name is a host name, is there once, and is not that of a group."""
    where: dict[str, Path] = {}
    racks = {rack_group(spec.rack) for spec in specs or []}

    told: set[tuple[Path, Path]] = set()

    def tell(path: Path, other: Path, problem: str, remedy: str) -> None:
        # A pattern that is wrong once is wrong for every number: say it once.
        if (path, other) not in told:
            findings.add(path, problem, remedy)
        told.add((path, other))

    def take(name: str, path: Path) -> None:
        if name in where:
            first = where[name]
            problem = f"the name {name!r} is taken by {findings.place(first)}"
            tell(path, first, problem, "Rename one of them")
            return
        where[name] = path
        if not re.fullmatch(HOST_NAME.form, name):
            tell(path, path, f"{name!r} is not {HOST_NAME.wanted}", "Change the pattern")
        elif name in GROUPS or name in racks:
            tell(
                path,
                path,
                f"{name!r} is also the name of a group, and Ansible cannot tell them apart",
                f"Name the host {name}01, for example",
            )

    for spec in specs or []:
        take(spec.name, spec.path if len(spec.path) > 1 else ("nodes", "name"))
    for kind, names in switches.items():
        for index, name in enumerate(names):
            listed = isinstance(model[kind]["name"], list)
            take(name, (kind, "name", index) if listed else (kind, "name"))
    for path, host in _hosts_beside(model):
        if host["name"] is not None:
            take(host["name"], (*path, "name"))


def _check_management(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    switches: dict[str, list[str]],
    findings: Findings,
) -> None:
    """Each management address lies in the subnet and is there once."""
    if not findings.clean(("management",)):
        return
    subnet: Network = model["management"]["subnet"]
    owner: dict[int, str] = {}
    outside: dict[Path, list[tuple[str, int]]] = {}
    taken: dict[Path, list[tuple[str, int]]] = {}
    for name, address, path in _management(model, specs, switches):
        if not subnet.first < address < subnet.last:
            outside.setdefault(path, []).append((name, address))
        if address in owner:
            taken.setdefault(path, []).append((name, address))
        else:
            owner[address] = name
    for path, hosts in outside.items():
        findings.add(
            path,
            f"{_and_more(hosts)} {'is' if len(hosts) == 1 else 'are'} no host address of the "
            f"management subnet {subnet}",
            "Choose others, or a larger management.subnet",
        )
    for path, hosts in taken.items():
        others = [owner[address] for _name, address in hosts]
        findings.add(
            path,
            f"{_and_more(hosts)}: taken by {some(others, 3)}",
            "Give each host a management address of its own",
        )


def _and_more(hosts: list[tuple[str, int]]) -> str:
    name, address = hosts[0]
    more = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
    return f"{text(address)} ({name}){more}"


def _management(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], switches: dict[str, list[str]]
) -> Iterable[tuple[str, int, Path]]:
    for path, host in _hosts_beside(model):
        if host["management"] is not None:
            yield host["name"] or "unnamed", host["management"], (*path, "management")
    for spec in specs or []:
        if spec.management is not None:
            yield spec.name, spec.management, spec.management_path
    for kind, names in switches.items():
        for index, name in enumerate(names):
            yield name, model[kind]["management_first"] + index, (kind, "management_first")


def _check_devices(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> None:
    """Lists per rail and GPU have their length, and no device is named twice in a node."""
    if not findings.clean(("rails",), ("gpus",)):
        return
    rails, gpus = model["rails"], model["gpus"]
    for section, key, count, what in (
        ("rails", "gpu", rails["count"], "rail"),
        ("rails", "numa", rails["count"], "rail"),
        ("gpus", "numa", gpus["count"], "GPU"),
    ):
        values = model[section][key]
        if values is not None and len(values) != count:
            findings.add(
                (section, key),
                f"{counted(len(values), 'value')} for {counted(count, what)}",
                f"Write {counted(count, 'value')}",
            )
    for index, gpu in enumerate(rails["gpu"] or []):
        if gpu is not None and gpu >= gpus["count"]:
            findings.add(
                ("rails", "gpu", index),
                f"there is no GPU {gpu}: a node has {gpus['count']}",
                "Count GPUs from 0, or write null",
            )
    if rails["planes"] > 1 and "{plane}" not in (rails["interface"] or "{plane}"):
        findings.add(
            ("rails", "interface"),
            f"{rails['interface']!r} gives the planes of a rail the same name",
            "Put {plane} into it",
        )
    longest = _interface(rails, rails["count"] - 1, rails["planes"] - 1)
    if not re.fullmatch(INTERFACE.form, longest) or len(longest) > INTERFACE.most:
        findings.add(
            ("rails", "interface"),
            f"{longest!r} is not {INTERFACE.wanted}",
            "Change the pattern",
        )
    seen: set[tuple[int, int]] = set()
    for spec in specs or []:
        if (id(spec.pci), id(spec.gpu_pci)) in seen:
            continue
        seen.add((id(spec.pci), id(spec.gpu_pci)))
        _check_pci(spec, rails["count"], rails["planes"], gpus["count"], findings)


def _check_pci(spec: NodeSpec, rails: int, planes: int, gpus: int, findings: Findings) -> None:
    first: dict[str, str] = {}
    if spec.pci is not None:
        if len(spec.pci) != rails:
            findings.add(
                spec.pci_path,
                f"{counted(len(spec.pci), 'entry', 'entries')} for {counted(rails, 'rail')}",
                f"Write {rails}",
            )
        for rail, entry in enumerate(spec.pci):
            devices = entry if isinstance(entry, list) else [entry]
            if len(devices) != planes:
                findings.add(
                    (*spec.pci_path, rail),
                    f"{counted(len(devices), 'PCI address', 'PCI addresses')} "
                    f"for {counted(planes, 'plane')} of rail {rail}",
                    f"Write {planes}" + (" as a list" if planes > 1 else ""),
                )
            for pci in devices:
                _take_device(pci, f"rail {rail}", (*spec.pci_path, rail), first, findings)
    if spec.gpu_pci is not None:
        if len(spec.gpu_pci) != gpus:
            findings.add(
                spec.gpu_pci_path,
                f"{counted(len(spec.gpu_pci), 'entry', 'entries')} for {counted(gpus, 'GPU')}",
                f"Write {gpus}",
            )
        for index, pci in enumerate(spec.gpu_pci):
            _take_device(pci, f"GPU {index}", (*spec.gpu_pci_path, index), first, findings)


def _take_device(
    pci: str, what: str, path: Path, first: dict[str, str], findings: Findings
) -> None:
    if pci in first:
        findings.add(
            path,
            f"the PCI address {pci} of {what} is also that of {first[pci]}",
            "Give each device its own",
        )
    else:
        first[pci] = what


def _check_group_vars(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> None:
    if specs is None or not findings.clean(("vars",)):
        return
    known = [*GROUPS[:-1], *sorted({rack_group(spec.rack) for spec in specs})]
    for group in model["vars"]:
        if group not in known:
            findings.add(("vars", group), f"there is no group {group!r}", nearest(group, known))


def rack_group(rack: str) -> str:
    """The Ansible group of a rack: what no group name may have becomes an underscore."""
    return "rack_" + re.sub(r"[^A-Za-z0-9_]", "_", rack)


# What is ------------------------------------------------------------------------------------


def _interface(rails: dict[str, Any], rail: int, plane: int) -> str:
    pattern = rails["interface"] or ("rail{rail}" if rails["planes"] == 1 else "rail{rail}p{plane}")
    return str(pattern.format(rail=rail, plane=plane))


def _build(
    model: dict[str, Any],
    specs: list[NodeSpec],
    topology: Topology,
    plan: AddressPlan,
    switches: dict[str, list[str]],
) -> Cluster:
    subnet: Network = model["management"]["subnet"]
    interface = model["management"]["interface"]

    def management(address: int) -> Management:
        return Management(text(address), subnet.prefix, interface)

    def host(entry: dict[str, Any], role: str) -> Host:
        return Host(entry["name"], role, management(entry["management"]), entry["vars"])

    def switch(kind: str, role: str) -> list[Switch]:
        return [
            Switch(name, role, management(model[kind]["management_first"] + index))
            for index, name in enumerate(switches[kind])
        ]

    leaves, spines = switch("leaves", "leaf"), switch("spines", "spine")
    gpus = model["gpus"]
    common_gpus = _gpus(gpus, gpus["pci"])
    nodes = [
        Node(
            name=spec.name,
            role="compute",
            management=management(spec.management or 0),
            vars=spec.vars,
            index=spec.index,
            rack=spec.rack,
            slots=spec.slots,
            drained=spec.drained,
            gpus=common_gpus if spec.gpu_pci is gpus["pci"] else _gpus(gpus, spec.gpu_pci),
        )
        for spec in specs
    ]
    _plug_nodes(model, specs, nodes, leaves, topology, plan)
    if model["spines"]:
        _plug_spines(model, leaves, spines, topology)
    return Cluster(
        name=model["name"],
        domain=model["domain"],
        mpi_user=model["mpi"]["user"],
        mpi_uid=model["mpi"]["uid"],
        addressing=model["addresses"]["plan"],
        slots=model["nodes"]["slots"] or gpus["count"],
        gpus=common_gpus,
        nodes=nodes,
        launcher=host(model["launcher"], "launcher"),
        storage=[host(entry, "storage") for entry in model["storage"]],
        leaves=leaves,
        spines=spines,
        group_vars=model["vars"],
    )


def _gpus(gpus: dict[str, Any], pci: Optional[list[str]]) -> list[Gpu]:
    return [
        Gpu(index, pci[index] if pci else None, gpus["numa"][index] if gpus["numa"] else None)
        for index in range(gpus["count"])
    ]


def _plug_nodes(
    model: dict[str, Any],
    specs: list[NodeSpec],
    nodes: list[Node],
    leaves: list[Switch],
    topology: Topology,
    plan: AddressPlan,
) -> None:
    """Give every lane of every node its address, and both ends of its cable their port."""
    rails = model["rails"]
    mtu, speed, prefix = rails["mtu"], rails["speed_gbps"], plan.prefix
    ports = [topology.leaf_ports.name(index) for index in range(topology.leaf_ports.count)]
    shared_gateway = model["addresses"]["plan"] == SUBNET_PER_RAIL
    sets = [
        (leaf_set, list(members))
        for leaf_set, members in groupby(
            zip(specs, nodes), key=lambda pair: pair[1].index // topology.nodes_per_set
        )
    ]
    for number, lane in enumerate(topology.lanes):
        interface = _interface(rails, lane.rail, lane.plane)
        gpu, numa = _locality(lane, rails, model["gpus"])
        lanes_here = topology.lanes_on(lane.leaf)
        for leaf_set, members in sets:
            first = leaf_set * topology.nodes_per_set
            leaf = leaves[leaf_set * topology.leaves_per_set + lane.leaf]
            group = PortGroup("host", interface, speed, mtu, lane.rail, lane.plane, prefix)
            leaf.ports.append(group)
            network = str(plan.network(first, number))
            gateway = text(plan.gateway(first, number))
            group.address = gateway if shared_gateway else None
            for spec, node in members:
                port = ports[(node.index - first) * lanes_here + lane.place]
                group.peers[port] = node.name
                if not shared_gateway:
                    network = str(plan.network(node.index, number))
                    gateway = group.addresses[port] = text(plan.gateway(node.index, number))
                device = spec.pci[lane.rail] if spec.pci else None
                node.rails.append(
                    Rail(
                        rail=lane.rail,
                        plane=lane.plane,
                        interface=interface,
                        pci=device[lane.plane] if isinstance(device, list) else device,
                        address=text(plan.address(node.index, number)),
                        prefix=prefix,
                        network=network,
                        gateway=gateway,
                        mtu=mtu,
                        speed_gbps=speed,
                        leaf=leaf.name,
                        leaf_port=port,
                        gpu=gpu,
                        numa=numa,
                    )
                )


def _locality(
    lane: Lane, rails: dict[str, Any], gpus: dict[str, Any]
) -> tuple[Optional[int], Optional[int]]:
    """The GPU and the NUMA node beside a lane."""
    if rails["gpu"] is not None:
        gpu = rails["gpu"][lane.rail]
    else:
        gpu = lane.rail if lane.rail < gpus["count"] else None
    if rails["numa"] is not None:
        return gpu, rails["numa"][lane.rail]
    return gpu, gpus["numa"][gpu] if gpus["numa"] and gpu is not None else None


def _plug_spines(
    model: dict[str, Any], leaves: list[Switch], spines: list[Switch], topology: Topology
) -> None:
    """A link has the same port on every spine, and to one spine the same port on every leaf."""
    spine_ports = _ports(model["spines"])
    speed = model["spines"]["speed_gbps"] or model["rails"]["speed_gbps"]
    mtu = model["rails"]["mtu"]
    for link in range(topology.links_per_leaf):
        ups = [
            topology.leaf_ports.name(topology.uplink_port(spine, link))
            for spine in range(topology.spines)
        ]
        downs = [
            spine_ports.name(topology.spine_port(leaf, link)) for leaf in range(topology.leaves)
        ]
        for leaf, down in zip(leaves, downs):
            peers = {up: spine.name for up, spine in zip(ups, spines)}
            leaf.ports.append(PortGroup("uplink", down, speed, mtu, peers=peers))
        for spine, up in zip(spines, ups):
            peers = {down: leaf.name for down, leaf in zip(downs, leaves)}
            spine.ports.append(PortGroup("downlink", up, speed, mtu, peers=peers))
