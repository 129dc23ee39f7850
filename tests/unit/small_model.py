# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A small cluster model for tests, what becomes of one, and what its directory says."""

from __future__ import annotations

from pathlib import Path

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

    A key that is there already is written anew, `leaves.ports` alone leaves it out, and a section
    that is not there comes last: every section keeps its line.
    """
    lines = dict(line.split(": ", 1) for line in text.splitlines())
    for edit in edits.split("; "):
        place, _colon, value = edit.partition(": ")
        section, _dot, key = place.partition(".")
        if not key:
            lines[section] = value
            continue
        keys = dict(entry.split(": ", 1) for entry in lines[section][1:-1].split(", ") if entry)
        keys[key] = value
        written = ", ".join(f"{name}: {each}" for name, each in keys.items() if each)
        lines[section] = f"{{{written}}}"
    return "".join(f"{section}: {value}\n" for section, value in lines.items() if value)


def doubts(text: str) -> list[str]:
    """What the model is warned of, in short; it compiles."""
    return brief(compile_model(read("cluster.yml", text)).doubts)


def refused(text: str) -> list[str]:
    """What is found in the model, in short."""
    with pytest.raises(ModelError) as caught:
        compiled(text)
    return brief(caught.value.findings)
