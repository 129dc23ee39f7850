# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small cluster model for tests, and what it compiles to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Inventory,
    ModelError,
    compile_model,
    inventory_of,
    read,
)

from tests.unit.findings import brief

ROOT = Path(__file__).resolve().parents[2]
MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 2, ports: 64, management_first: 10.0.0.101}
launcher: {name: launcher01, management: 10.0.0.10}
"""


def compiled(text: str) -> Inventory:
    return inventory_of(compile_model(read("cluster.yml", text)))


def edited(edits: str, text: str = MODEL) -> str:
    """The model with other values: `rails.mtu: 576; leaves.ports; vars: {all: {x: 1}}`.

    A key without a value is removed. New sections are appended, so that lines do not change.
    """
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    for edit in edits.split("; "):
        path, _colon, value = edit.partition(": ")
        section, _dot, key = path.partition(".")
        if not key:
            lines[section] = value
            continue
        keys = dict(entry.split(": ", 1) for entry in lines[section][1:-1].split(", ") if entry)
        keys[key] = value
        written = ", ".join(f"{name}: {text}" for name, text in keys.items() if text)
        lines[section] = f"{{{written}}}"
    return "".join(f"{section}: {value}\n" for section, value in lines.items() if value)


def doubts(text: str) -> list[str]:
    """Warnings about a valid model, in brief."""
    return brief(compile_model(read("cluster.yml", text)).doubts)


def refused(text: str) -> list[str]:
    """Errors of the model, in brief."""
    with pytest.raises(ModelError) as caught:
        compiled(text)
    return brief(caught.value.findings)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in a structure."""
    inner = dict(enumerate(data)) if isinstance(data, list) else data
    keys = inner if isinstance(inner, dict) else ()
    return [path, *(one for key in keys for one in places(inner[key], (*path, key)))]
