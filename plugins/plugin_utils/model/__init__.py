# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster model: one file that describes a cluster, checked and compiled for everybody.

`load` reads a file; `compile_model` checks and compiles it; `inventory_of` gives hosts, groups and
variables. Needs netaddr and PyYAML, on the controller alone: nothing here runs on a node.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..schema.findings import Finding
from .addresses import NETADDR_MISSING
from .cluster import Cluster
from .compiler import compile_model
from .digest import seal
from .schema import PLUGIN
from .source import YAML_MISSING, ModelError, Source, read
from .variables import Inventory, inventory_of

__all__ = [
    "MISSING",
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

MISSING = NETADDR_MISSING or YAML_MISSING
"""Why the model cannot be read on this controller, if it cannot."""


def is_model(path: Path) -> bool:
    """Whether the file says that it is a cluster model. Raises OSError when it cannot be read.

    One that says nothing at all is taken by its name: somebody has to tell that it is empty.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.stem == "cluster" and not re.sub(r"#.*|^---|\s", "", text, flags=re.M):
        return True
    return re.search(rf"^plugin:\s*['\"]?{re.escape(PLUGIN)}\b", text, re.M) is not None


def load(path: str) -> Cluster:
    """Read and compile the model at `path`. Raises ModelError, also when it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ModelError(
            path,
            [Finding("model.cannot_be_read", (), problem, "Check the path and its permissions")],
        ) from error
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: {error.reason} at byte {error.start}"
        raise ModelError(
            path, [Finding("model.not_utf8", (), problem, "Save it as UTF-8")]
        ) from error
    return compile_model(read(path, text))
