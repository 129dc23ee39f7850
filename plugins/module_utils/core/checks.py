# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The read-back: what a layer promised, what the device has, and the verdict.

Every module that configures a layer ends by reading the device again and returns one `Check` per
promise. The summary callback, the verify playbook and the tests read nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, Optional, Protocol

from .text import counted, one_line, shortened

OK = "ok"
"""Read back as wanted."""
FAILED = "failed"
"""Read back differently, or could not be read: a check that could not run has failed."""
NOT_APPLICABLE = "not_applicable"
"""Cannot hold on this kind of machine; `reason` has why. Counted and shown, never passed."""
PENDING = "pending"
"""Differs now, and a run without check mode would change it; outside check mode one after a reset
that must come first, which `reason` names."""
REBOOT = "reboot"
"""Configured and recorded; takes effect at the next reboot, which no role performs."""

MOST_CHARACTERS = 4000
"""Of a check on the terminal."""

STATUSES = (OK, FAILED, NOT_APPLICABLE, PENDING, REBOOT)

SELDOM = ("at", "by_hand")
"""Fields that few checks have."""

STRICT = "BAREMETAL_MPI_ROCE_VERIFY"
"""Set in the environment of modules by playbooks/verify.yml: what is pending has failed."""
REBOOTED = "BAREMETAL_MPI_ROCE_REBOOTED"
"""Set besides by playbooks/reboot.yml, right after a reboot: what waits for one has outlived it."""


@dataclass(frozen=True)
class Check:
    """One promise and what was found.

    `name` is stable and lower case (`rail_mtu`); `subject` is what it is about (`rail3`), empty for
    the host as a whole. `wanted` and `found` are JSON values with their unit in the name or value.
    """

    name: str
    wanted: Any
    found: Any
    status: str
    subject: str = ""
    reason: str = ""
    at: str = ""
    """Host that differs, where it is another one than the one that looked."""
    by_hand: str = ""
    """What the operator must do there, where no layer repairs it: a command or a sentence."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"check {self.name}: unknown status {self.status!r}")
        if self.status == NOT_APPLICABLE and not self.reason:
            raise ValueError(f"check {self.name}: not_applicable needs a reason")
        if self.status == PENDING and os.environ.get(STRICT):
            object.__setattr__(self, "status", FAILED)
        if self.status == REBOOT and os.environ.get(REBOOTED):
            object.__setattr__(self, "status", FAILED)

    def line(self) -> str:
        """One line for the operator: what, where, wanted, found, why."""
        where = f" {one_line(self.subject)}" if self.subject else ""
        why = f" ({one_line(self.reason)})" if self.reason else ""
        line = f"{self.name}{where}: wanted {self.wanted!r}, found {self.found!r}{why}"
        return shortened(line, MOST_CHARACTERS)


def compare(
    name: str,
    wanted: Any,
    found: Any,
    *,
    subject: str = "",
    check_mode: bool = False,
    reason: str = "",
) -> Check:
    """A check that is ok when both sides are equal, else failed (or pending in check mode)."""
    if wanted == found:
        return Check(name, wanted, found, OK, subject)
    return Check(name, wanted, found, differs(check_mode), subject, reason)


def differs(check_mode: bool) -> str:
    """The status of what is not as wanted, and what this module would change."""
    return PENDING if check_mode else FAILED


def not_applicable(name: str, wanted: Any, reason: str, *, subject: str = "") -> Check:
    return Check(name, wanted, None, NOT_APPLICABLE, subject, reason)


def failures(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.status == FAILED]


def failure_message(
    layer: str, checks: Iterable[Check], remedy: str, *, applied: bool = False
) -> Optional[str]:
    """The message of a module whose read-back failed, or None when nothing failed.

    `applied`: something was changed before.
    """
    failed = failures(checks)
    if not failed:
        return None
    lines = "\n  ".join(check.line() for check in failed)
    count = counted(len(failed), "check")
    return f"{layer}: {count} failed{' after apply' if applied else ''}:\n  {lines}\n{remedy}"


def as_dicts(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """JSON form, as modules return it under `checks`; `at` and `by_hand` only where set."""
    return [
        {key: value for key, value in asdict(check).items() if value or key not in SELDOM}
        for check in checks
    ]


class Module(Protocol):
    """What of AnsibleModule is needed on nodes."""

    check_mode: bool

    def exit_json(self, **kwargs: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...


def end(
    module: Module,
    layer: str,
    checks: Sequence[Check],
    remedy: str,
    *,
    errors: Sequence[str] = (),
    **result: Any,
) -> NoReturn:
    """How a module of a layer ends: with its read-back, and failed when a check failed.

    `errors` are steps that failed.
    """
    applied = bool(result.get("changed")) and not module.check_mode
    message = failure_message(layer, checks, remedy, applied=applied)
    if errors:
        message = "\n  ".join([message or f"{layer}: not everything was applied:", *errors])
    result = {"changed": False, **result, "layer": layer, "checks": as_dicts(checks)}
    if message is not None:
        module.fail_json(msg=message, **result)
    module.exit_json(**result)
