# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Take one switch to its desired state, or back.

Read, compare, apply under a timer on the switch, read again over a new connection until the links
are up as before, and confirm. On any fault, undo the change, read again, and report whether the
former state is back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.core.text import some
from ...module_utils.core.waiting import until
from .asics import WantedError
from .base import SystemDriver
from .system import Applied, Difference, SwitchConnection, SwitchError, SwitchIntent, SwitchReport

IMPACTS = ("none", "loss", "bounce")

MARGIN_S = 60
"""Time that a switch gets after its timer to finish undoing a change."""
SETTLE_S = 20
"""Time after an acknowledged rollback until no part of the change is left."""
PAUSE_S = 3
LINKS_S = 60
"""Time for links to come up again after a change; 800G trains slowly."""
DARK_SHARE = 0.1
"""A guess: a change is undone if more than this share of the links that it took down stay down. A
rebooting node is no reason to take all links down again."""
CONFIRM_S = (10, 86400)
"""Limits of the timer, in seconds. Without a timer a switch would keep an unverified change."""
MAX_LISTED_VALUES = 3


def too_dark(dark: Collection[str], bounced: Collection[str]) -> bool:
    return len(dark) > DARK_SHARE * len(bounced)


class Interrupted(BaseException):
    """The run was interrupted. Not an Exception, so that no handler treats it as a fault."""


@dataclass
class SessionClock:
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class SessionOutcome:
    difference: Optional[Difference] = None
    remaining: Optional[Difference] = None
    report: Optional[SwitchReport] = None
    changed: bool = False
    error: str = ""
    restored: Optional[bool] = None
    """Whether the former state was read back after a failed change; None if nothing was applied."""


@dataclass(frozen=True)
class Seen:
    difference: Difference
    report: SwitchReport


def run(
    driver: SystemDriver,
    switch: SwitchConnection,
    intent: SwitchIntent,
    *,
    apply: bool,
    confirm_s: int,
    allowed: str = "bounce",
    display: Callable[[str], None] = lambda line: None,
    clock: Optional[SessionClock] = None,
) -> SessionOutcome:
    """Plan a switch, and with `apply` apply the plan. Faults are returned in the outcome.

    Raises only `Interrupted` and the like, after undoing the change.
    """
    least, most = CONFIRM_S
    if not least <= confirm_s <= most:
        return SessionOutcome(
            error=f"{intent.name}: switch_qos_confirm_s is {confirm_s}; it must be from {least} to "
            f"{most} seconds. Nothing was done."
        )
    session = _Session(driver, switch, intent, confirm_s, display, clock or SessionClock())
    return session.run(apply, allowed)


