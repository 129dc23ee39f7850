# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What settings cannot say together, with one another and with the rails of this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import (
    Findings,
    Path,
    some,
)

from ..file_system import LUSTRE, FileSystem
from ..mounted import within
from .nid import DRIVERS, O2IB, TCP, NidError, kind, read_net
from .settings import PRESENT, LustreSettings
from .source import read_source

OTHERS_KEYS = {
    ("lnet", "networks"): "networks",
    ("lnet", "ip2nets"): "networks",
    ("lnet", "routes"): "routes",
    ("lnet", "lnet_peer_discovery_disabled"): "discovery",
}
"""Options of modules that a key of the settings already says."""
MODULES = ("lnet", "libcfs", *DRIVERS.values(), "ptlrpc", "obdclass", "lustre", "osc", "mdc", "lov")
NONE_HERE = "this host has no rails (cluster_rails is empty)"


def check_values(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Of the settings alone, wherever they are read."""
    for number, network in enumerate(value["networks"] or []):
        if network is not None:
            _network(network, findings, (*path, "networks", number))
    _twice(value["networks"] or [], findings, (*path, "networks"))
    for number, peer in enumerate(value["peers"]):
        if not peer["nids"]:
            findings.add(
                "lustre.peer_without_nids",
                (*path, "peers", number, "nids"),
                "is empty",
                "Name the server's NIDs",
            )
    _packages(value["packages"], findings, (*path, "packages"))
    for module, options in (value["modprobe"] or {}).items():
        if module not in MODULES:
            findings.add(
                "lustre.unknown_module",
                (*path, "modprobe", module),
                "is not a module of the Lustre client",
                f"Known are {', '.join(MODULES)}; others belong in files of their own",
            )
        for option in options or {}:
            key = OTHERS_KEYS.get((module, option))
            if key:
                findings.add(
                    "lustre.option_of_key",
                    (*path, "modprobe", module, option),
                    f"would be said twice, by {key} too",
                    f"Write it under {path[0]}.{key}",
                )


def check_host(
    settings: LustreSettings,
    rails: Sequence[str],
    filesystems: Sequence[FileSystem],
    findings: Findings,
    path: Path,
) -> None:
    """With the rails of this host and what it mounts. `rails`: names of their interfaces."""
    mounted = [fs for fs in filesystems if fs.type == LUSTRE]
    for number, network in enumerate(settings.networks):
        place = (*path, "networks", number)
        if not network.interfaces:
            findings.add(
                "lustre.no_interface_here",
                place,
                f"{network.net} has no interface on this host: {NONE_HERE}",
                "Name its interfaces (interfaces: [NAME]) in a variable of this host or of its "
                "group, or leave the host out of the file system's hosts",
                value=network.net,
            )
        elif kind(network.net) == O2IB and not rails:
            findings.add(
                "lustre.needs_rdma",
                (*place, "interfaces"),
                f"{network.net} needs RDMA, and {NONE_HERE}",
                "Write a network tcp0 in a variable of this host or of its group",
                value=network.net,
            )
    _sources(settings, mounted, findings, path)
    for fs in mounted:
        if settings.discovery and any(word.startswith("network=") for word in fs.options):
            findings.add(
                "lustre.network_with_discovery",
                ("cluster_filesystems", fs.name),
                "option 'network' with discovery of peers: a server that was discovered is spoken "
                "to over any network (mount.lustre(8))",
                "Leave it out, or set discovery: false in shared_storage_lustre",
            )
    for number, stripes in enumerate(settings.stripes):
        if not any(within(stripes.directory, fs.mount) for fs in mounted):
            findings.add(
                "lustre.stripes_elsewhere",
                (*path, "stripes", number, "directory"),
                f"{stripes.directory} lies on no Lustre file system of this host",
                f"Choose one below {some([fs.mount for fs in mounted])}",
                value=stripes.directory,
            )


def warnings(settings: LustreSettings) -> list[str]:
    """What works, and not as one may think."""
    several = [network for network in settings.networks if len(network.interfaces) > 1]
    if settings.discovery or not several:
        return []
    if settings.peers:
        return []
    return [
        f"discovery is off, and {network.net} has {len(network.interfaces)} interfaces: servers "
        "know this node by the first one alone, and the others stay idle. Turn discovery on, or "
        "write the servers' NIDs as peers here and this node's on the servers"
        for network in several
    ]


def _network(network: dict[str, Any], findings: Findings, path: Path) -> None:
    if network["net"] is not None:
        try:
            read_net(network["net"])
        except NidError as error:
            findings.add(error.code, (*path, "net"), error.problem, error.remedy, network["net"])
    names = network["interfaces"]
    if isinstance(names, list):
        if not names:
            findings.add(
                "lustre.no_interfaces",
                (*path, "interfaces"),
                "is empty",
                "Name at least one, or write rails",
            )
        for name in sorted({name for name in names if name and names.count(name) > 1}):
            findings.add(
                "lustre.interface_twice",
                (*path, "interfaces"),
                f"{name} is there twice",
                "Name it once",
                value=name,
            )


def _twice(networks: Sequence[dict[str, Any]], findings: Findings, path: Path) -> None:
    nets: dict[str, int] = {}
    tcp: dict[str, str] = {}
    for number, network in enumerate(networks):
        if network is None or not network["net"] or not findings.clean((*path, number, "net")):
            continue
        net = read_net(network["net"])
        if net in nets:
            findings.add(
                "lustre.net_twice",
                (*path, number, "net"),
                f"{network['net']} is there twice (also at {nets[net]})",
                "Write it once, with all its interfaces: they are multi-rail",
                value=network["net"],
            )
        nets.setdefault(net, number)
        names = network["interfaces"]
        for name in {name for name in names if name} if isinstance(names, list) else ():
            if kind(net) == TCP and name in tcp:
                findings.add(
                    "lustre.tcp_interface_twice",
                    (*path, number, "interfaces"),
                    f"{name} is in {tcp[name]} too: both would listen on its port 988",
                    "Give each network of tcp interfaces of its own",
                    value=name,
                )
            if kind(net) == TCP:
                tcp[name] = net


def _packages(value: dict[str, Any], findings: Findings, path: Path) -> None:
    if value is None or not findings.clean(path):
        return
    for key in ("version", "repository"):
        given = bool(value[key])
        if value["method"] != PRESENT and not given:
            findings.add(
                "lustre.packages_missing",
                (*path, key),
                f"is missing, and the method is {value['method']}",
                "Add it, or write method: present where the site installs the client",
            )
        if value["method"] == PRESENT and given and key == "repository":
            findings.add(
                "lustre.packages_useless",
                (*path, key),
                "is of no use with the method present, which installs nothing",
                "Leave it out, or write method: dkms or prebuilt",
            )


def _sources(
    settings: LustreSettings, mounted: Sequence[FileSystem], findings: Findings, path: Path
) -> None:
    here = {network.net for network in settings.networks}
    routed = {route.net for route in settings.routes}
    for fs in mounted:
        try:
            source = read_source(fs.source)
        except NidError as error:
            place = ("cluster_filesystems", fs.name, "source")
            findings.add(error.code, place, error.problem, error.remedy, fs.source)
            continue
        # One NID of each server is enough: the client takes what it has a network to.
        for server in source.servers:
            if not {nid.net for nid in server} & (here | routed):
                findings.add(
                    "lustre.source_elsewhere",
                    ("cluster_filesystems", fs.name, "source"),
                    f"{','.join(map(str, server))} is in no network of this host "
                    f"({some(sorted(here))})",
                    f"Add the network to {path[0]}.networks, or a route to it",
                    value=",".join(map(str, server)),
                )
    for number, route in enumerate(settings.routes):
        if route.net in here:
            findings.add(
                "lustre.route_to_own_net",
                (*path, "routes", number, "net"),
                f"{route.net} is a network of this host: there is no route to it",
                "Leave the route out",
                value=route.net,
            )
        if route.gateway.net not in here:
            findings.add(
                "lustre.gateway_elsewhere",
                (*path, "routes", number, "gateway"),
                f"{route.gateway} is in no network of this host ({some(sorted(here))})",
                "Write its NID in one of them",
                value=str(route.gateway),
            )
