# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One SONiC switch over a root shell: read, and apply under a rollback timer.

A transient systemd timer rolls back to a checkpoint unless it is stopped in time. After a reboot
nothing must be undone, because only a confirmed change is saved. Timers also exclude concurrent
runs: each arms its own, then looks for others. Every program used ships with SONiC.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from shlex import quote

from ....module_utils.core.text import some
from ....module_utils.core.waiting import until
from ..base import SystemDriver
from ..counters import PortCounters
from ..session import LINKS_S, too_dark
from ..system import Applied, Completed, Difference, Saved, Shell, SwitchError
from ..underlay import Underlay
from . import reading, state, steps
from .difference import difference
from .tables import wanted

TOO_LATE, NOT_SAVED, GONE = 75, 76, 77
TIME_UP = 124

COMMAND_S = 180
UNSAVED_S = 30
"""Until a change that could not be saved, or not be undone, is rolled back."""
GUARDS = ("applying", "applying-next")
"""Timers of batches, in turn: the next is armed before the previous one is stopped."""
SCRIPT = Path(__file__).parent / "files/rollback.sh"
_CONTINUES = ("{", "do", "then", "else", "in", ";;", "&&", "||", "|")
"""Words at the end of a line after which the shell expects no separator."""


@lru_cache(maxsize=1)
def functions() -> str:
    """The functions of the script, in one line: systemd writes the command of a timer into a file
    of lines."""
    text = SCRIPT.read_text(encoding="utf-8").replace("\\\n", "")
    lines = (line.strip() for line in text.splitlines())
    code = (line.partition(" # ")[0].rstrip() for line in lines if line and line[0] != "#")
    return " ".join(line if line.split()[-1] in _CONTINUES else f"{line};" for line in code)


def calling(calls: str, **settings: object) -> str:
    """A command line that defines the functions, with `settings` as variables, and calls some."""
    values = {"saved_file": reading.SAVED_FILE, "ignored": steps.IGNORED.strip(), **settings}
    assignments = "".join(f"{name}={quote(str(value))}; " for name, value in values.items())
    script = f"{assignments}{functions()}"
    return f'script={quote(script)}; eval "$script"; {calls}'


def failed(command: str, answer: Completed, state: str) -> SwitchError:
    """The error for a command that failed; `state`: what that means for the switch."""
    reason = {TIME_UP: " (it took too long)", TOO_LATE: " (its timer ran out before)"}
    return SwitchError(
        f"`{command}` failed with status {answer.rc}{reason.get(answer.rc, '')}"
        f"{reading.last_lines(answer)}. {state[0].upper()}{state[1:]}"
    )


