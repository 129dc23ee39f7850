# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The names and addresses a node is called by, and the patterns that cover them all.

The patterns say for which hosts the cluster's authority is believed and its client settings hold.
They are made of name stems and networks, not of names, so that they stay short for any number of
nodes and do not change when one is added.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.hostfile import rail_name

COMPUTE, LAUNCHER = "compute", "launcher"
ROLES = (COMPUTE, LAUNCHER)
"""The roles whose hosts take part in the trust."""


def members(directory: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of the directory that take part, in the order of the model."""
    return [entry for entry in directory if entry["role"] in ROLES]


def names_of(entry: Mapping[str, Any], domain: str = "") -> list[str]:
    """Everything a node is called by over SSH: these are the principals of its host certificate."""
    name = str(entry["name"])
    names = [name]
    if domain and not name.endswith(f".{domain}"):
        names.append(f"{name}.{domain}")
    names.append(str(entry["management_address"]))
    names += [rail_name(name, str(rail["interface"])) for rail in entry["rails"]]
    return names


def patterns_of(entries: Sequence[Mapping[str, Any]], management_prefix: int = 24) -> list[str]:
    """Host patterns (`node*`, `192.168.10.*`) that cover every name of every node.

    `management_prefix` is the length of the management network's mask: with it the pattern is of
    the network, and the same whoever is in it.
    """
    found: dict[str, None] = {}
    for entry in entries:
        for pattern in _name_patterns(str(entry["name"])):
            found[pattern] = None
    for entry in entries:
        found[_octets(str(entry["management_address"]), management_prefix)] = None
    return _without_covered(found)


def _name_patterns(name: str) -> list[str]:
    stem = re.sub(r"\d+$", "", name.split(".")[0])
    # A name that is nothing but digits has no stem to share.
    return [f"{stem}*"] if stem else [name, f"{name}-*", f"{name}.*"]


def _octets(address: str, length: int) -> str:
    """The pattern of whole octets that covers the network of this length around an address."""
    parsed = ipaddress.ip_address(address)
    if parsed.version == 6:
        return parsed.exploded.split(":")[0].lstrip("0") + ":*"
    kept = str(parsed).split(".")[: max(1, min(length, 24) // 8)]
    return ".".join([*kept, "*"])


def _without_covered(patterns: Iterable[str]) -> list[str]:
    listed = list(patterns)
    return [
        pattern
        for pattern in listed
        if not any(
            other != pattern and other.endswith("*") and pattern.startswith(other[:-1])
            for other in listed
        )
    ]


def probes_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Whom each node has to reach to prove the trust.

    The launcher reaches every compute node. Each compute node reaches the next one in the order of
    the model, by its name and by the name of its first rail: a ring, so the work is linear.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    probes: dict[str, list[dict[str, str]]] = {}
    for entry in entries:
        if entry["role"] == LAUNCHER:
            probes[str(entry["name"])] = [_by_name(target) for target in compute]
    for index, entry in enumerate(compute):
        neighbour = compute[(index + 1) % len(compute)]
        probes[str(entry["name"])] = [_by_name(neighbour)] + [
            {
                "host": str(neighbour["name"]),
                "target": rail_name(str(neighbour["name"]), str(rail["interface"])),
            }
            for rail in neighbour["rails"][:1]
        ]
    return probes


def _by_name(entry: Mapping[str, Any]) -> dict[str, str]:
    return {"host": str(entry["name"]), "target": str(entry["name"])}
