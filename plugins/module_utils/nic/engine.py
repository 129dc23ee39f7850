# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the settings of the rails' NICs as they are to those wanted, rail by rail.

Read everything; refuse a rail on which something cannot be set; write what differs; read it back. A
rail on which anything fails gets back what was read before, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from ..core import checks
from ..core.checks import REBOOT, Check
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.files import diff
from ..core.reboots import Reason
from ..hardware import Machine
from ..hardware.compare import VFS, compare_with_model
from .request import Host, Request
from .setting import (
    FAILED,
    FIRMWARE,
    NEEDS_RESET,
    NOT_SUPPORTED,
    OK,
    PENDING,
    SET,
    Provider,
    Rail,
    Reading,
    Setting,
    find_rails,
    machine_of,
)

WHOLE = "rail_settings"
"""The one check of a rail without settings of its own: it is no RoCE NIC."""
PROMISE = "the NIC settings of the QoS contract"
ROCE_DRIVERS = ("mlx5_core", "bnxt_en")
RESET = "the device keeps it and takes it up at its next reset: reboot the host"

_FAULTS = (CommandError, OSError, ValueError, LookupError, TypeError)
"""What a device or a program may answer one rail with; the others go on."""
_STATUS = {
    OK: checks.OK,
    SET: checks.OK,
    PENDING: checks.PENDING,
    NEEDS_RESET: checks.REBOOT,
    NOT_SUPPORTED: checks.NOT_APPLICABLE,
    FAILED: checks.FAILED,
}


@dataclass
class _Item:
    """One setting, and what is known of it."""

    setting: Setting
    physical: bool
    reading: Reading = field(default_factory=lambda: Reading(None))
    error: str = ""
    """Why it could not be read."""
    written: bool = False
    complaint: str = ""
    """What went wrong when it was written, and what was done about it."""

    def read(self) -> None:
        self.error = ""
        try:
            self.reading = self.setting.read()
        except _FAULTS as error:
            self.reading, self.error = Reading(None), _text(error)

    @property
    def fault(self) -> str:
        """Why nothing may be written on its rail, or nothing has stayed there."""
        if self.complaint or self.error:
            return self.complaint or self.error
        if self.reading.refused:
            return self.reading.refused
        if not self.reading.supported and self.physical and not self.reading.excused:
            return self.reading.reason
        return ""

    @property
    def settable(self) -> bool:
        return self.reading.supported and not self.error

    @property
    def holds(self) -> bool:
        return self.reading.found == self.setting.wanted and self.reading.pending in (
            None,
            self.setting.wanted,
        )

    @property
    def waits(self) -> bool:
        """The device keeps the wanted value until its next reset."""
        return self.reading.pending is not None and self.reading.pending == self.setting.wanted

    @property
    def differs(self) -> bool:
        return self.settable and not self.holds and not self.waits

    def state(self, check_mode: bool, rail_fault: str) -> dict[str, Any]:
        """What the module returns of it."""
        status, reason = self._status(check_mode, rail_fault)
        return {
            "wanted": self.setting.wanted,
            "found": self.reading.found,
            "status": status,
            "tool": self.setting.tool,
            "persistence": self.setting.persistence,
            "reason": reason,
        }

    def _status(self, check_mode: bool, rail_fault: str) -> tuple[str, str]:
        if self.fault:
            return FAILED, self.fault
        if not self.reading.supported:
            return NOT_SUPPORTED, self.reading.reason
        if self.holds:
            return (SET if self.written else OK), ""
        if self.waits:
            return NEEDS_RESET, RESET
        if rail_fault:
            return FAILED, rail_fault
        return (PENDING, "") if check_mode else (FAILED, "read back differently")


