# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A change that the switch undoes unless it is confirmed, by functions of files/rollback.sh."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ..system import Completed, SwitchError
from .reading import SAVED_FILE, last_lines
from .steps import (
    IGNORED,
    ONE_BY_ONE,
    SLOWER,
    Pace,
    PollInterval,
    Step,
    calls_of,
    limit_of,
    most_of,
)

if TYPE_CHECKING:
    from .switch import SonicSwitch

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
    values = {"saved_file": SAVED_FILE, "ignored": IGNORED.strip(), **settings}
    assignments = "".join(f"{name}={quote(str(value))}; " for name, value in values.items())
    script = f"{assignments}{functions()}"
    return f'script={quote(script)}; eval "$script"; {calls}'


def failed(command: str, answer: Completed, state: str) -> SwitchError:
    """The error for a command that failed; `state`: what that means for the switch."""
    reason = {TIME_UP: " (it took too long)", TOO_LATE: " (its timer ran out before)"}
    return SwitchError(
        f"`{command}` failed with status {answer.rc}{reason.get(answer.rc, '')}"
        f"{last_lines(answer)}. {state[0].upper()}{state[1:]}"
    )


class SonicApplied:
    """A change that is in force and not saved. The switch undoes it unless it is confirmed."""

    def __init__(
        self, switch: SonicSwitch, name: str, steps: list[Step], pace: Pace = ONE_BY_ONE
    ) -> None:
        self._switch = switch
        self._name = name
        self._steps_s = [step.takes_s(pace) for step in steps]
        self._call_s = max(most_of(call, pace) for call in calls_of(steps))
        self.begun = len(steps)
        """The number of steps that can be in force."""
        self._config_saved = False
        self._settings = {
            "name": name,
            "owner": switch.owner,
            "call_s": self._call_s,
            "rollback_s": max(limit_of(step, pace) for step in steps),
            "interval_checkpoints": " ".join(
                self.checkpoint(number)
                for number, step in enumerate(steps)
                if isinstance(step, PollInterval)
            ),
        }

    @property
    def undoing_s(self) -> int:
        return SLOWER * sum(self._steps_s[: self.begun])

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
                f"run `config rollback NAME{IGNORED}` on the switch for each of its checkpoints "
                "(`config list-checkpoints`), the highest number first, or reboot it"
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
