# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command `config`: the part of it that changes QoS, safely or not."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from . import checkpoints, factory, updater
from .switch import Sonic, as_text, here

SAVE = "Running command: /usr/local/bin/sonic-cfggen -d --print-data > {}"


class UsageError(Exception):
    """What click says of wrong words."""


def main(words: Sequence[str], switch: Optional[Sonic] = None) -> int:
    command = words[0] if words else ""
    try:
        if command in ("", "-h", "-?", "--help"):
            sys.stdout.write(
                "Usage: config [OPTIONS] COMMAND [ARGS]...\n\n"
                "  SONiC command line - 'config' command (simulation)\n\n"
                f"Commands:\n{''.join(f'  {name}{chr(10)}' for name in COMMANDS)}"
            )
            return 0
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


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _parsed(
    words: Sequence[str], flags: dict[str, str], valued: dict[str, str], argument: str
) -> tuple[set[str], dict[str, str], str]:
    """Flags that were given, options with their values, and the one argument."""
    given: set[str] = set()
    options: dict[str, str] = {}
    arguments: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in flags:
            given.add(flags[word])
        elif name in valued:
            if not equals and not rest:
                raise UsageError(f"{name} option requires an argument")
            options[valued[name]] = value if equals else rest.pop(0)
        elif word.startswith("-"):
            raise UsageError(f"no such option: {word}")
        else:
            arguments.append(word)
    if argument and not arguments:
        raise UsageError(f'Missing argument "{argument}".')
    if len(arguments) > 1:
        raise UsageError(f"Got unexpected extra argument ({' '.join(arguments[1:])})")
    return given, options, arguments[0] if arguments else ""


COMMON = {"-v": "verbose", "--verbose": "verbose"}
DRY_RUN = {
    **COMMON,
    "-d": "dry-run",
    "--dry-run": "dry-run",
    "-n": "ignore",
    "--ignore-non-yang-tables": "ignore",
    "-p": "parallel",
    "--parallel": "parallel",
}
FORMAT = {"-f": "format", "--format": "format", "-i": "path", "--ignore-path": "path"}


def _dry(given: set[str]) -> bool:
    if "dry-run" in given:
        _say("** DRY RUN EXECUTION **")
    return "dry-run" in given


def apply_patch(switch: Sonic, words: list[str]) -> int:
    given, options, name = _parsed(words, DRY_RUN, FORMAT, "PATCH_FILE_PATH")
    if options.get("format", "CONFIGDB") != "CONFIGDB":
        raise UsageError("this simulation knows patches of the format CONFIGDB only")
    dry_run = _dry(given)
    try:
        patch = json.loads(Path(name).read_text(encoding="utf-8"))
        updater.apply_patch(switch, patch, _say, dry_run=dry_run)
    except Exception as error:
        if not dry_run:
            switch.log("refused", command="apply-patch", why=_word(error))
        sys.stderr.write(f"Failed to apply patch due to: {error}\n")
        return _usage("apply-patch", str(error))
    _say("Patch applied successfully.")
    return 0


def replace(switch: Sonic, words: list[str]) -> int:
    given, _options, name = _parsed(words, DRY_RUN, FORMAT, "TARGET_FILE_PATH")
    dry_run = _dry(given)
    try:
        target = json.loads(Path(name).read_text(encoding="utf-8"))
        updater.replace(switch, target, _say, dry_run=dry_run)
    except Exception as error:
        sys.stderr.write("Failed to replace config\n")
        return _usage("replace", str(error))
    _say("Config replaced successfully.")
    return 0


def rollback(switch: Sonic, words: list[str]) -> int:
    given, _options, name = _parsed(words, DRY_RUN, FORMAT, "CHECKPOINT_NAME")
    dry_run = _dry(given)
    try:
        checkpoints.rollback(switch, name, _say, dry_run=dry_run)
    except Exception as error:
        switch.log("refused", command="rollback", why=_word(error))
        sys.stderr.write("Failed to rollback config\n")
        return _usage("rollback", str(error))
    if not dry_run:
        switch.log("rollback", name=name)
        switch.pending = False
        switch.management.restore()
    _say("Config rolled back successfully.")
    return 0


