# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Cables of storage hosts: each into a port of a leaf that is there and free."""

from __future__ import annotations

from typing import Any, Optional

from ...module_utils.schema.findings import Findings, Path, nearest
from .nodes import NodeSpec
from .switches import SwitchKind
from .topology import Topology


def check_storage(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    topology: Optional[Topology],
    leaves: list[str],
    kinds: list[SwitchKind],
    findings: Findings,
) -> None:
    if specs is None or topology is None or len(leaves) != len(kinds):
        return
    taken: dict[tuple[str, str], Path] = {}
    for index, host in enumerate(model["storage"] or []):
        if not findings.clean(("storage", index)):
            continue
        interfaces: set[str] = set()
        for number, link in enumerate(host["links"]):
            path: Path = ("storage", index, "links", number)
            if link["interface"] in interfaces:
                findings.add(
                    "model.cable_twice",
                    (*path, "interface"),
                    f"{link['interface']!r} of {host['name']} is there twice",
                    "Give each cable its own",
                    value=link["interface"],
                )
            interfaces.add(link["interface"])
            if link["leaf"] not in leaves:
                findings.add(
                    "model.unknown_leaf",
                    (*path, "leaf"),
                    f"there is no leaf {link['leaf']!r}",
                    nearest(link["leaf"], leaves),
                    value=link["leaf"],
                )
                continue
            place = leaves.index(link["leaf"])
            _check_port(link, place, kinds[place], topology, specs, path, findings)
            key = (link["leaf"], link["port"])
            if taken.setdefault(key, path) != path:
                findings.add(
                    "model.port_twice",
                    (*path, "port"),
                    f"{link['port']!r} of {link['leaf']} is also that of "
                    + findings.place(taken[key]),
                    "Give each cable its own",
                    value=link["port"],
                )


def _check_port(
    link: dict[str, Any],
    place: int,
    kind: SwitchKind,
    topology: Topology,
    specs: list[NodeSpec],
    path: Path,
    findings: Findings,
) -> None:
    names = kind.ports.names()
    port, leaf = link["port"], link["leaf"]
    if port not in names:
        findings.add(
            "model.no_such_port",
            (*path, "port"),
            f"{leaf} has no port {port!r}",
            f"Its ports are {names[0]} to {names[-1]}",
            value=port,
        )
        return
    free, end = _free_ports(place, topology, specs[-1].index + 1)
    if not free <= names.index(port) < end:
        whose = "a node" if names.index(port) < free else "a spine"
        way_out = f"Free are {names[free]} to {names[end - 1]}" if free < end else "None is free"
        findings.add(
            "model.port_taken",
            (*path, "port"),
            f"{port!r} of {leaf} goes to {whose}",
            way_out,
            value=(port, whose, free, end),
        )


def _free_ports(leaf: int, topology: Topology, nodes: int) -> tuple[int, int]:
    """From which port of a leaf on, and up to which, there is no cable of a node or a spine."""
    leaf_set, of_set = divmod(leaf, topology.leaves_per_set)
    here = min(max(0, nodes - leaf_set * topology.nodes_per_set), topology.nodes_per_set)
    return here * topology.lanes_on(of_set), topology.leaf_ports - topology.uplinks
