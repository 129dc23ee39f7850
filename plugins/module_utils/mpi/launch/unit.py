# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Command lines of programs that run as the MPI user, within the time limit of a systemd unit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

GRACE_S = 5.0
"""Seconds after SIGTERM within which the launcher must stop its ranks."""


def as_user(user: str, argv: Sequence[str]) -> list[str]:
    """`argv` as `user`, without a login and therefore without a session."""
    return ["runuser", "-u", user, "--", *argv]


def login_shell(user: str, argv: Sequence[str]) -> list[str]:
    """`argv` in a login shell of `user`, whose profile puts MPI on the path."""
    home = Path(f"~{user}").expanduser()
    variables = [f"HOME={home}", f"USER={user}", f"LOGNAME={user}", "LC_ALL=C", "TERM=dumb"]
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    shell = ["/bin/sh", "-lc", f"cd / && exec {shlex.join(argv)}"]
    return as_user(user, ["env", "-i", path, *variables, *shell])


def bounded(
    argv: Sequence[str],
    unit: str,
    limit_s: float,
    *,
    description: str = "MPI allreduce smoke test",
    output: Optional[Path] = None,
    after: Sequence[str] = (),
) -> list[str]:
    """`argv` in a transient unit that systemd stops after `limit_s`, even if the caller is dead.
    `after` is a command that systemd runs whenever the unit has ended."""
    streams = ("StandardOutput", "StandardError") if output else ()
    return [
        "systemd-run",
        "--quiet",
        "--collect",
        "--wait",
        f"--unit={unit}",
        *([f"--property={stream}=append:{output}" for stream in streams] or ["--pipe"]),
        f"--property=Description={description}",
        f"--property=RuntimeMaxSec={limit_s:.0f}",
        f"--property=TimeoutStopSec={GRACE_S:.0f}",
        *([f"--property=ExecStopPost={' '.join(map(_quoted, after))}"] if after else []),
        *argv,
    ]


def _quoted(word: str) -> str:
    """A word of a command line in systemd's syntax, without its variables and specifiers."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("$", "$$"), ("%", "%%")):
        word = word.replace(character, escaped)
    return f'"{word}"'
