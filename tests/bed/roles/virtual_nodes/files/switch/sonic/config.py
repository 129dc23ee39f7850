# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command `config`: patches, checkpoints and saving, with the messages of sonic-utilities."""

from __future__ import annotations

import argparse
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

EXTENSION = ".cp.json"


class Failed(Exception):
    """Exit with status 2, and print the error and its cause as click does."""


def main(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    parser = argparse.ArgumentParser("config")
    commands = parser.add_subparsers(required=True, dest="command")
    for name in COMMANDS:
        command = commands.add_parser(name)
        if name == "apply-patch":
            command.add_argument("-d", "--dry-run", action="store_true")
        if name in ("apply-patch", "rollback"):
            command.add_argument("-i", "--ignore-path", action="append", default=[])
        if name == "save":
            command.add_argument("-y", "--yes", action="store_true", required=True)
        elif name != "list-checkpoints":
            command.add_argument("name")
    wanted = parser.parse_args(list(words))
    try:
        return COMMANDS[wanted.command](switch or here(), wanted)
    except Failed as failed:
        sys.stderr.write(
            f"{failed}\nUsage: config {wanted.command} [OPTIONS]\n"
            f'Try "config {wanted.command} -h" for help.\n\nError: {failed.__cause__}\n'
        )
        return 2


def _say(line: str) -> int:
    sys.stdout.write(f"{line}\n")
    return 0


def apply_patch(switch: Sonic, wanted: argparse.Namespace) -> int:
    try:
        patch = json.loads(Path(wanted.name).read_text(encoding="utf-8"))
        changes = updater.apply_patch(
            switch, patch, dry_run=wanted.dry_run, ignored=_tables(wanted)
        )
    except Exception as error:
        if not wanted.dry_run:
            switch.log("refused", command="apply-patch", why=_word(error))
        raise Failed(f"Failed to apply patch due to: {error}") from error
    _say(f"Patch Applier: The localhost patch was converted into {changes} changes:")
    return _say("Patch applied successfully.")


def _tables(wanted: argparse.Namespace) -> list[str]:
    """This simulation ignores whole tables only."""
    return [path.removeprefix("/") for path in wanted.ignore_path]


def rollback(switch: Sonic, wanted: argparse.Namespace) -> int:
    try:
        target = json.loads(_existing(switch, wanted.name).read_text(encoding="utf-8"))
        updater.replace(switch, target, _tables(wanted))
    except Exception as error:
        switch.log("refused", command="rollback", why=_word(error))
        raise Failed("Failed to rollback config") from error
    switch.log("rollback", name=wanted.name)
    switch.pending = False
    switch.management.restore()
    return _say("Config rolled back successfully.")


def _existing(switch: Sonic, name: str) -> Path:
    path = switch.checkpoints / f"{name}{EXTENSION}"
    if not path.exists():
        raise ValueError(f"Checkpoint '{name}' does not exist")
    return path


def checkpoint(switch: Sonic, wanted: argparse.Namespace) -> int:
    path = switch.checkpoints / f"{wanted.name}{EXTENSION}"
    if switch.faults.take_if("apply", "disk_full"):
        switch.log("fault", apply="disk_full", at="checkpoint")
        files.write(path, "")  # upstream leaves it as well
        raise Failed("Failed to create a config checkpoint") from _full(path)
    files.write(path, as_text(switch.config()))
    switch.log("checkpoint", name=wanted.name)
    return _say("Checkpoint created successfully.")


def delete_checkpoint(switch: Sonic, wanted: argparse.Namespace) -> int:
    try:
        _existing(switch, wanted.name).unlink()
    except ValueError as error:
        raise Failed("Failed to delete config checkpoint") from error
    switch.log("delete-checkpoint", name=wanted.name)
    return _say("Checkpoint deleted successfully.")


def list_checkpoints(switch: Sonic, _wanted: argparse.Namespace) -> int:
    found = sorted(switch.checkpoints.glob(f"*{EXTENSION}"))
    return _say(json.dumps([path.name[: -len(EXTENSION)] for path in found], indent=4))


def save(switch: Sonic, _wanted: argparse.Namespace) -> int:
    path = switch.saved
    _say(f"Running command: /usr/local/bin/sonic-cfggen -d --print-data > {path}")
    if switch.faults.take_if("confirm", "lost"):
        switch.log("fault", confirm="lost", seconds=switch.faults.cut_s)
        switch.management.cut(switch.faults.cut_s)
        return 1
    if switch.faults.take_if("confirm", "disk_full"):
        switch.log("fault", confirm="disk_full")
        path.write_text("")  # the shell creates the file, and then the disk is full
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


COMMANDS: dict[str, Callable[[Sonic, argparse.Namespace], int]] = {
    "apply-patch": apply_patch,
    "checkpoint": checkpoint,
    "delete-checkpoint": delete_checkpoint,
    "list-checkpoints": list_checkpoints,
    "rollback": rollback,
    "save": save,
}
