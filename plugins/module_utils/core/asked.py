# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each layer was last asked to make of this node, so that a later run can ask whether it still
holds without sending the layer's module again (look/program.py).

A module forgets the record before it changes anything, and writes it when everything was read back.
The key stands for all variables from which the options came: the controller computes it, and one
that differs makes the record worthless. Secrets are not recorded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Optional

from . import written
from .files import plan_file

KEY = "BAREMETAL_MPI_ROCE_ASKED"
"""Set in the environment of modules by the playbooks of layers, after a look."""
DIRECTORY = Path("var/lib/baremetal-mpi-roce/asked.d")
"""One file per layer, relative to the root directory of the node."""
IDENTITY = ("etc/os-release", "etc/machine-id")
"""Another system under the same name has no records."""
LARGEST = 64 << 20
"""Size limit of a record, in bytes; the table of names of 10,000 hosts has 5 MB."""


def forget(layer: str, root: Path = Path("/")) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (root / DIRECTORY / f"{layer}.json").unlink()


def remember(
    layer: str,
    key: str,
    params: Mapping[str, Any],
    specification: Mapping[str, Any],
    root: Path = Path("/"),
    public: Collection[str] = (),
    of_run: Collection[str] = (),
) -> None:
    """Record the options of a layer's module. `public` are those with `no_log` that are not secret,
    `of_run` those of which only counts that they were given. Raises OSError."""
    secret = {name for name, option in specification.items() if option.get("no_log")} - {*public}
    kept = {name: value for name, value in params.items() if name not in secret}
    kept.update((name, bool(kept[name])) for name in of_run)
    text = json.dumps({"key": key, "system": _system(layer, root), "params": kept})
    plan_file(root / DIRECTORY / f"{layer}.json", text, mode=0o600).apply()


def recall(layer: str, key: str, root: Path = Path("/")) -> Optional[dict[str, Any]]:
    """The options, if they were recorded on this system with this key."""
    path = root / DIRECTORY / f"{layer}.json"
    try:
        if path.stat().st_size > LARGEST:
            return None
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["key"] != key or record["system"] != _system(layer, root):
            return None
        return dict(record["params"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _system(layer: str, root: Path) -> str:
    """What a record belongs to. The record of written files is part of it, since only a module that
    runs outside check mode writes that."""
    found = hashlib.sha256()
    for name in (*IDENTITY, written.DIRECTORY / f"{layer}.json"):
        with contextlib.suppress(FileNotFoundError):
            found.update((root / name).read_bytes())
    return found.hexdigest()
