# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute nodes of a model, counted or listed, without rails; and its launchers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.text import nearest, some
from ..schema.findings import Findings, Path


@dataclass
class NodeSpec:
    """A node as written in the model. Paths are the positions of its values."""

    name: str
    index: int
    """Place in the plan of addresses, ports and racks."""
    path: Path
    management: Optional[int]
    management_path: Path
    rack: str
    slots: int
    rack_path: Path = ("nodes", "rack")
    drained: bool = False
    pci: Optional[list[Any]] = None
    pci_path: Path = ("rails", "pci")
    gpu_pci: Optional[list[str]] = None
    gpu_pci_path: Path = ("gpus", "pci")
    vars: dict[str, Any] = field(default_factory=dict)


def launchers(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every launcher in order, with its path."""
    if isinstance(model["launcher"], dict):
        return [(("launcher",), model["launcher"])]
    key = "launcher" if model["launcher"] else "launchers"
    return [((key, index), entry) for index, entry in enumerate(model[key] or ())]


def check_launchers(model: dict[str, Any], written: Mapping[str, Any], findings: Findings) -> None:
    """Check that the model, as written, has launchers under one of both keys."""
    keys = [key for key in ("launcher", "launchers") if key in written]
    if len(keys) == 1 and model[keys[0]] != []:
        return
    path = (keys or ["launcher"])[-1:]
    problem = ("is missing", "is an empty list", "is written, and launcher as well")[len(keys)]
    remedy = "Write one launcher with name and management, or a list of them, under one of both"
    findings.add("model.launchers", tuple(path), problem, remedy)


def specify(model: dict[str, Any], findings: Findings) -> list[NodeSpec]:
    """Every node in order; empty if the model is ambiguous."""
    nodes = model["nodes"]
    counted, listed = nodes["count"], nodes["list"]
    if (counted is None) == (listed is None):
        problem, value = "nodes must be either counted or listed", (counted, listed)
        findings.add("model.counted_or_listed", ("nodes",), problem, "Write count or list", value)
        return []
    if listed is None:
        numbers = range(nodes["start"], nodes["start"] + counted)
        names = [nodes["name"].format(number) for number in numbers]
    else:
        names = [entry["name"] for entry in listed]
    known, absent = set(names), set(nodes["absent"])
    named: list[tuple[Path, str]] = [(("overrides", name), name) for name in nodes["overrides"]]
    for key in ("drained", "absent"):
        named += [((key, index), name) for index, name in enumerate(nodes[key])]
    for path, name in named:
        if name not in known:
            problem, remedy = f"node {name!r} not found", nearest(name, names)
            findings.add("model.unknown_node", ("nodes", *path), problem, remedy, name)
    everyone = _specs(model, names, listed, findings)
    specs = [spec for spec in everyone if spec.name not in absent]
    without = [spec.name for spec in specs if spec.management is None]
    if not specs:
        problem = "the cluster has no node, or every node is absent"
        findings.add("model.no_nodes", ("nodes",), problem, "Use at least one")
    if without:
        path, value = ("nodes", "management_first"), (without[0], len(without))
        problem = f"{some(without, 1)}: no management address"
        remedy = "Set `management_first` here, or `management` on every node"
        findings.add("model.no_management_address", path, problem, remedy, value)
    if any(spec.slots == 0 for spec in specs):
        problem = "nodes without GPUs (gpus.count is 0) have no MPI slots"
        remedy = "Write the slots per node, or the number of GPUs"
        findings.add("model.no_slots", ("nodes", "slots"), problem, remedy)
    return specs


def _positions(
    names: list[str],
    listed: Optional[list[dict[str, Any]]],
    overrides: dict[str, dict[str, Any]],
    findings: Findings,
) -> Sequence[int]:
    """The place of each node in the plan: a node without `position` has that of its entry."""
    found, written = list(range(len(names))), dict[int, Path]()
    for index, entry in enumerate(listed or ()):
        if entry["position"] is not None:
            found[index], written[index] = entry["position"], ("nodes", "list", index)
    for index, name in enumerate(names if overrides else ()):
        own = overrides.get(name, {}).get("position")
        if own is not None:
            found[index], written[index] = own, ("nodes", "overrides", name)
    if not written:
        return found
    before, holder = len(findings.found), dict[int, int]()
    for index in sorted(range(len(names)), key=written.__contains__):
        position = found[index]
        other = holder.setdefault(position, index)
        if other != index:
            problem = f"{position} is also the position of {names[other]}"
            problem += "" if other in written else f", which has no `position` and is {other} there"
            remedy = "Choose a free one, or write one there too: a node without `position` has the "
            remedy += "number of its entry, from 0, including absent ones"
            path = (*written[index], "position")
            findings.add("model.position_twice", path, problem, remedy, position)
    return found if len(findings.found) == before else range(len(names))


def _specs(
    model: dict[str, Any],
    names: list[str],
    listed: Optional[list[dict[str, Any]]],
    findings: Findings,
) -> list[NodeSpec]:
    """Every node, absent ones included, by position."""
    nodes, gpus = model["nodes"], model["gpus"]
    positions = _positions(names, listed, nodes["overrides"], findings)
    per_rack = nodes["nodes_per_rack"] or max(positions, default=0) + 1
    drained = set(nodes["drained"])
    first = nodes["management_first"]
    specs = []
    for place, (name, index) in enumerate(zip(names, positions)):
        spec = NodeSpec(
            name=name,
            index=index,
            path=("nodes", "name"),
            management=None if first is None else first + index,
            management_path=("nodes", "management_first"),
            rack=nodes["rack"].format(index // per_rack + 1),
            slots=nodes["slots"] or gpus["count"],
            drained=name in drained,
            pci=model["rails"]["pci"],
            gpu_pci=gpus["pci"],
        )
        if listed is not None:
            spec.path = ("nodes", "list", place)
            _refine(spec, listed[place], spec.path)
        if name in nodes["overrides"]:
            _refine(spec, nodes["overrides"][name], ("nodes", "overrides", name))
        specs.append(spec)
    specs.sort(key=lambda spec: spec.index)
    return specs


def _refine(spec: NodeSpec, entry: dict[str, Any], path: Path) -> None:
    """Apply the values of a node's entry, with their paths."""
    for key in ("management", "pci", "gpu_pci", "rack"):
        if entry[key] is not None:
            setattr(spec, key, entry[key])
            setattr(spec, f"{key}_path", (*path, key))
    spec.slots = entry["slots"] or spec.slots
    if entry["drained"] is not None:
        spec.drained = entry["drained"]
    spec.vars = {**spec.vars, **entry["vars"]}
