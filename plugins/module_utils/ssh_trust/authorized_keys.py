# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The block of the cluster's keys in the MPI user's authorized_keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..dataclass import dataclass
from ..files import plan_file, replace_block
from .account import Account
from .as_user import as_user

BLOCK = "ssh"
MODE = 0o600


@dataclass(frozen=True)
class Answer:
    """Whether the file was, or is to be, changed; and the difference."""

    changed: bool
    diff: dict[str, str]


def path_of(account: Account, setting: str) -> Path:
    """The first file of sshd's AuthorizedKeysFile, for this user."""
    first = (setting.split() or [".ssh/authorized_keys"])[0]
    named = first.replace("%%", "\0").replace("%h", str(account.home)).replace("%u", account.name)
    return account.home / named.replace("\0", "%")


def ensure(account: Account, path: Path, lines: Sequence[str], *, write: bool) -> Answer:
    """Have the block hold exactly these lines, with the user's own rights.

    Without lines the block goes and nothing else is looked at: mode and owner are the user's.
    """

    def work() -> dict[str, Any]:
        there = plan_file(path, None)
        if not lines and there.before is None:
            return {"changed": False, "diff": {}}
        text = replace_block(there.before or "", lines, BLOCK)
        mode = MODE if lines or there.mode_before is None else there.mode_before
        plan = plan_file(path, text, mode=mode, uid=account.uid, gid=account.gid)
        changed = plan.changed if lines else text != there.before
        if changed and write:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            plan.apply()
        return {"changed": changed, "diff": plan.diff() if changed else {}}

    found = as_user(account, work)
    return Answer(bool(found["changed"]), found["diff"])
