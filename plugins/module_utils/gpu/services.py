# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Persistence daemon, fabric manager and DCGM: at every boot, and now where the driver allows it.

They start with the driver that they were built with and no other. Where another one runs until the
next boot, they stay stopped and start with that boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..core import systemd
from ..core.checks import OK, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Plan, Step, Verdict
from ..packages.engine import Installer
from .packages import fitting
from .reading import PERSISTENCED
from .shared import DCGM, Shared, active, at_boot

DROP_IN = f"etc/systemd/system/{PERSISTENCED}.d/90-{NAME}.conf"
PERSISTENCE = "[Service]\nExecStartPost=-/usr/bin/nvidia-smi --persistence-mode=1\n"
"""Some packages start the daemon with --no-persistence-mode; what they write there differs."""
SWITCH_ON = ("nvidia-smi", "--persistence-mode=1")


@dataclass(frozen=True)
class Services:
    """In `wanted`, the order in which they start."""

    shared: Shared
    wanted: Sequence[str]
    installer: Installer

    def plan(self, node: Node) -> Plan:
        files = [node.file(DROP_IN, PERSISTENCE)] if PERSISTENCED in self.wanted else []
        steps = []
        if any(file.changed for file in files) or self._stale(node):
            steps.append(Step("systemd", "old units", "reloaded", partial(systemd.reload, node)))
        ready = self.shared.reloads or not self.shared.awaits_reboot
        for unit in self.wanted:
            if not at_boot(node, unit):
                act = partial(systemd.enable, node, unit)
                steps.append(Step(f"{unit} at boot", "disabled", "enabled", act))
        for unit in self.wanted:
            paused = unit in self.shared.stopped
            if paused or (ready and not active(node, unit)):
                act = partial(self._start, node, unit)
                after = "active" if ready else "active, unless the driver has to wait"
                steps.append(Step(unit, "stopped", after, act, restores=paused))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        """The others are judged with the GPUs, whose state tells more than that of a unit."""
        return Verdict([self._dcgm(node)] if DCGM in self.wanted else [])

    def _stale(self, node: Node) -> bool:
        key = "NeedDaemonReload"
        return systemd.show(node, PERSISTENCED, [key]).get(key) == "yes"

    def _start(self, node: Node, unit: str) -> None:
        runs = self.shared.kernel.driver
        if runs is None or not fitting(self.installer.installed(), runs):
            return  # it would end at once; what keeps the driver from running is told elsewhere
        systemd.start(node, unit)
        if unit == PERSISTENCED:
            node.run(SWITCH_ON, check=False)

    def _dcgm(self, node: Node) -> Check:
        wanted, found = "enabled, active", systemd.state(node, DCGM)
        if found == wanted:
            return Check("service", wanted, found, OK, DCGM)
        if self.shared.without_driver.name:
            return self.shared.without_driver.hides("service", wanted, DCGM)
        if self.shared.awaits_reboot and at_boot(node, DCGM):
            # One fault, one finding: the driver's own check asks for the reboot.
            why = "not read: see gpu_driver_version; it starts with that driver, at the next boot"
            return not_applicable("service", wanted, why, subject=DCGM)
        why = f"journalctl -u {DCGM} says why"
        return compare(
            "service", wanted, found, subject=DCGM, check_mode=node.check_mode, reason=why
        )
