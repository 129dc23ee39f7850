# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Launch a run within a time limit, and parse the records in its output.

Three limits expire in turn: this process stops the launcher, the ranks stop themselves, and systemd
stops the unit with every process in it, even if this process was killed.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Optional

from ...core.text import bytes_text
from ..launch.node import LaunchNode
from ..launch.unit import GRACE_S
from .plan import RunPlan

MAX_OUTPUT = 1 << 20
"""Maximum length of other output, for each stream: a thousand ranks may print the same message."""
MAX_RECORDS = 8 << 20
"""Maximum length of all records: about ten times what a thousand nodes write."""
QUIET_S = 10.0
"""Seconds without a record after which the nodes are asked whether they respond."""
MARK = "allreduce-record "
"""Prefix of records, as in the program."""

Records = Sequence[Mapping[str, Any]]
Progress = Callable[[dict[str, Any]], None]


@dataclass
class RunResult:
    rc: int
    timed_out: bool
    seconds: float
    records: list[dict[str, Any]] = field(default_factory=list)
    complaints: str = ""

    @property
    def complete(self) -> bool:
        return any(record["kind"] == "end" for record in self.records)


def launch(
    argv: Sequence[str],
    limit_s: float,
    *,
    stop: Callable[[], object] = lambda: None,
    progress: Progress = lambda _record: None,
    lost: Callable[[], bool] = lambda: False,
    quiet_s: float = QUIET_S,
) -> RunResult:
    """Run `argv` for at most `limit_s`, and pass on each record as it arrives. `stop` stops the
    systemd unit. `lost` is called whenever no record has arrived for `quiet_s`."""
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
    threading.Thread(target=_read, args=(process.stdout, complaints, lines), daemon=True).start()
    errors = threading.Thread(target=_read, args=(process.stderr, complaints), daemon=True)
    errors.start()
    outcome = RunResult(rc=-1, timed_out=False, seconds=0.0)
    until = begin + limit_s
    try:
        while True:
            left = max(0.01, until - time.monotonic())
            try:
                line = lines.get(timeout=min(left, quiet_s))
            except queue.Empty:
                if time.monotonic() < until and not lost():
                    continue
                raise
            if line is None:
                break
            found = record(line)
            if found is not None:
                outcome.records.append(found)
                progress(found)
        process.wait(timeout=max(0.01, until - time.monotonic()))
    except (queue.Empty, subprocess.TimeoutExpired):
        outcome.timed_out = True
        stop()
        _end(process)
    outcome.rc = process.wait()
    errors.join(timeout=GRACE_S)
    outcome.seconds = round(time.monotonic() - begin, 2)
    outcome.complaints = "".join(complaints)
    return outcome


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for the launcher to stop its ranks on every node, then terminate it, then kill it."""
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _read(
    stream: IO[str], kept: list[str], records: Optional[queue.Queue[Optional[str]]] = None
) -> None:
    """Read a stream to its end, but retain only a bounded part: ranks may print endlessly."""
    size = {True: 0, False: 0}
    for line in iter(lambda: stream.readline(MAX_OUTPUT), ""):
        is_record = records is not None and line.startswith(MARK)
        size[is_record] += len(line)
        if size[is_record] > (MAX_RECORDS if is_record else MAX_OUTPUT):
            continue
        if records is not None and is_record:
            records.put(line)
        else:
            kept.append(line)
    if size[True] > MAX_RECORDS:
        kept.insert(0, f"error: the ranks sent records of more than {bytes_text(MAX_RECORDS)}\n")
    if records is not None:
        records.put(None)


def record(line: str) -> Optional[dict[str, Any]]:
    """The record on a line of output; None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        value = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):
        return None  # truncated: the run stopped while it was being written
    return value if isinstance(value, dict) and "kind" in value else None


def of_kind(records: Records, kind: str) -> list[Mapping[str, Any]]:
    return [record for record in records if record["kind"] == kind]


def of_the_end(records: Records, key: str, default: Any) -> Any:
    """A value from the last record; `default` if the run did not complete."""
    return next((record[key] for record in of_kind(records, "end") if key in record), default)


def of_nodes(
    plan: RunPlan, records: Records, kind: str = "host"
) -> list[tuple[LaunchNode, Mapping[str, Any]]]:
    """Records of each node of the plan. A host name may include a domain."""
    nodes = {node.name: node for node in plan.nodes}
    found = [(host["name"], host) for host in of_kind(records, kind)]
    named = [(nodes.get(name) or nodes.get(name.split(".", 1)[0]), host) for name, host in found]
    return [(node, host) for node, host in named if node is not None]
