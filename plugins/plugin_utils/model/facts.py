# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cluster facts: one entry per host, from the variables that the model compiled.

Layers that need the whole cluster read them, whatever hosts play (`directory` of the action
cluster_directory).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .cluster import HOST_ROLES

_RAIL_KEYS = (
    "rail",
    "plane",
    "interface",
    "address",
    "prefix",
    "network",
    "speed_gbps",
    "leaf",
    "gpu",
    "numa",
)


@dataclass
class ClusterFacts:
    cluster_name: str
    entries: list[dict[str, Any]]
    """Compute nodes, launcher and storage hosts, in the order of the model."""

    @property
    def compute_hosts(self) -> list[str]:
        return [entry["name"] for entry in self.entries if entry["role"] == "compute"]

    @property
    def drained_hosts(self) -> list[str]:
        return [entry["name"] for entry in self.entries if entry["drained"]]

    @property
    def total_slots(self) -> int:
        """MPI slots of all compute hosts that are not drained: the world size."""
        return sum(entry["slots"] for entry in self.entries if not entry["drained"])


def build(
    hosts: Mapping[str, Mapping[str, Any]], ports: Mapping[str, int] = MappingProxyType({})
) -> ClusterFacts:
    """The facts of `hosts`, given their variables. Switches have no entry.

    `ports`: ports of sshd other than 22.
    """
    ordered = [
        ((HOST_ROLES.index(own["cluster_role"]), own.get("cluster_index", position)), name, own)
        for position, (name, own) in enumerate(hosts.items())
        if own["cluster_role"] in HOST_ROLES
    ]
    ordered.sort(key=lambda item: item[0])
    cluster = next((str(own["cluster_name"]) for _key, _name, own in ordered), "")
    entries = [_entry(name, own) for _key, name, own in ordered]
    for entry in entries:
        if entry["name"] in ports:
            entry["ssh_port"] = ports[entry["name"]]
    return ClusterFacts(cluster, entries)


def _entry(name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "role": own["cluster_role"],
        "management_address": own["cluster_management"]["address"],
        "rack": own.get("cluster_rack", ""),
        "slots": own.get("cluster_slots", 0),
        "gpus": len(own.get("cluster_gpus", ())),
        "drained": own.get("cluster_drained", False),
        "rails": [{key: rail[key] for key in _RAIL_KEYS} for rail in own.get("cluster_rails", ())],
    }
