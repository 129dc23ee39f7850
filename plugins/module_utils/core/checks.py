# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The read-back: every module that configures a layer reads the device again at its end and returns
one `Check` per promise."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn, Optional, Protocol

from .text import counted, one_line, shortened

OK = "ok"
"""The desired value was read back."""
FAILED = "failed"
"""A different value was read back, or none: a check that could not run has failed."""
NOT_APPLICABLE = "not_applicable"
"""Cannot apply to this kind of machine; `reason` says why. Never counted as passed."""
PENDING = "pending"
"""Differs in check mode and would be changed by a run without it. Outside check mode: waits for a
reset that must come first, or for another version in the model, which `reason` names."""
REBOOT = "reboot"
"""Configured and recorded; takes effect at the next reboot, which no role performs."""

MAX_LINE_CHARACTERS = 4000
"""Maximum length of a check on the terminal."""

STATUSES = (OK, FAILED, NOT_APPLICABLE, PENDING, REBOOT)

SELDOM = ("at", "by_hand")
"""Fields that are set only in a few checks."""

STRICT = "BAREMETAL_MPI_ROCE_VERIFY"
"""Set in the environment of modules by playbooks/verify.yml: pending checks fail."""
REBOOTED = "BAREMETAL_MPI_ROCE_REBOOTED"
"""Set in addition by playbooks/reboot.yml after a reboot: checks that wait for a reboot fail."""


@dataclass(frozen=True)
class Check:
    """One promise and the value that was read.

    `name` is stable and lower case (`rail_mtu`); `subject` is the object (`rail3`), empty for the
    host as a whole. `wanted` and `found` are JSON values with their unit in the name or value.
    """

    name: str
    wanted: Any
    found: Any
    status: str
    subject: str = ""
    reason: str = ""
    at: str = ""
    """The host with the deviation, if it is not the one that was read."""
    by_hand: str = ""
    """Manual remedy where no layer can repair it: a command or a sentence."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"check {self.name}: unknown status {self.status!r}")
        if self.status == NOT_APPLICABLE and not self.reason:
            raise ValueError(f"check {self.name}: not_applicable needs a reason")

    def line(self) -> str:
        subject = f" {one_line(self.subject)}" if self.subject else ""
        reason = f" ({one_line(self.reason)})" if self.reason else ""
        line = f"{self.name}{subject}: wanted {self.wanted!r}, found {self.found!r}{reason}"
        return shortened(line, MAX_LINE_CHARACTERS)


@dataclass(frozen=True)
class Strictness:
    """Which statuses other than `failed` fail a run; read once, where a module begins."""

    failing: Collection[str] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Strictness:
        variables = {PENDING: STRICT, REBOOT: REBOOTED}
        return cls([status for status, name in variables.items() if environment.get(name)])

    def of_checks(self, checks: Iterable[Check]) -> list[Check]:
        """Return `checks` with the status `failed` in place of these statuses."""
        return [
            replace(check, status=FAILED) if check.status in self.failing else check
            for check in checks
        ]


def compare(
    name: str,
    wanted: Any,
    found: Any,
    *,
    subject: str = "",
    check_mode: bool = False,
    reason: str = "",
) -> Check:
    """Return a check that is ok if both values are equal, else failed (pending in check mode)."""
    if wanted == found:
        return Check(name, wanted, found, OK, subject)
    return Check(name, wanted, found, differs(check_mode), subject, reason)


def differs(check_mode: bool) -> str:
    """Return the status of a difference that the module removes."""
    return PENDING if check_mode else FAILED


def not_applicable(name: str, wanted: Any, reason: str, *, subject: str = "") -> Check:
    return Check(name, wanted, None, NOT_APPLICABLE, subject, reason)


def failures(checks: Iterable[Check]) -> list[Check]:
    return [check for check in checks if check.status == FAILED]


def failure_message(
    layer: str, checks: Iterable[Check], remedy: str, *, applied: bool = False
) -> Optional[str]:
    """Return the message of a module whose read-back failed; `applied`: it has changed the node."""
    failed = failures(checks)
    if not failed:
        return None
    lines = "\n  ".join(check.line() for check in failed)
    count = counted(len(failed), "check")
    return f"{layer}: {count} failed{' after apply' if applied else ''}:\n  {lines}\n{remedy}"


def as_dicts(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """Return the JSON form in which modules return `checks`; `at` and `by_hand` only if set."""
    return [
        {key: value for key, value in asdict(check).items() if value or key not in SELDOM}
        for check in checks
    ]


class Module(Protocol):
    """What modules on nodes use of AnsibleModule."""

    check_mode: bool
    params: dict[str, Any]
    argument_spec: dict[str, Any]

    def exit_json(self, **kwargs: Any) -> NoReturn: ...

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn: ...


def end(
    module: Module,
    layer: str,
    checks: Sequence[Check],
    remedy: str,
    *,
    errors: Sequence[str] = (),
    strictness: Optional[Strictness] = None,
    **result: Any,
) -> NoReturn:
    """Exit a layer's module; it fails if there are failed checks or `errors`."""
    checks = (strictness or Strictness.of(os.environ)).of_checks(checks)
    applied = bool(result.get("changed")) and not module.check_mode
    message = failure_message(layer, checks, remedy, applied=applied)
    if errors:
        message = "\n  ".join([message or f"{layer}: not everything was applied:", *errors])
    result = {"changed": False, **result, "layer": layer, "checks": as_dicts(checks)}
    if message is not None:
        module.fail_json(msg=message, **result)
    module.exit_json(**result)
