# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every node is told, built once for the whole cluster.

The patterns say for which hosts the cluster's authority is believed and its client settings hold.
They are made of name stems and networks, not of names, so that they stay short for any number of
nodes and do not change when one is added.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.hostfile import rail_name
from .authority import Authority
from .journal import Node

COMPUTE, LAUNCHER = "compute", "launcher"


def members(directory: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of the directory that take part, in the order of the model."""
    return [entry for entry in directory if entry["role"] in (COMPUTE, LAUNCHER)]


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
    octets = max(1, min(management_prefix, 24) // 8)
    found = [pattern for entry in entries for pattern in _name_patterns(str(entry["name"]))]
    for entry in entries:
        found.append(".".join([*str(entry["management_address"]).split(".")[:octets], "*"]))
    return list(dict.fromkeys(found))


def _name_patterns(name: str) -> list[str]:
    stem = re.sub(r"\d+$", "", name.split(".")[0])
    # A name that is nothing but digits has no stem to share.
    return [f"{stem}*"] if stem else [name, f"{name}-*", f"{name}.*"]


def probes_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """Whom each node has to reach to prove the trust.

    The launcher reaches every compute node. Each compute node reaches the next one in the order of
    the model, by its name and by the name of its first rail: a ring, so the work is linear.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    by_name = [{"host": str(each["name"]), "target": str(each["name"])} for each in compute]
    probes = {str(each["name"]): by_name for each in entries if each["role"] == LAUNCHER}
    for index, entry in enumerate(compute):
        neighbour = compute[(index + 1) % len(compute)]
        host = str(neighbour["name"])
        targets = [host, *(rail_name(host, str(rail["interface"])) for rail in neighbour["rails"])]
        probes[str(entry["name"])] = [{"host": host, "target": name} for name in targets[:2]]
    return probes


def empty(
    mode: str,
    entries: Sequence[Mapping[str, Any]],
    principal: str,
    management_prefix: int = 24,
) -> dict[str, Any]:
    """What holds in either mode, with nothing yet to be believed."""
    return {
        "mode": mode,
        "principal": principal,
        "patterns": patterns_of(entries, management_prefix),
        "believed": [],
        "signs": "",
        "private_keys": {},
        "user_authorities": [],
        "host_authorities": [],
        "revoked": "",
        "authorized_keys": "",
        "known_hosts": "",
    }


def by_authority(told: dict[str, Any], authorities: Sequence[Authority], krl: bytes) -> None:
    """Certificates: a few lines, whatever the number of nodes. The first authority signs."""
    if authorities:
        first = authorities[0]
        told["signs"] = first.id
        told["private_keys"] = {"user": str(first.user_path), "host": str(first.host_path)}
    told["believed"] = [authority.id for authority in authorities]
    told["user_authorities"] = [authority.user.text for authority in authorities]
    told["host_authorities"] = [authority.host.text for authority in authorities]
    told["revoked"] = base64.b64encode(krl).decode("ascii")


def by_lists(
    told: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    nodes: Mapping[str, Node],
    user: str,
    domain: str,
) -> list[str]:
    """The classic files: a line for each node that was laid. Returns those that were not yet."""
    called = {str(entry["name"]): names_of(entry, domain) for entry in entries}
    laid = [name for name in called if nodes[name].laid]
    told["known_hosts"] = "\n".join(
        f"{','.join(called[name])} {nodes[name].host_key}" for name in laid
    )
    # With the same rights as a certificate gives.
    told["authorized_keys"] = "\n".join(
        f"restrict,pty {nodes[name].user_key} {user}@{name}" for name in laid
    )
    return [name for name in called if not nodes[name].laid]
