# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cuts a run into stages of consecutive layers, and stages into jobs of racks.

Layers that look at one host only (`SHARED` of layers.py) run on execution nodes. The others need
the whole cluster, or state of the controller: the SSH authority, the munge key, the authority of
exporters. They run on the controller, in the order of site.yml.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..layers import HOSTS, ROLES, SHARED
from .nodes import ExecutionNode

HERE = ""
"""Name of the controller that runs the playbook, as the place of a job."""


@dataclass(frozen=True)
class Job:
    """A run of the playbook for some layers and hosts."""

    layers: tuple[str, ...]
    hosts: tuple[str, ...]
    place: str
    """Name of an execution node, or HERE."""


def layers_of(tags: Collection[str], skipped: Collection[str]) -> list[str]:
    """The layers that --tags and --skip-tags select, in the order of site.yml."""
    every = not tags or bool({"all", "tagged"} & set(tags))
    return [layer for layer in ROLES if (every or layer in tags) and layer not in skipped]


def stages(layers: Sequence[str], whole: Collection[str] = ()) -> list[tuple[bool, list[str]]]:
    """Groups of consecutive layers, and whether they are shared; those in `whole` are not."""

    def is_shared(layer: str) -> bool:
        return layer in SHARED and layer not in whole

    return [(shared, list(group)) for shared, group in groupby(layers, is_shared)]


def jobs(
    layers: Sequence[str],
    roles: Mapping[str, str],
    racks: Mapping[str, str],
    nodes: Sequence[ExecutionNode],
) -> list[Job]:
    """A shared stage: one job for the racks of each node, and one here for all other hosts.

    `roles` and `racks` by host; hosts and layers without each other are left out.
    """
    place = {rack: node.name for node in nodes for rack in node.racks}
    members: dict[str, list[str]] = {}
    for host in roles:
        members.setdefault(place.get(racks.get(host) or "", HERE), []).append(host)
    names = [name for name in (*(node.name for node in nodes), HERE) if name in members]
    found = [job_of(layers, members[name], name, roles) for name in names]
    return [job for job in found if job.layers]


def job_of(
    layers: Sequence[str], hosts: Sequence[str], place: str, roles: Mapping[str, str]
) -> Job:
    """A job of those layers that have one of the hosts: Ansible refuses tags without hosts."""
    here = {roles[host] for host in hosts}
    own = tuple(layer for layer in layers if here & set(HOSTS[layer]))
    concerned = {role for layer in own for role in HOSTS[layer]}
    return Job(own, tuple(host for host in hosts if roles[host] in concerned), place)
