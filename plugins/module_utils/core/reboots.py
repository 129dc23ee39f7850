# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Recorded reasons for a reboot, one file per layer.

No role reboots. A layer that configured a value which takes effect at the next boot records it,
with the boot in which it first asked, until it finds the value running. A reason that outlives a
reboot is a fault: another reboot would not help.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Optional

from .files import FilePlan, plan_file

DIRECTORY = Path("var/lib/baremetal-mpi-roce/reboot-required.d")
"""Relative to the root directory of the node."""


@dataclass(frozen=True)
class Reason:
    """One value that waits for a reboot. `boot_id` is the boot that first asked for it."""

    subject: str
    wanted: str
    running: str
    reason: str
    boot_id: str = ""

    def same_wish(self, other: Reason) -> bool:
        return (self.subject, self.wanted) == (other.subject, other.wanted)


class RecordError(Exception):
    """A record cannot be parsed; the text names the file."""


def path_of(layer: str, root: Path = Path("/")) -> Path:
    return root / DIRECTORY / f"{layer}.json"


def recorded(layer: str, root: Path = Path("/")) -> list[Reason]:
    """Return the reasons that `layer` has recorded on this node. Raises RecordError and OSError."""
    path = path_of(layer, root)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return [Reason(**entry) for entry in data["reasons"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: not a record of reasons to reboot ({error}); remove it"
        ) from error


def required(root: Path = Path("/")) -> dict[str, list[Reason]]:
    """Return the reasons by layer; empty if nothing waits for a reboot."""
    directory = root / DIRECTORY
    if not directory.is_dir():
        return {}
    found = {path.stem: recorded(path.stem, root) for path in sorted(directory.glob("*.json"))}
    return {layer: reasons for layer, reasons in found.items() if reasons}


def merge(new: Sequence[Reason], old: Sequence[Reason], boot_id: str) -> list[Reason]:
    merged = []
    for reason in new:
        first = next((known.boot_id for known in old if known.same_wish(reason)), boot_id)
        merged.append(replace(reason, boot_id=first))
    return merged


def outlived(reason: Reason, old: Sequence[Reason], boot_id: str) -> Optional[str]:
    """Return the earlier boot that asked for the same value, or None: that reboot did not help."""
    for known in old:
        if known.same_wish(reason) and known.boot_id != boot_id:
            return known.boot_id
    return None


def plan(
    layer: str,
    reasons: Sequence[Reason],
    boot_id: str,
    *,
    root: Path = Path("/"),
    uid: int = 0,
    gid: int = 0,
) -> FilePlan:
    """Plan the record of `layer` with exactly `reasons`; it is removed if there are none."""
    merged = merge(reasons, recorded(layer, root), boot_id)
    text: Optional[str] = None
    if merged:
        content: dict[str, Any] = {"layer": layer, "reasons": [asdict(reason) for reason in merged]}
        text = json.dumps(content, indent=2) + "\n"
    return plan_file(path_of(layer, root), text, uid=uid, gid=gid)