@dataclass
class _RailRun:
    """One rail on its way."""

    rail: Rail
    items: list[_Item]
    rolled_back: bool = False

    @property
    def fault(self) -> str:
        """Why its other settings were not written, or did not stay."""
        names = [item.setting.name for item in self.items if item.fault]
        return f"as it was, all or nothing on a rail: see {', '.join(names)}" if names else ""

    @property
    def to_write(self) -> list[_Item]:
        return [] if self.fault else [item for item in self.items if item.differs]

    def write(self) -> None:
        """All that differs, or nothing."""
        begun: list[tuple[_Item, Reading]] = []
        failures: dict[str, str] = {}
        for item in self.to_write:
            begun.append((item, item.reading))
            try:
                item.setting.write()
            except _FAULTS as error:
                failures[item.setting.name] = f"could not be set: {_text(error)}"
                break
        self.look()
        for item, _reading in begun if not failures else ():
            if item.error or not (item.holds or item.waits):
                found = item.error or shown(item.reading.found)
                failures[item.setting.name] = f"was set and read back as {found}"
        if failures:
            self._roll_back(begun, failures)
        else:
            for item, _reading in begun:
                item.written = True

    def _roll_back(
        self, begun: Sequence[tuple[_Item, Reading]], failures: Mapping[str, str]
    ) -> None:
        troubles = []
        for item, reading in reversed(begun):
            try:
                item.setting.restore(reading)
            except _FAULTS as error:
                troubles.append(f"{item.setting.name} could not be put back: {_text(error)}")
        self.look()
        self.rolled_back = True
        done = "; ".join(troubles) or "all settings of this rail were put back to what they were"
        for item, _reading in begun:
            if item.setting.name in failures:
                item.complaint = f"{failures[item.setting.name]}; {done}"

    def look(self) -> None:
        """Read all of this rail again."""
        for item in self.items:
            item.setting.forget()
        for item in self.items:
            item.read()

    def states(self, check_mode: bool) -> dict[str, dict[str, Any]]:
        return {item.setting.name: item.state(check_mode, self.fault) for item in self.items}

    def checks(self, check_mode: bool) -> list[Check]:
        """One for each setting; what failed for one and the same reason is reported once."""
        found = [self._no_roce()] if self.rail.device is None else []
        alike: dict[str, dict[str, dict[str, Any]]] = {}
        for name, state in self.states(check_mode).items():
            if state["status"] == FAILED:
                alike.setdefault(state["reason"], {})[name] = state
            else:
                found.append(self._check(name, state, state["wanted"], state["found"]))
        # the causes first, then what was left as it was because of them
        for reason in sorted(alike, key=lambda reason: reason == self.fault):
            states = alike[reason]
            name, state = next(iter(states.items()))
            wanted, seen = state["wanted"], state["found"]
            if len(states) > 1:
                wanted = {each: other["wanted"] for each, other in states.items()}
                seen = {each: other["found"] for each, other in states.items()}
            found.append(self._check(name, state, wanted, seen))
        return found

    def _check(self, name: str, state: Mapping[str, Any], wanted: Any, found: Any) -> Check:
        status = _STATUS[state["status"]]
        return Check(f"rail_{name}", wanted, found, status, self.rail.name, state["reason"])

    def _no_roce(self) -> Check:
        name, driver = self.rail.name, self.rail.driver or "none"
        if driver in ROCE_DRIVERS:
            why = f"driver {driver} without an RDMA device: see rail_rdma"
            return Check(WHOLE, PROMISE, "no RDMA device", checks.FAILED, name, why)
        why = f"not applicable on what is no RoCE NIC (driver {driver})"
        return checks.not_applicable(WHOLE, PROMISE, why, subject=name)

    def diff(self) -> list[dict[str, str]]:
        """Exactly the settings that would be written, as one diff."""
        if not self.to_write:
            return []
        before, after = "", ""
        for item in self.to_write:
            reading, name = item.reading, item.setting.name
            next_value = reading.found if reading.pending is None else reading.pending
            before += f"{name}: {shown(next_value)}\n"
            after += f"{name}: {shown(item.setting.wanted)}\n"
        return [diff(f"{self.rail.name} (settings)", before, after)]


class Nics:
    """The NICs of one host's rails: read by `look`, written by `act`."""

    def __init__(
        self,
        request: Request,
        host: Host,
        model: Sequence[Mapping[str, Any]] = (),
        gpus: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`model` and `gpus` are what the hardware is compared with."""
        self.request = request
        self.host = host
        self._model = model
        self._gpus = gpus
        self._machine = Machine()
        self._runs: list[_RailRun] = []
        self._acted = False
        self.diff: list[dict[str, str]] = []
        """Per rail what would be written."""
        self.written: list[str] = []
        """Rails on which something was written; a NIC may take its link down for a moment."""

    def look(
        self,
        interfaces: Mapping[str, str],
        reached_by: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`interfaces`: rail to its present name; `reached_by`: those that management needs."""
        self._machine = machine_of(self.host.root)
        providers = self.request.providers(self.host, reached_by)
        self.read(find_rails(interfaces, self._machine, self.host.ethtool), providers)

    def read(self, rails: Sequence[Rail], providers: Sequence[Provider]) -> None:
        self._runs = [
            _RailRun(rail, [_Item(each, rail.physical) for of in providers for each in of(rail)])
            for rail in rails
        ]
        for run in self._runs:
            for item in run.items:
                item.read()
        self.diff = [shown for run in self._runs for shown in run.diff()]

    def act(self) -> list[str]:
        """Write what differs, rail after rail. Returns the rails on which anything was written."""
        self._acted = True
        for run in self._runs:
            if run.to_write:
                self.written.append(run.rail.name)
                run.write()
        return self.written

    def checks(self, *, check_mode: bool) -> list[Check]:
        return [check for run in self._runs for check in run.checks(check_mode)]

    def rail_checks(self, later: Mapping[str, str], *, check_mode: bool) -> list[Check]:
        """Hardware against the model, settings, and rails that get their names `later`, and why."""
        machine = machine_of(self.host.root) if self._acted else self._machine
        hardware = compare_with_model(machine, self._model, self._gpus, check_mode=check_mode)
        return [
            # Virtual functions are a setting, which also knows what uses them.
            *(check for check in hardware if check.name != VFS),
            *self.checks(check_mode=check_mode),
            *(Check(WHOLE, PROMISE, None, REBOOT, name, why) for name, why in later.items()),
        ]

    @property
    def with_rdma(self) -> tuple[str, ...]:
        """Rails that have an RDMA device."""
        return tuple(run.rail.name for run in self._runs if run.rail.device is not None)

    @property
    def rolled_back(self) -> list[str]:
        return [run.rail.name for run in self._runs if run.rolled_back]

    def settings(self, *, check_mode: bool) -> dict[str, dict[str, dict[str, Any]]]:
        """Rail, setting, and its state."""
        return {run.rail.name: run.states(check_mode) for run in self._runs}

    def resets(self, *, check_mode: bool) -> list[Reason]:
        """What waits for a reset; in check mode also what would after a run."""
        return [
            Reason(
                subject=f"{run.rail.name} {item.setting.name}",
                wanted=str(item.setting.wanted),
                running=str(item.reading.found),
                reason=f"firmware of {run.rail.name} takes {item.setting.name} up at its reset",
            )
            for run in self._runs
            for item in run.items
            if item.setting.persistence == FIRMWARE
            and (item.waits or (check_mode and item in run.to_write))
            and item.reading.found != item.setting.wanted
        ]


def shown(value: Any) -> str:
    """A value as text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, (CommandError, OSError)) else f"bad answer: {error!r}"
