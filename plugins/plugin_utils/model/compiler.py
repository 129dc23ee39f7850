# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compile a model file to a cluster, or list every error in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...module_utils.storage.file_system import NFS, RDMA
from ..fabric.chip_keys import check_asics
from ..qos import host_settings
from ..qos.rules import check_rail
from ..qos.rules import finish as read_contract
from ..schema.findings import Findings
from . import doubts, routing, rules
from .addresses import AddressPlan, HostAddresses, Subnet, text
from .cluster import (
    Cluster,
    ClusterHost,
    ClusterSwitch,
    ComputeNode,
    PortGroup,
    RailPlane,
    kind_group,
)
from .layout import (
    LeafSets,
    Topology,
    bond_name,
    interface_name,
    interface_names,
    lay_out,
    plan_addresses,
)
from .networks import cluster_networks, entry_networks, owners
from .node_kinds import DEFAULT, Kinds, NodeKind, check_speeds, read_kinds, with_rails
from .nodes import (
    NodeSpec,
    check_default,
    check_launchers,
    check_scheduler,
    launchers,
    node_blocks,
    places_with_rails,
    specify,
)
from .paths import Paths, assign_networks, one_network_each
from .schema import MODEL, POINT_TO_POINT, SUBNET_PER_RAIL
from .software import VARIABLE
from .software import finish as read_software
from .software import of_kinds as software_of_kinds
from .source import ModelError, ModelSource, read_file
from .storage import Site, read_filesystems
from .switches import PEERS, Switches, read_ports, read_switches
from .wiring import LEAF, Fabric, Rule, SwitchGroup, SwitchPorts, place_groups, read_fabric


def load(path: str) -> Cluster:
    """Read and compile the model at `path`. Raises ModelError, even if it cannot be read."""
    return compile_model(read_file(path))


