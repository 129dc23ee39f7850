# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which role verifies the layer that recorded a reason to reboot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

import yaml

VERIFY_PLAYBOOK = Path(__file__).resolve().parents[3] / "playbooks/verify.yml"
IMPORT = "ansible.builtin.import_role"


def verified_by() -> dict[str, str]:
    """Layer -> role, as in playbooks/verify.yml."""
    plays = yaml.safe_load(VERIFY_PLAYBOOK.read_text(encoding="utf-8"))
    return verifiers(play for play in plays if isinstance(play, Mapping))


def verifiers(plays: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Layer -> role, from plays in check mode that have one tag and import one role."""
    roles: dict[str, str] = {}
    for play in plays:
        imported = imported_roles(play)
        tags = play.get("tags") or []
        if play.get("check_mode") is True and len(imported) == 1 and len(tags) == 1:
            roles[str(tags[0])] = imported[0]
    return roles


def imported_roles(play: Mapping[str, Any]) -> list[str]:
    tasks = [item for task in play.get("tasks") or [] for item in task.get("block") or [task]]
    return [str(task[IMPORT]["name"]) for task in tasks if IMPORT in task]


def layer_of(record: str, layers: Iterable[str]) -> Optional[str]:
    """The layer that wrote a record (`os`, `rails-firmware`); None if it is unknown."""
    known = set(layers)
    return next((name for name in (record, record.partition("-")[0]) if name in known), None)
