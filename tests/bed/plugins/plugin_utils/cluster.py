# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Select the hosts of an inventory that become virtual nodes, and sort them by kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ansible_collections.baremetal.bed.plugins.module_utils.inventory import VirtualError

SERVERS = ("compute", "launcher", "storage")
SWITCHES = ("leaf", "spine")
MACHINE = "machine"
SWITCH = "switch"
"""Family of simulated switches."""

Host = Mapping[str, Any]
Hosts = Mapping[str, Host]


def members(groups: Mapping[str, Sequence[str]], names: Iterable[str]) -> list[str]:
    """Return the hosts of these groups, in order and without duplicates."""
    return list(dict.fromkeys(host for name in names for host in groups.get(name, ())))


def plan_cluster(
    hosts: Hosts,
    groups: Mapping[str, Sequence[str]],
    defaults: Host,
    names: Optional[Sequence[str]] = None,
) -> dict[str, Any]:
    """Return what the modules of the role virtual_nodes need, by host name.

    `defaults` are the role's values of host variables (`virtual_nodes_kind`, ...). Without `names`
    all servers, and the switches with a system, become virtual nodes. Raises VirtualError.
    """
    fabric = members(groups, SWITCHES)
    if names is None:
        simulated = [host for host in fabric if hosts[host].get("cluster_system")]
        names = [*members(groups, SERVERS), *simulated]
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in hosts or "cluster_management" not in hosts[name]:
            raise VirtualError(f"{name} of virtual_nodes_names is not a host of cluster.yml")

    def variable(host: str, name: str) -> Any:
        return hosts[host].get(name, defaults.get(name))

    def each(chosen: Iterable[str], name: str, default: Any = None) -> dict[str, Any]:
        return {host: hosts[host].get(name, default) for host in chosen}

    switches = [name for name in names if name in fabric]
    machines = [
        name
        for name in names
        if name not in fabric and variable(name, "virtual_nodes_kind") == MACHINE
    ]
    containers = [name for name in names if name not in machines]
    servers = [name for name in containers if name not in fabric]
    families = {
        name: SWITCH if name in fabric else variable(name, "virtual_nodes_family")
        for name in containers
    }
    releases = {name: str(variable(name, "virtual_nodes_release")) for name in servers}
    return {
        "names": names,
        "machines": machines,
        "containers": containers,
        "switches": switches,
        "servers": servers,
        "families": families,
        "image_families": [*dict.fromkeys(families.values()), *([MACHINE] if machines else [])],
        "management": each(names, "cluster_management"),
        "machine_management": each(machines, "cluster_management"),
        "container_management": each(containers, "cluster_management"),
        "switch_management": each(switches, "cluster_management"),
        "rails": each(names, "cluster_rails", []),
        "memory_mib": {name: variable(name, "virtual_nodes_memory_mib") for name in machines},
        "processors": {name: variable(name, "virtual_nodes_processors") for name in machines},
        "sriov_rails": {name: variable(name, "virtual_nodes_sriov_rails") for name in machines},
        "releases": {name: release for name, release in releases.items() if release},
        # LLDP names of neighbours depend on their systems, including switches that do not run.
        "systems": each(fabric, "cluster_system", ""),
        "asics": each(fabric, "cluster_asic", ""),
        "ports": each(fabric, "cluster_ports", []),
        "asns": each(fabric, "cluster_asn"),
    }
