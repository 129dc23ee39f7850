# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Trust data of the cluster: what each node publishes, admits and probes, from the model only.

Patterns are the hosts for which the cluster's authority is trusted and its client settings hold.
They are name stems and networks, so they stay short for any number of nodes and do not change when
a node is added.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.names import rail_name
from ...module_utils.ssh.keys import KINDS, PORT
from .authority import Authority

COMPUTE, LAUNCHER = "compute", "launcher"


def members(directory: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The compute nodes and launchers in the cluster facts, in the order of the model."""
    return [entry for entry in directory if entry["role"] in (COMPUTE, LAUNCHER)]


def names_of(entry: Mapping[str, Any], domain: str = "") -> list[str]:
    """All names and addresses of a node: the principals of its host certificate."""
    name = str(entry["name"])
    names = [name]
    if domain and not name.endswith(f".{domain}"):
        names.append(f"{name}.{domain}")
    names.append(str(entry["management_address"]))
    names += [rail_name(name, str(rail["interface"])) for rail in entry["rails"]]
    return names


def logins_of(
    entry: Mapping[str, Any], account: str, extra_sources: Sequence[str], between_compute: bool
) -> dict[str, Any]:
    """The principal of a node, the addresses from which it logs in, and the principals it admits.

    A launcher admits only launchers, so that compute nodes cannot run commands there. Every node
    admits itself, by its addresses, to verify its own sessions.
    """
    own, launchers = f"{account}/{entry['role']}", f"{account}/{LAUNCHER}"
    peers = [f"{account}/{COMPUTE}"] if entry["role"] == COMPUTE and between_compute else []
    addresses = [entry["management_address"], *(rail["address"] for rail in entry["rails"])]
    if entry["role"] == COMPUTE and not between_compute:
        peers = [f'from="{",".join(map(str, addresses))}" {own}']
    return {
        "principal": own,
        "admits": [launchers, *peers],
        "sources": [*map(str, addresses), *extra_sources],
    }


def patterns_of(entries: Sequence[Mapping[str, Any]], management_prefix: int = 24) -> list[str]:
    """Host patterns (`node*`, `192.168.10.*`) that cover every name of every node.

    The pattern of the management network covers the whole network (`management_prefix` bits of
    mask), so that it does not change with the nodes.
    """
    octets = max(1, min(management_prefix, 24) // 8)
    patterns = [pattern for entry in entries for pattern in _name_patterns(str(entry["name"]))]
    for entry in entries:
        patterns.append(".".join([*str(entry["management_address"]).split(".")[:octets], "*"]))
    return list(dict.fromkeys(patterns))


def _name_patterns(name: str) -> list[str]:
    stem = re.sub(r"\d+$", "", name.split(".")[0])
    # A name that consists only of digits has no stem.
    return [f"{stem}*"] if stem else [name, f"{name}-*", f"{name}.*"]


def probes_of(
    entries: Sequence[Mapping[str, Any]], between_compute: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """The hosts that each node must reach to verify the trust.

    A launcher logs in to every compute node. Each compute node logs in to the next one in the model
    (with `between_compute`), by its name and the name of its first rail, and sends packets to the
    next node with each rail; the node after that is a witness, which shows at which end packets
    are lost. The work is linear in the number of nodes.
    """
    compute = [entry for entry in entries if entry["role"] == COMPUTE]
    by_name = [{"host": str(entry["name"]), "target": str(entry["name"])} for entry in compute]
    probes: dict[str, list[dict[str, Any]]] = {
        str(entry["name"]): by_name for entry in entries if entry["role"] == LAUNCHER
    }
    for index, entry in enumerate(compute):
        neighbour = compute[(index + 1) % len(compute)]
        host = str(neighbour["name"])
        targets = [host, *(rail_name(host, str(rail["interface"])) for rail in neighbour["rails"])]
        logins = [{"host": host, "target": name} for name in targets[:2]]
        probes[str(entry["name"])] = logins if between_compute else []
    rings: dict[str, list[str]] = {}
    for entry in compute:
        for rail in entry["rails"]:
            rings.setdefault(str(rail["interface"]), []).append(str(entry["name"]))
    for rail, ring in rings.items():
        for index, here in enumerate(ring):
            host, third = (ring[(index + step) % len(ring)] for step in (1, 2))
            if here != host:
                probe = {"host": host, "target": rail_name(host, rail), "rail": rail}
                witness = {"witness": rail_name(third, rail)} if third != here else {}
                probes[here].append({**probe, **witness})
    ports = {str(entry["name"]): port_of(entry) for entry in entries}
    for login in (probe for own in probes.values() for probe in own if "rail" not in probe):
        if ports[login["host"]] != PORT:
            login["port"] = ports[login["host"]]
    return probes


def ports_of(entries: Sequence[Mapping[str, Any]], domain: str = "") -> dict[str, Any]:
    """The most common sshd port, and for each other port the names of the hosts that use it."""
    counted = Counter(port_of(entry) for entry in entries)
    most = min(counted, key=lambda port: (-counted[port], port), default=PORT)
    others: dict[str, list[str]] = {}
    for entry in entries:
        if port_of(entry) != most:
            others.setdefault(str(port_of(entry)), []).extend(names_of(entry, domain))
    return {"port": most, "other_ports": others}


def port_of(entry: Mapping[str, Any]) -> int:
    return int(entry.get("ssh_port", PORT))


def addresses_of(entry: Mapping[str, Any]) -> dict[str, str]:
    """A host's addresses by network, to which the targets of its logins connect back."""
    rails = {str(rail["interface"]): str(rail["address"]) for rail in entry["rails"]}
    return {"management": str(entry["management_address"]), **rails}


def published(
    entries: Sequence[Mapping[str, Any]],
    authorities: Sequence[Authority],
    krl: bytes,
    management_prefix: int = 24,
    signer: Sequence[str] = (),
    domain: str = "",
) -> dict[str, Any]:
    """Trust data shared by all nodes, small for any number of them. The first authority signs."""
    first = authorities[0] if authorities else Authority("", {}, {})
    return {
        "patterns": patterns_of(entries, management_prefix),
        **ports_of(entries, domain),
        "trusted": [authority.id for authority in authorities],
        "signs": first.id,
        "private_keys": {kind: str(path) for kind, path in first.private.items()},
        "signer": list(signer),
        "revoked": base64.b64encode(krl).decode("ascii"),
        **{
            f"{kind}_authorities": [authority.public[kind] for authority in authorities]
            for kind in KINDS
        },
    }
