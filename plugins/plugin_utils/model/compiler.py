# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a model file to a compiled cluster, or to every reason why not."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any, Optional

from ...module_utils.storage.file_system import NFS, RDMA
from ..qos.rules import check_rail
from ..qos.rules import finish as read_contract
from ..schema.findings import Findings
from . import rules
from .addresses import Addresses, AddressPlan, Network, text
from .cluster import Cluster, Gpu, Host, Management, Node, PortGroup, Rail, Switch
from .layout import Lane, Topology, interface_name, lay_out, plan_addresses
from .nodes import NodeSpec, specify
from .schema import MODEL, POINT_TO_POINT, SUBNET_PER_RAIL
from .software import KEY as SOFTWARE
from .software import finish as read_software
from .source import ModelError, Source
from .storage import Site, read_filesystems
from .storage_keys import KEY as FILE_SYSTEMS
from .switches import port_names, read_switches


def compile_model(source: Source) -> Cluster:
    """The cluster that `source` describes.

    Raises ModelError with everything that is wrong: with keys and types first, as rules look at
    whole values.
    """
    findings = Findings(source.line, source.text)
    model = MODEL.check(source.data, findings)
    if findings:
        raise ModelError(source.name, findings.found)
    specs = specify(model, findings)
    topology = lay_out(model, specs, findings)
    plan = plan_addresses(model, specs, topology, findings)
    names = rules.switch_names(model, findings)
    kinds = read_switches(model, findings)
    rules.check_names(model, specs, names, findings)
    rules.check_management(model, specs, names, findings)
    rules.check_devices(model, specs, findings)
    rules.check_group_vars(model, specs, findings)
    mtu = model["rails"]["mtu"]
    contract = read_contract(model["roce_qos"], findings, mtu)
    check_rail(contract, mtu, findings, ("rails", "mtu"))
    software = read_software(model[SOFTWARE], findings, (SOFTWARE,))
    site, doubts = None, Findings(source.line)
    if specs and topology is not None and plan is not None:
        places = specs[-1].index + 1
        addresses = _addresses(model, specs, topology, plan, names["leaves"])
        site = Site(tuple(rules.groups_of(specs)), addresses.hosts, addresses, doubts)
        if len(kinds["leaves"]) == len(names["leaves"]):
            rules.check_storage_links(
                model, topology, places, names["leaves"], kinds["leaves"], findings
            )
    filesystems = read_filesystems(model[FILE_SYSTEMS], findings, (FILE_SYSTEMS,), site)
    if findings or topology is None or plan is None:
        raise ModelError(source.name, findings.found)
    nfs = any(one.type == NFS and one.nfs.transport == RDMA for one in filesystems)
    software = replace(software, rdma=replace(software.rdma, nfs=nfs))

    subnet, interface = model["management"]["subnet"], model["management"]["interface"]

    def management(address: int) -> Management:
        return Management(text(address), subnet.prefix, interface)

    def host(entry: dict[str, Any], role: str) -> Host:
        return Host(entry["name"], role, management(entry["management"]), entry["vars"])

    def switches(section: str, role: str) -> list[Switch]:
        first = model[section]["management_first"] if model[section] else 0
        return [
            Switch(
                name,
                role,
                management(first + index),
                system=kind.system,
                asic=kind.asic,
                port_step=kind.ports.step if kind.ports.computed else 0,
            )
            for index, (name, kind) in enumerate(zip(names[section], kinds[section]))
        ]

    leaves, spines = switches("leaves", "leaf"), switches("spines", "spine")
    leaf_ports, spine_ports = port_names(kinds["leaves"]), port_names(kinds["spines"])
    gpus, addressing = model["gpus"], model["addresses"]["plan"]
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
    _plug_nodes(model, specs, nodes, leaves, leaf_ports, topology, plan)
    if model["spines"]:
        _plug_spines(model, leaves, leaf_ports, spines, spine_ports, topology)
    _plug_storage(model, leaves)
    return Cluster(
        name=model["name"],
        domain=model["domain"],
        mpi_user=model["mpi"]["user"],
        mpi_uid=model["mpi"]["uid"],
        addressing=addressing,
        rail_networks=[str(model["addresses"]["pool"])] if addressing == POINT_TO_POINT else [],
        roce_qos=contract,
        software=software,
        filesystems=filesystems,
        slots=model["nodes"]["slots"] or gpus["count"],
        gpus=common_gpus,
        nodes=nodes,
        launcher=host(model["launcher"], "launcher"),
        storage=[host(entry, "storage") for entry in model["storage"]],
        leaves=leaves,
        spines=spines,
        asics=model["asics"],
        group_vars=model["vars"],
        doubts=rules.doubts(model, specs, doubts),
    )


