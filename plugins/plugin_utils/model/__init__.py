# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster model: one file that describes a cluster, checked and compiled on the controller."""

from __future__ import annotations

from ..schema.findings import Finding
from .cluster import Cluster, Inventory, inventory_of
from .compiler import compile_model, load
from .digest import seal
from .schema import PLUGIN
from .source import ModelError, is_model, read

__all__ = [
    "PLUGIN",
    "Cluster",
    "Finding",
    "Inventory",
    "ModelError",
    "compile_model",
    "inventory_of",
    "is_model",
    "load",
    "read",
    "seal",
]
