# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Detect variables of the model that were overridden by hand.

The inventory plugin sets `cluster_digest` in group `all`, computed over the values of all hosts.
The action cluster_directory computes it again from what Ansible merged. If they differ, it compiles
the model again to find the host and the variable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from ...module_utils.core.text import counted, shortened
from ..schema.findings import Findings
from .cluster import DIGEST, NAMES, Inventory

REMEDY = "Remove it from group_vars, host_vars and --extra-vars, and change cluster.yml"
KUBESPRAY = "cluster_name"
"""Variable that kubespray has too, as the DNS domain of Kubernetes (its group_vars/k8s_cluster)."""


def digest_of(hosts: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Independent of the order of hosts. Values that hosts share are serialized once."""
    total = 0
    known: dict[int, tuple[Any, bytes]] = {}
    for host, variables in hosts:
        own = blake2b(host.encode(), digest_size=16)
        for name in NAMES:
            if name in variables:
                value = variables[name]
                if id(value) not in known:  # kept with its digest, so that its id is not reused
                    text = _text(value).encode()
                    known[id(value)] = (value, blake2b(text, digest_size=16).digest())
                own.update(name.encode())
                own.update(known[id(value)][1])
        total += int.from_bytes(own.digest(), "big")
    return f"{total % (1 << 128):032x}"


def _text(value: Any) -> str:
    try:
        return json.dumps(value, default=str, sort_keys=True)
    except TypeError:  # keys such as dates, which no model has
        return json.dumps(repr(value))


def seal(inventory: Inventory) -> Inventory:
    """The inventory with its digest in group `all`."""
    merged = ((host.name, inventory.merged(host)) for host in inventory.hosts)
    inventory.group_variables["all"][DIGEST] = digest_of(merged)
    return inventory


def differences(
    inventory: Inventory, hosts: Mapping[str, Mapping[str, Any]], findings: Findings
) -> None:
    """Report values that differ from the model; the same value on several hosts is one finding."""
    wanted = {host.name: inventory.merged(host) for host in inventory.hosts}
    found: dict[tuple[str, str], list[str]] = {}
    for name, variables in hosts.items():
        if name not in wanted:
            problem = "the host is in a group of the cluster but not in its model"
            findings.add("inventory.not_in_model", (name,), problem, "Add it to cluster.yml")
            continue
        for variable in NAMES:
            value = _text(variables.get(variable))
            if value != _text(wanted[name].get(variable)):
                found.setdefault((variable, value), []).append(name)
    for name in [name for name in wanted if name not in hosts]:
        findings.add("inventory.not_a_host", (name,), "a host of the model is missing", REMEDY)
    for (variable, value), names in found.items():
        also = f" (also on {counted(len(names) - 1, 'other host')})" if names[1:] else ""
        problem = f"{shortened(value, 80)}{also} is not what the model compiled"
        path, given, remedy = (names[0], variable), json.loads(value), REMEDY
        if variable == KUBESPRAY:
            remedy += ". If kubespray needs it, give kubespray another inventory"
        findings.add("inventory.set_by_hand", path, problem, remedy, given)
