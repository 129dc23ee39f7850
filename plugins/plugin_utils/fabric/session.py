# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One switch from its present to its wanted state, or back.

Read, compare, apply under the switch's own timer, read again over a new connection until its links
are up as before, keep. On any fault undo, read again, and report whether the former state is back.
It is an engine of its own because a switch has a timer that undoes a change by itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.core.text import some
from .asics import WantedError
from .base import Driver
from .system import Applied, Difference, Switch, SwitchError, SwitchIntent, SwitchReport

IMPACTS = ("none", "loss", "bounce")
"""Impacts of a difference, in rising order."""

MARGIN_S = 60
"""After its timer, for a switch to finish undoing a change."""
SETTLE_S = 20
"""After an acknowledged rollback, until no part of the change is left."""
PAUSE_S = 3
"""Between two reads of a switch that is not back yet."""
LINKS_S = 60
"""For links that a change took down to come up again; 800G trains slowly."""
DARK_SHARE = 0.1
"""A guess: a change is undone when more than this share of the links that it took down stay down.
Fewer are a node that reboots meanwhile: no reason to take all of them down again."""
CONFIRM_S = (10, 86400)
"""Limits of the timer. Without one a switch would keep an unproved change at once."""
VALUES_SHOWN = 3


def too_dark(dark: Collection[str], bounced: Collection[str]) -> bool:
    return len(dark) > DARK_SHARE * len(bounced)


class Interrupted(BaseException):
    """The run is ended. Not an Exception, so that no handler takes it for a fault."""


@dataclass
class Clock:
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Outcome:
    """The result for one switch."""

    difference: Optional[Difference] = None
    """What had to change; None where it could not be read."""
    remaining: Optional[Difference] = None
    """What differs now; None if unknown."""
    report: Optional[SwitchReport] = None
    """The switch as it was read last."""
    changed: bool = False
    """Some of the difference is newly in force, or may be."""
    error: str = ""
    restored: Optional[bool] = None
    """After a failed change: whether the former state was read back. None: there was no change."""


@dataclass(frozen=True)
class Seen:
    difference: Difference
    report: SwitchReport


def run(
    driver: Driver,
    switch: Switch,
    intent: SwitchIntent,
    *,
    apply: bool,
    confirm_s: int,
    allowed: str = "bounce",
    display: Callable[[str], None] = lambda line: None,
    clock: Optional[Clock] = None,
) -> Outcome:
    """Plan, and with `apply` apply the plan. Faults are in the outcome, never raised.

    Only `Interrupted` and its like are raised, after what was applied has been undone.
    """
    least, most = CONFIRM_S
    if not least <= confirm_s <= most:
        return Outcome(
            error=f"{intent.name}: switch_qos_confirm_s is {confirm_s}; it must be from {least} to "
            f"{most} seconds. Nothing was done."
        )
    session = _Session(driver, switch, intent, confirm_s, display, clock or Clock())
    return session.run(apply, allowed)


