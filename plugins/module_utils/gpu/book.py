# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Collects the checks, so that each fault is written down once.

What could not be read because of a fault that has its own finding is `not_applicable` and names
that finding: neither passed nor a second failure. What all GPUs have in common is one finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

from ..checks import FAILED, NOT_APPLICABLE, OK, PENDING, REBOOT, Check, not_applicable
from ..dataclass import dataclass
from ..reboots import Reason, outlived
from .places import Place


@dataclass(frozen=True)
class Result:
    """What one check found of one GPU. `what` and `remedy` do not name the GPU."""

    place: Place
    wanted: Any
    found: Any
    status: str = OK
    what: str = ""
    remedy: str = ""
    together: bool = False
    """One fault in several places: those that fail are one finding."""

    @property
    def same(self) -> tuple[str, str, str, str, str]:
        return (repr(self.wanted), repr(self.found), self.status, self.what, self.remedy)


@dataclass
class Book:
    check_mode: bool
    rebooted_for: Sequence[Reason]
    boot_id: str
    checks: list[Check] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    blamed: dict[str, list[str]] = field(default_factory=dict)
    """Subject of a GPU to the checks that found a fault of it."""

    def ok(self, name: str, wanted: Any, found: Any, reason: str = "", subject: str = "") -> None:
        self.checks.append(Check(name, wanted, found, OK, subject, reason))

    def fail(
        self,
        name: str,
        wanted: Any,
        found: Any,
        reason: str,
        subject: str = "",
        *,
        fixable: bool = False,
    ) -> None:
        """A fault. `fixable`: a run without check mode mends it, so that check mode only waits."""
        status = PENDING if fixable and self.check_mode else FAILED
        self.checks.append(Check(name, wanted, found, status, subject, reason))
        self.blamed.setdefault(subject, []).append(name)

    def skip(self, name: str, wanted: Any, reason: str, subject: str = "") -> None:
        self.checks.append(not_applicable(name, wanted, reason, subject=subject))

    def unread(self, names: Iterable[str], see: str, subject: str = "") -> None:
        """Checks that nobody could make because of the fault that `see` is the finding of."""
        for name in names:
            self.skip(name, None, f"not read: see {see}", subject)

    def reboot(self, name: str, wanted: Any, found: Any, reason: Reason, subject: str = "") -> None:
        """A reboot cures it; if one was already made for it, it does not.

        The reason stays recorded then: without it the next run would ask for a reboot again.
        """
        self.blamed.setdefault(subject, []).append(name)
        self.reasons.append(reason)
        earlier = outlived(reason, self.rebooted_for, self.boot_id)
        if earlier is None:
            self.checks.append(Check(name, wanted, found, REBOOT, subject, reason.reason))
        else:
            why = (
                f"{reason.reason} The node was rebooted for it (boot {earlier}) and it is still so."
            )
            self.checks.append(Check(name, wanted, found, FAILED, subject, why))

    def each(self, name: str, results: Sequence[Result]) -> None:
        """One check per GPU; a fault that all have, or that is one by nature, once."""
        bad = [result for result in results if result.status in (FAILED, PENDING)]
        alike = len({result.same for result in bad}) == 1 and len(bad) == len(results)
        if len(bad) > 1 and (alike or bad[0].together):
            self._together(name, bad, everyone=len(bad) == len(results))
            results = [result for result in results if result not in bad]
        for result in results:
            self._one(name, result)

    def _one(self, name: str, result: Result) -> None:
        place, reason = result.place, result.what
        if result.status in (FAILED, PENDING):
            self.blamed.setdefault(place.name, []).append(name)
            reason = f"{place.where}: {result.what}. {result.remedy}"
        elif result.status == NOT_APPLICABLE:
            self.skip(name, result.wanted, result.what, place.name)
            return
        self.checks.append(
            Check(name, result.wanted, result.found, result.status, place.name, reason)
        )

    def _together(self, name: str, bad: Sequence[Result], *, everyone: bool) -> None:
        for result in bad:
            self.blamed.setdefault(result.place.name, []).append(name)
        first = bad[0]
        if everyone and len({result.same for result in bad}) == 1:
            subject = f"all {len(bad)} GPUs"
            reason = f"{subject}: {first.what}. {first.remedy}"
            self.checks.append(
                Check(name, first.wanted, first.found, first.status, subject, reason)
            )
            return
        whats = "; ".join(f"{result.place.where}: {result.what}" for result in bad)
        self.checks.append(
            Check(
                name,
                {result.place.name: result.wanted for result in bad},
                {result.place.name: result.found for result in bad},
                first.status,
                ", ".join(result.place.name for result in bad),
                f"{whats}. {first.remedy}",
            )
        )

    def explain(self, name: str, place: Place, text: str) -> None:
        """Add to a finding that is written down already: more of the same fault."""
        for number, check in enumerate(self.checks):
            if check.name == name and place.name in check.subject.split(", "):
                self.checks[number] = replace(check, reason=f"{check.reason} {text}".strip())
                return
