# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running programs on the node: fixed locale, bounded time, errors an operator can act on."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional, Protocol


@dataclass(frozen=True)
class Result:
    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """A program failed, is missing, or took too long; the text says which and what it printed."""


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
) -> Result:
    """Run `argv` (never through a shell) and return what it printed.

    Raises CommandError when the program is missing, exceeds `timeout_s`, or (with `check`) exits
    non-zero.
    """
    shown = " ".join(shlex.quote(word) for word in argv)
    environment = {**os.environ, "LC_ALL": "C", **(env or {})}
    try:
        done = subprocess.run(
            list(argv),
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]}: not installed (wanted to run: {shown})") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{shown}: no answer within {timeout_s:g} s") from error
    result = Result(tuple(argv), done.returncode, done.stdout, done.stderr)
    if check and result.rc != 0:
        told = (result.stderr.strip() or result.stdout.strip() or "it printed nothing")[-2000:]
        raise CommandError(f"{shown}: exit status {result.rc}: {told}")
    return result
