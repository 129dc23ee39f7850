# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One view of every host of the cluster, built from the variables that the model compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

ROLES = ("compute", "launcher", "storage")
"""Groups in the directory, in its order."""
_OF_RAIL = (
    *("rail", "plane", "interface", "address", "prefix", "network", "speed_gbps", "leaf"),
    *("gpu", "numa"),
)


@dataclass
class Directory:
    """The entries, and what most readers ask of them."""

    cluster_name: str
    entries: list[dict[str, Any]]

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
) -> Directory:
    """The directory of `hosts` with their variables; switches among them have no entry.

    `ports`: of sshd, where it is another than 22.
    """
    found = [
        ((ROLES.index(of["cluster_role"]), of.get("cluster_index", place)), name, of)
        for place, (name, of) in enumerate(hosts.items())
        if of["cluster_role"] in ROLES
    ]
    found.sort(key=lambda each: each[0])
    cluster = next((str(of["cluster_name"]) for _place, _name, of in found), "")
    entries = [_entry(name, of) for _place, name, of in found]
    for entry in (entry for entry in entries if entry["name"] in ports):
        entry["ssh_port"] = ports[entry["name"]]
    return Directory(cluster, entries)


def _entry(name: str, of: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "role": of["cluster_role"],
        "management_address": of["cluster_management"]["address"],
        "rack": of.get("cluster_rack", ""),
        "slots": of.get("cluster_slots", 0),
        "gpus": len(of.get("cluster_gpus", ())),
        "drained": of.get("cluster_drained", False),
        "rails": [{key: rail[key] for key in _OF_RAIL} for rail in of.get("cluster_rails", ())],
    }