class SonicApplied:
    """A change that is in force and not saved. The switch undoes it unless it is confirmed."""

    def __init__(
        self,
        switch: SonicSwitch,
        name: str,
        planned: list[steps.Step],
        pace: steps.Pace = steps.ONE_BY_ONE,
    ) -> None:
        self._switch = switch
        self._name = name
        self._steps_s = [step.takes_s(pace) for step in planned]
        self._call_s = max(steps.most_of(call, pace) for call in steps.calls_of(planned))
        self.begun = len(planned)
        """The number of steps that can be in force."""
        self._config_saved = False
        self._settings = {
            "name": name,
            "owner": switch.owner,
            "call_s": self._call_s,
            "rollback_s": max(steps.limit_of(step, pace) for step in planned),
            "interval_checkpoints": " ".join(
                self.checkpoint(number)
                for number, step in enumerate(planned)
                if isinstance(step, steps.PollInterval)
            ),
        }

    @property
    def undoing_s(self) -> int:
        return steps.SLOWER * sum(self._steps_s[: self.begun])

    def checkpoint(self, number: int) -> str:
        """Taken before the step of that number."""
        return f"{self._name}-{number:03}"

    def command(self, calls: str) -> str:
        saved = "yes" if self._config_saved else "no"
        return calling(calls, **self._settings, config_saved=saved)

    def confirm(self) -> None:
        command = self.command(f"confirm {UNSAVED_S}")
        self._config_saved = True
        answer = self._switch.run(command)
        self._config_saved = answer.rc == 0
        if answer.rc == TOO_LATE:
            raise SwitchError(
                "the switch has undone it already, because it was not confirmed in time. Raise "
                "switch_qos_confirm_s"
            )
        if answer.rc:
            state = "the change is not saved, and the switch will soon undo it"
            raise failed("config save -y", answer, state)
        # The change is kept, even if interrupted here. The next run removes remaining checkpoints.
        with contextlib.suppress(BaseException):
            self._switch.run(self.command("forget_checkpoints"), COMMAND_S + self.undoing_s)

    def rollback(self) -> None:
        self.went_back()

    def went_back(self) -> bool:
        """Undo the change. False if there is no checkpoint, or no longer one."""
        limit_s = self._call_s + self.undoing_s + COMMAND_S
        answer = self._switch.run(self.going_back(), timeout_s=limit_s)
        if answer.rc not in (0, GONE):
            state = (
                f"run `config rollback NAME{steps.IGNORED}` on the switch for each of its "
                "checkpoints (`config list-checkpoints`), the highest number first, or reboot it"
            )
            raise failed(f"config rollback {self._name}-...", answer, state)
        return answer.rc == 0

    def undo_soon(self) -> None:
        """Start a rollback that the switch finishes without this run."""
        unit = f"--unit={self._name}-undoing --description={quote(self._switch.owner)}"
        status = f"--property=SuccessExitStatus={GONE}"
        command = f"systemd-run --quiet {unit} {status} /bin/sh -c {quote(self.going_back())}"
        self._switch.done(command, "its timer undoes it", "systemd-run")

    def going_back(self) -> str:
        return self.command(f"go_back {UNSAVED_S}")

    def undone(self) -> str:
        self._switch.wait_for_answer()
        try:
            went_back = self.went_back()
        except SwitchError as error:
            return f"Undoing it failed as well: {error}. A timer on the switch tries once more"
        if went_back:
            return "The switch was rolled back"
        return (
            f"Checkpoint {self.checkpoint(0)} not found; it cannot be restored, unless its timer "
            "has restored it before"
        )


LOAD_S = 3
"""A guess: time to read the configuration and its models, in a checkpoint and a patch."""
APPLY_S = 1
"""Time per change that the sorter makes of a patch, on all releases."""
SLACK_S = 300
"""Extra time of a batch before its timer expires, independent of `confirm_s`."""
LOST_S, RETRY_S = 120, 3
"""How long, and how often, to retry a switch that was lost during a change, to undo it."""
AGAIN_S = 1
PART = "it may be applied in part"
LIST_CHECKPOINTS = "config list-checkpoints"


