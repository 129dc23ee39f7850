# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""History of drift: one JSON line per appearance and repair of a finding, and per run.

The file is replaced as a whole while a lock is held, so that two runs lose nothing of each other
and a killed run leaves the old file. Lines that are not in this form, such as
texts with control characters, are skipped, as the operator sees some of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.files import make_directories
from ...module_utils.core.locks import acquire
from ..report.reports import save

FILE = "history/drift.jsonl"
"""Relative to the folder of a cluster's reports."""
FOUND, REPAIRED, RUN = "found", "repaired", "run"
MOST_LINES = 10_000
"""With more lines, the oldest half is dropped, except appearances that are not repaired."""
MOST_PER_HOST = 1000
"""Maximum number of findings of one host in the history, so that no host displaces the others."""
MOST_LINE_BYTES = 1 << 16
MOST_BYTES = 1 << 26
"""Only the end of a longer file is read."""
MOST_NAMES = 200
"""Maximum number of silent hosts in a line, which must not become longer than MOST_LINE_BYTES."""
MOST_TEXT = 1000
"""Maximum length of a text in an event; those of findings are shorter."""
MOST_OFFENDERS = 100
PATIENCE_S = 30.0
_KEY = ("host", "layer", "check", "subject")

Key = tuple[str, str, str, str]
Event = dict[str, Any]


def key_of(item: Mapping[str, Any]) -> Key:
    host, layer, check, subject = (item[name] for name in _KEY)
    return host, layer, check, subject


@dataclass
class History:
    events: list[Event] = field(default_factory=list)
    open: dict[Key, Event] = field(default_factory=dict)
    """The last appearance of each finding that was not repaired since."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> History:
        history = cls()
        for line in lines:
            event = _event(line)
            if event is not None:
                history.add(event)
        return history

    def add(self, event: Event) -> None:
        """Add an event; one that repeats the state of its finding is left out."""
        if event["event"] != RUN:
            key, appears = key_of(event), event["event"] == FOUND
            if appears == (key in self.open):
                return
            if appears:
                self.open[key] = event
            else:
                del self.open[key]
        self.events.append(event)

    def text(self) -> str:
        return "".join(json.dumps(event) + "\n" for event in self.events)

    def take(
        self,
        at: str,
        findings: Sequence[Mapping[str, Any]],
        clean: Callable[[Key], bool],
        silent: Iterable[str],
    ) -> None:
        """Add what a run found. `clean`: whether it looked at a finding that it does not have."""
        counts: dict[str, int] = {}
        now: dict[Key, Mapping[str, Any]] = {}
        for finding in findings:
            counts[finding["host"]] = count = counts.get(finding["host"], 0) + 1
            if count <= MOST_PER_HOST:
                now[key_of(finding)] = finding
        for key, event in list(self.open.items()):
            if key not in now and clean(key):
                self.add({**event, "at": at, "event": REPAIRED})
        for key, finding in now.items():
            part = finding["part"]
            self.add({"at": at, "event": FOUND, **dict(zip(_KEY, key)), "part": part})
        lost = sorted(silent)[:MOST_NAMES]
        self.events.append({"at": at, "event": RUN, "findings": len(findings), "silent": lost})
        if len(self.events) > MOST_LINES:
            still = {id(event) for event in self.open.values()}
            half = len(self.events) - MOST_LINES // 2
            kept = [event for event in self.events[:half] if id(event) in still]
            self.events = kept + self.events[half:]

    def covers(self, since: datetime) -> bool:
        """Whether the first run is that old. The clock may have been wrong in a later one."""
        first = next((event["at"] for event in self.events if event["event"] == RUN), "")
        return bool(first) and _time(first) <= since

    def present(self, since: datetime) -> set[Key]:
        """Findings that were there at any time since then."""
        repaired = {
            key_of(event)
            for event in self.events
            if event["event"] == REPAIRED and _time(event["at"]) >= since
        }
        return repaired | self.open.keys()

    def offenders(self, times: int, since: datetime, now: datetime) -> list[dict[str, Any]]:
        """Parts that appeared in `times` runs since then, the most frequent first."""
        seen: dict[str, set[str]] = {}
        for event in self.events:
            if event["event"] == FOUND and since <= _time(event["at"]) <= now:
                seen.setdefault(event["part"], set()).add(event["at"])
        most = sorted(seen.items(), key=lambda item: (-len(item[1]), item[0]))
        return [
            {"part": part, "times": len(runs), "last": max(runs)}
            for part, runs in most[:MOST_OFFENDERS]
            if len(runs) >= times
        ]


def _event(line: str) -> Optional[Event]:
    """The event in a line; None for anything else, such as the rest of a line."""
    try:
        event = json.loads(line)
        kind, at = event["event"], _time(event["at"]).astimezone(timezone.utc).isoformat()
        if kind == RUN:
            found, silent = event["findings"], [*filter(_plain, event["silent"])]
            fits = isinstance(found, int)
            return {"at": at, "event": RUN, "findings": found, "silent": silent} if fits else None
        texts = {name: event[name] for name in (*_KEY, "part")}
        fits = kind in (FOUND, REPAIRED) and all(map(_plain, texts.values()))
        return {"at": at, "event": kind, **texts} if fits else None
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None


def _plain(text: Any) -> bool:
    return isinstance(text, str) and text.isprintable() and len(text) <= MOST_TEXT


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def since(now: datetime, days: int) -> datetime:
    return now - timedelta(days=days)


@contextlib.contextmanager
def changing(folder: Path) -> Iterator[History]:
    """Read the history, and save it afterwards. Raises OSError, and HeldError of a lock."""
    path = folder / FILE
    make_directories(path.parent, 0o750)
    # The kernel locks a file that is open for reading too, and other operators can open it.
    handle = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)
    try:
        acquire(handle, path.with_suffix(".lock"), PATIENCE_S)
        for unfinished in path.parent.glob(f".{path.name}.*"):  # of a killed run
            with contextlib.suppress(OSError):
                unfinished.unlink()
        history = History.of(_lines(path))
        yield history
        save(path, history.text())
    finally:
        os.close(handle)


def _lines(path: Path) -> Iterator[str]:
    """Lines of the end of the file; none if it is missing or not a file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer of a pipe
    except FileNotFoundError:
        return
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return
        size = min(status.st_size, MOST_BYTES)
        content = os.pread(handle, size, status.st_size - size)
    finally:
        os.close(handle)
    for line in io.BytesIO(content):
        if 1 < len(line) <= MOST_LINE_BYTES:
            yield line.decode("utf-8", "replace")