def compile_model(source: ModelSource) -> Cluster:
    """The cluster that `source` describes. Raises ModelError, listing every error.

    Errors of keys and types come first; rules need complete values.
    """
    findings = Findings(source.line, source.text)
    model = MODEL.check(with_rails(source.data), findings)
    known = {finding.path for finding in source.found}
    findings.found[:] = [*source.found, *(new for new in findings.found if new.path not in known)]
    if model is not None:
        check_launchers(model, source.data, findings)
    fabric = None if findings else read_fabric(model, findings)
    if findings or fabric is None:
        raise ModelError(source.name, findings.found)
    apart = {group.kind: group for group in fabric.leaves if group.kind}
    kinds = read_kinds(model, apart, findings)
    specs, absent = specify(model, kinds, findings)
    check_default(source.data, specs, findings)
    check_scheduler(model, specs, findings)
    doubtful = Findings(source.line)
    for group in fabric.groups.values():
        own = findings.below(group.path[:-1])
        read_ports(group.keys, group.name, group.tier == LEAF, own)
    topology = lay_out(kinds, fabric, specs, findings)
    plans = plan_addresses(model, specs, topology, findings)
    check_asics(model["asics"], findings)
    switches = {
        name: read_switches(
            {**model, name: {**group.keys, "speeds": _speeds(fabric, group, kinds)}},
            name,
            findings.below(group.path[:-1]),
            doubtful.below(group.path[:-1]),
        )
        for name, group in fabric.groups.items()
    }
    for name, chips in _chips_of(fabric, switches).items():
        here = [name] if name else [each for each in kinds if each not in apart]
        of_leaves = {each: kinds[each] for each in here if each in kinds}
        check_speeds(of_leaves, sorted(chips), model["asics"], findings)
    rules.check_names(kinds, model, specs, fabric, switches, findings)
    rules.check_management(model, specs, fabric, switches, findings)
    rules.check_devices(model, kinds, specs, findings)
    rules.check_racks(specs, findings)
    rules.check_channels(fabric, findings)
    rules.check_group_vars(model, specs, topology.groups if topology else (), findings)
    mtu = model["rails"]["mtu"]
    contract = read_contract(model["roce_qos"], findings, mtu)
    check_rail(contract, mtu, findings, ("rails", "mtu"))
    before = len(findings.found)
    software = read_software(model["software"], findings, ("software",))
    of_kinds = (
        software_of_kinds(model, software, kinds, findings) if not findings.found[before:] else {}
    )
    site = Site()
    sections = [
        routing.SwitchSection(group.path, group.keys, switches[group.name])
        for group in fabric.groups.values()
    ]
    routing.check(model, sections, findings)
    if specs and topology is not None and plans is not None:
        leaves = Switches(
            *(
                [each for group in fabric.leaves for each in getattr(switches[group.name], what)]
                for what in ("names", "kinds")
            )
        )
        managed = {
            name: address
            for group in fabric.groups.values()
            for name, address in zip(switches[group.name].names, group.management)
        }
        addresses = _addresses(model, specs, absent, topology, plans, leaves.names, managed)
        further = {**routing.loopback_owners(sections), **addresses.further}
        addresses = replace(addresses, further=further)
        groups, without = tuple(rules.groups_of(specs)), rules.groups_without_rails(specs)
        site = Site(groups, without, addresses.hosts, addresses, doubtful)
        routing.check_storage(model, addresses, findings)
        if (
            len(leaves.kinds)
            == len(leaves.names)
            == sum(len(group.places) for group in fabric.leaves)
        ):
            reserved = places_with_rails([*specs, *absent])
            rules.check_storage_links(model, topology, reserved, leaves, findings)
    filesystems = read_filesystems(model["filesystems"], findings, ("filesystems",), site)
    if findings or topology is None or plans is None:
        raise ModelError(source.name, findings.found)

    nodes = _nodes(model, specs)
    built = {
        group.name: _switches(model, group, topology, switches[group.name])
        for group in fabric.groups.values()
    }
    ports = {
        group.name: [group.ports(kind) for kind in switches[group.name].kinds]
        for group in fabric.groups.values()
    }
    pairs, places = list(zip(specs, nodes)), [spec.index for spec in specs]
    for sets, plan in zip(topology.sets, plans):
        members = pairs[bisect_left(places, plan.first_node) : bisect_left(places, plan.end)]
        name = sets.group.name
        _plug_nodes(model, topology, sets, plan, members, built[name], ports[name])
    for name, switches_of_group in built.items():
        speeds = _speeds(fabric, fabric.groups[name], kinds)
        _plug_peers(switches_of_group, switches[name], speeds[PEERS], model["rails"]["mtu"])
    for rule in fabric.rules:
        _plug_links(rule, model["rails"]["mtu"], built, ports)
    _plug_storage(model, [leaf for group in fabric.leaves for leaf in built[group.name]])
    paths = Paths(switch for group in built.values() for switch in group)
    pools = {(plan.pool, plan.planes, plan.lanes) for plan in plans}
    planes = plans[0].planes if len(pools) == 1 else 1
    prefixes = [str(plans[0].plane_network(plane)) for plane in range(planes)] if planes > 1 else []
    assign_networks(nodes, paths, prefixes, doubtful)
    routing.assign(model, sections, list(built.values()), doubtful)
    storage = [_host(model, entry, "storage") for entry in model["storage"]]
    routing.assign_storage(model, storage, addresses)
    doubts.check_values(model, kinds, specs, doubtful)
    doubts.check_software(software, of_kinds, specs, doubtful)
    doubts.check_fabric(model, topology, built, paths, doubtful)
    switches_of_all = [switch for group in built.values() for switch in group]
    doubts.check_contract(contract, switches_of_all, doubtful)
    doubts.check_headroom(contract, model["asics"], switches_of_all, doubtful)
    nfs_rdma = any(fs.type == NFS and fs.nfs.transport == RDMA for fs in filesystems)
    software, *others = (
        replace(each, rdma=replace(each.rdma, nfs=nfs_rdma))
        for each in (software, *of_kinds.values())
    )
    addressing = model["addresses"]["plan"]
    everywhere = {
        "cluster_name": model["name"],
        "cluster_domain": model["domain"],
        "cluster_mpi_user": model["mpi"]["user"],
        "cluster_mpi_uid": model["mpi"]["uid"],
        "cluster_addressing": addressing,
        "cluster_asics": model["asics"],
        "roce_qos": contract.as_variable(),
        VARIABLE: software.as_variable(),
        "cluster_filesystems": [entry.as_variable() for entry in filesystems],
        "cluster_scheduler": model["scheduler"] or "",
    }
    if len(model["management"]["subnet"].each) > 1:
        everywhere["cluster_management_networks"] = [*map(str, model["management"]["subnet"].each)]
    if any(model["cabling"].values()):
        everywhere["cluster_cabling"] = model["cabling"]
    if addressing == POINT_TO_POINT or not one_network_each(nodes):
        everywhere["cluster_rail_networks"] = list(dict.fromkeys(str(plan.pool) for plan in plans))
    leaf_sets = sum(sets.count for sets in topology.sets)
    compute = {
        "cluster_slots": node_blocks(model)[0][1]["slots"] or model["gpus"]["count"],
        "cluster_drained": False,
        "cluster_gpus": kinds[DEFAULT].common_gpus,
        "cluster_qos": host_settings(contract, leaf_sets).as_variable(),
    }
    by_kind = {
        kind_group(name): {VARIABLE: each.as_variable()} for name, each in zip(of_kinds, others)
    }
    return Cluster(
        name=model["name"],
        variables={"all": everywhere, "compute": compute, **by_kind},
        nodes=nodes,
        launchers=[_host(model, entry, "launcher") for _path, entry in launchers(model)],
        storage=storage,
        switches=switches_of_all,
        group_vars=model["vars"],
        doubts=tuple(doubtful.found),
    )


