# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every GPU, read and judged by the package `gpu`, when the fabric had its time to come up."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Optional

from .. import gpu
from ..core import systemd
from ..core.checks import FAILED, Check
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Step, Verdict
from ..hardware import SurveyError
from .modules import SWITCH_ON
from .reading import PERSISTENCED
from .shared import Shared

PAUSE_S = 5.0
"""Between two looks at a fabric that is being set up."""
PYNVML = Path("/usr/local/libexec/baremetal-mpi-roce/pynvml.py")


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@dataclass(frozen=True)
class Bindings:
    """pynvml.py of nvidia-ml-py, from the controller: with it a node asks NVML about its GPUs.

    The node needs no Python package for it, and every node asks with the same version. It is large,
    so it travels compressed and is not shown line by line. Without it what is on the node stays.
    """

    text: str
    """Packed."""

    def plan(self, node: Node) -> Plan:
        if not self.text:
            return Plan()
        text = zlib.decompress(base64.b64decode(self.text)).decode()
        planned = node.record(str(PYNVML), text)
        if not planned.changed:
            return Plan()
        before = "absent" if planned.before is None else "another version"
        return Plan(steps=[Step(str(PYNVML), before, "that of the controller", planned.apply)])

    def verify(self, node: Node) -> Verdict:
        """Judged with the GPUs: NVML answers, or it does not."""
        return Verdict()


@dataclass
class Health:
    """`simulated` is filled by the look: why this is no real hardware."""

    shared: Shared
    wanted: gpu.Wanted
    wait_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    simulated: list[str] = field(default_factory=list)
    hung: Optional[gpu.Smi] = None
    """An nvidia-smi that did not end in time. It would not the next time either."""

    def plan(self, node: Node) -> Plan:
        """Persistence that was switched off by hand is switched on; faults are only findings."""
        if not self.wanted.persistence or self.shared.kernel.driver != self.wanted.driver:
            return Plan()
        if not systemd.active(node, PERSISTENCED):
            return Plan()  # the daemon switches it on when it starts
        said = gpu.ask_smi(node.look)
        self.hung = said if said.hung else None
        off = [each.pci for each in said.gpus if each.persistence is False]
        if not off:
            return Plan()
        act = node.doing(*SWITCH_ON)
        return Plan(steps=[Step(f"persistence of {', '.join(off)}", "off", "on", act)])

    def verify(self, node: Node) -> Verdict:
        """Waiting is reading, and is done in check mode as well: playbooks/verify.yml and
        playbooks/reboot.yml look at nodes that have just booted."""
        goal = len(self.wanted.gpus)
        if self.shared.without_driver.name:
            return Verdict([self.shared.without_driver.hides("gpus", goal)])
        until = self.clock() + self.wait_s
        try:
            verdict = self._judge(node)
            while verdict.settling and self.clock() < until:
                self.sleep(min(PAUSE_S, max(0.0, until - self.clock())))
                verdict = self._judge(node)
        except SurveyError as error:
            return Verdict([Check("gpus", goal, "unknown", FAILED, "", str(error))])
        return Verdict(list(verdict.checks), list(verdict.reasons))

    def _judge(self, node: Node) -> gpu.Verdict:
        found = gpu.read(node.look, self.shared.kernel.root, node.path(str(PYNVML)), self.hung)
        self.simulated[:] = found.simulated
        return gpu.judge(found, self.wanted, node.check_mode, node.rebooted_for, node.boot_id)
