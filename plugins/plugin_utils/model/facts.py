# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory: one entry per host, from the variables that the model compiled, and their names.

Layers that need the whole cluster read it, whatever hosts play (action cluster_directory).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ...module_utils.names import rail_name
from ...module_utils.slurm.cluster import SLURM, compile_cluster
from ..schema.findings import Findings
from .cluster import HOST_ROLES, ROLES
from .inventory_rules import ssh_ports
from .source import ModelError

_RAIL_KEYS = (
    *("rail", "plane", "interface", "address", "prefix", "network", "speed_gbps", "leaf"),
    *("gpu", "numa"),
)


def build(
    hosts: Mapping[str, Mapping[str, Any]], ports: Mapping[str, int] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Compute nodes, launcher and storage hosts of `hosts` (variables by host), in the order of
    the model.

    `ports`: ports of sshd other than 22.
    """
    servers = [(name, own) for name, own in hosts.items() if own["cluster_role"] in HOST_ROLES]
    servers.sort(key=lambda item: item[1].get("cluster_index", 0))
    servers.sort(key=lambda item: HOST_ROLES.index(item[1]["cluster_role"]))
    return [
        {
            "name": name,
            "role": own["cluster_role"],
            "management_address": own["cluster_management"]["address"],
            "rack": own.get("cluster_rack", ""),
            "slots": own.get("cluster_slots", 0),
            "gpus": len(own.get("cluster_gpus", ())),
            "drained": own.get("cluster_drained", False),
            "rails": [
                {key: rail[key] for key in _RAIL_KEYS} for rail in own.get("cluster_rails", ())
            ],
            **({"ssh_port": ports[name]} if name in ports else {}),
            **({"kind": own["cluster_kind"]} if "cluster_kind" in own else {}),
            **({"cpu": own["cluster_cpu"]} if "cluster_cpu" in own else {}),
        }
        for name, own in servers
    ]


def of_inventory(hostvars: Any, groups: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The directory of an inventory that cluster_directory accepted. Raises ModelError."""
    names = [name for role in ROLES for name in groups.get(role, ())]
    hosts, findings = {name: hostvars.raw_get(name) for name in names}, Findings()
    ports = ssh_ports(hosts, hostvars, findings)
    if findings:
        raise ModelError("inventory", findings.found)
    return build(hosts, ports)


def names(directory: Iterable[Mapping[str, Any]], domain: str) -> dict[str, Any]:
    """Arguments of the module cluster_hosts: `table`, its `essential` lines, which hosts have in
    each mode, `own` names by host, and by host the `next` one, whose names it looks up.

    With a domain, the canonical name of a host is the full one. Rails have only short names. The
    tables are strings, as Ansible would template and copy a structure again for each host, which
    takes quadratic time. Compute nodes form a ring, so that each name is looked up by one of them,
    and a new node changes only that of the last one.
    """
    table, essential, own, compute = [], [], {}, []
    for host in directory:
        name = str(host["name"])
        full = (f"{name}.{domain}",) if domain and not name.endswith(f".{domain}") else ()
        lines = [(host["management_address"], *full, name)]
        lines += [(rail["address"], rail_name(name, rail["interface"])) for rail in host["rails"]]
        text = "".join(f"{' '.join(line)}\n" for line in lines)
        table.append(text)
        if host["role"] == "compute":
            compute.append(name)
        else:
            essential.append(text)
        own[name] = {each: address for address, *several in lines for each in several}
    following = {
        **{name: (compute or [name])[0] for name in own},
        **dict(zip(compute, compute[1:])),
    }
    whole = {"table": "".join(table), "essential": "".join(essential)}
    return {**whole, "own": own, "next": following}


def slurm(hosts: Mapping[str, Mapping[str, Any]]) -> str:
    """The cluster as Slurm describes it, for the module slurm; empty without Slurm.

    `hosts`: the variables of all hosts of the model, with its switches.
    """
    first = next(iter(hosts.values()))
    return compile_cluster(hosts).as_text() if first["cluster_scheduler"] == SLURM else ""
