# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running programs on the node: fixed locale, bounded time, errors an operator can act on."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Optional, Protocol

SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where programs of the administrator are; the PATH of a plain login does not have them."""
REAP_S = 5.0
"""Seconds that a killed program has to go. One in uninterruptible sleep (a hung driver) may not."""


@dataclass(frozen=True)
class Result:
    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """A program failed, is missing, or took too long; the text has its command and output."""


class NoAnswerError(CommandError):
    """A program took too long, and was ended with every process it had started."""

    def __init__(self, shown: str, timeout_s: float) -> None:
        super().__init__(f"{shown}: no answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class Runner(Protocol):
    """How module_utils runs a program; tests pass a recorded one."""

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result: ...


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    stdin: Optional[str] = None,
    timeout_s: float = 60.0,
    env: Optional[Mapping[str, str]] = None,
    pass_fds: Sequence[int] = (),
) -> Result:
    """Run `argv` (never through a shell) and return what it printed.

    Raises CommandError when the program is missing, exceeds `timeout_s`, or (with `check`) exits
    non-zero.
    """
    shown = " ".join(shlex.quote(word) for word in argv)
    environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})}
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=pass_fds,
            start_new_session=True,  # a group of its own, which can be ended as a whole
        )
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]}: not installed (wanted to run: {shown})") from error
    # Not `with process`: that waits for its end without a limit.
    try:
        stdout, stderr = process.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise NoAnswerError(shown, timeout_s) from error
    except BaseException:
        _end(process)
        raise
    result = Result(tuple(argv), process.returncode, stdout, stderr)
    if check and result.rc != 0:
        output = (result.stderr.strip() or result.stdout.strip() or "it printed nothing")[-2000:]
        raise CommandError(f"{shown}: exit status {result.rc}: {output}")
    return result


def search_path() -> str:
    """PATH, followed by the directories of the administrator's programs that it lacks."""
    there = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*there, *(one for one in SYSTEM if one not in there)])


def find_program(name: str) -> Optional[str]:
    """Where `run` finds a program, or None."""
    return shutil.which(name, path=search_path())


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a program and what it started: a killed ssh or runuser leaves its children running.

    What does not go in time is left to the kernel, which ends it as soon as it wakes up.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.close()
