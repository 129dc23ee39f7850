# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster model: one file that describes a cluster, checked and compiled on the controller.

`load` reads a file; `compile_model` checks and compiles it; `inventory_of` gives hosts, groups and
variables.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..schema.findings import Finding
from .cluster import Cluster, Inventory, inventory_of
from .compiler import compile_model
from .digest import seal
from .schema import PLUGIN
from .source import ModelError, Source, read

__all__ = [
    "PLUGIN",
    "Cluster",
    "Finding",
    "Inventory",
    "ModelError",
    "Source",
    "compile_model",
    "inventory_of",
    "is_model",
    "load",
    "read",
    "seal",
]


def is_model(path: Path) -> bool:
    """Whether the file is a cluster model. Raises OSError when it cannot be read.

    An empty `cluster.yml` is one, so that an error reports it.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.stem == "cluster" and not re.sub(r"#.*|^---|\s", "", text, flags=re.M):
        return True
    return re.search(rf"^plugin:\s*['\"]?{re.escape(PLUGIN)}\b", text, re.M) is not None


def load(path: str) -> Cluster:
    """Read and compile the model at `path`. Raises ModelError, also when it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Check the path and its permissions, and save it as UTF-8"
        finding = Finding("model.cannot_be_read", (), f"cannot be read: {error}", remedy)
        raise ModelError(path, [finding]) from error
    return compile_model(read(path, text))
