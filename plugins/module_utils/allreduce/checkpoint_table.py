# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each node wrote to shared storage and read from another one, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.table import size_text
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use.figures import Figure
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use.table import (
    figure_lines,
)


def lines(figures: Mapping[str, Any]) -> list[str]:
    """None where nothing was measured."""
    found = figures.get("checkpoint")
    if not found:
        return []
    rows = figure_lines(
        Figure(**found["write"]),
        Figure(**found["read"]) if found["read"] else None,
        Expectation(**found["expect"]),
    )
    note = "all nodes at once; each reads the file of the node after it"
    if figures["virtual"]:
        note += "; nominal: these nodes are virtual, only correctness counts"
    if found["left_out"]:
        note += f"; {found['left_out'][0]} serves it and is not in the figures"
    head = f"checkpoint of {size_text(found['bytes'])} a node on {found['directory']}"
    return [head, *(f"  {line}" for line in rows), f"  {note}"]
