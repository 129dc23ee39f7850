# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program `rails`: `--apply` restores, at boot, settings that a reboot clears; `--check` shows
the state.

Exit status: 0 if all settings are in effect (or wait for a recorded reset), 1 if one is not, 2 if
the state could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core import locks
from ..core.checks import FAILED, PENDING, Check
from ..core.commands import Runner, find_program, run
from ..core.engine import act
from ..core.files import HEADER, write_atomically
from ..core.part import Node, Plan, PlanError
from ..hardware.survey import SurveyError
from ..nic.nics import OPTIONS, QUICK_S, Nics
from ..nic.setting import shown
from . import LOCK

STATE = "etc/baremetal-mpi-roce/rails.json"
"""Desired state of the rails, written by the last run of the role."""
PROGRAM = "usr/local/libexec/baremetal-mpi-roce/rails"
RESULT = "run/baremetal-mpi-roce/rails-boot.json"
"""Result of the last `--apply` in this boot; the role removes it with each change."""
LOCK_S = 120
"""Time for which the program waits for an Ansible run on the same host."""
HOLDS, DRIFT, UNKNOWN = 0, 1, 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0
_ERROR = "<3>"
"""Prefix that marks a line as an error for the journal."""


def state_text(
    interfaces: Sequence[str], with_rdma: Sequence[str], given: Mapping[str, Any]
) -> str:
    """Return the desired state as JSON. At boot, the program waits for the RDMA devices of the
    rails in `with_rdma`."""
    asked = {name: given[name] for name in OPTIONS}
    content = {"": HEADER, "rails": list(interfaces), "with_rdma": list(with_rdma), **asked}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def main(
    arguments: Sequence[str],
    runner: Optional[Runner] = None,
    which: Callable[[str], Optional[str]] = find_program,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    given = _arguments(arguments)
    node = Node(
        layer="rails",
        root=Path(given.root),
        run=runner or run,
        looks=runner or partial(run, timeout_s=QUICK_S),
        container=None,
        boot_id="",
        check_mode=not given.apply,
        uid=os.getuid(),
        gid=os.getgid(),
    )
    try:
        with locks.alone(node.path(LOCK), LOCK_S if given.apply else 2.0):
            saved = json.loads(node.path(STATE).read_text(encoding="utf-8"))
            end = clock() + given.wait
            pause = _FIRST_PAUSE_S
            nics, wrong = once(saved, node, which)
            while wrong and clock() < end:
                _print(f"not yet: {wrong[0].line()}")
                sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                nics, wrong = once(saved, node, which)
            if given.apply:
                _record(node, wrong)
    except (OSError, SurveyError, PlanError, locks.HeldError, ValueError, KeyError) as error:
        remedy = f"Run this as root; if /{STATE} is wrong, run the role roce_rails"
        sys.stderr.write(f"rails: {type(error).__name__}: {error}. {remedy}\n")
        return UNKNOWN
    settings = nics.settings(check_mode=node.check_mode)
    if given.json:
        _print(json.dumps({"settings": settings, "wrong": [each.line() for each in wrong]}))
    else:
        _show(settings, wrong, every=node.check_mode)
    return DRIFT if wrong else HOLDS


def _arguments(words: Sequence[str]) -> Any:
    parser = argparse.ArgumentParser(prog="rails", description="RoCE settings of this host's rails")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing (default)")
    mode.add_argument("--apply", action="store_true", help="set what differs and read it back")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--root", default="/")
    return parser.parse_args(words)


def saved_state(node: Node) -> Optional[dict[str, Any]]:
    """The recorded state; None on a node without one. Raises OSError and ValueError."""
    text = node.read(STATE)
    return None if text is None else dict(json.loads(text))


def once(
    saved: Mapping[str, Any], node: Node, which: Callable[[str], Optional[str]]
) -> tuple[Nics, list[Check]]:
    """Set the values that differ, unless in check mode, and return the failing checks."""
    net = node.path("sys/class/net")
    present = {name: name for name in saved["rails"] if (net / name).exists()}
    # A reboot does not clear firmware parameters, and their tools are slow and may hang. Virtual
    # functions in use are never removed at boot, only reported.
    given = {**saved, "firmware": saved["firmware"] and node.check_mode, "remove_vfs_in_use": False}
    nics = Nics(given, node, which=which)
    nics.look(present)
    errors: list[str] = []
    if not node.check_mode:
        act([Plan(steps=nics.steps())], node, errors)
    if errors:
        raise OSError("; ".join(errors))
    kept = [name for name in nics.written if name not in nics.rolled_back]
    if kept:
        _print(f"set on {', '.join(kept)}")
    wrong = [
        Check("rail_interface", name, None, FAILED, name, "interface not found")
        for name in saved["rails"]
        if name not in present
    ]
    wrong += [
        Check("rail_rdma", name, None, FAILED, name, "its RDMA device is missing")
        for name in saved["with_rdma"]
        if name in present and name not in nics.with_rdma
    ]
    checks = nics.checks(check_mode=node.check_mode)
    return nics, [*wrong, *(check for check in checks if check.status in (FAILED, PENDING))]


def _record(node: Node, wrong: Sequence[Check]) -> None:
    """Record the result for the next run of Ansible."""
    text = json.dumps({"failed": [check.line() for check in wrong]}, indent=2) + "\n"
    write_atomically(node.path(RESULT), text, 0o644, node.uid, node.gid)


def _show(settings: Mapping[str, Any], wrong: Sequence[Check], *, every: bool) -> None:
    """Print the failing checks, a summary and, with `every`, all settings."""
    count = 0
    for rail, states in settings.items():
        count += len(states)
        for name, state in states.items() if every else ():
            line = f"{rail:<10} {name:<26} {state['status']:<13} {shown(state['found'])}"
            _print(line[:160].rstrip())
    mark = "" if every or sys.stdout.isatty() else _ERROR
    for check in wrong:
        _print(f"{mark}{check.line()}")
    _print(f"{len(settings)} rails, {count} settings: {len(wrong) or 'nothing'} wrong")


def _print(line: str) -> None:
    """Print a line without buffering, so that the journal shows the progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
