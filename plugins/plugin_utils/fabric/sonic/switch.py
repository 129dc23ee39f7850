# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One SONiC switch over a root shell: read, apply with a way back, keep or undo.

SONiC has no commit timer. A transient systemd timer takes its place: it rolls back to a checkpoint
unless it is stopped in time, whatever becomes of connection and controller. After a reboot of the
switch no timer runs and nothing is left to undo: only what was confirmed is saved. Timers also keep
runs apart: each arms its own, then looks for others. Every program used ships with SONiC.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
from dataclasses import replace
from shlex import quote

from ....module_utils.core.text import some
from ..base import Driver
from ..session import LINKS_S, too_dark
from ..system import Applied, Completed, Difference, Saved, Shell, SwitchError
from .difference import difference
from .reading import (
    LIST_UNITS,
    OURS,
    READ,
    SAVED_FILE,
    Present,
    last_lines,
    lookup_file,
    lookup_of,
    parsed,
    report,
)
from .steps import (
    CALL_S,
    IGNORED,
    ONE_BY_ONE,
    READ_S,
    SLOWER,
    Look,
    Pace,
    PollInterval,
    Save,
    Step,
    announced,
    batches_of,
    calls_of,
    limit_of,
    most_of,
    options_of,
    trial_of,
)
from .tables import wanted

COMMAND_S = 180
LOAD_S = 3
"""A guess: to read the configuration and its models, in a checkpoint and a patch."""
APPLY_S = 1
"""For each change that the sorter makes of a patch, all releases: see `difference.BULK_FROM`."""
SLACK_S = 300
"""A batch may take longer by so much before its timer strikes, whatever `confirm_s` is. Each has a
timer: a switch that loses its controller waits for one group of ports before it undoes all."""
GUARDS = ("applying", "applying-next")
"""Timers of batches, in turn: the next is armed before the former is stopped."""
LOST_S, RETRY_S = 120, 3
"""So long a switch that was lost while it was changed is asked again, to undo it."""
AGAIN_S = 1
"""Between two looks at a group of ports."""
UNSAVED_S = 30
"""Until a change that could not be saved, or not be undone, is rolled back."""

TOO_LATE, NOT_SAVED, GONE, TIME_UP = 75, 76, 77, 124
"""Exit statuses: the timer has rolled back; `config save` failed; there is no checkpoint; that of
`timeout`."""

PART = "it may be applied in part"
LIST_CHECKPOINTS = "config list-checkpoints"
UNDO_INTERVAL = "sonic-db-cli CONFIG_DB DEL 'PFC_WD|GLOBAL'"
"""`config rollback` may not remove that row where the rest of the table stays."""

_TO_FILE = (
    "umask 077; f=$(mktemp /tmp/baremetal-mpi-roce.XXXXXX) || exit; "
    'trap \'rm -f "$f" "$f".*\' EXIT; trap \'exit 129\' HUP INT TERM; cat > "$f" || exit; '
)
"""Patches come on standard input, one a line, and are on the disk only while they are applied."""
_QUIET = "exec > /dev/null; "
"""`config` fails where it cannot print what it has done, as when the line is cut."""


