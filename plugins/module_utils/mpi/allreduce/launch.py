# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Launching a run that is sure to end, whatever becomes of the one who launched it.

Three clocks, each inside the next: the ranks end themselves, this process stops the launcher, and
systemd ends the unit (with every process in it) should this process have been killed.
"""

from __future__ import annotations

import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO, Any, Optional

from ...core.dataclass import dataclass
from .hosts import as_user
from .parse import record

KEPT_BYTES = 1 << 20
"""Of the launcher's complaints: a thousand ranks all saying the same need not be kept."""
GRACE_S = 5.0
"""Time for the launcher to end its ranks after the request to stop."""


@dataclass
class Outcome:
    """How a run ended and what it said."""

    rc: int
    timed_out: bool
    seconds: float
    records: list[dict[str, Any]] = field(default_factory=list)
    complaints: str = ""

    @property
    def complete(self) -> bool:
        """The program came to its end and reported."""
        return any(one["kind"] == "end" for one in self.records)


Progress = Callable[[dict[str, Any]], None]


def login_shell(user: str, argv: Sequence[str]) -> list[str]:
    """`argv` as `user` gets it after a login: with the profile, hence with MPI on the path."""
    home = Path(f"~{user}").expanduser()
    variables = [f"HOME={home}", f"USER={user}", f"LOGNAME={user}", "LC_ALL=C", "TERM=dumb"]
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    shell = ["/bin/sh", "-lc", f"cd / && exec {shlex.join(argv)}"]
    return as_user(user, ["env", "-i", path, *variables, *shell])


def bounded(argv: Sequence[str], unit: str, limit_s: float, root: Path = Path("/")) -> list[str]:
    """`argv` under a guardian that ends it after `limit_s`, even when nothing waits for it."""
    if (root / "run/systemd/system").is_dir():
        return [
            *("systemd-run", "--quiet", "--collect", "--pipe", "--wait", f"--unit={unit}"),
            "--property=Description=MPI allreduce smoke test",
            f"--property=RuntimeMaxSec={limit_s:.0f}",
            f"--property=TimeoutStopSec={GRACE_S:.0f}",
            *argv,
        ]
    return ["timeout", f"--kill-after={GRACE_S:.0f}", f"{limit_s:.0f}", *argv]


def launch(
    argv: Sequence[str],
    limit_s: float,
    *,
    stop: Optional[Callable[[], object]] = None,
    progress: Optional[Progress] = None,
) -> Outcome:
    """Run `argv` for at most `limit_s`; hand each record on as it comes.

    `stop` ends what runs outside this process's own children (the systemd unit).
    """
    begin = time.monotonic()
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: queue.Queue[Optional[str]] = queue.Queue()
    complaints: list[str] = []
    if process.stdout is None or process.stderr is None:
        raise RuntimeError("a pipe of the launcher is missing")
    readers = [
        threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True),
        threading.Thread(target=_keep, args=(process.stderr, complaints), daemon=True),
    ]
    for reader in readers:
        reader.start()

    outcome = Outcome(rc=-1, timed_out=False, seconds=0.0)
    until = begin + limit_s
    while True:
        left = until - time.monotonic()
        try:
            line = lines.get(timeout=max(0.01, left))
        except queue.Empty:
            outcome.timed_out = True
            break
        if line is None:
            break
        found = record(line)
        if found is None:
            complaints.append(line)
            continue
        outcome.records.append(found)
        if progress is not None:
            progress(found)
    if not outcome.timed_out:
        try:
            process.wait(timeout=max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            outcome.timed_out = True
    if outcome.timed_out:
        _end(process, stop)
    outcome.rc = process.wait()
    readers[1].join(timeout=GRACE_S)
    outcome.seconds = round(time.monotonic() - begin, 2)
    outcome.complaints = "".join(complaints)[:KEPT_BYTES]
    return outcome


def _end(process: subprocess.Popen[str], stop: Optional[Callable[[], object]]) -> None:
    """Ask the launcher to stop: it ends its ranks on every node. Then insist."""
    if stop is not None:
        stop()
    try:
        process.wait(timeout=0.5 if stop is not None else 0.01)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _forward(stream: IO[str], lines: queue.Queue[Optional[str]]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _keep(stream: IO[str], kept: list[str]) -> None:
    size = 0
    for line in stream:
        size += len(line)
        if size <= KEPT_BYTES:
            kept.append(line)
