# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs within one run of the rails: hardware against the model, then their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ..core import reboots
from ..core.checks import REBOOT, Check
from ..core.files import FilePlan
from ..core.machine import boot_id
from ..hardware import Machine
from ..hardware.compare import VFS, compare_with_model
from .engine import PROMISE, WHOLE, Outcome, Settings
from .request import Host, Request
from .setting import find_rails, machine_of

RECORD = "rails-firmware"
"""Whose reasons to reboot these are; the rails' own record has their names in it."""


class Session:
    """What `rails.converge` does further on each rail."""

    def __init__(
        self,
        request: Request,
        host: Host,
        model: Sequence[Mapping[str, Any]],
        gpus: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.request = request
        self.host = host
        self._model = model
        self._gpus = gpus
        self._machine = Machine()
        self._interfaces: dict[str, str] = {}
        self._reached_by: Mapping[str, str] = {}
        self._settings = Settings((), ())
        self._record: Optional[FilePlan] = None
        self._acted = False
        self.with_rdma: tuple[str, ...] = ()
        """Rails that have an RDMA device."""

    def look(self, interfaces: Mapping[str, str], reached_by: Mapping[str, str]) -> None:
        self._interfaces, self._reached_by = dict(interfaces), reached_by
        self._machine = machine_of(self.host.root)
        rails = find_rails(interfaces, self._machine, self.host.ethtool)
        self.with_rdma = tuple(rail.name for rail in rails if rail.device is not None)
        providers = self.request.providers(self.host, reached_by)
        self._settings = Settings(rails, providers)
        self._record = self._plan_record(check_mode=True)

    @property
    def diff(self) -> list[dict[str, Any]]:
        record = [self._record.diff()] if self._record and self._record.changed else []
        return [*self._settings.diff, *record]

    def act(self, interfaces: Mapping[str, str]) -> Sequence[str]:
        if dict(interfaces) != self._interfaces:
            self.look(interfaces, self._reached_by)
        written = self._settings.act()
        self._record = self._plan_record(check_mode=False)
        self._record.apply()
        self._acted = True
        return written

    def checks(self, later: Mapping[str, str], *, check_mode: bool) -> list[Check]:
        if self._acted:
            self._machine = machine_of(self.host.root)
        hardware = compare_with_model(self._machine, self._model, self._gpus, check_mode=check_mode)
        return [
            # Virtual functions are a setting, which also knows what uses them.
            *(check for check in hardware if check.name != VFS),
            *self.outcome(check_mode=check_mode).checks,
            *(Check(WHOLE, PROMISE, None, REBOOT, name, why) for name, why in later.items()),
        ]

    def outcome(self, *, check_mode: bool) -> Outcome:
        return self._settings.outcome(check_mode=check_mode)

    def _plan_record(self, *, check_mode: bool) -> FilePlan:
        root, uid, gid = self.host.root, self.host.uid, self.host.gid
        reasons = self._settings.resets(check_mode=check_mode)
        plan = reboots.plan(RECORD, reasons, boot_id(root), root=root)
        return replace(plan, uid=uid, gid=gid)
