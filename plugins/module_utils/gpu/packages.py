# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packages of the set. A changed driver stops services first, and waits for jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from ..core import systemd
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..packages.engine import Installer
from ..packages.engine import Plan as Planned
from .reading import FABRIC_MANAGER
from .shared import DCGM, Shared, listed, users

DRIVER = re.compile(r".*nvidia.*|nvlsm|nvlink5.*|libnvsdm.*|libxnvctrl.*|cuda-drivers.*")
"""Packages of which a change concerns whatever uses the driver."""
CUDA = re.compile(r"cuda-toolkit-.*")
FABRIC_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")
"""Of exactly the driver's version, on every family: it stands for all of them."""
DCGM_PACKAGES = re.compile(r"datacenter-gpu-manager.*")


@dataclass(frozen=True)
class Packages:
    shared: Shared
    installer: Installer
    under_jobs: bool = False

    def plan(self, node: Node) -> Plan:
        planned = self.installer.plan()
        if not planned.changed:
            return Plan()
        steps = self._stops(node, planned)
        steps.append(
            Step(
                "packages",
                "not as the set has them",
                "installed, pinned and held",
                partial(self._act, node, planned),
                essential=True,
                shown=planned.diffs(),
            )
        )
        return Plan(steps=steps)

    def verify(self, node: Node) -> Verdict:
        checks = self.installer.verify(node.check_mode)
        for check in checks:
            if DRIVER.fullmatch(check.subject) or check.name == "packages":
                self.shared.without_driver.look(check)
            if CUDA.fullmatch(check.subject) or check.name == "packages":
                self.shared.without_cuda.look(check)
        return Verdict(checks)

    def _stops(self, node: Node, planned: Planned) -> list[Step]:
        """DCGM first, which has the GPUs open; then the fabric manager, and NVLSM with it."""
        driver = touches(planned, DRIVER)
        if driver:
            self._refuse_under_jobs(node, planned)
        stop = [DCGM] if driver or touches(planned, DCGM_PACKAGES) else []
        stop += [FABRIC_MANAGER] if driver else []
        steps = []
        for unit in stop:
            if systemd.active(node, unit):
                self.shared.stop(unit)
                act = partial(self._stop, node, planned, unit)
                steps.append(Step(unit, "active", "stopped, for the packages", act, essential=True))
        return steps

    def _stop(self, node: Node, planned: Planned, unit: str) -> None:
        self._no_job_came(node, planned)
        systemd.stop(node, unit)

    def _no_job_came(self, node: Node, planned: Planned) -> None:
        """A job may have started since the plan."""
        jobs = [] if self.under_jobs or not touches(planned, DRIVER) else users(node.root)
        if jobs:
            raise StepError(
                f"a job started since the plan, and no package was changed: {listed(jobs)}. Drain "
                "the node and run again"
            )

    def _refuse_under_jobs(self, node: Node, planned: Planned) -> None:
        jobs = users(node.root)
        if not jobs or self.under_jobs:
            return
        changes = [each for each in planned.changes if DRIVER.fullmatch(each.name)]
        what = f"an interrupted installation would be finished ({planned.repairs})"
        if not planned.repairs:
            what = f"{planned.changes[0].name} would change, and its dependencies are not known yet"
        if changes:
            first = f"{changes[0].name} {changes[0].before or 'absent'} -> {changes[0].after}"
            what = f"{len(changes)} packages of the driver would change ({first})"
        raise PlanError(
            f"{what}, and the GPUs are in use: {listed(jobs)}. Drain the node and run again; or "
            "set nvidia_gpu_change_under_jobs: true, and these processes may fail"
        )

    def _act(self, node: Node, planned: Planned) -> None:
        self._no_job_came(node, planned)
        self.installer.act(planned)


def fitting(installed: Mapping[str, str], driver: str) -> bool:
    """Whether what is installed is of the version of the driver that runs: else nothing starts."""
    versions = [version for name, version in installed.items() if FABRIC_PACKAGE.fullmatch(name)]
    return any(re.search(rf"(?<![\d.]){re.escape(driver)}(?![\d.])", each) for each in versions)


def touches(planned: Planned, names: re.Pattern[str]) -> bool:
    """Whether such packages change, or may: by a repair, or as dependencies not known yet."""
    unknown = planned.repairs or (planned.changes and not planned.solved)
    return bool(unknown) or any(names.fullmatch(each.name) for each in planned.changes)
