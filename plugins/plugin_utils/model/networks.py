# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks other than those of rails and management: BMCs, storage, north-south.

They are checked and compiled to variables. No layer configures them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils.core.text import nearest, some
from ..schema.findings import Findings, Path
from .addresses import (
    HostAddress,
    Subnet,
    Subnets,
    dotted_quad,
    misplaced,
    shown_hosts,
    text,
)
from .layout import interface_names
from .nodes import NodeSpec, launchers
from .switches import Switches
from .wiring import Fabric

Addresses = Mapping[str, tuple[int, Path]]
"""Address in each network, and its key."""


def entry_networks(path: Path, entry: dict[str, Any]) -> Addresses:
    """Addresses of a launcher or storage host."""
    return {name: (to, (*path, "networks", name)) for name, to in entry["networks"].items()}


def cluster_networks(model: dict[str, Any], addresses: Addresses) -> list[dict[str, Any]]:
    """`cluster_networks` of a host with these addresses."""
    return [
        {
            **network,
            "subnet": str(network["subnet"]),
            "gateway": None if network["gateway"] is None else text(network["gateway"]),
            "address": text(addresses[network["name"]][0]),
            "prefix": network["subnet"].prefix,
        }
        for network in (model["networks"] if addresses else ())
        if network["name"] in addresses
    ]


