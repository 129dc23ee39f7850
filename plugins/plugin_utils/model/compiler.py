# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compile a model file to a cluster, or list every error in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Optional

from ...module_utils.storage.file_system import NFS, RDMA
from ..fabric.chip_keys import check_asics
from ..qos import host_settings
from ..qos.rules import check_rail
from ..qos.rules import finish as read_contract
from ..schema.findings import Findings
from . import doubts, rules
from .addresses import AddressPlan, HostAddresses, Subnet, text
from .cluster import (
    Cluster,
    ClusterHost,
    ClusterSwitch,
    ComputeNode,
    PortGroup,
    RailPlane,
)
from .layout import Lane, Topology, interface_name, lay_out, plan_addresses
from .nodes import NodeSpec, check_launchers, launchers, specify
from .schema import MODEL, POINT_TO_POINT, SUBNET_PER_RAIL
from .software import finish as read_software
from .source import ModelError, ModelSource, read_file
from .storage import Site, read_filesystems
from .switches import Switches, read_ports, read_switches
from .wiring import TIERS, Rule, SwitchPorts, place_groups


def load(path: str) -> Cluster:
    """Read and compile the model at `path`. Raises ModelError, even if it cannot be read."""
    return compile_model(read_file(path))


def compile_model(source: ModelSource) -> Cluster:
    """The cluster that `source` describes. Raises ModelError, listing every error.

    Errors of keys and types come first; rules need complete values.
    """
    findings = Findings(source.line, source.text)
    model = MODEL.check(source.data, findings)
    known = {finding.path for finding in source.found}
    findings.found[:] = [*source.found, *(new for new in findings.found if new.path not in known)]
    if model is not None:
        check_launchers(model, source.data, findings)
    if findings:
        raise ModelError(source.name, findings.found)
    doubtful = Findings(source.line)
    specs = specify(model, findings)
    read_ports(model, findings)
    topology = lay_out(model, specs, findings)
    plan = plan_addresses(model, specs, topology, findings)
    check_asics(model["asics"], findings)
    switches = {key: read_switches(model, key, findings, doubtful) for key in TIERS}
    rules.check_names(model, specs, switches, findings)
    rules.check_management(model, specs, switches, findings)
    rules.check_devices(model, specs, findings)
    rules.check_group_vars(model, specs, topology.groups if topology else (), findings)
    mtu = model["rails"]["mtu"]
    contract = read_contract(model["roce_qos"], findings, mtu)
    check_rail(contract, mtu, findings, ("rails", "mtu"))
    software = read_software(model["software"], findings, ("software",))
    site = Site()
    if specs and topology is not None and plan is not None:
        addresses = _addresses(model, specs, topology, plan, switches["leaves"].names)
        site = Site(tuple(rules.groups_of(specs)), addresses.hosts, addresses, doubtful)
        if len(switches["leaves"].kinds) == len(switches["leaves"].names) == topology.leaves:
            positions = specs[-1].index + 1
            rules.check_storage_links(model, topology, positions, switches["leaves"], findings)
    filesystems = read_filesystems(model["filesystems"], findings, ("filesystems",), site)
    if findings or topology is None or plan is None:
        raise ModelError(source.name, findings.found)

    nodes = _nodes(model, specs)
    fabric = {section: _switches(model, section, topology, switches) for section in topology.tiers}
    ports = {
        section: [topology.tiers[section].ports(kind) for kind in switches[section].kinds]
        for section in topology.tiers
    }
    leaves = fabric["leaves"]
    _plug_nodes(model, topology, plan, list(zip(specs, nodes)), leaves, ports["leaves"])
    for rule in topology.rules:
        _plug_links(rule, model["rails"]["mtu"], fabric, ports)
    _plug_storage(model, leaves)
    doubts.check_values(model, specs, doubtful)
    switches_of_all = [switch for tier in fabric.values() for switch in tier]
    doubts.check_fabric(model, topology, leaves, fabric.get("spines", []), doubtful)
    doubts.check_contract(contract, switches_of_all, doubtful)
    nfs_rdma = any(fs.type == NFS and fs.nfs.transport == RDMA for fs in filesystems)
    software = replace(software, rdma=replace(software.rdma, nfs=nfs_rdma))
    addressing, gpus = model["addresses"]["plan"], model["gpus"]
    everywhere = {
        "cluster_name": model["name"],
        "cluster_domain": model["domain"],
        "cluster_mpi_user": model["mpi"]["user"],
        "cluster_mpi_uid": model["mpi"]["uid"],
        "cluster_addressing": addressing,
        "cluster_asics": model["asics"],
        "roce_qos": contract.as_variable(),
        "cluster_software": software.as_variable(),
        "cluster_filesystems": [entry.as_variable() for entry in filesystems],
    }
    if addressing == POINT_TO_POINT:
        everywhere["cluster_rail_networks"] = [str(plan.pool)]
    compute = {
        "cluster_slots": model["nodes"]["slots"] or gpus["count"],
        "cluster_drained": False,
        "cluster_gpus": _gpus(gpus, gpus["pci"]),
        "cluster_qos": host_settings(contract).as_variable(),
    }
    return Cluster(
        name=model["name"],
        variables={"all": everywhere, "compute": compute},
        nodes=nodes,
        launchers=[_host(model, entry, "launcher") for _path, entry in launchers(model)],
        storage=[_host(model, entry, "storage") for entry in model["storage"]],
        switches=switches_of_all,
        group_vars=model["vars"],
        doubts=tuple(doubtful.found),
    )


