# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute nodes of a model, counted or listed, without rails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.text import nearest, some
from ..schema.findings import Findings, Path


@dataclass
class NodeSpec:
    """A node as written in the model. Paths are the positions of its values."""

    name: str
    index: int
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
    specs = [spec for spec in _specs(model, names, listed) if spec.name not in absent]
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


def _specs(
    model: dict[str, Any], names: list[str], listed: Optional[list[dict[str, Any]]]
) -> list[NodeSpec]:
    nodes, gpus = model["nodes"], model["gpus"]
    per_rack = nodes["nodes_per_rack"] or len(names)
    drained = set(nodes["drained"])
    first = nodes["management_first"]
    specs = []
    for index, name in enumerate(names):
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
            spec.path = ("nodes", "list", index)
            _refine(spec, listed[index], spec.path)
        if name in nodes["overrides"]:
            _refine(spec, nodes["overrides"][name], ("nodes", "overrides", name))
        specs.append(spec)
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
