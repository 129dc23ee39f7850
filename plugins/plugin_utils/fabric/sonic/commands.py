# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is run on the switch, as root in POSIX sh. Everything in it ships with SONiC.

SONiC has no commit timer. A transient systemd timer takes its place: it rolls back to a checkpoint
unless it is stopped in time, whatever becomes of connection and controller. After a reboot of the
switch there is no timer and nothing to undo: only what was confirmed is saved.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import Protocol

from ....module_utils.core.dataclass import dataclass


@dataclass(frozen=True)
class Completed:
    rc: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """Runs as root, in POSIX sh, without a terminal: what was begun goes on if the line is cut."""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        """Of any status; SwitchError where the connection was lost or time ran out."""

    def reconnect(self) -> None:
        """The next command opens a new connection."""


MOST_CHARACTERS = 600
_NOISE = re.compile(r"^(usage:|try .* for help|\s*$)", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def last_lines(answer: Completed) -> str:
    """`: its last lines`; empty where it printed nothing."""
    text = _COLOUR.sub("", f"{answer.stdout if answer.rc else ''}\n{answer.stderr}")
    lines = dict.fromkeys(line.strip() for line in text.splitlines() if not _NOISE.match(line))
    said = "; ".join(list(lines)[-3:])[:MOST_CHARACTERS]
    return f": {said.rstrip('.')}" if said else ""


OURS = "baremetal-mpi-roce-"
"""Checkpoints and units of the collection begin with it."""
SAVED_FILE = "/etc/sonic/config_db.json"

LIST_CHECKPOINTS = "config list-checkpoints"
UNDO_INTERVAL = "sonic-db-cli CONFIG_DB DEL 'PFC_WD|GLOBAL'"
"""`config rollback` may not remove that row where the rest of the table stays."""

TOO_LATE, NOT_SAVED = 75, 76
"""Exit statuses of `confirm`."""
GONE = "baremetal.mpi_roce: checkpoint gone"
"""What `rollback` says where there is nothing to go back to."""

FORGET = "-forget"
FORGET_S = 1800
"""Ends the unit that clears up after a run whose controller was lost as soon as it had saved."""

LOCK = f"{OURS}lock"
LOCK_S = 600
LOCK_PATIENCE_S = 30
"""An undoing does not wait longer for a lock: it is more urgent than whatever that is for."""

_TO_FILE = (
    "umask 077; f=$(mktemp /tmp/baremetal-mpi-roce.XXXXXX) || exit; "
    "trap 'rm -f \"$f\"' EXIT; trap 'exit 129' HUP INT TERM; cat > \"$f\" || exit; "
)
"""The patch comes on standard input and is on the switch's disk only while it is applied."""


def checkpoint(name: str) -> str:
    return f"config checkpoint {quote(name)}"


def delete_checkpoint(name: str) -> str:
    return f"config delete-checkpoint {quote(name)}"


def dry_run(limit_s: int) -> str:
    return f'{_TO_FILE}timeout {limit_s} config apply-patch -d "$f"'


def apply_patch(limit_s: int, then: str = "") -> str:
    """`then` runs on the switch right after, even if the connection has gone in the meantime."""
    return f'{_TO_FILE}timeout {limit_s} config apply-patch "$f"' + (f" && {then}" if then else "")


def poll_interval(milliseconds: str) -> str:
    return f"pfcwd interval {quote(milliseconds)}"


def lock(who: str, seconds: int = LOCK_S) -> str:
    """One run at a time between its look at what others do and its own timer, which they see.

    A timer of a fixed name that does nothing: systemd makes no second one, lists it with who made
    it, and removes it even if the run has ended.
    """
    return (
        f"systemd-run --quiet --on-active={seconds}s --unit={LOCK} "
        f"--description={quote(who)} /bin/true"
    )


def unlock() -> str:
    return f"systemctl stop {LOCK}.timer"


def _locked(who: str, seconds: int) -> str:
    """For the rest of this shell."""
    return (
        f"w=0; while [ $w -lt {LOCK_PATIENCE_S} ]; do "
        f"if {lock(who, seconds)} 2> /dev/null; then trap {quote(unlock())} EXIT; break; fi; "
        "sleep 1; w=$((w + 1)); done; "
    )


def arm(unit: str, name: str, seconds: int, undo: str, who: str = "") -> str:
    """Roll back to checkpoint `name` in so many seconds."""
    body = f"{_undoing(name, undo)} && {delete_checkpoint(name)}"
    described = f"--description={quote(who)} " if who else ""
    return (
        f"systemd-run --quiet --on-active={seconds}s --timer-property=AccuracySec=1s "
        f"--unit={quote(unit)} {described}/bin/sh -c {quote(body)}"
    )


def disarm(unit: str) -> str:
    return f"systemctl stop {quote(unit)}.timer"


def confirm(unit: str, name: str, undo: str, who: str) -> str:
    """Save what is in force. Failing that the saved file is as before, and the switch undoes it."""
    again = arm(f"{unit}-unsaved", name, 30, undo, who)
    return (
        f"{_locked(who, LOCK_S)}"
        f"systemctl is-active --quiet {quote(unit)}.timer || exit {TOO_LATE}; "
        f"{disarm(unit)}; "
        f"systemctl is-active --quiet {quote(unit)}.service && exit {TOO_LATE}; "
        f"{_saving(name, again)}; {_forget_later(name, who)}"
    )


def save(name: str, who: str) -> str:
    """Save what is in force, and was not put there by this run."""
    return f"{_locked(who, LOCK_S)}{_saving(name, ':')}; rm -f {quote(_backup(name))}"


def _saving(name: str, failed: str) -> str:
    """Failing that the saved file is as before."""
    backup = quote(_backup(name))
    return (
        f"fail() {{ [ ! -e {backup} ] || mv -f {backup} {SAVED_FILE}; {failed}; "
        f"exit {NOT_SAVED}; }}; "
        f"[ ! -e {SAVED_FILE} ] || cp -p {SAVED_FILE} {backup} || {{ rm -f {backup}; fail; }}; "
        f"config save -y || fail; "
        f"python3 -m json.tool {SAVED_FILE} > /dev/null || fail"
    )


def forget(name: str) -> str:
    """The way back, once it is known that what is in force is saved."""
    return f"{_stop(f'{name}{FORGET}')}rm -f {quote(_backup(name))}; {delete_checkpoint(name)}"


def _forget_later(name: str, who: str) -> str:
    """The copy of the saved file holds passwords: the switch itself removes it later."""
    body = f"rm -f {quote(_backup(name))}; {delete_checkpoint(name)}; true"
    return (
        f"systemd-run --quiet --on-active={FORGET_S}s --unit={quote(name + FORGET)} "
        f"--description={quote(who)} /bin/sh -c {quote(body)} || true"
    )


def _stop(unit: str) -> str:
    """Without a word where there is none, and not before what it has begun has ended."""
    return (
        f"systemctl stop {quote(unit)}.timer 2> /dev/null; "
        f"while systemctl is-active --quiet {quote(unit)}.service; do sleep 1; done; "
    )


def forget_backups() -> str:
    """Of runs that were cut off while they saved."""
    return f"rm -f {SAVED_FILE}.{OURS}*"


def undo_soon(unit: str, command: str, who: str) -> str:
    """Begin `rollback`, and let the switch end it alone."""
    return (
        f"systemd-run --quiet --unit={quote(unit)} --description={quote(who)} "
        f"/bin/sh -c {quote(command)}"
    )


def rollback(units: tuple[str, ...], name: str, limit_s: int, undo: str, who: str) -> str:
    """Undo now, or wait for the timer's undoing that is under way; what was saved as well.

    A patch that a lost connection left behind is still being applied: it ends first.
    """
    waiting = "n=0; while pgrep -f '[c]onfig apply-patch' > /dev/null && [ $n -lt %d ]; "
    stops = "".join(map(_stop, units))
    backup = quote(_backup(name))
    return (
        f"{waiting % limit_s}do sleep 1; n=$((n + 1)); done; "
        f"{_locked(who, limit_s + LOCK_S)}{stops}"
        f"[ ! -e {backup} ] || mv -f {backup} {SAVED_FILE} || exit; "
        f"names=$({LIST_CHECKPOINTS}) || exit; "
        f'case "$names" in *\'"{name}"\'*) ;; *) echo {quote(GONE)}; exit 0 ;; esac; '
        f"timeout {limit_s} /bin/sh -c {quote(_undoing(name, undo))} && {delete_checkpoint(name)}"
    )


def _backup(name: str) -> str:
    return f"{SAVED_FILE}.{name}"


def _undoing(name: str, undo: str) -> str:
    # What it prints is the patch, with what others changed meanwhile.
    rollback = f"config rollback {quote(name)} > /dev/null"
    return f"{undo}; {rollback}" if undo else rollback
