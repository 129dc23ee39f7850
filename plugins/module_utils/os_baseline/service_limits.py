# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of services: systemd's defaults, and the SSH server from which MPI ranks descend.

The server that runs now gets its limits by prlimit: nothing is restarted and no session is cut. Its
drop-in brings the same at its next start, and systemd's defaults cover daemons that start ranks
themselves, a batch system's for instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..checks import Check, compare, not_applicable
from ..dataclass import dataclass
from ..node import systemd
from ..node.part import NAME, Node, Plan, Step, Verdict
from .limits import Limit, excuse, parse_proc, shown

MANAGER_FILES = tuple(f"etc/systemd/{kind}.conf.d/90-{NAME}.conf" for kind in ("system", "user"))

SSH_UNITS = ("ssh.service", "sshd.service")
"""Debian and Ubuntu call the unit ssh, RHEL and Rocky sshd."""


@dataclass(frozen=True)
class ServiceLimits:
    limits: Sequence[Limit]

    def plan(self, node: Node) -> Plan:
        own = self._possible(node)
        unit = systemd.installed(node, SSH_UNITS)
        manager = "".join(f"Default{each.item.systemd}={each.systemd}\n" for each in own)
        files = [
            node.file(name, f"[Manager]\n{manager}" if own else None) for name in MANAGER_FILES
        ]
        if unit is not None:
            service = "".join(f"{each.item.systemd}={each.systemd}\n" for each in own)
            name = f"etc/systemd/system/{unit}.d/90-{NAME}.conf"
            files.append(node.file(name, f"[Service]\n{service}" if own else None))
        steps = [*self._reload(node, unit), *self._prlimit(node, unit)]
        if not own and any(planned.changed for planned in files):
            steps.append(_reload_step(node, ["as configured here"], ["as distributed"]))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        unit = systemd.installed(node, SSH_UNITS)
        manager, service = self._in_systemd(node, unit)
        pid, running = self._of_the_server(node, unit)
        checks: list[Check] = []
        for limit in self.limits:
            name = limit.item.name
            why = excuse(node, limit)
            if why is not None:
                checks.append(not_applicable("service_limit", limit.pam, why, subject=name))
                continue
            found = manager.get(f"Default{limit.item.systemd}")
            checks.append(_compare("service_limit", limit.systemd, found, name, node))
            if unit is None:
                continue
            found = service.get(limit.item.systemd)
            checks.append(_compare("sshd_unit_limit", limit.systemd, found, name, node))
            if pid is None:
                why = f"{unit} is not running; its drop-in holds from its next start"
                checks.append(not_applicable("sshd_limit", limit.kernel, why, subject=name))
            else:
                found = shown(running.get(name))
                checks.append(_compare("sshd_limit", limit.kernel, found, name, node))
        return Verdict(checks)

    def _possible(self, node: Node) -> list[Limit]:
        return [limit for limit in self.limits if excuse(node, limit) is None]

    def _reload(self, node: Node, unit: Optional[str]) -> list[Step]:
        """Judged by what systemd has loaded, so that an interrupted run is made up for."""
        manager, service = self._in_systemd(node, unit)
        before, after = [], []
        for limit in self._possible(node):
            key = limit.item.systemd
            before.append(f"Default{key}={manager.get(f'Default{key}')}")
            after.append(f"Default{key}={limit.systemd}")
            if unit is not None:
                before.append(f"{unit} {key}={service.get(key)}")
                after.append(f"{unit} {key}={limit.systemd}")
        return [] if before == after else [_reload_step(node, before, after)]

    def _prlimit(self, node: Node, unit: Optional[str]) -> list[Step]:
        pid, running = self._of_the_server(node, unit)
        if pid is None:
            return []
        return [
            _prlimit_step(node, pid, limit, running.get(limit.item.name))
            for limit in self._possible(node)
            if running.get(limit.item.name) != (limit.kernel, limit.kernel)
        ]

    def _in_systemd(self, node: Node, unit: Optional[str]) -> tuple[dict[str, str], dict[str, str]]:
        """The manager's defaults and the SSH server's unit, as systemd has them loaded."""
        keys = [limit.item.systemd for limit in self._possible(node)]
        if not keys:
            return {}, {}
        manager = systemd.show(node, None, [f"Default{key}" for key in keys])
        return manager, systemd.show(node, unit, keys) if unit else {}

    def _of_the_server(
        self, node: Node, unit: Optional[str]
    ) -> tuple[Optional[int], dict[str, tuple[str, str]]]:
        """The SSH server's main process and the limits it runs with."""
        if unit is None or not self._possible(node):
            return None, {}
        pid = int(systemd.show(node, unit, ["MainPID"]).get("MainPID", "0"))
        text = node.read(f"proc/{pid}/limits") if pid else None
        return (None, {}) if text is None else (pid, parse_proc(text))


def _compare(name: str, wanted: str, found: Optional[str], subject: str, node: Node) -> Check:
    reason = "" if node.check_mode else "another drop-in sets it: see systemctl cat, show"
    return compare(name, wanted, found, subject=subject, check_mode=node.check_mode, reason=reason)


def _reload_step(node: Node, before: Sequence[str], after: Sequence[str]) -> Step:
    old, new = "\n".join(before), "\n".join(after)
    return Step("systemd limits", old, new, lambda: systemd.reload(node))


def _prlimit_step(node: Node, pid: int, limit: Limit, running: Optional[tuple[str, str]]) -> Step:
    def act() -> None:
        pair = f"{limit.kernel}:{limit.kernel}"
        node.run(["prlimit", "--pid", str(pid), f"--{limit.item.name}={pair}"])

    return Step(f"sshd {limit.item.name}", shown(running) or "unknown", limit.kernel, act)
