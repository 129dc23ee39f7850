# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration sessions: pending, committed, or committed with a timer."""

from __future__ import annotations

import difflib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from common import state as store
from common.server import NoAnswer, Surroundings

from . import config as configs
from .config import Config, Line
from .grammar import Failed, factory


@dataclass
class Session:
    name: str
    config: Config
    state: str = "pending"


class Sessions:
    def __init__(self, surroundings: Surroundings) -> None:
        self._hardware = surroundings.hardware
        self._faults = surroundings.faults
        self._log = surroundings.log
        self._file = surroundings.state / "eos.json"
        self.lock = threading.RLock()
        self.cut: Callable[[], None] = lambda: None
        self._sessions: dict[str, Session] = {}
        self._timer: Optional[threading.Timer] = None
        self._timed = ""
        self._before: Optional[Config] = None
        self.timer_ends = 0.0
        kept = store.read_json(self._file, None)
        self.startup: Config = configs.read(kept) if kept else factory(self._hardware)
        """A switch in service: its name and ports are saved before the first request."""
        self.running = self.startup.copy()
        self._log("boot", saved=bool(kept))

    @property
    def timed(self) -> str:
        """The session that waits for its second commit."""
        return self._timed

    def all(self) -> dict[str, str]:
        return {session.name: session.state for session in self._sessions.values()}

    def enter(self, name: str) -> Session:
        """Return the open session of that name. A new one starts from the running configuration."""
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = Session(name, self.running.copy())
            self._log("session", name=name)
        elif session.state == "completed":
            raise Failed(f"Cannot enter session {name} (already completed)")
        return session

    def existing(self, name: str) -> Session:
        session = self._sessions.get(name)
        if session is None or session.state == "completed":
            raise Failed(f"Session {name} does not exist or is completed")
        return session

    def difference(self, session: Session) -> str:
        lines = difflib.unified_diff(
            configs.written(self.running),
            configs.written(session.config),
            "system:/running-config",
            f"session:/{session.name}-session-config",
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)

    def clean(self, session: Session) -> None:
        session.config = factory(self._hardware)

    def commit(self, session: Session, seconds: float = 0) -> None:
        if session.name == self._timed:
            self._confirm(session)
            return
        if self._timed:
            raise Failed(f"Session {self._timed} is waiting for its commit timer")
        fault = self._faults.take("apply")
        if fault == "rejected":
            self._log("rejected", session=session.name)
            raise Failed("Commit failed: the hardware refused the configuration (simulated)")
        if fault == "disk_full":
            self._log("disk_full", session=session.name)
            raise Failed("Cannot save checkpoint: No space left on device")
        before = self.running
        wanted = session.config.copy()
        self.running = _half(before, wanted) if fault == "partial" else wanted
        self._log("in_force", session=session.name, timer_s=seconds)
        if fault is not None:
            self._log("fault", apply=fault)
        if seconds:
            self._timed, self._before = session.name, before
            session.state = "pendingCommitTimer"
            self.timer_ends = time.time() + seconds
            self._timer = threading.Timer(seconds, self._expired, args=(session.name,))
            self._timer.daemon = True
            self._timer.start()
        else:
            self._complete(session)
        if fault == "cut":
            self.cut()

    def _confirm(self, session: Session) -> None:
        if self._faults.take("confirm") == "lost":
            self._log("confirm_lost", session=session.name)
            raise NoAnswer
        self._stop_timer()
        self._complete(session)

    def _complete(self, session: Session) -> None:
        session.state = "completed"
        done = [one for one in self._sessions.values() if one.state == "completed"]
        for one in done:
            if one is not session:  # only the last one is stored
                del self._sessions[one.name]
        self._log("committed", session=session.name)

    def abort(self, session: Session) -> None:
        if session.name == self._timed:
            self._roll_back("user")
        self._sessions.pop(session.name, None)
        self._log("aborted", session=session.name)

    def _expired(self, name: str) -> None:
        with self.lock:
            if self._timed == name:
                self._roll_back("timer")
                self._sessions.pop(name, None)

    def _roll_back(self, by: str) -> None:
        name = self._timed
        if self._before is not None:
            self.running = self._before
        self._stop_timer()
        self._log("rolled_back", session=name, by=by)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed, self._before, self.timer_ends = None, "", None, 0.0

    def save(self) -> None:
        if self._faults.take_if("apply", "disk_full"):
            self._log("disk_full", at="save")
            raise Failed(
                "Error copying system:/running-config to flash:/startup-config "
                "(No space left on device)"
            )
        self.startup = self.running.copy()
        store.write_json(self._file, self.startup.kept())
        self._log("saved")


def _half(before: Config, wanted: Config) -> Config:
    """Return every second change, block by block; the first change is left out."""
    result = before.copy()
    keys = sorted({*before.top, *wanted.top})
    changed = [key for key in keys if _kept(before, key) != _kept(wanted, key)]
    for index, key in enumerate(changed):
        if index % 2:
            line = wanted.copy().top.get(key)
            if line is None:
                result.top.pop(key, None)
            else:
                result.top[key] = line
    for kind, values in wanted.maps.items():
        for one, to in values.items():
            if one % 2:
                result.maps[kind][one] = to
    return result


def _kept(config: Config, key: str) -> object:
    line: Optional[Line] = config.top.get(key)
    return line.kept() if line is not None else None
