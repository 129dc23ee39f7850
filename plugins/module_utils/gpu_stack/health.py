# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every GPU, read and judged by the package `gpu`, when the fabric had its time to come up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Optional

from .. import gpu
from ..checks import FAILED, Check
from ..commands import NoAnswerError, Result, Runner
from ..dataclass import dataclass
from ..hardware import SurveyError
from ..node.part import Node, Plan, Step, Verdict
from . import units
from .cause import Cause
from .kernel import Kernel
from .services import SWITCH_ON

PAUSE_S = 5.0
"""Between two looks at a fabric that is being set up."""


@dataclass
class Health:
    """`simulated` is filled by the first look: why this is no real hardware."""

    kernel: Kernel
    wanted: gpu.Wanted
    pynvml: Path
    cause: Cause
    wait_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    simulated: list[str] = field(default_factory=list)
    stuck: Optional[gpu.Gpus] = None
    """What was found when something did not answer in time. It would not the next time either."""

    def plan(self, node: Node) -> Plan:
        """Persistence that somebody switched off by hand is switched on; faults are only told."""
        if not self.wanted.persistence or self.kernel.driver != self.wanted.driver:
            return Plan()
        if not units.active(node, units.PERSISTENCED):
            return Plan()  # the daemon switches it on when it starts
        try:
            off = [each.pci for each in self._look(node).gpus if each.persistence is False]
        except SurveyError:
            return Plan()  # told when it is verified
        if not off:
            return Plan()
        act = partial(node.run, SWITCH_ON)
        return Plan(steps=[Step(f"persistence of {', '.join(off)}", "off", "on", lambda: _do(act))])

    def verify(self, node: Node) -> Verdict:
        if self.cause.name:
            return Verdict([self.cause.hides("gpus", len(self.wanted.gpus))])
        until = self.clock() + self.wait_s
        try:
            return self._wait(node, until)
        except SurveyError as error:
            return Verdict(
                [Check("gpus", len(self.wanted.gpus), "unknown", FAILED, "", str(error))]
            )

    def _wait(self, node: Node, until: float) -> Verdict:
        """Waiting is reading, and is done in check mode as well: playbooks/verify.yml and
        playbooks/reboot.yml look at nodes that have just booted."""
        verdict = self._judge(node)
        while verdict.settling and self.clock() < until:
            self.sleep(min(PAUSE_S, max(0.0, until - self.clock())))
            verdict = self._judge(node)
        return Verdict(list(verdict.checks), list(verdict.reasons))

    def _judge(self, node: Node) -> gpu.Verdict:
        return gpu.judge(
            self._look(node), self.wanted, node.check_mode, node.rebooted_for, node.boot_id
        )

    def _look(self, node: Node) -> gpu.Gpus:
        if self.stuck is not None:
            return self.stuck
        asking = _Asking(node.look)
        found = gpu.read(asking, self.kernel.root, self.pynvml)
        if asking.hung:
            self.stuck = found
        self.simulated[:] = found.simulated
        return found


@dataclass
class _Asking:
    """Runs programs, and knows whether one of them did not end in time."""

    run: Runner
    hung: bool = False

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        try:
            return self.run(argv, check=check, stdin=stdin)
        except NoAnswerError:
            self.hung = True
            raise


def _do(act: Callable[[], object]) -> None:
    act()
