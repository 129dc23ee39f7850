# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fingerprints of the files that layers wrote, by which a later program without Ansible finds what
was edited since.

Each layer replaces its own entries with every run, so they are as old as the files. Of a file with
lines of others, only the managed blocks count; secret files have no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

from .files import HEADER, FilePlan, plan_file

DIRECTORY = Path("var/lib/baremetal-mpi-roce/written.d")
"""One file per layer, relative to the root directory of the node."""
OURS = "baremetal-mpi-roce"
MOST_FILES = 5000
LARGEST = 16 << 20
"""Size limit of a file that is compared, in bytes."""
_BLOCK = re.compile(r"^# BEGIN (baremetal\.mpi_roce .*)\n(?:.*\n)*?# END \1(?:\n|\Z)", re.MULTILINE)


def record(plans: Iterable[FilePlan], layer: str, root: Path, uid: int, gid: int) -> FilePlan:
    """Plan the record of a layer, in which these files replace their former entries."""
    path = root / DIRECTORY / f"{layer}.json"
    entries = _entries(path)
    for plan in plans:
        name = f"/{plan.path.relative_to(root)}"
        entries.pop(name, None)
        sum_of = None if plan.after is None or plan.secret else fingerprint(plan.after, name)
        if sum_of is not None:
            entries[name] = [sum_of, f"{plan.mode:04o}"]
    text = json.dumps(entries, indent=1, sort_keys=True) + "\n" if entries else None
    return plan_file(path, text, uid=uid, gid=gid)


def names(layer: str, root: Path) -> list[str]:
    """The absolute paths of the files that a layer wrote and has not removed since."""
    return list(_entries(root / DIRECTORY / f"{layer}.json"))[:MOST_FILES]


def fingerprint(text: str, name: str) -> Optional[str]:
    """Return the digest of a managed file, or of the managed blocks in it; None without any.
    Files with the collection's name in their path are managed, also without a header."""
    if HEADER not in text[:1000] and OURS not in name:
        blocks = [match.group().rstrip("\n") for match in _BLOCK.finditer(text)]
        if not blocks:
            return None
        text = "\n".join(blocks)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def edited(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield layer, path and difference of each recorded file that is not as written."""
    for path in sorted((root / DIRECTORY).glob("*.json")):
        for name, (digest, mode) in list(_entries(path).items())[:MOST_FILES]:
            found = _difference(root / name.lstrip("/"), name, digest, mode)
            if found:
                yield path.stem, name, found


def _difference(path: Path, name: str, digest: str, mode: str) -> str:
    try:
        status = path.stat()
        if status.st_size > LARGEST:
            return f"{status.st_size} bytes, which no layer wrote"
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            now = fingerprint(stream.read(), name)
    except OSError as error:
        return "missing" if isinstance(error, FileNotFoundError) else str(error)
    if now != digest:
        return "edited"
    found = f"{status.st_mode & 0o7777:04o}"
    return "" if found == mode else f"mode {found}, written with {mode}"


def _entries(path: Path) -> dict[str, Any]:
    """The readable entries of a record; one that another program wrote has none."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(name): [str(digest), str(mode)]
            for name, (digest, mode) in given.items()
            if ".." not in Path(name).parts
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
