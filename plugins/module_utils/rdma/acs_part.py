# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ACS redirection between GPUs and NICs: read on every bridge, turned off now and at every boot."""

from __future__ import annotations

import pkgutil
from dataclasses import field
from functools import partial

from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.files import HEADER, FilePlan, plan_file
from ..core.part import Node, Plan, PlanError, Step, Verdict
from . import acs
from .hardware import Hardware

DISABLE, VERIFY, KEEP = "disable", "verify", "keep"
CHOICES = (DISABLE, VERIFY, KEEP)
CHECK, BOOT_CHECK = "acs_redirect", "acs_boot"
ON, OFF = "redirects", "does not redirect"

UNIT = "baremetal-mpi-roce-acs.service"
UNIT_FILE = f"etc/systemd/system/{UNIT}"
ENABLED = f"etc/systemd/system/multi-user.target.wants/{UNIT}"
PROGRAM = "usr/local/libexec/baremetal-mpi-roce/acs"

_UNIT_BODY = f"""[Unit]
Description=PCIe ACS redirection off between GPUs and NICs (baremetal.mpi_roce)
After=systemd-modules-load.service
Before=nvidia-fabricmanager.service slurmd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/{PROGRAM} --apply

[Install]
WantedBy=multi-user.target
"""

_REMEDY = "Turn it off: rdma_stack_acs: disable, or ACS in the BIOS setup"
_STAYS = (
    "it was turned off and is on: the firmware holds the register. Turn ACS off in the BIOS setup"
)


def program_text() -> str:
    """The module acs.py as a program: the same code, from wherever it runs now."""
    text = pkgutil.get_data(__name__.rpartition(".")[0], "acs.py")
    if text is None:
        raise PlanError("acs.py: its source cannot be read where this runs")
    end = '\n\nif __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n'
    return f"#!/usr/bin/python3 -IS\n# {HEADER}\n{text.decode().rstrip()}\n{end}"


@dataclass(frozen=True)
class Acs:
    setting: str = DISABLE
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        bridges = acs.bridges(self.hardware.root)
        wanted = self.setting == DISABLE and bool(bridges)
        files = self._files(node, wanted)
        steps = []
        if self._clears():
            steps = [
                Step(
                    f"ACS of bridge {each.pci}",
                    ON,
                    OFF,
                    partial(acs.clear, each.pci, self.hardware.root),
                )
                for each in bridges
                if each.redirects
            ]
        enabled = node.path(ENABLED).is_symlink()
        if enabled != wanted or any(planned.changed for planned in files):
            steps.append(self._enable(node, enabled, wanted))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        if self.setting == KEEP:
            return Verdict()
        missing = self.hardware.missing(node, "PCIe bridges are the host's")
        if missing:
            return Verdict([not_applicable(CHECK, OFF, missing)])
        try:
            bridges = acs.bridges(self.hardware.root)
        except OSError as error:
            if self.hardware.simulated and isinstance(error, FileNotFoundError):
                why = "the recorded machine has no configuration spaces"
                return Verdict([not_applicable(CHECK, OFF, why)])
            return Verdict([Check(CHECK, OFF, "cannot be read", FAILED, reason=str(error))])
        if not bridges:
            why = "no GPU and NIC of this machine share a PCIe switch"
            return Verdict([not_applicable(CHECK, OFF, why)])
        checks = [self._check(node, each) for each in bridges]
        if self.setting == DISABLE and node.container is None:
            enabled = node.path(ENABLED).is_symlink()
            found = "enabled" if enabled else "not enabled"
            checks.append(
                compare(BOOT_CHECK, "enabled", found, subject=UNIT, check_mode=node.check_mode)
            )
        return Verdict(checks)

    def _clears(self) -> bool:
        """Whether registers are written: not where the kernel would refuse it."""
        if self.setting != DISABLE or self.hardware.simulated:
            return False
        return not acs.locked_down(self.hardware.root)

    def _check(self, node: Node, bridge: acs.Bridge) -> Check:
        if not bridge.redirects:
            return Check(CHECK, OFF, OFF, OK, bridge.pci)
        if node.check_mode and self._clears():
            return Check(CHECK, OFF, ON, PENDING, bridge.pci)
        if self.setting == VERIFY:
            reason = _REMEDY
        elif acs.locked_down(self.hardware.root):
            reason = acs.LOCKED.format(pci=bridge.pci)
        else:
            reason = _STAYS
        return Check(CHECK, OFF, ON, FAILED, bridge.pci, reason)

    def _files(self, node: Node, wanted: bool) -> list[FilePlan]:
        if not wanted and not any(node.path(each).exists() for each in (PROGRAM, UNIT_FILE)):
            return []
        program = program_text() if wanted else None
        return [
            plan_file(node.path(PROGRAM), program, mode=0o755, uid=node.uid, gid=node.gid),
            node.file(UNIT_FILE, _UNIT_BODY if wanted else None),
        ]

    def _enable(self, node: Node, before: bool, wanted: bool) -> Step:
        words = {True: "enabled", False: "not enabled"}

        def act() -> None:
            node.run(["systemctl", "daemon-reload"])
            link = node.path(ENABLED)
            if wanted and not link.is_symlink():
                node.run(["systemctl", "enable", UNIT])
            elif not wanted:
                link.unlink(missing_ok=True)

        return Step(UNIT, words[before], words[wanted], act)