@dataclass
class _Session:
    driver: SystemDriver
    switch: SwitchConnection
    intent: SwitchIntent
    confirm_s: int
    display: Callable[[str], None]
    clock: SessionClock
    wanted: Any = None
    deadline: float = 0.0

    def run(self, apply: bool, allowed: str) -> SessionOutcome:
        try:
            self.wanted = self.driver.wanted(self.intent)
            first = self._look()
        except WantedError as error:
            return SessionOutcome(error=str(error))
        except Exception as error:
            text = _reason(error).removeprefix(f"{self.intent.name}: ")
            return SessionOutcome(error=f"{self.intent.name} cannot be planned: {text}.")
        plan = SessionOutcome(first.difference, first.difference, first.report)
        level = first.difference.impact.level
        if first.difference and IMPACTS.index(level) > IMPACTS.index(allowed):
            impact = first.difference.impact
            cost = "; ".join(impact.losses)
            if impact.ports_down:
                cost = f"{len(impact.ports_down)} port(s) would go down and come up again"
            return replace(
                plan,
                error=f"{self.intent.name}: {cost}, and switch_qos_allowed_impact is {allowed}. "
                f"Nothing was changed. Allow {level} when it fits.",
            )
        return self._apply(first) if apply and first.difference else plan

    def _look(self) -> Seen:
        present = self.switch.read()
        return Seen(
            self.driver.difference(self.intent, self.wanted, present),
            self.driver.report(self.intent, present),
        )

    def _apply(self, first: Seen) -> SessionOutcome:
        began = self.clock.now()
        try:
            applied = self.switch.apply(first.difference, self.confirm_s)
        except Exception as error:
            self.deadline = self._undone_by(began) + MARGIN_S
            problem = f"the change was not applied: {_reason(error)}"
            return self._verdict(first, problem, self.deadline)
        except BaseException:
            self._print(
                "interrupted while the change was being applied; the switch undoes it within "
                f"{self._undone_by(began) - self.clock.now():.0f} s. Run again after that"
            )
            raise
        # The switch starts its timer when the change is applied, however long that took.
        self.deadline = self._undone_by(began) + MARGIN_S
        try:
            kept = self._prove(first)
            try:
                applied.confirm()
            except SwitchError as error:
                raise SwitchError(
                    f"the change was in force, but may not have been kept: {error}"
                ) from None
        except SwitchError as error:
            return self._undo(applied, first, _reason(error))
        except Exception as error:
            # An error of this collection, or an unexpected answer.
            return self._undo(applied, first, f"the change could not be proved: {_reason(error)}")
        except BaseException:
            undone = self._undo(applied, first, "interrupted before the change was kept")
            self._print(undone.error.removeprefix(f"{self.intent.name}: "))
            raise
        return SessionOutcome(first.difference, kept.difference, kept.report, changed=True)

    def _undone_by(self, began: float) -> float:
        """Time at which the switch has undone the change without further commands."""
        return max(began + self.switch.undone_within_s, self.clock.now() + self.confirm_s)

    def _prove(self, first: Seen) -> Seen:
        """Read the switch until its links are up. Raises SwitchError if the change is not whole."""
        timer_ends = self.clock.now() + self.confirm_s
        bounced = _up(first.report) & set(first.difference.impact.ports_down)
        seen = first

        def links_up() -> bool:
            nonlocal seen
            seen = self._whole(timer_ends)
            return not _dark(seen.report, bounced)

        limit_s = min(LINKS_S, self.confirm_s / 2)
        until(links_up, limit_s, PAUSE_S, clock=self.clock.now, sleep=self.clock.sleep)
        dark = _dark(seen.report, bounced)
        if too_dark(dark, bounced):
            raise SwitchError(f"links that it took down stay down: {', '.join(dark)}")
        if dark:
            self._print(
                f"{', '.join(dark)} did not come up again, and others did: the change is kept. "
                "Check the other end"
            )
        return seen

    def _whole(self, timer_ends: float) -> Seen:
        """Read the switch. Raises SwitchError if it lacks part of the change, or answers late."""
        try:
            seen = self._look()
        except SwitchError as error:
            raise SwitchError(f"it could not be read after the change: {error}") from None
        if self.clock.now() >= timer_ends:
            raise SwitchError(
                f"reading it back took longer than the {self.confirm_s} s after which the switch "
                "undoes a change: raise switch_qos_confirm_s"
            )
        if seen.difference:
            raise SwitchError(
                f"it does not have the change that it accepted: {_some(seen.difference)}"
            )
        return seen

    def _undo(self, applied: Applied, first: Seen, problem: str) -> SessionOutcome:
        try:
            applied.rollback()
        except Exception as error:
            problem += f"; undoing it failed: {_reason(error)}"
            return self._verdict(first, problem, self.deadline)
        settled_by = min(self.clock.now() + SETTLE_S, self.deadline)
        return self._verdict(first, problem, settled_by, undone=True)

    def _verdict(
        self, first: Seen, problem: str, read_until: float, undone: bool = False
    ) -> SessionOutcome:
        seen, unread = self._look_for(first.difference, read_until, undone)
        back = seen is not None and _same(seen.difference, first.difference)
        timer = "" if undone else " By now the switch should have undone the change."
        if back:
            state = "Its former state is back (read back)"
        elif seen is None:
            state = (
                "WHETHER ITS FORMER STATE IS BACK IS NOT KNOWN: it cannot be read "
                f"({unread}).{timer} Look at it over its console, then run again"
            )
        elif not seen.difference:
            state = (
                "ITS FORMER STATE IS NOT BACK: the whole change is in force, and may be lost when "
                f"the switch restarts.{timer} To keep it, save the configuration on the switch; to "
                "undo it, restore the one it had"
            )
        else:
            state = (
                "ITS FORMER STATE IS NOT BACK: a part of the change is in force. Still to change: "
                f"{_some(seen.difference)}.{timer} Run again to complete it, or restore on the "
                "switch the configuration it had"
            )
        return SessionOutcome(
            first.difference,
            seen.difference if seen else None,
            seen.report if seen else None,
            changed=not back,
            error=f"{self.intent.name}: {problem}. {state}.",
            restored=back,
        )

    def _look_for(
        self, former: Difference, read_until: float, undone: bool
    ) -> tuple[Optional[Seen], str]:
        """Return the last state, or why the switch could not be read."""
        printed = False
        while True:
            seen, unread = None, ""
            try:
                seen = self._look()
            except Exception as error:
                unread = _reason(error)
                # Undoing the change may interrupt its network.
                read_until = self.deadline
            now = self.clock.now()
            if (seen is not None and _same(seen.difference, former)) or now >= read_until:
                return seen, unread
            if not printed and (unread or not undone):
                self._print(
                    f"{unread or 'its former state is not back yet'}; reading again until the "
                    f"switch has undone the change, {read_until - now:.0f} s at most"
                )
                printed = True
            self.clock.sleep(min(PAUSE_S, read_until - now))

    def _print(self, line: str) -> None:
        with contextlib.suppress(Exception):  # undo the change even if nothing can be printed
            self.display(f"{self.intent.name}: {line}")


def _same(one: Difference, other: Difference) -> bool:
    return one.changes == other.changes and one.before == other.before


def _up(report: SwitchReport) -> set[str]:
    return {port.name for port in report.ports if port.up}


def _dark(report: SwitchReport, bounced: Collection[str]) -> list[str]:
    return [port.name for port in report.ports if port.up is False and port.name in bounced]


def _some(difference: Difference) -> str:
    changes = [
        f"{change.path}: wanted {change.wanted}, found {change.found}"
        for change in difference.changes
    ]
    return some(changes, MAX_LISTED_VALUES)


def _reason(error: BaseException) -> str:
    """The text of a SwitchError, or the type and text of any other error."""
    text = str(error).rstrip(".") or "no reason given"
    if isinstance(error, SwitchError):
        return text
    return f"an error of this collection: {type(error).__name__}: {text}"
