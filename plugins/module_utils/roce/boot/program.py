# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""`rails --apply` sets at boot what a reboot forgets; `rails --check` shows how things are.

Exit status: 0 everything holds (or waits for a reset that is on record), 1 something does not,
2 it could not be told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import commands, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import write_atomically
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.survey import SurveyError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.machine import boot_id
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import lock

from .. import engine
from ..finding import find_rails, machine_of
from ..request import QUICK_S, Host
from ..session import RECORD
from ..setting import FIRMWARE, NEEDS_RESET, NOT_SUPPORTED, OK, SET, Provider, Rail
from . import layout
from .unit import LOCK_S
from .wishes import Wishes, WishesError, digest_of

HOLDS, DRIFT, UNKNOWN = 0, 1, 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0
_NOT_TO_THE_END = "it was ended while it looked at the firmware: does mlxconfig (mstconfig) hang?"
"""What stands on record meanwhile: a tool of the firmware may hang until systemd ends the unit."""
_ERROR = "<3>"
"""How the journal is told that a line is an error."""


def main(
    arguments: Sequence[str],
    program: str = "",
    host: Optional[Host] = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """`program` is the version that runs, as it is recorded in the result."""
    given = _arguments(arguments)
    quick = partial(commands.run, timeout_s=QUICK_S)
    host = host or Host(
        commands.run, Path(given.root), uid=os.getuid(), gid=os.getgid(), quick=quick
    )
    try:
        text = (host.root / layout.STATE).read_text(encoding="utf-8")
        wishes = Wishes.read(text)
        with lock.alone(host.root, LOCK_S if given.apply else 2.0):
            job = _Pass(wishes, host, sleep, clock)
            outcome = job.outcome(given.apply, given.wait)
            versions = {"program": program, "state": digest_of(text)}
            if given.apply:
                _record(host, [*_lines(outcome), _NOT_TO_THE_END], versions)
            job.look_at_firmware(outcome)
            if given.apply:
                _record(host, _lines(outcome), versions)
                _record_resets(host, outcome)
    except FileNotFoundError as error:
        return _unknown(f"{error.filename} is missing. Run the role roce_rails (--tags rails)")
    except PermissionError as error:
        return _unknown(f"{error.filename}: {error.strerror}. Run this as root")
    except WishesError as error:
        return _unknown(f"/{layout.STATE} cannot be used ({error}). Run the role roce_rails")
    except (lock.BusyError, reboots.RecordError, SurveyError, OSError) as error:
        return _unknown(str(error))
    wrong = _wrong(outcome)
    if given.json:
        _say(json.dumps({"settings": outcome.settings, "wrong": [each.line() for each in wrong]}))
    elif given.apply:
        _report(outcome, wrong)
    else:
        _show(outcome, wrong)
    return DRIFT if wrong else HOLDS


def _arguments(words: Sequence[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="rails", description="RoCE settings of this host's rails, as the role last left them."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="show, change nothing (the default)")
    what.add_argument("--apply", action="store_true", help="set what differs, and read it back")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true", help="all settings, as the module has them")
    parser.add_argument("--root", default="/", help="directory to take for the root of the host")
    return parser.parse_args(words)


class _Pass:
    """The rails as often as it takes until they hold, or the time is over."""

    def __init__(
        self,
        wishes: Wishes,
        host: Host,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.wishes, self.host, self.sleep, self.clock = wishes, host, sleep, clock

    def outcome(self, apply: bool, wait_s: float) -> engine.Outcome:
        begin = self.clock()
        pause = _FIRST_PAUSE_S
        written: list[str] = []
        while True:
            rails = self._rails()
            missing = self._missing(rails)
            late = self.clock() - begin >= wait_s
            wrong = missing
            # Nothing is written before all are there: a driver may still be on its way.
            if not missing or late:
                outcome = self._once(rails, apply)
                outcome.checks[:0] = missing
                kept = [name for name in outcome.written if name not in outcome.rolled_back]
                written = list(dict.fromkeys([*written, *kept]))
                wrong = _wrong(outcome)
                if late or not wrong:
                    outcome.written = written
                    return outcome
            _say(f"not yet: {wrong[0].line()}")
            self.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _once(self, rails: Sequence[Rail], apply: bool) -> engine.Outcome:
        providers = self.wishes.request.providers(self.host)
        runtime = [each for each in providers if not _of_firmware(each)]
        return engine.converge(rails, runtime, check_mode=not apply)

    def look_at_firmware(self, outcome: engine.Outcome) -> None:
        """It forgets nothing, so it is only looked at, and last: its tools are the slowest."""
        providers = self.wishes.request.providers(self.host)
        firmware = [each for each in providers if _of_firmware(each)]
        looked = engine.converge(self._rails(), firmware, check_mode=True)
        outcome.checks += [check for check in looked.checks if check.name != engine.WHOLE]
        for name, settings in looked.settings.items():
            outcome.settings.setdefault(name, {}).update(settings)
        outcome.resets += looked.resets

    def _rails(self) -> list[Rail]:
        return find_rails(
            {name: name for name in self.wishes.interfaces},
            machine_of(self.host.root),
            self.host.ethtool,
        )

    def _missing(self, rails: Sequence[Rail]) -> list[Check]:
        net = self.host.root / "sys/class/net"
        checks = [
            Check("rail_interface", name, None, FAILED, name, "there is no such interface")
            for name in self.wishes.interfaces
            if not (net / name).exists()
        ]
        absent = {check.subject for check in checks}
        bare = [rail.name for rail in rails if rail.device is None and rail.name not in absent]
        return checks + [
            Check("rail_rdma", name, None, FAILED, name, "it had an RDMA device, and has none now")
            for name in bare
            if name in self.wishes.with_rdma
        ]


def _of_firmware(provider: Provider) -> bool:
    return getattr(provider, "persistence", None) == FIRMWARE


def _wrong(outcome: engine.Outcome) -> list[Check]:
    return [check for check in outcome.checks if check.status in (FAILED, PENDING)]


def _lines(outcome: engine.Outcome) -> list[str]:
    return [check.line() for check in _wrong(outcome)]


def _record(host: Host, failed: Sequence[str], versions: dict[str, str]) -> None:
    """What was found, for the next run of Ansible."""
    text = json.dumps({**versions, "failed": list(failed)}, indent=2) + "\n"
    write_atomically(host.root / layout.RESULT, text, 0o644, host.uid, host.gid)


def _record_resets(host: Host, outcome: engine.Outcome) -> None:
    """Which resets of firmware are still due."""
    boot = boot_id(host.root)
    due = reboots.plan(RECORD, outcome.resets, boot, root=host.root, uid=host.uid, gid=host.gid)
    due.apply()


def _report(outcome: engine.Outcome, wrong: Sequence[Check]) -> None:
    """For the journal: what does not hold, or one line that all does."""
    mark = "" if sys.stdout.isatty() else _ERROR
    for check in wrong:
        _say(f"{mark}{check.line()}")
    for reason in outcome.resets:
        _say(f"{reason.subject}: {reason.wanted} waits for a reset: {reason.reason}")
    changed = f"; set on {', '.join(outcome.written)}" if outcome.written else ""
    _say(f"{_sum(outcome, wrong)}{changed}")


def _show(outcome: engine.Outcome, wrong: Sequence[Check]) -> None:
    """For an operator: every setting of every rail, and last what is wrong."""
    rows = [
        (rail, name, str(state["status"]), engine.shown(state["found"]))
        for rail, settings in outcome.settings.items()
        for name, state in settings.items()
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        _say("  ".join([*cells, row[3]])[:160].rstrip())
    for check in wrong:
        _say(check.line())
    _say(_sum(outcome, wrong))


def _sum(outcome: engine.Outcome, wrong: Sequence[Check]) -> str:
    """What cannot be on these NICs is counted by itself, and not among what holds."""
    states = [state["status"] for each in outcome.settings.values() for state in each.values()]
    counts = {
        "settings hold": sum(status in (OK, SET) for status in states),
        "wait for a reset": states.count(NEEDS_RESET),
        "not supported here": states.count(NOT_SUPPORTED),
        "WRONG": len(wrong),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{len(outcome.settings)} rails: {told or 'nothing to set'}"


def _say(line: str) -> None:
    """A line of this program's own output, at once: a journal shows what it waits for."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _unknown(message: str) -> int:
    sys.stderr.write(f"rails: {message}\n")
    return UNKNOWN