class SonicSwitch:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        user = os.environ.get("USER") or f"uid {os.getuid()}"
        self.owner = f"run of {user} on {socket.gethostname()}, {time.strftime('%H:%M:%S %Z')}"
        """Shown to another run that finds this one at work."""
        self._name = ""
        """Checkpoint of this run. Its units begin with it."""
        self.undone_within_s = 0
        """See `Switch`."""

    def read(self) -> Present:
        self._shell.reconnect()
        present = parsed(self._shell.run(READ, timeout_s=READ_S))
        self._refuse_others(present.units)
        if any(self._is_own(_unit(line)) and " inactive " not in line for line in present.units):
            present = replace(present, unconfirmed=True)
        path = lookup_file(present)
        if path:
            answer = self._shell.run(f"cat {quote(path)}", timeout_s=READ_S)
            if answer.rc == 0:
                present = replace(present, lookup=lookup_of(answer.stdout))
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
                    f"{unit}: the rollback of an earlier run failed. See `journalctl -u {unit}`, "
                    "repair the switch with `config rollback` (checkpoints: `config "
                    "list-checkpoints`, the highest number first) and run `systemctl "
                    f"reset-failed {unit}`"
                )
            raise SwitchError(
                f"{unit} ({_owner(line)}): another run is changing this switch, or was cut off, "
                "and the switch is about to undo it (`systemctl list-timers "
                f"'{OURS}*'` shows when). Wait until that is done and run again; to keep what is "
                f"in force instead, `systemctl stop {unit}` first: the next run saves it"
            )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        if isinstance(difference.steps, Save):
            self._refuse_others(self._units())
            state = "all is in force, and not saved: a restart of the switch loses it"
            self.done(f"{saving()} || exit {NOT_SAVED}", state, "config save -y")
            return Saved()
        steps: list[Step] = difference.steps
        began = time.monotonic()
        pace = self._measured(steps)
        self._name = f"{OURS}{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(3)}"
        applied = SonicApplied(self, self._name, steps, pace)
        batches = batches_of(steps)

        def guarding(number: int) -> str:
            armed_s = most_of(batches[number], pace) + SLACK_S
            applied.begun = sum(map(len, batches[: number + 1]))
            self.undone_within_s = int(time.monotonic() - began) + armed_s + applied.undoing_s
            return applied.arm(GUARDS[number % 2], armed_s)

        self._arm_guard(applied, guarding(0))
        place = 0
        links: list[str] = []
        try:
            for number, batch in enumerate(batches):
                guard = GUARDS[number % 2]
                if number:
                    former = applied.disarm(GUARDS[number % 2 - 1])
                    self.done(f"{guarding(number)} && {former}", PART, "systemd-run")
                self._shell.say(announced(number, batches, pace))
                for call in calls_of(batch):
                    around = []
                    for _step in call:
                        before = f"{applied.is_active(guard)} || exit {TOO_LATE}; "
                        before += applied.take(place) if place else ""
                        place += 1
                        last = place == len(steps)
                        keep = f"{applied.arm('confirm', confirm_s)} && {applied.disarm(guard)}"
                        around.append((before, f" && {keep}" if last else ""))
                    self._call(call, pace, around)
                look = batch[-1].look
                if look and not last:  # after the last one all is looked at
                    links += look.links
                    self._look(look, links)
        except SwitchError as error:
            raise SwitchError(f"{error}. {applied.undone()}") from None
        except BaseException:
            # The run was interrupted: the switch undoes it alone.
            with contextlib.suppress(SwitchError):
                applied.undo_soon()
            raise
        self.undone_within_s = int(time.monotonic() - began) + confirm_s + applied.undoing_s
        return applied

    def _measured(self, steps: list[Step]) -> Pace:
        """By a dry run of the first patch, and of the largest group going down with it."""
        trial = trial_of(steps)
        if not trial.operations:
            return ONE_BY_ONE
        began = time.monotonic()
        self.done(LIST_CHECKPOINTS, "nothing was changed")
        starting_s = time.monotonic() - began
        limit_s = limit_of(trial, ONE_BY_ONE)
        answer = self.done(
            f'{_TO_FILE}timeout {limit_s} config apply-patch -d "$f"{options_of(trial)}',
            "nothing was changed",
            "config apply-patch -d",
            json.dumps(trial.operations),
            limit_s + CALL_S,
        )
        took_s = time.monotonic() - began - starting_s
        operations = len(trial.operations)
        made = re.search(r"converted into ([0-9]{1,6}) change", answer.stdout)
        changes = min(int(made[1]), operations) if made else operations
        sorting_s = max(took_s - starting_s, 0)
        return Pace(2 * starting_s + LOAD_S, (sorting_s + APPLY_S * changes) / operations)

    def _arm_guard(self, applied: SonicApplied, armed: str) -> None:
        """A checkpoint, and the timer that goes back to it. No other run is at work then."""
        state, first = "nothing was changed", applied.checkpoint(0)
        self.done(f"{_QUIET}{applied.take(0)}:", state, "config checkpoint")
        try:
            self.done(armed, state, "systemd-run")
            self._refuse_others(self._units())
            listed = self.done(LIST_CHECKPOINTS, state).stdout
            # Of a run that was cut off.
            left = [name for name in re.findall(rf'"({OURS}[^"]+)"', listed) if name != first]
            if left:
                names = " ".join(map(quote, left))
                command = f"for c in {names}; do config delete-checkpoint $c || exit; done"
                self.done(command, state, "", "", COMMAND_S + CALL_S * len(left))
        except BaseException:
            with contextlib.suppress(SwitchError):
                self._shell.run(
                    f"{applied.disarm(GUARDS[0])}; config delete-checkpoint {first}",
                    timeout_s=COMMAND_S,
                )
            raise

    def _units(self) -> tuple[str, ...]:
        return tuple(self.done(LIST_UNITS, "nothing was changed").stdout.splitlines())

    def _look(self, look: Look, links: list[str]) -> None:
        """The group has what it was given, and enough of the links of all groups are up again."""
        until = time.monotonic() + LINKS_S
        while True:
            present = self.read()
            differing = look.differing(present)
            up = {name for name, row in present.ports.items() if row.get("oper_status") == "up"}
            if (not differing and up.issuperset(look.links)) or time.monotonic() >= until:
                break
            time.sleep(AGAIN_S)
        if differing:
            raise SwitchError(f"it does not have what it accepted: {some(differing, 4)}")
        dark = [name for name in links if name not in up]
        if too_dark(dark, links):
            raise SwitchError(
                f"links that it took down stay down: {some(dark)}; no further port was touched"
            )

    def _call(self, call: list[Step], pace: Pace, around: list[tuple[str, str]]) -> None:
        """All of it runs on the switch, even if the connection is lost meanwhile.

        `around`: what comes before and after each step.
        """
        split, whole, lines, shown = "", "", "", ""
        for number, (step, (before, then)) in enumerate(zip(call, around), 1):
            if isinstance(step, PollInterval):
                shown = command = f"pfcwd interval {quote(step.milliseconds)}"
            else:
                shown = "config apply-patch"
                command = f'{shown} "$f.{number}"{options_of(step)}'
                split += f'sed -n {number}p "$f" > "$f.{number}" || exit; '
                lines += f"{json.dumps(step.operations)}\n"
            whole += f"{before}timeout {limit_of(step, pace)} {command}{then} || exit; "
        whole = f"{_TO_FILE if lines else ''}{split}{_QUIET}{whole}"
        self.done(whole, PART, shown, lines, most_of(call, pace))

    def wait_for_answer(self) -> None:
        """A change can cut its network for a while; its own timer is much slower."""
        given_up = time.monotonic() + LOST_S
        while True:
            try:
                self._shell.run(":")
            except SwitchError:
                if time.monotonic() >= given_up:
                    return
            else:
                return
            time.sleep(RETRY_S)
            self._shell.reconnect()

    def say(self, line: str) -> None:
        self._shell.say(line)

    def run(self, command: str, timeout_s: int = COMMAND_S) -> Completed:
        return self._shell.run(command, timeout_s=timeout_s)

    def done(
        self,
        command: str,
        state: str,
        shown: str = "",
        stdin: str = "",
        timeout_s: int = COMMAND_S,
    ) -> Completed:
        """Run it. SwitchError with its output where it failed.

        `state`: what that means. `shown`: the part of it that an operator would run by hand.
        """
        answer = self._shell.run(command, stdin=stdin, timeout_s=timeout_s)
        if answer.rc != 0:
            raise failed(shown or command, answer, state)
        return answer