class SonicSwitch:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        user = os.environ.get("USER") or f"uid {os.getuid()}"
        self.owner = f"run of {user} on {socket.gethostname()}, {time.strftime('%H:%M:%S %Z')}"
        """Shown to another run that meets this one."""
        self._name = ""
        self.undone_within_s = 0

    def read(self) -> reading.Present:
        self._shell.reconnect()
        present = reading.parsed(self._shell.run(reading.READ, timeout_s=steps.READ_S))
        self._refuse_others(present.units)
        if any(self._is_own(_unit(line)) and " inactive " not in line for line in present.units):
            present = replace(present, unconfirmed=True)
        path = reading.lookup_file(present)
        if path:
            answer = self._shell.run(f"cat {quote(path)}", timeout_s=steps.READ_S)
            if answer.rc == 0:
                present = replace(present, lookup=reading.lookup_of(answer.stdout))
        return present

    def _is_own(self, unit: str) -> bool:
        return bool(self._name) and unit.startswith(self._name)

    def _refuse_others(self, units: tuple[str, ...]) -> None:
        for line in units:
            unit = _unit(line)
            if not unit or self._is_own(unit) or " inactive " in line:
                continue
            if " failed " in line:
                raise SwitchError(
                    f"{unit}: the rollback of an earlier run failed (`journalctl -u {unit}`). Go "
                    "back by `config rollback` (`config list-checkpoints`, the highest number "
                    f"first), and `systemctl reset-failed {unit}`"
                )
            raise SwitchError(
                f"{unit} ({_owner(line)}): another run is changing this switch, or was cut off "
                "and the switch is about to undo its change (`systemctl list-timers "
                f"'{reading.OURS}*'`). Run again after it, or keep the change: `systemctl stop "
                f"{unit}`"
            )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        if isinstance(difference.steps, steps.Save):
            self._refuse_others(self._units())
            state = "the configuration is in force but not saved: a restart of the switch loses it"
            self.done(calling(f"save || exit {NOT_SAVED}"), state, "config save -y")
            return Saved()
        planned: list[steps.Step] = difference.steps
        began = time.monotonic()
        pace = self._measured(planned)
        self._name = f"{reading.OURS}{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        applied = SonicApplied(self, self._name, planned, pace)
        batches = steps.batches_of(planned)

        def guarding(number: int) -> str:
            armed_s = steps.most_of(batches[number], pace) + SLACK_S
            applied.begun = sum(map(len, batches[: number + 1]))
            self.undone_within_s = int(time.monotonic() - began) + armed_s + applied.undoing_s
            return f"arm {GUARDS[number % 2]} {armed_s}"

        self._arm_guard(applied, guarding(0))
        done_steps = 0
        links: list[str] = []
        try:
            for number, batch in enumerate(batches):
                guard = GUARDS[number % 2]
                if number:
                    previous = f"disarm {GUARDS[number % 2 - 1]}"
                    command = applied.command(f"{guarding(number)} && {previous}")
                    self.done(command, PART, "systemd-run")
                self._shell.say(steps.announced(number, batches, pace))
                for call in steps.calls_of(batch):
                    around = []
                    for _step in call:
                        before = f"guarded_by {guard}; "
                        before += f"take {done_steps:03}; " if done_steps else ""
                        done_steps += 1
                        last = done_steps == len(planned)
                        keep = f" && arm confirm {confirm_s} && disarm {guard}" if last else ""
                        around.append((before, keep))
                    self._call(applied, call, pace, around)
                look = batch[-1].look
                if look and not last:  # after the last batch the session reads everything
                    links += look.links
                    self._look(look, links)
        except SwitchError as error:
            raise SwitchError(f"{error}. {applied.undone()}") from None
        except BaseException:
            # The run was interrupted: the switch undoes the change without it.
            with contextlib.suppress(SwitchError):
                applied.undo_soon()
            raise
        self.undone_within_s = int(time.monotonic() - began) + confirm_s + applied.undoing_s
        return applied

    def _measured(self, planned: list[steps.Step]) -> steps.Pace:
        """Measure the switch by a dry run of the first patch, with the largest group going down."""
        trial = steps.trial_of(planned)
        if not trial.operations:
            return steps.ONE_BY_ONE
        began = time.monotonic()
        self.done(LIST_CHECKPOINTS, "nothing was changed")
        starting_s = time.monotonic() - began
        limit_s = steps.limit_of(trial, steps.ONE_BY_ONE)
        command = f'timeout {limit_s} config apply-patch -d "$f"{steps.options_of(trial)}'
        answer = self.done(
            calling(f"read_patches 0; {command}"),
            "nothing was changed",
            "config apply-patch -d",
            json.dumps(trial.operations),
            limit_s + steps.CALL_S,
        )
        took_s = time.monotonic() - began - starting_s
        operations = len(trial.operations)
        made = re.search(r"converted into ([0-9]{1,6}) change", answer.stdout)
        changes = min(int(made[1]), operations) if made else operations
        sorting_s = max(took_s - starting_s, 0)
        return steps.Pace(2 * starting_s + LOAD_S, (sorting_s + APPLY_S * changes) / operations)

    def _arm_guard(self, applied: SonicApplied, armed: str) -> None:
        """Take a checkpoint and arm a timer that restores it, unless another run is active."""
        state, first = "nothing was changed", applied.checkpoint(0)
        self.done(applied.command("quiet; take 000"), state, "config checkpoint")
        try:
            self.done(applied.command(armed), state, "systemd-run")
            self._refuse_others(self._units())
            listed = self.done(LIST_CHECKPOINTS, state).stdout
            # Checkpoints of a run that was cut off.
            left = [
                name for name in re.findall(rf'"({reading.OURS}[^"]+)"', listed) if name != first
            ]
            if left:
                names = " ".join(map(quote, left))
                command = f"for c in {names}; do config delete-checkpoint $c || exit; done"
                self.done(command, state, "", "", COMMAND_S + steps.CALL_S * len(left))
        except BaseException:
            with contextlib.suppress(SwitchError):
                undo = f"disarm {GUARDS[0]}; config delete-checkpoint {first}"
                self._shell.run(applied.command(undo), timeout_s=COMMAND_S)
            raise

    def _units(self) -> tuple[str, ...]:
        return tuple(self.done(reading.LIST_UNITS, "nothing was changed").stdout.splitlines())

    def _look(self, look: steps.PortsCheck, links: list[str]) -> None:
        """Wait until the group has its settings, and enough links of all groups are up again."""
        differing: list[str] = []
        up: set[str] = set()

        def settled() -> bool:
            nonlocal differing, up
            present = self.read()
            differing = look.differing(present)
            up = {name for name, row in present.ports.items() if row.get("oper_status") == "up"}
            return not differing and up.issuperset(look.links)

        until(settled, LINKS_S, AGAIN_S)
        if differing:
            raise SwitchError(f"it does not have what it accepted: {some(differing, 4)}")
        dark = [name for name in links if name not in up]
        if too_dark(dark, links):
            raise SwitchError(
                f"links that it took down stay down: {some(dark)}; no further port was touched"
            )

    def _call(
        self,
        applied: SonicApplied,
        call: list[steps.Step],
        pace: steps.Pace,
        around: list[tuple[str, str]],
    ) -> None:
        """Run all of it, even if the connection is lost. `around`: commands before and after each
        step."""
        calls, lines, shown = "", "", ""
        for number, (step, (before, after)) in enumerate(zip(call, around), 1):
            if isinstance(step, steps.PollInterval):
                shown = command = f"pfcwd interval {quote(step.milliseconds)}"
            else:
                shown = "config apply-patch"
                command = f'{shown} "$f.{number}"{steps.options_of(step)}'
                lines += f"{json.dumps(step.operations)}\n"
            calls += f"{before}timeout {steps.limit_of(step, pace)} {command}{after} || exit; "
        patches = f"read_patches {len(call)}; " if lines else ""
        self.done(
            applied.command(f"{patches}quiet; {calls}"),
            PART,
            shown,
            lines,
            steps.most_of(call, pace),
        )

    def wait_for_answer(self) -> None:

        def answers() -> bool:
            try:
                self._shell.run(":")
            except SwitchError:
                self._shell.reconnect()
                return False
            return True

        until(answers, LOST_S, RETRY_S)

    def run(self, command: str, timeout_s: int = COMMAND_S) -> Completed:
        return self._shell.run(command, timeout_s=timeout_s)

    def done(
        self, command: str, state: str, shown: str = "", stdin: str = "", timeout_s: int = COMMAND_S
    ) -> Completed:
        """Run a command. Raises SwitchError with its output and `state`, what a failure means.

        `shown`: the part that an operator would run by hand.
        """
        answer = self._shell.run(command, stdin=stdin, timeout_s=timeout_s)
        if answer.rc != 0:
            raise failed(shown or command, answer, state)
        return answer


def _unit(line: str) -> str:
    """The collection's unit in a line of `systemctl list-units`; empty if there is none."""
    return next((word for word in line.split() if word.startswith(reading.OURS)), "")


def _owner(line: str) -> str:
    words = line.partition(_unit(line))[2].split(maxsplit=3)
    return words[3] if len(words) > 3 else "owner unknown"


def underlay(switch: SonicSwitch) -> Underlay:
    return state.read_underlay(switch.run(state.UNDERLAY, state.LIMIT_S))


def counters(switch: SonicSwitch, ports: Sequence[str]) -> dict[str, PortCounters]:
    return state.read_counters(switch.run(state.counters_command(ports), state.LIMIT_S))


DRIVER = SystemDriver(wanted, difference, reading.report, SonicSwitch, underlay, counters)
