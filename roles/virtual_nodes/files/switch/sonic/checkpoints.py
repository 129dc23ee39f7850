# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checkpoints: whole configurations in files, to go back to."""

from __future__ import annotations

import errno
import json
import os

from common import store as files

from . import updater
from .switch import Sonic, as_text
from .updater import Say

EXTENSION = ".cp.json"


def names(switch: Sonic) -> list[str]:
    found = sorted(switch.checkpoints.glob(f"*{EXTENSION}"))
    return [path.name[: -len(EXTENSION)] for path in found]


def make(switch: Sonic, name: str) -> None:
    path = switch.checkpoints / f"{name}{EXTENSION}"
    if switch.faults.take_if("apply", "disk_full"):
        switch.log("fault", apply="disk_full", at="checkpoint")
        raise full(str(path))
    files.write(path, as_text(switch.config()))
    switch.log("checkpoint", name=name)


def delete(switch: Sonic, name: str) -> None:
    _existing(switch, name)
    (switch.checkpoints / f"{name}{EXTENSION}").unlink()
    switch.log("delete-checkpoint", name=name)


def rollback(switch: Sonic, name: str, say: Say, *, dry_run: bool) -> None:
    say("Config Rollbacker: Config rollbacking starting.")
    _existing(switch, name)
    target = json.loads((switch.checkpoints / f"{name}{EXTENSION}").read_text(encoding="utf-8"))
    updater.replace(switch, target, say, dry_run=dry_run)
    say("Config Rollbacker: Config rollbacking completed.")


def full(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _existing(switch: Sonic, name: str) -> None:
    if name not in names(switch):
        raise ValueError(f"Checkpoint '{name}' does not exist")
