# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kinds of nodes: GPUs, rails and slots that the nodes of one kind have in common."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.text import counted
from ..fabric.asics import asic_named
from ..schema.findings import Findings, Path

DEFAULT = "default"
"""The kind of nodes without one: `gpus` and `rails` at the top level."""
ALL = "all"
"""Every kind, in options of roles."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


@dataclass(eq=False)
class NodeKind:
    """`gpus` and `rails` as at the top level, with the values of this kind."""

    name: str
    """Empty if the model has no kinds."""
    gpus: dict[str, Any]
    rails: dict[str, Any]
    slots: Optional[int] = None
    cpu: Optional[dict[str, Any]] = None
    path: Path = ()
    own: tuple[str, ...] = ("gpus", "rails")
    """Sections that this kind has; those of others are at the top level."""
    common_gpus: list[dict[str, Any]] = field(default_factory=list)
    """GPUs of every node without its own PCI addresses."""

    def __post_init__(self) -> None:
        self.common_gpus = self.gpus_at(self.gpus["pci"])
        self.pci_paths = (self.place("rails", "pci"), self.place("gpus", "pci"))

    def place(self, section: str, key: str) -> Path:
        """Where a value of this kind is written."""
        return (*(self.path if section in self.own else ()), section, key)

    def gpus_at(self, pci: Optional[list[str]]) -> list[dict[str, Any]]:
        none, numa = [None] * self.gpus["count"], self.gpus["numa"]
        pairs = zip(pci or none, numa or none)
        return [
            {"index": index, "pci": pci, "numa": numa} for index, (pci, numa) in enumerate(pairs)
        ]

    def closest(self, rail: int) -> tuple[Optional[int], Optional[int]]:
        """The GPU and the NUMA node closest to a rail."""
        rails, gpus = self.rails, self.gpus
        if rails["gpu"] is not None:
            gpu = rails["gpu"][rail]
        else:
            gpu = rail if rail < gpus["count"] else None
        if rails["numa"] is not None:
            return gpu, rails["numa"][rail]
        return gpu, gpus["numa"][gpu] if gpus["numa"] and gpu is not None else None


Kinds = Mapping[str, NodeKind]


NEEDED = ("count", "speed_gbps")
"""Keys of `rails` without which the top level describes no kind."""


def with_rails(written: Any) -> Any:
    """The model as written, with `rails` for the leaf sets: the largest values of all kinds where
    the top level has none."""
    kinds, rails = (
        written.get(key, {}) if isinstance(written, dict) else None for key in ("kinds", "rails")
    )
    if not isinstance(kinds, dict) or not isinstance(rails, dict):
        return written
    sections = [kind.get("rails") for kind in kinds.values() if isinstance(kind, dict)]
    found = [section for section in sections if isinstance(section, dict)]
    if not found or all(key in rails for key in NEEDED):
        return written
    given = {
        key: [each[key] for each in found if type(each.get(key)) is int]
        for key in (*NEEDED, "planes")
    }
    largest = {key: max(values) for key, values in given.items() if values}
    if "planes" in largest and "planes" not in rails:  # not those of another kind
        kinds = dict(kinds)
        for name, kind in kinds.items():
            own = kind.get("rails") if isinstance(kind, dict) else None
            if isinstance(own, dict) and own.get("count") != 0:
                kinds[name] = {**kind, "rails": {"planes": 1, **own}}
    return {**written, "kinds": kinds, "rails": {**largest, **rails}}


def read_kinds(
    model: dict[str, Any], apart: Collection[str], findings: Findings
) -> dict[str, NodeKind]:
    """Every kind by name, the default one first. `apart`: kinds with separate leaves."""
    gpus, rails = model["gpus"], model["rails"]
    found = {DEFAULT: NodeKind(DEFAULT if model["kinds"] else "", gpus, rails)}
    for name, written in model["kinds"].items():
        path: Path = ("kinds", name)
        if name in (DEFAULT, ALL) or not _NAME.fullmatch(name):
            problem = (
                f"{name!r} is not a name of a kind: letters, digits and _, other than {DEFAULT}"
            )
            usual = re.sub(r"\W+", "_", name)
            usable = _NAME.fullmatch(usual) and usual not in (DEFAULT, ALL)
            remedy = f"Write {usual if usable else 'one such as h100'}"
            findings.add("model.kind_name", path, problem, remedy, name)
            continue
        found[name] = _read(name, written, path, gpus, rails)
        if name not in apart:
            _check(found[name], written, rails, findings)
    return found


def _read(
    name: str, written: dict[str, Any], path: Path, gpus: dict[str, Any], rails: dict[str, Any]
) -> NodeKind:
    """Counts and speed not written are those at the top level, but no devices of another chassis.

    A kind with fewer GPUs and without rails has the rails of the top level, without those GPUs.
    """
    own = tuple(section for section in ("gpus", "rails") if written[section] is not None)
    if "gpus" in own:
        count = written["gpus"]["count"]
        gpus = {**written["gpus"], "count": gpus["count"] if count is None else count}
    if "rails" in own:
        given = {key: value for key, value in written["rails"].items() if value is not None}
        rails = {**rails, "pci": None, "gpu": None, "numa": None, **given}
    elif rails["gpu"] is not None:
        near = [gpu if gpu is not None and gpu < gpus["count"] else None for gpu in rails["gpu"]]
        rails = {**rails, "gpu": near}
    return NodeKind(name, gpus, rails, written["slots"], written["cpu"], path, own)


def _check(
    kind: NodeKind, written: dict[str, Any], common: dict[str, Any], findings: Findings
) -> None:
    """Check that the lanes of a kind are among those of a leaf set."""
    for key, what in (("count", "rails"), ("speed_gbps", "Gb/s")):
        if kind.rails[key] > common[key]:
            problem = f"{kind.rails[key]} {what}, but rails.{key}, for which leaves have ports, is "
            problem += f"{common[key]}"
            remedy = f"Write the largest rails.{key} of all kinds at the top level"
            path = (*kind.path, "rails", key)
            findings.add("model.kind_above_leaves", path, problem, remedy, kind.rails[key])
    planes = (written["rails"] or {}).get("planes")
    if planes is not None and planes != common["planes"]:
        problem = f"{counted(planes, 'plane')}, but the leaf sets have {common['planes']}"
        remedy = "Nodes with other planes need separate leaves: a group of them under switches, "
        remedy += f"with kind: {kind.name}"
        path = (*kind.path, "rails", "planes")
        findings.add("model.kind_planes", path, problem, remedy, planes)


def check_speeds(
    kinds: Kinds, chips: Sequence[str], asics: Mapping[str, Any], findings: Findings
) -> None:
    """Check that the chips of leaves have ports of the speed of every kind but the default one."""
    for kind in kinds.values():
        speed = kind.rails["speed_gbps"]
        for chip in (asic_named(name, asics) for name in chips):
            if kind.path and chip is not None and chip.name and not chip.has_port(speed):
                problem = f"{chip.name}, the chip of leaves, has no ports of {speed}G"
                remedy = "Correct the speed, or the name of the chip"
                path, value = kind.place("rails", "speed_gbps"), (chip.name, speed)
                findings.add("model.kind_speed", path, problem, remedy, value)