def checkpoint(switch: Sonic, words: list[str]) -> int:
    _given, _options, name = _parsed(words, COMMON, {}, "CHECKPOINT_NAME")
    try:
        checkpoints.make(switch, name)
    except Exception as error:
        sys.stderr.write("Failed to create a config checkpoint\n")
        return _usage("checkpoint", str(error))
    _say("Checkpoint created successfully.")
    return 0


def delete_checkpoint(switch: Sonic, words: list[str]) -> int:
    _given, _options, name = _parsed(words, COMMON, {}, "CHECKPOINT_NAME")
    try:
        checkpoints.delete(switch, name)
    except Exception as error:
        sys.stderr.write("Failed to delete config checkpoint\n")
        return _usage("delete-checkpoint", str(error))
    _say("Checkpoint deleted successfully.")
    return 0


def list_checkpoints(switch: Sonic, words: list[str]) -> int:
    _parsed(words, {**COMMON, "-t": "time", "--time": "time"}, {}, "")
    _say(json.dumps(checkpoints.names(switch), indent=4))
    return 0


def save(switch: Sonic, words: list[str]) -> int:
    given, _options, name = _parsed(words, {"-y": "yes", "--yes": "yes"}, {}, "")
    if "yes" not in given:
        sys.stdout.write("Existing files will be overwritten, continue? [y/N]: ")
        sys.stdout.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            sys.stderr.write("Aborted!\n")
            return 1
    path = Path(name) if name else switch.saved
    _say(SAVE.format(path))
    if switch.faults.take_if("confirm", "lost"):
        switch.log("fault", confirm="lost", seconds=switch.faults.cut_s)
        switch.management.cut(switch.faults.cut_s)
        return 1
    if switch.faults.take_if("confirm", "disk_full"):
        switch.log("fault", confirm="disk_full")
        path.write_text("")  # the shell has opened it, and then there is no room
        sys.stderr.write(f"{checkpoints.full(str(path))}\n")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(switch.config()), encoding="utf-8")
    switch.pending = False
    switch.log("save", file=path)
    return 0


def reload(switch: Sonic, words: list[str]) -> int:
    known = {
        "-y": "yes",
        "--yes": "yes",
        "-f": "force",
        "--force": "force",
        "-n": "no",
        "-l": "load",
    }
    _given, _options, name = _parsed(words, known, {}, "")
    path = Path(name) if name else switch.saved
    saved = json.loads(path.read_text(encoding="utf-8"))
    old = switch.config()
    switch.log("reload", file=path)
    _all_down(switch, old)
    switch.write(switch.config(), saved)
    return 0


def qos(switch: Sonic, words: list[str]) -> int:
    if not words or words[0] not in ("reload", "clear"):
        raise UsageError("qos knows reload and clear")
    old = switch.config()
    new = {table: rows for table, rows in old.items() if table not in factory.QOS_TABLES}
    if words[0] == "reload":
        vendor = factory.config(switch.hardware)
        new |= {table: vendor[table] for table in factory.QOS_TABLES if table in vendor}
    switch.log("qos", command=words[0])
    _all_down(switch, old)
    switch.write(switch.config(), new)
    return 0


def _all_down(switch: Sonic, config: dict[str, dict[str, dict[str, str]]]) -> None:
    down = copy.deepcopy(config)
    for row in down.get("PORT", {}).values():
        row["admin_status"] = "down"
    switch.write(config, down)


def _word(error: Exception) -> str:
    return "_".join(str(error).split())[:200]


COMMANDS: dict[str, Callable[[Sonic, list[str]], int]] = {
    "apply-patch": apply_patch,
    "checkpoint": checkpoint,
    "delete-checkpoint": delete_checkpoint,
    "list-checkpoints": list_checkpoints,
    "qos": qos,
    "reload": reload,
    "replace": replace,
    "rollback": rollback,
    "save": save,
}
