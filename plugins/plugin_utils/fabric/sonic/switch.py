# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One SONiC switch over a shell: read, apply with a way back, keep or undo."""

from __future__ import annotations

import contextlib
import getpass
import json
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from ..system import Applied, Difference, Saved, SwitchError
from . import commands
from .commands import OURS, Completed, Shell, last_lines
from .difference import Patch, PollInterval, Save, Step
from .reading import PARTS, READ, UNITS, Present, lookup_file, lookup_of, parsed

_WAIT = (
    "wait for it, and run again. If it was cut off, the switch lets go of it within "
    f"{commands.LOCK_S // 60} minutes"
)

READ_S = 120
COMMAND_S = 180
LEAST_APPLY_S, PER_PORT_S, PER_OPERATION_S = 120, 20, 1
"""`config apply-patch` checks all of CONFIG_DB before each of its moves, waits a second after it,
and takes ports down one by one: so long it may take, and so long the undoing waits for it."""


class SonicSwitch:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.who = f"run of {_user()} on {socket.gethostname()}, {time.strftime('%H:%M:%S %Z')}"
        """Shown to another run that finds this one at work."""
        self._units: tuple[str, ...] = ()
        """Units of this run, which are not leftovers."""
        self.undone_within_s = 0
        """See `Switch`."""

    def read(self) -> Present:
        self._shell.reconnect()
        present = parsed(self._shell.run(READ, timeout_s=READ_S))
        self._refuse_leftovers(present.units)
        if any(self._is_of_this_run(line) and " inactive " not in line for line in present.units):
            present = replace(present, unconfirmed=True)
        path = lookup_file(present)
        if path:
            answer = self._shell.run(f"cat {quote(path)}", timeout_s=READ_S)
            if answer.rc == 0:
                present = replace(present, lookup=lookup_of(answer.stdout))
        return present

    def _refuse_leftovers(self, units: tuple[str, ...]) -> None:
        for line in units:
            name = _unit(line)
            if not name or self._is_of_this_run(line) or " inactive " in line:
                continue
            if name.rpartition(".")[0].endswith(commands.FORGET):
                continue  # that run is over
            if " failed " in line:
                raise SwitchError(
                    f"{name}: the undoing of an earlier run failed. See `journalctl -u {name}`, "
                    "then put the switch right with `config rollback` (checkpoints: `config "
                    f"list-checkpoints`) and forget the unit: `systemctl reset-failed {name}`"
                )
            if name.startswith(commands.LOCK):
                raise SwitchError(f"another run is changing this switch ({_who(line)}): {_WAIT}")
            raise SwitchError(
                f"{name} ({_who(line)}): another run is changing this switch, or was cut off, and "
                f"the switch is about to undo it (`systemctl list-timers '{OURS}*'` says when). "
                "Wait until that is done and run again; to keep what is in force instead, "
                f"`systemctl stop {name}` first: the next run saves it"
            )

    def _is_of_this_run(self, line: str) -> bool:
        return _unit(line).rpartition(".")[0] in self._units

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        name = f"{OURS}{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        if isinstance(difference.steps, Save):
            return self._save(name)
        steps: list[Step] = difference.steps
        operations = sum(len(step.operations) for step in steps if isinstance(step, Patch))
        limit_s = (
            LEAST_APPLY_S
            + PER_PORT_S * len(difference.impact.ports_down)
            + PER_OPERATION_S * operations
        )
        undo = commands.UNDO_INTERVAL if any(isinstance(s, PollInterval) for s in steps) else ""
        if isinstance(steps[0], Patch):
            self._try(steps[0], limit_s, "nothing was changed")
        applied = SonicApplied(self, name, undo, limit_s)
        guard = f"{name}-applying"
        self._units = (guard, f"{name}-confirm", f"{name}-confirm-unsaved")
        armed_s = len(steps) * 2 * limit_s + confirm_s
        self.undone_within_s = armed_s + 2 * limit_s
        last_arm = commands.arm(applied.unit, name, confirm_s, undo, self.who)
        keep_s = f"{last_arm} && {commands.disarm(guard)}"
        with self._alone():
            self.done(commands.checkpoint(name), "nothing was changed")
            try:
                armed = commands.arm(guard, name, armed_s, undo, self.who)
                self.done(armed, "nothing was changed", "systemd-run")
            except BaseException:
                self._give_up(guard, name)
                raise
        try:
            for number, step in enumerate(steps):
                last = number == len(steps) - 1
                self._step(step, limit_s, number > 0, keep_s if last else "")
        except SwitchError as error:
            raise SwitchError(f"{error}. {applied.undone()}") from None
        except BaseException:
            # The run is ended: the switch undoes it alone.
            with contextlib.suppress(SwitchError):
                applied.undo_soon()
            raise
        return applied

    def _save(self, name: str) -> Saved:
        self._others()
        state = "all is in force, and not saved: a restart of the switch loses it"
        self.done(commands.save(name, self.who), state, "config save -y")
        return Saved()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Until this run has a timer of its own, which every other run sees."""
        answer = self._shell.run(commands.lock(self.who), timeout_s=COMMAND_S)
        if answer.rc != 0:
            # Its holder, as `read` reports it; else why it could not be taken.
            self._others()
            raise SwitchError(
                f"`systemd-run` ended with status {answer.rc}{last_lines(answer)}. "
                "Nothing was changed"
            )
        try:
            self._others(held=True)
            self._clean()
            yield
        finally:
            with contextlib.suppress(SwitchError):  # it ends by itself
                self._shell.run(commands.unlock(), timeout_s=COMMAND_S)

    def _give_up(self, guard: str, name: str) -> None:
        """Its answer may have been lost, and not the command."""
        with contextlib.suppress(SwitchError):
            self._shell.run(commands.disarm(guard), timeout_s=COMMAND_S)
            self._drop(name)

    def _step(self, step: Step, limit_s: int, try_first: bool, then: str) -> None:
        if isinstance(step, PollInterval):
            command = commands.poll_interval(step.milliseconds)
            whole = f"{command} && {then}" if then else command
            self.done(whole, "the watchdog cannot be set", command)
            return
        if try_first:
            self._try(step, limit_s, "what comes before it was applied")
        self.done(
            commands.apply_patch(limit_s, then),
            "it may be applied in part",
            "config apply-patch",
            json.dumps(step.operations),
            limit_s + 30,
        )

    def _try(self, step: Patch, limit_s: int, state: str) -> None:
        text = json.dumps(step.operations)
        command = commands.dry_run(limit_s)
        self.done(command, state, "config apply-patch -d", text, limit_s + 30)

    def _others(self, held: bool = False) -> None:
        """SwitchError where another run is at work: it may have begun since the plan."""
        units = self.done(PARTS[UNITS], "nothing was changed").stdout.splitlines()
        lines = (line for line in units if not (held and _unit(line).startswith(commands.LOCK)))
        self._refuse_leftovers(tuple(lines))

    def _clean(self) -> None:
        """Checkpoints of runs that ended without their timer, such as by a reboot of the switch.

        None of a run that is still at work: that has a timer, or the lock.
        """
        self.done(commands.forget_backups(), "nothing was changed")
        answer = self.done(commands.LIST_CHECKPOINTS, "nothing was changed")
        for name in checkpoints(answer.stdout):
            if name.startswith(OURS):
                self._drop(name)

    def _drop(self, name: str) -> None:
        self.done(
            commands.forget(name), "nothing else was changed", commands.delete_checkpoint(name)
        )

    def done(
        self,
        command: str,
        state: str,
        shown: str = "",
        stdin: str = "",
        timeout_s: int = COMMAND_S,
    ) -> Completed:
        """Run it. SwitchError with what it said where it did not end well.

        `state`: what that means. `shown`: the part of it that an operator would run by hand.
        """
        answer = self._shell.run(command, stdin=stdin, timeout_s=timeout_s)
        if answer.rc != 0:
            raise SwitchError(
                f"`{shown or command}` ended with status {answer.rc}{last_lines(answer)}. "
                f"{state[0].upper()}{state[1:]}"
            )
        return answer


class SonicApplied:
    """In force, not saved, and undone by the switch unless confirmed."""

    def __init__(self, switch: SonicSwitch, name: str, undo: str, limit_s: int) -> None:
        self._switch = switch
        self._name, self._undo, self._limit_s = name, undo, limit_s
        self.unit = f"{name}-confirm"

    def confirm(self) -> None:
        try:
            self._switch.done(
                commands.confirm(self.unit, self._name, self._undo, self._switch.who),
                "what was applied is not saved, and the switch undoes it within a minute",
                "config save -y",
            )
        except SwitchError as error:
            if f"status {commands.TOO_LATE}" in str(error):
                raise SwitchError(
                    "the switch has undone it already, because it was not confirmed in time. Raise "
                    "switch_qos_confirm_s, and look for what makes the switch slow"
                ) from None
            raise
        # It is kept: what is left over here the next run removes.
        with contextlib.suppress(SwitchError):
            self._switch.done(commands.forget(self._name), "it is saved")

    def rollback(self) -> None:
        self.went_back()

    def went_back(self) -> bool:
        """False where there was nothing to go back to, or no more."""
        answer = self._switch.done(
            self._rollback(),
            f"run `config rollback {self._name}` on the switch; what is saved is as it was, so a "
            "reboot undoes it as well",
            f"config rollback {self._name}",
            timeout_s=2 * self._limit_s + 2 * commands.LOCK_PATIENCE_S,
        )
        return commands.GONE not in answer.stdout

    def undo_soon(self) -> None:
        unit = f"{self._name}-undoing"
        command = commands.undo_soon(unit, self._rollback(), self._switch.who)
        self._switch.done(command, "its timer undoes it", "systemd-run")

    def _rollback(self) -> str:
        words = ("-applying", "-confirm", "-confirm-unsaved", commands.FORGET)
        units = tuple(f"{self._name}{word}" for word in words)
        return commands.rollback(units, self._name, self._limit_s, self._undo, self._switch.who)

    def undone(self) -> str:
        """Undo, and return the result as a sentence."""
        try:
            went_back = self.went_back()
        except SwitchError as error:
            return (
                f"Undoing it failed as well: {error}. Unless its timer was stopped, the switch "
                "tries once more by itself"
            )
        if went_back:
            return "The switch was rolled back"
        return f"There is no checkpoint {self._name} to go back to any more"


def _unit(line: str) -> str:
    """Of ours, in a line of `systemctl list-units`."""
    return next((word for word in line.split() if word.startswith(OURS)), "")


def _who(line: str) -> str:
    """What stands after the unit and its three states."""
    words = line.partition(_unit(line))[2].split(maxsplit=3)
    return words[3] if len(words) > 3 else "owner unknown"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown user"


def checkpoints(text: str) -> list[str]:
    """Names that `config list-checkpoints` prints as JSON, after whatever it logs."""
    start = text.find("[")
    try:
        names = json.loads(text[start:]) if start >= 0 else []
    except ValueError:
        names = []
    return [str(name) for name in names if isinstance(name, str)]