def _management(model: dict[str, Any], address: int) -> dict[str, Any]:
    subnet, interface = model["management"]["subnet"], model["management"]["interface"]
    return {"address": text(address), "prefix": subnet.prefix, "interface": interface}


def _host(model: dict[str, Any], entry: dict[str, Any], role: str) -> ClusterHost:
    return ClusterHost(entry["name"], role, _management(model, entry["management"]), entry["vars"])


def _switches(
    model: dict[str, Any], section: str, topology: Topology, switches: Mapping[str, Switches]
) -> list[ClusterSwitch]:
    found, tier = switches[section], TIERS[section]
    places = [topology.place(section, number) for number in range(len(found.names))]
    return [
        ClusterSwitch(
            name,
            "leaf" if section == "leaves" else "spine",
            _management(model, model[section]["management_first"] + index),
            system=kind.system,
            asic=kind.asic,
            port_step=kind.port_step,
            port_ranges=kind.port_ranges,
            groups=place_groups(tier, place),
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
    gpus = model["gpus"]
    common = _gpus(gpus, gpus["pci"])
    return [
        ComputeNode(
            name=spec.name,
            role="compute",
            management=_management(model, spec.management or 0),
            vars=spec.vars,
            index=spec.index,
            rack=spec.rack,
            slots=spec.slots,
            drained=spec.drained,
            gpus=common if spec.gpu_pci is gpus["pci"] else _gpus(gpus, spec.gpu_pci),
        )
        for spec in specs
    ]


def _addresses(
    model: dict[str, Any],
    specs: list[NodeSpec],
    topology: Topology,
    plan: AddressPlan,
    leaves: Sequence[str],
) -> HostAddresses:
    """The addresses of all hosts that the model determines."""

    def networks(leaf: str) -> list[Subnet]:
        if leaf not in leaves or model["addresses"]["plan"] == POINT_TO_POINT:
            return [Subnet(0, 0)]  # any: the plan has no addresses for links of storage
        leaf_set, of_set = divmod(leaves.index(leaf), topology.leaves_per_set)
        first, lanes = leaf_set * topology.nodes_per_set, topology.lanes
        return [plan.network(first, at) for at, lane in enumerate(lanes) if lane.leaf == of_set]

    hosts = {spec.name: spec.management or 0 for spec in specs}
    hosts.update({host["name"]: host["management"] for host in model["storage"]})
    hosts.update({host["name"]: host["management"] for _path, host in launchers(model)})
    links = {
        host["name"]: [network for link in host["links"] for network in networks(link["leaf"])]
        for host in model["storage"]
    }
    nodes = {spec.index: spec.name for spec in specs}
    return HostAddresses(model["management"]["subnet"], plan, nodes, hosts, links)


def _gpus(gpus: dict[str, Any], pci: Optional[list[str]]) -> list[dict[str, Any]]:
    none, numa = [None] * gpus["count"], gpus["numa"]
    pairs = zip(pci or none, numa or none)
    return [{"index": index, "pci": pci, "numa": numa} for index, (pci, numa) in enumerate(pairs)]


def _plug_nodes(
    model: dict[str, Any],
    topology: Topology,
    plan: AddressPlan,
    nodes: list[tuple[NodeSpec, ComputeNode]],
    leaves: list[ClusterSwitch],
    leaf_ports: list[SwitchPorts],
) -> None:
    """Assign the address of every lane of every node, and the ports at both ends of its cable."""
    rails = model["rails"]
    mtu, speed, prefix = rails["mtu"], rails["speed_gbps"], plan.prefix
    shared_gateway = model["addresses"]["plan"] == SUBNET_PER_RAIL
    sets = [
        (leaf_set, list(members))
        for leaf_set, members in groupby(
            nodes, key=lambda pair: pair[1].index // topology.nodes_per_set
        )
    ]
    for leaf_set, members in sets:
        place = replace(topology.place("leaves", leaf_set * topology.leaves_per_set), plane=None)
        groups = place_groups("leaf", place)
        for _spec, node in members:
            node.unit, node.leaf_set, node.groups = place.unit, place.leaf_set, groups
    for number, lane in enumerate(topology.lanes):
        interface = interface_name(rails, lane.rail, lane.plane)
        gpu, numa = _locality(lane, rails, model["gpus"])
        lanes_here = topology.lanes_on(lane.leaf)
        for leaf_set, members in sets:
            first = leaf_set * topology.nodes_per_set
            position = leaf_set * topology.leaves_per_set + lane.leaf
            leaf, ports = leaves[position], leaf_ports[position].down
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
                    RailPlane(
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
    """The GPU and the NUMA node closest to a lane."""
    if rails["gpu"] is not None:
        gpu = rails["gpu"][lane.rail]
    else:
        gpu = lane.rail if lane.rail < gpus["count"] else None
    if rails["numa"] is not None:
        return gpu, rails["numa"][lane.rail]
    return gpu, gpus["numa"][gpu] if gpus["numa"] and gpu is not None else None


def _plug_links(
    rule: Rule,
    mtu: int,
    fabric: Mapping[str, list[ClusterSwitch]],
    ports: Mapping[str, list[SwitchPorts]],
) -> None:
    """Assign the ports at both ends of every link between two tiers."""
    lowers, uppers = fabric[rule.lower.name], fabric[rule.upper.name]
    lower_ports, upper_ports = ports[rule.lower.name], ports[rule.upper.name]
    groups: dict[tuple[int, str, str], PortGroup] = {}

    def plug(
        link: int, switch: ClusterSwitch, kind: str, port: str, peer: str, peer_port: str
    ) -> None:
        key = (link, switch.name, peer_port)
        if key not in groups:
            groups[key] = PortGroup(kind, peer_port, rule.speed_gbps, mtu)
            switch.ports.append(groups[key])
        groups[key].peers[port] = peer

    for link in range(rule.links):
        for pair in rule.pairs:
            lower, upper = lowers[pair.lower], uppers[pair.upper]
            up = lower_ports[pair.lower].up[pair.up + link]
            down = upper_ports[pair.upper].down[pair.down + link]
            plug(link, lower, "uplink", up, upper.name, down)
            plug(link, upper, "downlink", down, lower.name, up)


def _plug_storage(model: dict[str, Any], leaves: list[ClusterSwitch]) -> None:
    """Assign leaf ports of storage hosts; the model does not have their addresses."""
    rails = model["rails"]
    by_name = {leaf.name: leaf for leaf in leaves}
    for host in model["storage"]:
        for link in host["links"]:
            speed = link["speed_gbps"] or rails["speed_gbps"]
            group = PortGroup("storage", link["interface"], speed, rails["mtu"])
            group.peers[link["port"]] = host["name"]
            by_name[link["leaf"]].ports.append(group)
