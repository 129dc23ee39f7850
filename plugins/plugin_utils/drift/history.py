# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""History of drift: one JSON line per appearance and repair of a finding, and per run.

The file is replaced as a whole while a lock is held, so that two runs lose nothing of each other
and a killed run leaves the old file. Lines that are not in this form are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
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
MOST_NAMES = 1000
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
    def of(cls, text: str) -> History:
        history = cls()
        for line in text.split("\n"):
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
        """Whether a run is that old."""
        runs = (event["at"] for event in self.events if event["event"] == RUN)
        return any(_time(at) <= since for at in runs)

    def present(self, since: datetime) -> set[Key]:
        """Findings that were there at any time since then."""
        repaired = {
            key_of(event)
            for event in self.events
            if event["event"] == REPAIRED and _time(event["at"]) >= since
        }
        return repaired | self.open.keys()

    def offenders(self, times: int, since: datetime) -> list[dict[str, Any]]:
        """Parts that appeared in `times` runs since then, the most frequent first."""
        seen: dict[str, set[str]] = {}
        for event in self.events:
            if event["event"] == FOUND and _time(event["at"]) >= since:
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
        _time(event["at"])
        names: tuple[str, ...] = ("at", "event", "findings", "silent")
        if event["event"] == RUN:
            fits = isinstance(event["findings"], int) and isinstance(event["silent"], list)
        else:
            names = ("at", "event", *_KEY, "part")
            fits = event["event"] in (FOUND, REPAIRED)
            fits = fits and all(isinstance(event[name], str) for name in names)
        return {name: event[name] for name in names} if fits else None
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None


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
        history = History.of(_read(path))
        yield history
        save(path, history.text())
    finally:
        os.close(handle)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - MOST_BYTES))
            lines = stream.read(MOST_BYTES).split(b"\n")
    except FileNotFoundError:
        return ""
    texts = (line.decode("utf-8", "replace") for line in lines if len(line) <= MOST_LINE_BYTES)
    return "\n".join(texts)
