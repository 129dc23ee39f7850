# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The compute nodes a model names, counted or listed, before they get rails."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import nearest
from ..schema.findings import Findings, Path


@dataclass
class NodeSpec:
    """A node as the model states it. `path` is the place to blame."""

    name: str
    index: int
    path: Path
    management: Optional[int]
    management_path: Path
    rack: str
    slots: int
    drained: bool = False
    pci: Optional[list[Any]] = None
    pci_path: Path = ("rails", "pci")
    gpu_pci: Optional[list[str]] = None
    gpu_pci_path: Path = ("gpus", "pci")
    vars: dict[str, Any] = field(default_factory=dict)


def specify(model: dict[str, Any], findings: Findings) -> Optional[list[NodeSpec]]:
    """Every node in order; None when the section is too broken to say."""
    if not findings.clean(("nodes",)):
        return None
    nodes = model["nodes"]
    listed = nodes["list"]
    if (nodes["count"] is None) == (listed is None):
        there = "both are" if listed is not None else "neither is"
        findings.add(
            "model.counted_or_listed",
            ("nodes",),
            f"nodes are either counted or listed, and {there} here",
            "Write one of count and list",
            value=(nodes["count"], listed),
        )
        return None
    if listed is None:
        numbers = range(nodes["start"], nodes["start"] + nodes["count"])
        names = [nodes["name"].format(number) for number in numbers]
        own: dict[str, dict[str, Any]] = {}
    else:
        names = [entry["name"] for entry in listed]
        own = {entry["name"]: entry for entry in listed}
    if not names:
        findings.add(
            "model.no_nodes",
            ("nodes",),
            "the cluster is empty: it has no node",
            "Give it at least one",
        )
        return None
    known = set(names)
    named: list[tuple[Path, str]] = [
        (("nodes", "overrides", name), name) for name in nodes["overrides"]
    ]
    for key in ("drained", "absent"):
        named += [(("nodes", key, index), name) for index, name in enumerate(nodes[key])]
    for path, name in named:
        if name not in known:
            findings.add(
                "model.unknown_node",
                path,
                f"there is no node {name!r}",
                nearest(name, names),
                value=name,
            )
    absent = set(nodes["absent"])
    specs = [spec for spec in _specs(model, names, own) if spec.name not in absent]
    if not specs:
        findings.add(
            "model.all_absent",
            ("nodes", "absent"),
            "the cluster is empty: every node is absent",
            "Keep at least one",
        )
        return None
    _require_basics(specs, findings)
    return specs


def _specs(
    model: dict[str, Any], names: list[str], own: dict[str, dict[str, Any]]
) -> list[NodeSpec]:
    nodes = model["nodes"]
    rails_pci = (model["rails"] or {}).get("pci")
    gpus = model["gpus"] or {}
    slots = nodes["slots"] or gpus.get("count") or 0
    per_rack = nodes["nodes_per_rack"] or len(names)
    drained = set(nodes["drained"])
    first = nodes["management_first"]
    specs = []
    for index, name in enumerate(names):
        spec = NodeSpec(
            name=name,
            index=index,
            path=("nodes",),
            management=None if first is None else first + index,
            management_path=("nodes", "management_first"),
            rack=nodes["rack"].format(index // per_rack + 1),
            slots=slots,
            drained=name in drained,
            pci=rails_pci,
            gpu_pci=gpus.get("pci"),
        )
        if name in own:
            spec.path = ("nodes", "list", index)
            _refine(spec, own[name], spec.path)
        if name in nodes["overrides"]:
            path = ("nodes", "overrides", name)
            _refine(spec, nodes["overrides"][name], path)
        specs.append(spec)
    return specs


def _refine(spec: NodeSpec, entry: dict[str, Any], path: Path) -> None:
    if entry["management"] is not None:
        spec.management, spec.management_path = entry["management"], (*path, "management")
    if entry["pci"] is not None:
        spec.pci, spec.pci_path = entry["pci"], (*path, "pci")
    if entry["gpu_pci"] is not None:
        spec.gpu_pci, spec.gpu_pci_path = entry["gpu_pci"], (*path, "gpu_pci")
    spec.rack = entry["rack"] or spec.rack
    spec.slots = entry["slots"] or spec.slots
    if entry["drained"] is not None:
        spec.drained = entry["drained"]
    spec.vars = {**spec.vars, **entry["vars"]}


def _require_basics(specs: list[NodeSpec], findings: Findings) -> None:
    if any(spec.management is None for spec in specs):
        names = [spec.name for spec in specs if spec.management is None]
        findings.add(
            "model.no_management_address",
            ("nodes", "management_first"),
            f"{names[0]} and {len(names) - 1} more have no management address"
            if len(names) > 1
            else f"{names[0]} has no management address",
            "Give the first node's here, or each its own management",
            value=(names[0], len(names)),
        )
    if findings.clean(("gpus",)) and any(spec.slots == 0 for spec in specs):
        findings.add(
            "model.no_slots",
            ("nodes", "slots"),
            "nodes without GPUs have no MPI slots",
            "Say how many slots a node has, or describe gpus",
        )
