# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compute nodes of a model, counted or listed, without rails; and its launchers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.text import nearest, some
from ..schema.findings import Findings, Path
from .node_kinds import DEFAULT, NEEDED, Kinds, NodeKind


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
    kind: NodeKind
    rack_path: Path = ()
    drained: bool = False
    cpu: Optional[dict[str, Any]] = None
    cpu_path: Path = ()
    pci: Optional[list[Any]] = None
    pci_path: Path = ()
    gpu_pci: Optional[list[str]] = None
    gpu_pci_path: Path = ()
    bmc: Optional[int] = None
    bmc_path: Path = ()
    networks: Mapping[str, tuple[int, Path]] = field(default_factory=dict)
    """Address in each further network, and its key."""
    vars: dict[str, Any] = field(default_factory=dict)


def places_with_rails(specs: Sequence[NodeSpec]) -> int:
    """Number of places in the plan up to the last node with rails, which need ports."""
    return max((spec.index + 1 for spec in specs if spec.kind.rails["count"]), default=0)


def launchers(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every launcher in order, with its path."""
    if isinstance(model["launcher"], dict):
        return [(("launcher",), model["launcher"])]
    key = "launcher" if model["launcher"] else "launchers"
    return [((key, index), entry) for index, entry in enumerate(model[key] or ())]


def check_launchers(model: dict[str, Any], written: Mapping[str, Any], findings: Findings) -> None:
    """Check that the model, as written, has launchers under one of both keys."""
    keys = [key for key in ("launcher", "launchers") if key in written]
    known = any(finding.path[:1] == tuple(keys) for finding in findings.found)
    if len(keys) == 1 and (known or launchers(model)):
        return
    path = (keys or ["launcher"])[-1:]
    problem = ("is missing", "is an empty list", "is written, and so is launcher")[len(keys)]
    remedy = (
        "Write one launcher with name and management, or a list of them, under one of both keys"
    )
    findings.add("model.launchers", tuple(path), problem, remedy)


@dataclass
class _Block:
    """One mapping under `nodes`."""

    path: Path
    keys: dict[str, Any]
    names: Sequence[str]
    start: int = 0
    """Position of its first node."""

    @property
    def listed(self) -> Sequence[dict[str, Any]]:
        return self.keys["list"] or ()


def node_blocks(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """The mapping or the mappings under `nodes`, with their paths."""
    if isinstance(model["nodes"], dict):
        return [(("nodes",), model["nodes"])]
    return [(("nodes", index), keys) for index, keys in enumerate(model["nodes"])]


def specify(
    model: dict[str, Any], kinds: Kinds, findings: Findings
) -> tuple[list[NodeSpec], list[NodeSpec]]:
    """Every node by position, and every absent one; empty if the model is ambiguous."""
    blocks = []
    for path, keys in node_blocks(model):
        counted, listed = keys["count"], keys["list"]
        if (counted is None) == (listed is None):
            problem, value = "nodes must be either counted or listed", (counted, listed)
            findings.add("model.counted_or_listed", path, problem, "Write count or list", value)
            return [], []
        if listed is None:
            numbers = range(keys["start"], keys["start"] + counted)
            names = [keys["name"].format(number) for number in numbers]
        else:
            names = [entry["name"] for entry in listed]
        blocks.append(_Block(path, keys, names))
        _check_block(blocks[-1], kinds, findings)
    specs, absent = _specs(blocks, kinds, findings)
    if not specs:
        problem = "the cluster has no node, or every node is absent"
        findings.add("model.no_nodes", ("nodes",), problem, "Use at least one")
    without: dict[tuple[str, Path], list[str]] = {}
    for spec in specs:
        if spec.management is None:
            without.setdefault(("management", spec.management_path), []).append(spec.name)
        if spec.slots == 0 and spec.kind.rails["count"]:
            path = (*(spec.kind.path or spec.path[: 1 + (spec.path[1:2] != ("name",))]), "slots")
            without.setdefault(("slots", path), []).append(spec.name)
    for (what, path), names in without.items():
        if what == "slots":
            problem = "nodes without GPUs (gpus.count is 0) have no MPI slots"
            remedy = "Write the slots per node, or the number of GPUs"
            findings.add("model.no_slots", path, problem, remedy)
        else:
            problem, value = f"{some(names, 1)}: no management address", (names[0], len(names))
            remedy = "Set `management_first` here, or `management` on every node"
            findings.add("model.no_management_address", path, problem, remedy, value)
    return specs, absent


RESERVED = ("all", "default")
"""Names with a meaning in Slurm's files."""


def check_scheduler(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> None:
    """Check that Slurm can describe every node, if it is the scheduler."""
    if model["scheduler"] is None:
        return
    without: dict[Path, list[str]] = {}
    for spec in specs:
        if spec.cpu is None:
            without.setdefault(spec.cpu_path, []).append(spec.name)
        if spec.name in RESERVED:
            problem, remedy = f"{spec.name!r} is a word of Slurm", "Write another name"
            findings.add("model.slurm_word", (*spec.path, "name"), problem, remedy, spec.name)
    for path, names in without.items():
        problem = f"{some(names, 1)}: no processors and memory, which scheduler: slurm needs"
        remedy = "Write {sockets: ..., cores: ..., threads: ..., memory_mb: ...} as `slurmd -C` "
        remedy += "prints them on a node, or as playbooks/discover.yml drafts them"
        findings.add("model.no_cpu", path, problem, remedy, (names[0], len(names)))


def check_default(written: Mapping[str, Any], specs: list[NodeSpec], findings: Findings) -> None:
    """Check that every node has a kind if the top level, as written, describes no rails of one."""
    missing = [key for key in NEEDED if key not in written.get("rails", {})]
    without = [spec for spec in specs if spec.kind.name == DEFAULT]
    if missing and without:
        problem = f"{some([spec.name for spec in without], 1)}: no kind"
        remedy = f"Write kind, or rails.{missing[0]} at the top level for nodes without one"
        path, value = without[0].path, (without[0].name, len(without))
        findings.add("model.kind_missing", path, problem, remedy, value)


def _check_block(block: _Block, kinds: Kinds, findings: Findings) -> None:
    """Check that the nodes and kinds that a block names exist."""
    known, keys = set(block.names), block.keys
    named: list[tuple[Path, str]] = [(("overrides", name), name) for name in keys["overrides"]]
    for key in ("drained", "absent"):
        named += [((key, index), name) for index, name in enumerate(keys[key])]
    for path, name in named:
        if name not in known:
            problem, remedy = f"node {name!r} not found", nearest(name, block.names)
            findings.add("model.unknown_node", (*block.path, *path), problem, remedy, name)
    of_kinds: list[tuple[Path, dict[str, Any]]] = [((), keys)]
    of_kinds += [(("list", index), entry) for index, entry in enumerate(block.listed)]
    of_kinds += [(("overrides", name), entry) for name, entry in keys["overrides"].items()]
    for path, entry in of_kinds:
        if entry["kind"] is not None and entry["kind"] not in kinds:
            problem, remedy = f"kind {entry['kind']!r} not found", nearest(entry["kind"], kinds)
            path = (*block.path, *path, "kind")
            findings.add("model.unknown_kind", path, problem, remedy, entry["kind"])


def _positions(blocks: list[_Block], findings: Findings) -> list[int]:
    """The place of each node in the plan: a node without `position` has that of its entry, and a
    block without it follows the one above."""
    found, written, end = list[int](), dict[int, Path](), 0
    for block in blocks:
        keys, first, path = block.keys, len(found), block.path
        block.start = end if keys["position"] is None else keys["position"]
        end = block.start + len(block.names)
        found += range(block.start, end)
        if keys["position"] is not None:
            written.update(dict.fromkeys(range(first, len(found)), path))
        for index, entry in enumerate(block.listed):
            if entry["position"] is not None:
                found[first + index] = entry["position"]
                written[first + index] = (*path, "list", index)
        for index, name in enumerate(block.names if keys["overrides"] else ()):
            own = keys["overrides"].get(name, {}).get("position")
            if own is not None:
                found[first + index], written[first + index] = own, (*path, "overrides", name)
    if not written:
        return found
    names = [name for block in blocks for name in block.names]
    before, holder, reported = len(findings.found), dict[int, int](), set[Path]()
    for index in sorted(range(len(names)), key=written.__contains__):
        position = found[index]
        other = holder.setdefault(position, index)
        path = (*written.get(index, ()), "position")
        if other != index and path not in reported:
            reported.add(path)
            problem = f"{position} is also the position of {names[other]}"
            problem += "" if other in written else f", which has no `position` and is {other} there"
            remedy = "Choose a free one, or write one there too: a node without `position` has the "
            remedy += "number of its entry, from 0, including absent ones"
            findings.add("model.position_twice", path, problem, remedy, position)
    return found if len(findings.found) == before else list(range(len(names)))


def _specs(
    blocks: list[_Block], kinds: Kinds, findings: Findings
) -> tuple[list[NodeSpec], list[NodeSpec]]:
    """Every node by position, and every absent one."""
    positions = _positions(blocks, findings)
    most, places = max(positions, default=0), iter(positions)
    specs, without = list[NodeSpec](), list[NodeSpec]()
    for block in blocks:
        keys, listed, overrides = block.keys, block.listed, block.keys["overrides"]
        per_rack = keys["nodes_per_rack"] or most + 1
        drained, absent = set(keys["drained"]), set(keys["absent"])
        of_block = kinds.get(keys["kind"] or DEFAULT, kinds[DEFAULT])
        first = keys["management_first"]
        path, management_path = (*block.path, "name"), (*block.path, "management_first")
        rack_path, bmc_path = (*block.path, "rack"), (*block.path, "bmc_first")
        for number, (name, index) in enumerate(zip(block.names, places)):
            entry, override = listed[number] if listed else None, overrides.get(name)
            own = (override or {}).get("kind") or (entry or {}).get("kind")
            kind = kinds.get(own, of_block) if own else of_block
            slots = kind.slots or kind.gpus["count"]
            spec = NodeSpec(
                name=name,
                index=index,
                path=path,
                management=None if first is None else max(0, first + index - block.start),
                management_path=management_path,
                rack=keys["rack"].format(index // per_rack + 1),
                # The slots of a block are those of its kind; another kind has its own.
                slots=(keys["slots"] or slots if kind is of_block else slots or keys["slots"]) or 0,
                kind=kind,
                rack_path=rack_path,
                drained=name in drained,
                cpu=kind.cpu or (keys["cpu"] if kind.cpu is of_block.cpu else None),
                cpu_path=(*(kind.path if kind is not of_block else block.path), "cpu"),
                pci=kind.rails["pci"],
                pci_path=kind.pci_paths[0],
                gpu_pci=kind.gpus["pci"],
                gpu_pci_path=kind.pci_paths[1],
            )
            if keys["bmc_first"] is not None:
                spec.bmc = max(0, keys["bmc_first"] + index - block.start)
                spec.bmc_path = bmc_path
            if keys["networks"]:
                spec.networks = {
                    name: (max(0, to + index - block.start), (*block.path, "networks", name))
                    for name, to in keys["networks"].items()
                }
            if entry is not None:
                spec.path = (*block.path, "list", number)
                _refine(spec, entry, spec.path)
            if override is not None:
                _refine(spec, override, (*block.path, "overrides", name))
            (without if name in absent else specs).append(spec)
    specs.sort(key=lambda spec: spec.index)
    return specs, without


def _refine(spec: NodeSpec, entry: dict[str, Any], path: Path) -> None:
    """Apply the values of a node's entry, with their paths."""
    for key in ("management", "pci", "gpu_pci", "rack", "bmc"):
        if entry[key] is not None:
            setattr(spec, key, entry[key])
            setattr(spec, f"{key}_path", (*path, key))
    spec.slots = entry["slots"] or spec.slots
    if entry["drained"] is not None:
        spec.drained = entry["drained"]
    spec.vars = {**spec.vars, **entry["vars"]}
    if entry["networks"]:
        own = {name: (to, (*path, "networks", name)) for name, to in entry["networks"].items()}
        spec.networks = {**spec.networks, **own}
