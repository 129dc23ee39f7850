# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Revisions: configurations with a state. One of them is applied, one of them is saved.

    pending -> apply -> checking -> checked -> verifying -> verified -> (ays) -> readying -> ready
            -> reloading -> reloaded -> (confirm) -> applied | applied_and_saved

A failed apply ends in `invalid`, `ays_fail`, `ready_error`, `apply_fail` or `confirm_fail`. In each
case the previous revision stays applied, or is applied again.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from common import state as store
from common.server import NoAnswer, Surroundings
from common.state import Faults

from . import effective, schema, vendor
from .tree import Tree, difference, ends, merged, under

PROMPT_SECONDS = 10.0
"""How long the question about a new buffer layout waits for an answer."""
STEPS = ("checking", "checked", "verifying", "verified")
LATER_STEPS = ("readying", "ready", "reloading", "reloaded")
SETTLED = ("applied", "applied_and_saved", "saved", "save", "saving", "auto_save")
EDITABLE = ("pending", "invalid", "ays_fail", "confirm_fail", "ready_error", "inactive")
PROMPTED = ("roce", "pfc", "traffic-pool", "link-pause", "advance-buffer-config")
"""Branches of qos that change the buffer layout, which NVUE asks to confirm."""


class Unknown(Exception):
    """There is no such revision."""


class NotNow(Exception):
    """The state of the revision does not permit that."""


@dataclass
class Revision:
    number: str
    config: Tree
    base: Tree
    """Configuration that the revision was created from. Only the difference is carried over."""
    state: str = "pending"
    progress: str = ""
    issues: list[dict[str, Any]] = field(default_factory=list)
    was_applied: bool = False
    confirm_s: float = 0.0
    answers: dict[str, str] = field(default_factory=dict)

    def shown(self) -> Tree:
        return {
            "state": self.state,
            "transition": {
                "issue": {str(index): issue for index, issue in enumerate(self.issues)},
                "progress": self.progress,
            },
        }

    def kept(self) -> Tree:
        return {
            "config": self.config,
            "base": self.base,
            "state": self.state,
            "was_applied": self.was_applied,
        }


