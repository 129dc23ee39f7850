# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the RDMA stack, and a change of the source of drivers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core.checks import compare, not_applicable
from ..core.part import Node, Plan, PlanError, Verdict
from ..core.text import some
from ..packages.installer import Installer
from ..packages.package import INSTALL, Manager, PackageSet, WantedPackage
from ..software.software_set import DOCA, INBOX, NO_RDMA, Rdma
from . import Hardware
from .drivers import MAX_LISTED_USERS, users

SOURCE = "rdma_source"
_OF_DOCA = ("doca-ofed", "doca-roce", "doca-all", "mlnx-ofa_kernel", "mlnx-ofed-kernel-dkms")
_OF_DISTRIBUTION = re.compile(
    r"linux-.*|kernel(-core|-modules.*|-devel.*|-headers)?|dkms|python3-dnf-plugin-.*"
)
"""Packages in DOCA's set that other software needs too: they stay when DOCA is removed."""
_OF_ANY = ("rdma-core", "libibverbs1", "libibverbs")


def source_of(installed: Mapping[str, str]) -> str:
    """Source of the installed RDMA stack, recognised by its packages."""
    if any(name in installed for name in _OF_DOCA):
        return DOCA
    return INBOX if any(name in installed for name in _OF_ANY) else NO_RDMA


@dataclass(frozen=True)
class RdmaPackages:
    """`change_in_use`: change drivers even if RDMA devices are open."""

    hardware: Hardware
    rdma: Rdma
    wanted: PackageSet
    manager: Manager
    allow_downgrade: bool = False
    change_in_use: bool = False

    def plan(self, node: Node) -> Plan:
        if self.rdma.source == NO_RDMA:
            return Plan()
        before = source_of(self.manager.installed())
        wanted, downgrade = self.wanted, self.allow_downgrade
        if (before, self.rdma.source) == (DOCA, INBOX):
            wanted, downgrade = self._back_to_inbox(node.layer), True
        installer = Installer(wanted, self.manager, node.layer, downgrade)
        plan = installer.plan()
        self.hardware.changing = bool(plan.changes)
        if not plan.changed:
            return Plan()
        disturbing = [change for change in plan.changes if change.kind != INSTALL]
        # Unknown dependencies of an unsolved plan may replace drivers.
        clear = not disturbing and (plan.solved or not plan.changes)
        if before == NO_RDMA or (before == self.rdma.source and clear):
            using = []
        else:
            using = users(node.root)
        if using and not self.change_in_use:
            what = f"from {before} to {self.rdma.source}"
            if before == self.rdma.source:
                of = disturbing or plan.changes
                what = f"of {len(of)} packages ({of[0].name}, ...)"
            raise PlanError(
                f"RDMA drivers: a change {what} was not started, as RDMA is in use by "
                f"{some(using, MAX_LISTED_USERS)}. End that first (systemctl stop of a service; "
                "NVLSM belongs to nvidia-fabricmanager), or set rdma_stack_change_in_use: true"
            )
        what = f"packages of RDMA ({self.rdma.source})"
        return Plan([], [installer.step(plan, what, before, self.rdma.source)])

    def verify(self, node: Node) -> Verdict:
        if self.rdma.source == NO_RDMA:
            reason = "software.rdma.source is none: this layer installs nothing"
            return Verdict([not_applicable(SOURCE, NO_RDMA, reason)])
        found = source_of(self.manager.installed())
        of_packages = Installer(self.wanted, self.manager, node.layer).verify(node.check_mode)
        source = compare(SOURCE, self.rdma.source, found, check_mode=node.check_mode)
        return Verdict([source, *of_packages])

    def _back_to_inbox(self, layer: str) -> PackageSet:
        """The set with the distribution's versions of the packages that DOCA replaced, without
        those that it added.

        DOCA's libraries are newer than the distribution's, so a solver would keep them.
        """
        pinned = self.manager.pinned(layer)
        available = self.manager.available(sorted(pinned))
        versions, absent = {}, {}
        for name, version in pinned.items():
            others = [each for each in available.get(name, ()) if each != version]
            if others:
                versions[name] = self.manager.upstream(others[0])
            elif not _OF_DISTRIBUTION.fullmatch(name):
                absent[name] = "part of DOCA-OFED, and the set has inbox"
        mine = {package.name for package in self.wanted.packages}
        stages = [
            replace(
                stage,
                packages=tuple(
                    replace(each, version=versions.get(each.name, each.version))
                    for each in stage.packages
                ),
            )
            for stage in self.wanted.stages
        ]
        further = [
            WantedPackage(name, version, "rdma")
            for name, version in sorted(versions.items())
            if name not in mine
        ]
        stages[-1] = replace(stages[-1], packages=(*stages[-1].packages, *further))
        return replace(self.wanted, stages=tuple(stages), absent={**self.wanted.absent, **absent})