def _chips_of(fabric: Fabric, switches: Mapping[str, Switches]) -> dict[str, set[str]]:
    """Chips of the leaves for each kind of nodes, or for those without separate leaves."""
    found: dict[str, set[str]] = {}
    for group in fabric.leaves:
        found.setdefault(group.kind, set()).update(kind.asic for kind in switches[group.name].kinds)
    return found


def _speeds(fabric: Fabric, group: SwitchGroup, kinds: Kinds) -> dict[str, int]:
    kind = kinds.get(group.kind, kinds[DEFAULT])
    return fabric.speeds(group, kind.rails["speed_gbps"])


def _management(model: dict[str, Any], address: int) -> dict[str, Any]:
    subnet, interface = (
        model["management"]["subnet"].around(address),
        model["management"]["interface"],
    )
    return {"address": text(address), "prefix": subnet.prefix, "interface": interface}


def _host(model: dict[str, Any], entry: dict[str, Any], role: str) -> ClusterHost:
    return ClusterHost(
        entry["name"],
        role,
        _management(model, entry["management"]),
        entry["vars"],
        bmc="" if entry["bmc"] is None else text(entry["bmc"]),
        networks=cluster_networks(model, entry_networks((), entry)),
    )


def _switches(
    model: dict[str, Any], group: SwitchGroup, topology: Topology, found: Switches
) -> list[ClusterSwitch]:
    places = [topology.place(group, number) for number in range(len(found.names))]
    bmcs, addresses = group.bmcs, group.management
    return [
        ClusterSwitch(
            name,
            LEAF if group.tier == LEAF else "spine",
            _management(model, addresses[index]),
            bmc=text(bmcs[index]) if bmcs else "",
            system=kind.system,
            asic=kind.asic,
            port_step=kind.port_step,
            port_ranges=kind.port_ranges,
            groups=place_groups(group.tier, place),
            unit=place.unit,
            leaf_set=place.leaf_set,
            plane=place.plane,
            rack=rack,
        )
        for index, (name, kind, rack, place) in enumerate(
            zip(found.names, found.kinds, found.racks, places)
        )
    ]


def _nodes(model: dict[str, Any], specs: list[NodeSpec]) -> list[ComputeNode]:
    return [
        ComputeNode(
            name=spec.name,
            role="compute",
            management=_management(model, spec.management or 0),
            vars=spec.vars,
            bmc="" if spec.bmc is None else text(spec.bmc),
            networks=cluster_networks(model, spec.networks),
            more=_cpu(spec),
            index=spec.index,
            rack=spec.rack,
            slots=spec.slots,
            drained=spec.drained,
            kind=spec.kind.name,
            gpus=spec.kind.common_gpus
            if spec.gpu_pci is spec.kind.gpus["pci"]
            else spec.kind.gpus_at(spec.gpu_pci),
        )
        for spec in specs
    ]