def _entries(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    storage = [(("storage", index), entry) for index, entry in enumerate(model["storage"])]
    return [*launchers(model), *storage]


def _bmcs_of_hosts(model: dict[str, Any], specs: Sequence[NodeSpec]) -> Iterator[HostAddress]:
    for path, entry in _entries(model):
        if entry["bmc"] is not None:
            yield f"BMC of {entry['name']}", entry["bmc"], (*path, "bmc")
    for spec in specs:
        if spec.bmc is not None:
            yield f"BMC of {spec.name}", spec.bmc, spec.bmc_path


def _bmcs(
    model: dict[str, Any],
    specs: Sequence[NodeSpec],
    fabric: Fabric,
    switches: Mapping[str, Switches],
) -> Iterator[HostAddress]:
    yield from _bmcs_of_hosts(model, specs)
    for section, found in switches.items():
        group = fabric.groups[section]
        listed = isinstance(group.keys["bmc_first"], list)
        for index, (name, address) in enumerate(zip(found.names, group.bmcs)):
            path = (*group.path, "bmc_first")
            yield f"BMC of {name}", address, (*path, index) if listed else path


def _in_networks(
    model: dict[str, Any], specs: Sequence[NodeSpec]
) -> Iterator[tuple[str, HostAddress]]:
    """Every address in a further network, with the network's name."""
    for path, entry in _entries(model):
        for network, (address, place) in entry_networks(path, entry).items():
            yield network, (entry["name"], address, place)
    for spec in specs:
        for network, (address, place) in spec.networks.items():
            yield network, (spec.name, address, place)


def owners(model: dict[str, Any], specs: Sequence[NodeSpec]) -> dict[int, str]:
    """Hosts by address in further networks, and BMCs."""
    found = {address: name for _network, (name, address, _path) in _in_networks(model, specs)}
    found.update({address: name for name, address, _path in _bmcs_of_hosts(model, specs)})
    return found


def check_networks(
    model: dict[str, Any],
    specs: Sequence[NodeSpec],
    fabric: Fabric,
    switches: Mapping[str, Switches],
    owner: dict[int, str],
    findings: Findings,
) -> None:
    """`owner`: hosts by management address."""
    management: Subnets = model["management"]["subnet"]
    bmc: Subnets = model["management"]["bmc_subnet"] or management
    rows = {f"the BMC network {bmc}": (list(_bmcs(model, specs, fabric, switches)), bmc, owner)}
    of_network: dict[str, list[HostAddress]] = {}
    unknown: dict[Path, str] = {}
    names = [network["name"] for network in model["networks"]]
    for name, row in _in_networks(model, specs):
        of_network.setdefault(name, []).append(row)
        if name not in names:
            unknown[row[2]] = name
    for path, name in unknown.items():
        problem, remedy = f"network {name!r} not found", nearest(name, names)
        findings.add("model.unknown_network", path, problem, remedy, name)
    _check_descriptions(model, fabric, bmc, findings)
    for network in model["networks"]:
        taken = {} if network["gateway"] is None else {network["gateway"]: "the gateway"}
        what, subnets = f"network {network['name']}", Subnets((network["subnet"],))
        rows[f"{what}, {subnets}"] = (of_network.get(network["name"], []), subnets, taken)
    for what, (hosts, subnets, holders) in rows.items():
        outside, twice = misplaced(hosts, subnets, holders)
        for path, wrong in outside.items():
            problem = f"not a host address of {what}: {shown_hosts(wrong)}"
            remedy, value = "Choose others, or a larger network", dotted_quad(wrong[0][1])
            findings.add("model.outside_network", path, problem, remedy, (value, len(wrong)))
        for path, wrong in twice.items():
            others = [holders[address] for _name, address in wrong]
            problem = f"{shown_hosts(wrong)}: taken by {some(others, 3)}"
            remedy, value = "Give each another address", dotted_quad(wrong[0][1])
            shown = (value, len(wrong), others[0])
            findings.add("model.address_twice", path, problem, remedy, shown)


def _check_descriptions(
    model: dict[str, Any], fabric: Fabric, bmc: Subnets, findings: Findings
) -> None:
    """Check that networks have separate names, subnets and interfaces."""
    pools = [group.keys.get("pool") for group in fabric.groups.values()]
    management: Subnets = model["management"]["subnet"]
    used: list[tuple[str, Subnet]] = [
        *(("the management subnet", one) for one in management.each),
        *(("the BMC subnet", one) for one in bmc.each if one not in management.each),
        *(("the pool of rails", one) for one in (model["addresses"]["pool"], *pools) if one),
    ]
    interfaces = dict.fromkeys(interface_names(model["rails"]), "a rail")
    interfaces[model["management"]["interface"]] = "the management network"
    bonds, names = dict[str, str](), dict[str, Path]()
    places: list[Path] = [("networks", index) for index in range(len(model["networks"]))]
    for path, network in zip(places, model["networks"]):
        for what, other in used:
            if other.overlaps(network["subnet"]):
                problem, remedy = f"{network['subnet']} overlaps {what} {other}", "Use another one"
                value = str(network["subnet"])
                findings.add("model.networks_overlap", (*path, "subnet"), problem, remedy, value)
        used.append((f"network {network['name']},", network["subnet"]))
        gateway = network["gateway"]
        if gateway is not None and not Subnets((network["subnet"],)).has_host(gateway):
            problem = f"{text(gateway)} is not a host address of {network['subnet']}"
            remedy = "Correct one of them"
            findings.add("model.gateway", (*path, "gateway"), problem, remedy, text(gateway))
        ports: list[tuple[Path, str]] = [(("interface",), network["interface"])]
        ports += [(("members", index), name) for index, name in enumerate(network["members"])]
        bond = network["interface"].partition(".")[0]
        for key, name in ports:
            # VLANs of one bond, such as bond0.100 and bond0.200, share its members.
            if name in interfaces and (key == ("interface",) or bonds.get(name) != bond):
                problem = f"{name!r} is also the interface of {interfaces[name]}"
                remedy = "Name another one"
                findings.add("model.interface_twice", (*path, *key), problem, remedy, name)
            interfaces[name], bonds[name] = f"network {network['name']}", bond
        if names.setdefault(network["name"], path) != path:
            problem, remedy = f"{network['name']!r} is the name of two networks", "Rename one"
            findings.add("model.network_twice", (*path, "name"), problem, remedy, network["name"])
