# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""irqbalance: on, or off where NIC interrupts are pinned by hand."""

from __future__ import annotations

from ..checks import FAILED, OK, PENDING, Check, not_applicable
from ..dataclass import dataclass
from ..node import systemd
from ..node.part import Node, Plan, Step, Verdict

UNIT = "irqbalance.service"
ON = "enabled, active"
OFF = "disabled, inactive"
ABSENT = "not installed"


@dataclass(frozen=True)
class Irqbalance:
    running: bool

    @property
    def wanted(self) -> str:
        return ON if self.running else OFF

    def plan(self, node: Node) -> Plan:
        if node.container is not None or self._satisfied(node):
            return Plan()
        verb = "enable" if self.running else "disable"

        def act() -> None:
            node.run(["systemctl", verb, "--now", UNIT])

        return Plan([], [Step(UNIT, _found(node), self.wanted, act)])

    def verify(self, node: Node) -> Verdict:
        if node.container is not None:
            why = node.not_here("interrupts are the host's")
            return Verdict([not_applicable("irqbalance", self.wanted, why)])
        status = OK if self._satisfied(node) else PENDING if node.check_mode else FAILED
        return Verdict([Check("irqbalance", self.wanted, _found(node), status)])

    def _satisfied(self, node: Node) -> bool:
        found = _found(node)
        return found == self.wanted or (found in (ABSENT, "masked, inactive") and not self.running)


def _found(node: Node) -> str:
    if (
        systemd.installed(node, [UNIT]) is None
        and not node.path(f"etc/systemd/system/{UNIT}").is_symlink()
    ):
        return ABSENT
    return systemd.state(node, UNIT)