def _cpu(spec: NodeSpec) -> dict[str, Any]:
    if spec.cpu is None:
        return {}
    return {"cluster_cpu": {key: to for key, to in spec.cpu.items() if to is not None}}


def _addresses(
    model: dict[str, Any],
    specs: list[NodeSpec],
    absent: list[NodeSpec],
    topology: Topology,
    plans: Sequence[AddressPlan],
    leaves: Sequence[str],
    switches: Mapping[str, int],
) -> HostAddresses:
    """The addresses of all hosts that the model determines."""

    def networks(leaf: str) -> list[Subnet]:
        if leaf not in leaves or model["addresses"]["plan"] == POINT_TO_POINT:
            return [Subnet(0, 0)]  # any: the plan has no addresses for links of storage
        sets, number = topology.of_leaf(leaves.index(leaf))
        leaf_set, of_set = divmod(number, sets.leaves_per_set)
        plan = plans[topology.sets.index(sets)]
        first = sets.first_node + leaf_set * sets.nodes_per_set
        return [
            plan.network(first, at)
            for at, lane in zip(sets.networks, sets.lanes)
            if lane.leaf == of_set
        ]

    hosts = {spec.name: spec.management or 0 for spec in specs}
    hosts.update({host["name"]: host["management"] for host in model["storage"]})
    hosts.update({host["name"]: host["management"] for _path, host in launchers(model)})
    links = {
        host["name"]: [networks(link["leaf"]) for link in host["links"]]
        for host in model["storage"]
    }
    nodes = {spec.index: spec.name for spec in (*specs, *absent)}
    further = {**routing.link_owners(model), **owners(model, specs)}
    subnets = model["management"]["subnet"]
    names = model["domain"], interface_names(model["rails"])
    return HostAddresses(subnets, plans, nodes, hosts, links, switches, further, *names)


def _plug_nodes(
    model: dict[str, Any],
    topology: Topology,
    sets: LeafSets,
    plan: AddressPlan,
    nodes: list[tuple[NodeSpec, ComputeNode]],
    leaves: list[ClusterSwitch],
    leaf_ports: list[SwitchPorts],
) -> None:
    """Assign the address of every lane of every node, and the ports at both ends of its cable."""
    rails = model["rails"]
    mtu, prefix = rails["mtu"], plan.prefix
    shared_gateway = model["addresses"]["plan"] == SUBNET_PER_RAIL
    start, per_set = sets.first_node, sets.nodes_per_set
    filled: dict[tuple[int, NodeKind], list[tuple[NodeSpec, ComputeNode]]] = {}
    for pair in (pair for pair in nodes if pair[0].kind.rails["count"]):
        leaf_set = (pair[0].index - start) // per_set
        filled.setdefault((leaf_set, pair[0].kind), []).append(pair)
    for (leaf_set, _kind), members in filled.items():
        place = topology.place(sets.group, leaf_set * sets.leaves_per_set)
        place = replace(place, plane=None)
        groups = place_groups("leaf", place)
        for _spec, node in members:
            node.unit, node.leaf_set, node.groups = place.unit, place.leaf_set, groups
    bonded = sets.rails["bonded"]
    for number, lane in zip(sets.networks, sets.lanes):
        interface = interface_name(sets.rails, lane.rail, lane.plane)
        bond = bond_name(sets.rails, lane.rail) if bonded else ""
        lanes_here = sets.lanes_on(lane.leaf)
        for (leaf_set, kind), members in filled.items():
            if lane.rail >= kind.rails["count"]:
                continue
            (gpu, numa), speed = kind.closest(lane.rail), kind.rails["speed_gbps"]
            first = start + leaf_set * per_set
            position = leaf_set * sets.leaves_per_set + lane.leaf
            leaf, ports = leaves[position], leaf_ports[position].down
            group = PortGroup("host", interface, speed, mtu, lane.rail, lane.plane, prefix)
            if bond:
                group.bond, group.channels = bond, {}
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
                pci = device[lane.plane] if isinstance(device, list) else device
                if bond:
                    group.channels[port] = ""
                    member = {
                        **{"plane": lane.plane, "interface": interface, "pci": pci},
                        **{"speed_gbps": speed, "leaf": leaf.name, "leaf_port": port},
                    }
                    if lane.plane:
                        node.rails[-1].members.append(member)
                        continue
                node.rails.append(
                    RailPlane(
                        rail=lane.rail,
                        plane=lane.plane,
                        interface=bond or interface,
                        pci=None if bond else pci,
                        address=text(plan.address(node.index, number)),
                        prefix=prefix,
                        network=network,
                        gateway=gateway,
                        mtu=mtu,
                        speed_gbps=speed * (kind.rails["planes"] if bond else 1),
                        leaf=leaf.name,
                        leaf_port=port,
                        gpu=gpu,
                        numa=numa,
                    )
                )
                if bond:
                    node.rails[-1].members = [member]