def _addresses(
    model: dict[str, Any],
    specs: list[NodeSpec],
    topology: Topology,
    plan: AddressPlan,
    leaves: list[str],
) -> Addresses:
    """The addresses of all hosts, as far as the model has them."""

    def networks(leaf: str) -> list[Network]:
        if leaf not in leaves or model["addresses"]["plan"] == POINT_TO_POINT:
            return [Network(0, 0)]  # any: the plan has none for links of storage
        leaf_set, of_set = divmod(leaves.index(leaf), topology.leaves_per_set)
        first, lanes = leaf_set * topology.nodes_per_set, topology.lanes
        return [plan.network(first, at) for at, lane in enumerate(lanes) if lane.leaf == of_set]

    hosts = {spec.name: spec.management or 0 for spec in specs}
    hosts.update({each["name"]: each["management"] for each in model["storage"]})
    hosts[model["launcher"]["name"]] = model["launcher"]["management"]
    links = {
        host["name"]: [each for link in host["links"] for each in networks(link["leaf"])]
        for host in model["storage"]
    }
    nodes = {spec.index: spec.name for spec in specs}
    return Addresses(model["management"]["subnet"], plan, nodes, hosts, links)


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
    leaf_ports: list[list[str]],
    topology: Topology,
    plan: AddressPlan,
) -> None:
    """Give every lane of every node its address, and both ends of its cable their port."""
    rails = model["rails"]
    mtu, speed, prefix = rails["mtu"], rails["speed_gbps"], plan.prefix
    shared_gateway = model["addresses"]["plan"] == SUBNET_PER_RAIL
    sets = [
        (leaf_set, list(members))
        for leaf_set, members in groupby(
            zip(specs, nodes), key=lambda pair: pair[1].index // topology.nodes_per_set
        )
    ]
    for number, lane in enumerate(topology.lanes):
        interface = interface_name(rails, lane.rail, lane.plane)
        gpu, numa = _locality(lane, rails, model["gpus"])
        lanes_here = topology.lanes_on(lane.leaf)
        for leaf_set, members in sets:
            first = leaf_set * topology.nodes_per_set
            place = leaf_set * topology.leaves_per_set + lane.leaf
            leaf, ports = leaves[place], leaf_ports[place]
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
    model: dict[str, Any],
    leaves: list[Switch],
    leaf_ports: list[list[str]],
    spines: list[Switch],
    spine_ports: list[list[str]],
    topology: Topology,
) -> None:
    """A link has the same place on every spine, and to one spine the same place on every leaf.

    Where all spines have one system and all leaves have one, that is also the same name.
    """
    speed = model["spines"]["speed_gbps"] or model["rails"]["speed_gbps"]
    mtu = model["rails"]["mtu"]

    def group(switch: Switch, kind: str, peer_port: str, known: dict[Any, PortGroup]) -> PortGroup:
        key = (switch.name, peer_port)
        if key not in known:
            known[key] = PortGroup(kind, peer_port, speed, mtu)
            switch.ports.append(known[key])
        return known[key]

    for link in range(topology.links_per_leaf):
        groups: dict[Any, PortGroup] = {}
        for number, leaf in enumerate(leaves):
            place = topology.spine_port(number, link)
            for index, spine in enumerate(spines):
                up = leaf_ports[number][topology.uplink_port(index, link)]
                down = spine_ports[index][place]
                group(leaf, "uplink", down, groups).peers[up] = spine.name
                group(spine, "downlink", up, groups).peers[down] = leaf.name


def _plug_storage(model: dict[str, Any], leaves: list[Switch]) -> None:
    """Cables to storage hosts, of which the model knows only the switches' ends."""
    rails = model["rails"]
    by_name = {leaf.name: leaf for leaf in leaves}
    for host in model["storage"]:
        for link in host["links"]:
            speed = link["speed_gbps"] or rails["speed_gbps"]
            group = PortGroup("storage", link["interface"], speed, rails["mtu"])
            group.peers[link["port"]] = host["name"]
            by_name[link["leaf"]].ports.append(group)