class Revisions:
    def __init__(self, surroundings: Surroundings) -> None:
        self._hardware = surroundings.hardware
        self._release = vendor.version(surroundings.hardware)
        self._schema = schema.root(self._release)
        self._faults: Faults = surroundings.faults
        self._log = surroundings.log
        self._file = surroundings.state / "nvue.json"
        self.lock = threading.RLock()
        self._turn = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self.cut: Callable[[], None] = lambda: None
        self._boot()

    def _boot(self) -> None:
        """Start from the saved revision. An apply in progress at the reboot is lost."""
        kept = store.read_json(self._file, {})
        self.startup: Tree = kept.get("startup", vendor.factory(self._hardware))
        self._next = int(kept.get("next", 1))
        self._all = {
            number: Revision(
                number,
                entry["config"],
                entry["base"],
                entry["state"],
                was_applied=entry["was_applied"],
            )
            for number, entry in kept.get("revisions", {}).items()
        }
        for revision in self._all.values():
            if revision.state not in ("pending", "invalid", *SETTLED):
                revision.state = "inactive"
        last = self._all.get(kept.get("applied", ""))
        if last is None or last.config != self.startup:
            last = self._new(self.startup)
            last.state, last.was_applied = "applied", True
        self._applied = last.number
        self._saved = ""
        """The revision created by applying the saved configuration, if there was one."""
        self.running = copy.deepcopy(self.startup)
        """Configuration in effect. It differs from the applied revision if an apply failed."""
        self._keep()
        self._log("boot", revision=last.number)

    def _keep(self) -> None:
        store.write_json(
            self._file,
            {
                "startup": self.startup,
                "applied": self._applied,
                "next": self._next,
                "revisions": {number: entry.kept() for number, entry in self._all.items()},
            },
        )

    def _new(self, config: Tree) -> Revision:
        revision = Revision(str(self._next), copy.deepcopy(config), copy.deepcopy(config))
        self._next += 1
        self._all[revision.number] = revision
        return revision

    def create(self, base: str) -> Revision:
        with self.lock:
            revision = self._new(self.config(base or "applied"))
            self._keep()
            self._log("revision", number=revision.number)
            return revision

    def get(self, name: str) -> Revision:
        with self.lock:
            found = self._all.get(
                {"applied": self._applied, "startup": self._saved}.get(name, name)
            )
            if found is None:
                raise Unknown(name)
            return found

    def all(self) -> dict[str, Tree]:
        with self.lock:
            return {number: entry.shown() for number, entry in self._all.items()}

    def config(self, name: str) -> Tree:
        with self.lock:
            if name == "startup":
                return copy.deepcopy(self.startup)
            if name == "empty":
                return {}
            return copy.deepcopy(self.get(name).config)

    def edit(self, name: str, config: Tree) -> None:
        with self.lock:
            revision = self.get(name)
            if revision.state not in EDITABLE:
                raise NotNow(f"Revision {name} is {revision.state!r} and cannot be changed")
            revision.config = schema.pruned(self._schema, config)
            revision.state, revision.progress, revision.issues = "pending", "", []
            self._keep()

    def delete(self, name: str) -> None:
        with self.lock:
            revision = self.get(name)
            if revision.state not in EDITABLE:
                raise NotNow(f"Revision {name} is {revision.state!r} and cannot be deleted")
            del self._all[revision.number]
            self._keep()
            self._log("deleted", revision=name)

    def command(self, name: str, given: Tree) -> Tree:
        """Handle a PATCH of the revision itself: apply, answer, confirm, save."""
        with self.lock:
            if name == "startup" and given.get("state") == "apply":
                again = self._new(self.startup)
                again.was_applied, self._saved = True, again.number
            revision = self.get(name)
            wanted = given.get("state")
            answers = given.get("auto-prompt") or {}
            if wanted == "apply":
                if revision.state in ("apply", *STEPS, *LATER_STEPS, "ays", "confirm"):
                    raise NotNow(f"Revision {name} is in state {revision.state!r} already")
                revision.confirm_s = _seconds((given.get("state-controls") or {}).get("confirm"))
                revision.answers = {key: str(value) for key, value in answers.items()}
                self._state(revision, "apply")
                self._keep()
                threading.Thread(target=self._apply, args=(revision,), daemon=True).start()
            elif wanted in ("ays_yes", "ays_no") and revision.state == "ays":
                self._state(revision, wanted)
            elif wanted in ("confirm_yes", "confirm_no", "confirm_fail"):
                if revision.state != "confirm":
                    raise NotNow(f"Revision {name} is in state {revision.state!r}, not 'confirm'")
                if wanted == "confirm_yes" and self._faults.take("confirm") == "lost":
                    self._log("confirm_lost", revision=name)
                    raise NoAnswer
                self._state(revision, wanted)
            elif wanted == "save":
                self._save(revision)
            else:
                raise NotNow(f"Revision {name} cannot go from {revision.state!r} to {wanted!r}")
            return revision.shown()

    def _save(self, revision: Revision) -> None:
        if revision.number != self._applied or revision.state not in SETTLED:
            raise NotNow(f"Revision {revision.number} is not applied and cannot be saved")
        if self._faults.take_if("apply", "disk_full"):
            self._log("disk_full", at="save")
            raise OSError("No space left on device: '/etc/nvue.d/startup.yaml'")
        self.startup = copy.deepcopy(revision.config)
        revision.state = "applied_and_saved" if vendor.saves_by_itself(self._release) else "saved"
        self._keep()
        self._log("saved", revision=revision.number)

    def _state(self, revision: Revision, state: str, progress: str = "") -> None:
        with self._changed:
            revision.state, revision.progress = state, progress
            self._changed.notify_all()

    def _walk(self, revision: Revision, states: tuple[str, ...]) -> None:
        for state in states:
            self._state(revision, state)
            time.sleep(self._hardware.step_s)

    def _apply(self, revision: Revision) -> None:
        """Apply one revision. Others wait in state `apply` until it is done."""
        with self._turn:
            try:
                self._carry_out(revision)
            except _Ended as ended:
                issue = {"code": ended.code, "data": {}, "message": str(ended), "severity": "error"}
                with self.lock:
                    revision.issues = [issue]
                    self._state(revision, ended.state, ended.progress)
                    self._keep()
                    self._log(ended.state, revision=revision.number)

    def _carry_out(self, revision: Revision) -> None:
        time.sleep(self._hardware.step_s)
        self._walk(revision, STEPS)
        with self.lock:
            before, number_before = copy.deepcopy(self.running), self._applied
            wanted = self._rebased(revision)
        fault = self._faults.take("apply")
        try:
            effective.check(wanted, self._hardware)
            if fault == "rejected":
                raise effective.Invalid("qos", "The hardware refused the configuration (simulated)")
        except effective.Invalid as problem:
            text = f"Config invalid at {problem.location}: {problem.reason}\n"
            raise _Ended("invalid", "Invalid config", text, "config_invalid") from problem
        self._ask(revision, before, wanted)
        self._walk(revision, LATER_STEPS[:1])
        if fault == "disk_full":
            file = "/etc/cumulus/datapath/qos/qos_features.conf"
            text = f"[Errno 28] No space left on device: {file!r}"
            raise _Ended("ready_error", "Failed to ready", text)
        self._walk(revision, LATER_STEPS[1:])
        with self.lock:
            self.running = _half(before, wanted) if fault == "partial" else wanted
            revision.config, revision.base = copy.deepcopy(wanted), copy.deepcopy(wanted)
            revision.was_applied = True
            self._applied = revision.number
            self._log("in_force", revision=revision.number, confirm_s=revision.confirm_s)
            if fault is not None:
                self._log("fault", apply=fault)
        if fault == "cut":
            self.cut()
        if revision.confirm_s:
            self._wait_for_confirmation(revision, before, number_before)
        self._settle(revision)

    def _rebased(self, revision: Revision) -> Tree:
        """Return the revision's changes on top of the applied configuration.

        A revision that was applied before is returned unchanged.
        """
        if revision.was_applied:
            return copy.deepcopy(revision.config)
        changed = difference(revision.config, revision.base)
        return schema.pruned(self._schema, merged(self.config("applied"), changed))

    def _ask(self, revision: Revision, before: Tree, wanted: Tree) -> None:
        """Ask to confirm a new buffer layout, unless it was confirmed in advance."""
        changed = difference(wanted, before).get("qos") or {}
        if not any(branch in changed for branch in PROMPTED):
            return
        answer = revision.answers.get("ays")
        if answer is None:
            with self._changed:
                self._state(revision, "ays", "Are you sure?")
                self._changed.wait_for(lambda: revision.state != "ays", PROMPT_SECONDS)
                answer = revision.state
        if answer != "ays_yes":
            text = "Timeout while waiting for client response"
            raise _Ended("ays_fail", "Aborted apply after warnings", text, "client_timeout")

    def _wait_for_confirmation(self, revision: Revision, before: Tree, number_before: str) -> None:
        with self._changed:
            self._state(revision, "confirm", "Waiting for confirmation")
            self._changed.wait_for(lambda: revision.state != "confirm", revision.confirm_s)
            if revision.state == "confirm_yes":
                return
            timed_out = revision.state == "confirm"
            self.running = before
            self._applied = number_before
            self._log("rolled_back", revision=revision.number, by="timer" if timed_out else "user")
        raise _Ended(
            "confirm_fail",
            "Rolled back: not confirmed",
            "Timeout while waiting for confirmation" if timed_out else "Not confirmed",
            "client_timeout" if timed_out else "generic",
        )

    def _settle(self, revision: Revision) -> None:
        with self.lock:
            saves = vendor.saves_by_itself(self._release) and effective.is_able(
                _auto_save(revision.config)
            )
            if saves:
                self.startup = copy.deepcopy(revision.config)
            self._state(revision, "applied_and_saved" if saves else "applied")
            self._keep()
            self._log("applied", revision=revision.number, saved=saves)


class _Ended(Exception):
    """Finish the revision in this state."""

    def __init__(self, state: str, progress: str, text: str, code: str = "generic") -> None:
        super().__init__(text)
        self.state = state
        self.progress = progress
        self.code = code


def _seconds(given: Any) -> float:
    if given is None:
        return 0.0
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        raise schema.Refused(f"{given!r} is not of type 'integer' - 'state-controls.confirm'")
    return float(given)


def _auto_save(config: Tree) -> Any:
    given = config.get("system", {}).get("config", {}).get("auto-save", {})
    return given.get("enable", given.get("state", "on"))


def _half(before: Tree, wanted: Tree) -> Tree:
    """Return every second changed value; the first one is left out."""
    result = copy.deepcopy(before)
    for index, (way, value) in enumerate(ends(difference(wanted, before))):
        if index % 2:
            result = merged(result, under(way, value))
    return result
