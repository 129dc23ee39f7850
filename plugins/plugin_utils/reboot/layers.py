# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which role verifies the layer that recorded a reason. playbooks/verify.yml says so, alone.

A record is named after its layer, or after the layer and what of it: `os`, `rails-firmware`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

IMPORT = "ansible.builtin.import_role"


def roles(plays: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Layer -> role, of the plays that run one role in check mode."""
    found: dict[str, str] = {}
    for play in plays:
        named = imported(play)
        tags = play.get("tags") or []
        if play.get("check_mode") is True and len(named) == 1 and len(tags) == 1:
            found[str(tags[0])] = named[0]
    return found


def layer_of(record: str, known: Iterable[str]) -> Optional[str]:
    """The layer that wrote a record, or None when nobody here verifies it."""
    layers = set(known)
    if record in layers:
        return record
    first = record.partition("-")[0]
    return first if first in layers else None


def imported(play: Mapping[str, Any]) -> list[str]:
    """The roles that a play runs, as the playbooks of the collection write it."""
    tasks = play.get("tasks") or []
    return [str(task[IMPORT]["name"]) for task in tasks if IMPORT in task]