def _plug_links(
    rule: Rule,
    mtu: int,
    fabric: Mapping[str, list[ClusterSwitch]],
    ports: Mapping[str, list[SwitchPorts]],
) -> None:
    """Assign the ports at both ends of every link between two tiers."""
    uppers, upper_ports = fabric[rule.upper], ports[rule.upper]
    groups: dict[tuple[int, str, str], PortGroup] = {}
    lowers = [switch for name in rule.lowers for switch in fabric[name]]
    ends = {**_channel_ends(rule, lowers), **_channel_ends(rule, uppers)}

    def plug(
        link: int, switch: ClusterSwitch, kind: str, port: str, peer: str, peer_port: str
    ) -> None:
        key = (link, switch.name, peer_port)
        if key not in groups:
            groups[key] = PortGroup(kind, peer_port, rule.speed_gbps, mtu)
            if rule.port_channel is not None:
                groups[key].channels = {}
            if rule.mlag:
                groups[key].pairs = {}
            switch.ports.append(groups[key])
        groups[key].peers[port] = peer
        if rule.port_channel is not None:
            end, number = ends[peer]
            groups[key].channels[port] = rule.port_channel.format(number)
            if end != peer:
                groups[key].pairs[peer] = end

    pairs = list(rule.pairs())
    for link in range(rule.links):
        for pair in pairs:
            name, number = pair.lower
            lower, upper = fabric[name][number], uppers[pair.upper]
            up = ports[name][number].up[pair.up + link]
            down = upper_ports[pair.upper].down[pair.down + link]
            plug(link, lower, "uplink", up, upper.name, down)
            plug(link, upper, "downlink", down, lower.name, up)


def _channel_ends(rule: Rule, switches: list[ClusterSwitch]) -> dict[str, tuple[str, int]]:
    """The end of a port channel that each switch is, or its pair, and its number from 1."""
    found: dict[str, tuple[str, int]] = {}
    numbers: dict[str, int] = {}
    for switch in switches:
        pair = {switch.name}
        for group in switch.ports if rule.mlag else ():
            pair.update(group.peers.values() if group.kind == "peer" else ())
        end = "+".join(sorted(pair))
        found[switch.name] = end, numbers.setdefault(end, len(numbers) + 1)
    return found


def _plug_peers(switches: list[ClusterSwitch], found: Switches, speed_gbps: int, mtu: int) -> None:
    """Assign the ports between both switches of each pair."""
    for here, there in zip(switches[::2], switches[1::2]):
        for port in found.kinds[0].ports_for(PEERS) or ():
            for switch, peer in ((here, there), (there, here)):
                switch.ports.append(PortGroup("peer", port, speed_gbps, mtu))
                switch.ports[-1].peers[port] = peer.name


def _plug_storage(model: dict[str, Any], leaves: list[ClusterSwitch]) -> None:
    """Assign leaf ports of storage hosts; the model does not have their addresses."""
    rails = model["rails"]
    by_name = {leaf.name: leaf for leaf in leaves}
    for host in model["storage"]:
        for link in host["links"]:
            speed = link["speed_gbps"] or rails["speed_gbps"]
            group = PortGroup("storage", link["interface"], speed, rails["mtu"])
            group.peers[link["port"]] = host["name"]
            if link["bond"]:
                group.bond, group.channels = link["bond"], {link["port"]: ""}
            by_name[link["leaf"]].ports.append(group)