def failed(command: str, answer: Completed, state: str) -> SwitchError:
    why = {TIME_UP: " (it took too long)", TOO_LATE: " (its timer ran out before)"}
    return SwitchError(
        f"`{command}` ended with status {answer.rc}{why.get(answer.rc, '')}{last_lines(answer)}. "
        f"{state[0].upper()}{state[1:]}"
    )


class SonicApplied:
    """In force, not saved, and undone by the switch unless confirmed."""

    def __init__(
        self, switch: SonicSwitch, name: str, steps: list[Step], pace: Pace = ONE_BY_ONE
    ) -> None:
        self._switch, self._name = switch, name
        self._steps_s = [step.takes_s(pace) for step in steps]
        self.begun = len(steps)
        """So many steps can be in force."""
        self._limit_s = max(limit_of(step, pace) for step in steps)
        self._call_s = max(most_of(call, pace) for call in calls_of(steps))
        # From checkpoint to checkpoint, the last one first: to go back to the first at once would
        # be one sort of everything. What is undone has no checkpoint any more, so that this can be
        # interrupted and begun anew. What `config rollback` prints is the patch, with what others
        # changed meanwhile.
        first = self.checkpoint(0)
        interval = "".join(
            f"[ $c != {self.checkpoint(place)} ] || {UNDO_INTERVAL}; "
            for place, step in enumerate(steps)
            if isinstance(step, PollInterval)
        )
        self._undo = (
            f"names=$({LIST_CHECKPOINTS}) || exit; "
            f'case "$names" in *\'"{first}"\'*) ;; *) exit {GONE} ;; esac; '
            f'for c in $(echo "$names" | grep -o "{name}-[0-9]*" | sort -r); do {interval}'
            f"timeout {self._limit_s} config rollback $c{IGNORED} > /dev/null || exit; "
            f"[ $c = {first} ] || config delete-checkpoint $c || exit; done"
        )
        self._patch_ended = (
            "n=0; while pgrep -f '[c]onfig apply-patch' > /dev/null && "
            f"[ $n -lt {self._call_s} ]; do sleep 1; n=$((n + 1)); done; "
        )
        self._saved = False
        """It may be saved, or is."""

    @property
    def undoing_s(self) -> int:
        return SLOWER * sum(self._steps_s[: self.begun])

    def checkpoint(self, place: int) -> str:
        """Taken before the step of that place."""
        return f"{self._name}-{place:03}"

    def take(self, place: int) -> str:
        """A checkpoint; none where it fails: a full disk leaves one that nothing can go back to."""
        name = self.checkpoint(place)
        remove = f"config delete-checkpoint {name} 2> /dev/null"
        return f"config checkpoint {name} || {{ {remove}; exit 1; }}; "

    def arm(self, kind: str, seconds: int) -> str:
        """Roll back in so many seconds, when the patch has ended that is being applied."""
        body = f"{self._patch_ended}{self._back()}"
        return (
            f"systemd-run --quiet --on-active={seconds}s --timer-property=AccuracySec=1s "
            f"--unit={self._name}-{kind} --description={quote(self._switch.owner)} "
            f"/bin/sh -c {quote(body)}"
        )

    def _back(self) -> str:
        save = f" && {{ {saving()}; }}" if self._saved else ""
        return f"{self._undo}{save} && config delete-checkpoint {self.checkpoint(0)}"

    def disarm(self, kind: str) -> str:
        """False where it has struck."""
        return f"systemctl stop {self._name}-{kind}.timer && {self._not_undoing(kind)}"

    def is_active(self, kind: str) -> str:
        timer = f"{self._name}-{kind}.timer"
        return f"systemctl is-active --quiet {timer} && {self._not_undoing(kind)}"

    def _not_undoing(self, kind: str) -> str:
        """A timer is active as well while its service runs."""
        return f"! systemctl is-active --quiet {self._name}-{kind}.service"

    def confirm(self) -> None:
        again = self.arm("unsaved", UNSAVED_S)
        self._saved = True
        answer = self._switch.run(
            f"{self.is_active('confirm')} && {self.disarm('confirm')} || exit {TOO_LATE}; "
            f"{saving()} || {{ {again}; exit {NOT_SAVED}; }}"
        )
        self._saved = answer.rc == 0
        if answer.rc == TOO_LATE:
            raise SwitchError(
                "the switch has undone it already, because it was not confirmed in time. Raise "
                "switch_qos_confirm_s, and look for what makes the switch slow"
            )
        if answer.rc:
            state = "what was applied is not saved, and the switch soon begins to undo it"
            raise failed("config save -y", answer, state)
        # It is kept, even if the run is interrupted here: without some of its checkpoints it cannot
        # be undone. Those that are left over the next run removes.
        with contextlib.suppress(BaseException):
            self._switch.run(
                f"for c in $({LIST_CHECKPOINTS} | grep -o '{self._name}-[0-9]*'); do "
                "config delete-checkpoint $c; done",
                COMMAND_S + self.undoing_s,
            )

    def rollback(self) -> None:
        self.went_back()

    def went_back(self) -> bool:
        """False where there was nothing to go back to, or no more."""
        expected_s = self.undoing_s // SLOWER
        self._switch.say(f"undoing it patch by patch: about {-(-expected_s // 60)} min at most")
        limit_s = self._call_s + self.undoing_s + COMMAND_S
        answer = self._switch.run(self.going_back(), timeout_s=limit_s)
        if answer.rc not in (0, GONE):
            state = (
                f"run `config rollback NAME{IGNORED}` on the switch for each of its checkpoints "
                "(`config list-checkpoints`), the highest number first; what is saved is as it "
                "was, so a reboot undoes it as well"
            )
            raise failed(f"config rollback {self._name}-...", answer, state)
        return answer.rc == 0

    def undo_soon(self) -> None:
        """Begin to go back, and let the switch end it alone."""
        unit = f"--unit={self._name}-undoing --description={quote(self._switch.owner)}"
        unit += f" --property=SuccessExitStatus={GONE}"
        command = f"systemd-run --quiet {unit} /bin/sh -c {quote(self.going_back())}"
        self._switch.done(command, "its timer undoes it", "systemd-run")

    def going_back(self) -> str:
        """Undo now, or wait for the timer's undoing that is under way.

        A patch that a lost connection left behind is still being applied: it ends first.
        """
        stops = "".join(
            f"systemctl stop {self._name}-{kind}.timer 2> /dev/null; "
            f"while systemctl is-active --quiet {self._name}-{kind}.service; do sleep 1; done; "
            for kind in (*GUARDS, "confirm", "unsaved", "again")
        )
        return (
            f"{_QUIET}{self._patch_ended}{stops}( {self._back()} ) || {{ rc=$?; "
            f"[ $rc = {GONE} ] || {self.arm('again', UNSAVED_S)}; exit $rc; }}"
        )

    def undone(self) -> str:
        """Undo, and return the result as a sentence."""
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


def saving() -> str:
    """Save what is in force. Failing that the saved file is as before."""
    backup = f"{SAVED_FILE}.{OURS}backup"
    return (
        f"{{ rm -f {backup}; [ ! -e {SAVED_FILE} ] || cp -p {SAVED_FILE} {backup}; }} && "
        f"{{ {{ config save -y && python3 -m json.tool {SAVED_FILE} > /dev/null; }} || "
        f"{{ [ ! -e {backup} ] || mv -f {backup} {SAVED_FILE}; false; }}; }} && rm -f {backup}"
    )


def _unit(line: str) -> str:
    """Of ours, in a line of `systemctl list-units`."""
    return next((word for word in line.split() if word.startswith(OURS)), "")


def _owner(line: str) -> str:
    """What stands after the unit and its three states."""
    words = line.partition(_unit(line))[2].split(maxsplit=3)
    return words[3] if len(words) > 3 else "owner unknown"


DRIVER = Driver(wanted, difference, report, SonicSwitch)