@dataclass
class _Session:
    driver: Driver
    switch: Switch
    intent: SwitchIntent
    confirm_s: int
    display: Callable[[str], None]
    clock: Clock
    wanted: Any = None
    deadline: float = 0.0
    """When the switch has undone by itself what was not kept."""

    @property
    def name(self) -> str:
        return self.intent.name

    def run(self, apply: bool, allowed: str) -> Outcome:
        try:
            self.wanted = self.driver.wanted(self.intent)
            first = self._look()
        except WantedError as error:
            return Outcome(error=str(error))
        except Exception as error:
            text = _reason(error).removeprefix(f"{self.name}: ")
            return Outcome(error=f"{self.name} cannot be planned: {text}.")
        plan = Outcome(first.difference, first.difference, first.report)
        level = first.difference.impact.level
        if first.difference and IMPACTS.index(level) > IMPACTS.index(allowed):
            return replace(
                plan,
                error=f"{self.name}: {_cost(first.difference)}, and switch_qos_allowed_impact is "
                f"{allowed}. Nothing was changed. Allow {level} when it fits.",
            )
        return self._apply(first) if apply and first.difference else plan

    def _look(self) -> Seen:
        present = self.switch.read()
        return Seen(
            self.driver.difference(self.intent, self.wanted, present),
            self.driver.report(self.intent, present),
        )

    def _apply(self, first: Seen) -> Outcome:
        began = self.clock.now()
        try:
            applied = self.switch.apply(first.difference, self.confirm_s)
        except Exception as error:
            self.deadline = self._undone_by(began) + MARGIN_S
            problem = f"the change was not applied: {_reason(error)}"
            return self._verdict(first, problem, self.deadline)
        except BaseException:
            self._print(
                f"{self.name}: interrupted while the change was being applied; whatever is in "
                "force the switch undoes by itself within "
                f"{self._undone_by(began) - self.clock.now():.0f} s. Run again after that"
            )
            raise
        # Applying itself takes as long as it takes: the switch counts from its end.
        self.deadline = self._undone_by(began) + MARGIN_S
        try:
            kept = self._prove(first)
            try:
                applied.confirm()
            except SwitchError as error:
                raise SwitchError(
                    f"the change was in force, but it is not known to be kept: {error}"
                ) from None
        except SwitchError as error:
            return self._undo(applied, first, _reason(error))
        except Exception as error:
            # Not a fault of the switch: an error of this collection, or an unexpected answer.
            return self._undo(applied, first, f"the change could not be proved: {_reason(error)}")
        except BaseException:
            self._print(self._undo(applied, first, "interrupted before the change was kept").error)
            raise
        return Outcome(first.difference, kept.difference, kept.report, changed=True)

    def _undone_by(self, began: float) -> float:
        """When a switch that was left alone has undone the change."""
        return max(began + self.switch.undone_within_s, self.clock.now() + self.confirm_s)

    def _prove(self, first: Seen) -> Seen:
        """The switch with the whole change and its links up; SwitchError where it is not so."""
        timer_ends = self.clock.now() + self.confirm_s
        bounced = _up(first.report) & set(first.difference.impact.ports_down)
        links_until = self.clock.now() + min(LINKS_S, self.confirm_s / 2)
        while True:
            try:
                seen = self._look()
            except SwitchError as error:
                raise SwitchError(f"it could not be read after the change: {error}") from None
            now = self.clock.now()
            if now >= timer_ends:
                raise SwitchError(
                    f"reading it back took longer than the {self.confirm_s} s after which the "
                    "switch undoes a change: raise switch_qos_confirm_s"
                )
            if seen.difference:
                raise SwitchError(
                    f"it does not have the change that it accepted: {_some(seen.difference)}"
                )
            dark = [port.name for port in seen.report.ports if port.up is False]
            dark = [name for name in dark if name in bounced]
            if dark and now < links_until:
                self.clock.sleep(min(PAUSE_S, links_until - now))
                continue
            if too_dark(dark, bounced):
                raise SwitchError(f"links that it took down stay down: {', '.join(dark)}")
            if dark:
                self._print(
                    f"{self.name}: {', '.join(dark)} did not come up again, and others did: the "
                    "change is kept. Check the other end"
                )
            return seen

    def _undo(self, applied: Applied, first: Seen, problem: str) -> Outcome:
        try:
            applied.rollback()
        except Exception as error:
            problem += f"; undoing it failed: {_reason(error)}"
            return self._verdict(first, problem, self.deadline)
        until = min(self.clock.now() + SETTLE_S, self.deadline)
        return self._verdict(first, problem, until, undone=True)

    def _verdict(self, first: Seen, problem: str, until: float, undone: bool = False) -> Outcome:
        """Read until the former state is back or the time for it has passed."""
        seen, unread = self._look_for(first.difference, until, undone)
        if seen is not None and _same(seen.difference, first.difference):
            return Outcome(
                first.difference,
                seen.difference,
                seen.report,
                error=f"{self.name}: {problem}. Its former state is back (read back).",
                restored=True,
            )
        left = self.deadline - self.clock.now()
        alone = (
            ""
            if undone
            else f" Left alone it undoes the change by itself within {left:.0f} s."
            if left > 0
            else " By now it should have undone the change by itself."
        )
        if seen is None:
            state = (
                "WHETHER ITS FORMER STATE IS BACK IS NOT KNOWN: it cannot be read "
                f"({unread}).{alone} Look at it over its console, then run again"
            )
        elif not seen.difference:
            state = (
                "ITS FORMER STATE IS NOT BACK: the whole change is in force, and may be lost when "
                f"the switch restarts.{alone} To keep it, save the configuration on the switch; to "
                "undo it, restore the one it had"
            )
        else:
            state = (
                "ITS FORMER STATE IS NOT BACK: a part of the change is in force. Still to change: "
                f"{_some(seen.difference)}.{alone} Run again to complete it, or restore on the "
                "switch the configuration it had"
            )
        return Outcome(
            first.difference,
            seen.difference if seen else None,
            seen.report if seen else None,
            changed=True,
            error=f"{self.name}: {problem}. {state}.",
            restored=False,
        )

    def _look_for(
        self, former: Difference, until: float, undone: bool
    ) -> tuple[Optional[Seen], str]:
        """The switch as read last, or why it could not be read."""
        printed = False
        while True:
            seen, unread = None, ""
            try:
                seen = self._look()
            except Exception as error:
                unread = _reason(error)
                # Undoing the change may have cut its network.
                until = self.deadline
            now = self.clock.now()
            if (seen is not None and _same(seen.difference, former)) or now >= until:
                return seen, unread
            if not printed and (unread or not undone):
                self._print(
                    f"{self.name}: {unread or 'its former state is not back yet'}; looking again "
                    f"until it has undone the change by itself, {until - now:.0f} s at most"
                )
                printed = True
            self.clock.sleep(min(PAUSE_S, until - now))

    def _print(self, line: str) -> None:
        with contextlib.suppress(Exception):  # undo even if nothing can be printed
            self.display(line)


def _same(one: Difference, other: Difference) -> bool:
    """Whether the switch is in the same state, seen by its difference."""
    return one.changes == other.changes and one.before == other.before


def _up(report: SwitchReport) -> set[str]:
    return {port.name for port in report.ports if port.up}


def _some(difference: Difference) -> str:
    def shown(value: Any) -> str:
        return "nothing" if value is None else str(value)

    changes = [
        f"{change.path}: wanted {shown(change.wanted)}, found {shown(change.found)}"
        for change in difference.changes
    ]
    return some(changes, VALUES_SHOWN)


def _cost(difference: Difference) -> str:
    impact = difference.impact
    if impact.ports_down:
        return f"{len(impact.ports_down)} port(s) would go down and come up again"
    return "; ".join(impact.losses)


def _reason(error: BaseException) -> str:
    """A fault of the switch in its own words; any other with its type."""
    text = str(error).rstrip(".") or "no reason given"
    if isinstance(error, SwitchError):
        return text
    return f"an error of this collection: {type(error).__name__}: {text}"
