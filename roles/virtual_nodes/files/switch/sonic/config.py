# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command `config`: patches, checkpoints and saving, as sonic-utilities words them."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from common import state as files

from . import updater
from .switch import Sonic, as_text, here

SAVE = "Running command: /usr/local/bin/sonic-cfggen -d --print-data > {}"
EXTENSION = ".cp.json"


class UsageError(Exception):
    """What click says of wrong words."""


def main(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    command = words[0] if words else ""
    try:
        if command not in COMMANDS:
            raise UsageError(f'No such command "{command}".')
        return COMMANDS[command](switch or here(), list(words[1:]))
    except UsageError as error:
        return _usage(command, str(error))


def _usage(command: str, message: str) -> int:
    sys.stderr.write(
        f'Usage: config {command} [OPTIONS]\nTry "config {command} -h" for help.\n\n'
        f"Error: {message}\n"
    )
    return 2


def _failed(command: str, what: str, error: Exception) -> int:
    sys.stderr.write(f"{what}\n")
    return _usage(command, str(error))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _parsed(words: Sequence[str], flags: Sequence[str], argument: str) -> tuple[bool, str]:
    """Whether one of the flags was given, and the one argument."""
    options = [word for word in words if word.startswith("-")]
    unknown = next((word for word in options if word not in flags), None)
    if unknown:
        raise UsageError(f"no such option: {unknown}")
    arguments = [word for word in words if not word.startswith("-")]
    if argument and not arguments:
        raise UsageError(f'Missing argument "{argument}".')
    if len(arguments) > 1:
        raise UsageError(f"Got unexpected extra argument ({' '.join(arguments[1:])})")
    return bool(options), arguments[0] if arguments else ""


DRY_RUN = ("-d", "--dry-run")


def _dry(words: Sequence[str], argument: str) -> tuple[bool, str]:
    dry_run, name = _parsed(words, DRY_RUN, argument)
    if dry_run:
        _say("** DRY RUN EXECUTION **")
    return dry_run, name


def apply_patch(switch: Sonic, words: list[str]) -> int:
    dry_run, name = _dry(words, "PATCH_FILE_PATH")
    try:
        patch = json.loads(Path(name).read_text(encoding="utf-8"))
        updater.apply_patch(switch, patch, _say, dry_run=dry_run)
    except Exception as error:
        if not dry_run:
            switch.log("refused", command="apply-patch", why=_word(error))
        return _failed("apply-patch", f"Failed to apply patch due to: {error}", error)
    _say("Patch applied successfully.")
    return 0


def rollback(switch: Sonic, words: list[str]) -> int:
    dry_run, name = _dry(words, "CHECKPOINT_NAME")
    try:
        _say("Config Rollbacker: Config rollbacking starting.")
        target = json.loads(_existing(switch, name).read_text(encoding="utf-8"))
        updater.replace(switch, target, _say, dry_run=dry_run)
        _say("Config Rollbacker: Config rollbacking completed.")
    except Exception as error:
        switch.log("refused", command="rollback", why=_word(error))
        return _failed("rollback", "Failed to rollback config", error)
    if not dry_run:
        switch.log("rollback", name=name)
        switch.pending = False
        switch.management.restore()
    _say("Config rolled back successfully.")
    return 0


def _existing(switch: Sonic, name: str) -> Path:
    path = switch.checkpoints / f"{name}{EXTENSION}"
    if not path.exists():
        raise ValueError(f"Checkpoint '{name}' does not exist")
    return path


def checkpoint(switch: Sonic, words: list[str]) -> int:
    name = _parsed(words, (), "CHECKPOINT_NAME")[1]
    path = switch.checkpoints / f"{name}{EXTENSION}"
    if switch.faults.take_if("apply", "disk_full"):
        switch.log("fault", apply="disk_full", at="checkpoint")
        return _failed("checkpoint", "Failed to create a config checkpoint", _full(path))
    files.write(path, as_text(switch.config()))
    switch.log("checkpoint", name=name)
    _say("Checkpoint created successfully.")
    return 0


def delete_checkpoint(switch: Sonic, words: list[str]) -> int:
    name = _parsed(words, (), "CHECKPOINT_NAME")[1]
    try:
        _existing(switch, name).unlink()
    except ValueError as error:
        return _failed("delete-checkpoint", "Failed to delete config checkpoint", error)
    switch.log("delete-checkpoint", name=name)
    _say("Checkpoint deleted successfully.")
    return 0


def list_checkpoints(switch: Sonic, words: list[str]) -> int:
    _parsed(words, (), "")
    found = sorted(switch.checkpoints.glob(f"*{EXTENSION}"))
    _say(json.dumps([path.name[: -len(EXTENSION)] for path in found], indent=4))
    return 0


def save(switch: Sonic, words: list[str]) -> int:
    if not _parsed(words, ("-y", "--yes"), "")[0]:
        raise UsageError("this simulation does not ask: -y")
    path = switch.saved
    _say(SAVE.format(path))
    if switch.faults.take_if("confirm", "lost"):
        switch.log("fault", confirm="lost", seconds=switch.faults.cut_s)
        switch.management.cut(switch.faults.cut_s)
        return 1
    if switch.faults.take_if("confirm", "disk_full"):
        switch.log("fault", confirm="disk_full")
        path.write_text("")  # the shell has opened it, and then there is no room
        sys.stderr.write(f"{_full(path)}\n")
        return 1
    path.write_text(as_text(switch.config()), encoding="utf-8")
    switch.pending = False
    switch.log("save", file=path)
    return 0


def _full(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _word(error: Exception) -> str:
    return "_".join(str(error).split())[:200]


COMMANDS: dict[str, Callable[[Sonic, list[str]], int]] = {
    "apply-patch": apply_patch,
    "checkpoint": checkpoint,
    "delete-checkpoint": delete_checkpoint,
    "list-checkpoints": list_checkpoints,
    "rollback": rollback,
    "save": save,
}
