# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The CPU frequency governor: one word for every CPU of the machine."""

from __future__ import annotations

from ..dataclass import dataclass
from ..node.part import Node
from .sysfs import Unable, Wish, Write

POLICIES = "sys/devices/system/cpu/cpufreq/policy*"


@dataclass(frozen=True)
class Governor:
    """`name` for every CPU, as long as the kernel steers the frequency at all."""

    name: str

    def wishes(self, node: Node) -> list[Wish]:
        if node.container is not None:
            return [self._unable(node.not_here("the CPUs are the host's"))]
        policies = sorted(node.root.glob(POLICIES))
        if not policies:
            return [self._unable("no cpufreq: firmware or hypervisor steers the frequency")]
        for policy in policies:
            offered = node.read(str(policy.relative_to(node.root) / "scaling_available_governors"))
            if offered is not None and self.name not in offered.split():
                why = f"{policy.name} offers {', '.join(offered.split())}"
                return [self._unable(why, fault=True)]
        return [Write("cpu_governor", f"{POLICIES}/scaling_governor", self.name)]

    def _unable(self, why: str, fault: bool = False) -> Unable:
        return Unable("cpu_governor", self.name, why, fault=fault)
