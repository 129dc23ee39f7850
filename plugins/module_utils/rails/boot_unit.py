# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot unit of this node: a program file, the desired state, a systemd unit and a udev rule.

The program is an executable zip of the modules that run here, so a boot sets the same as the role.
An unchanged node is recognised by its files, without running a program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

from ..core import program, systemd
from ..core.checks import FAILED, NOT_APPLICABLE, OK, REBOOT, Check, differs, not_applicable
from ..core.files import FilePlan, diff, diffs, with_header
from ..core.part import Node, Plan, Step, Verdict
from ..nic.nics import WHOLE, Nics
from ..nic.setting import RUNTIME
from . import BOOT_UNIT, boot_program
from .boot_program import LOCK_S, PROGRAM, RESULT, STATE, state_text
from .survey import NAME

UNIT_FILE = f"etc/systemd/system/{BOOT_UNIT}"
UDEV_RULE = "etc/udev/rules.d/90-baremetal-mpi-roce-rails.rules"
CHECK = "rails_boot"
WANTED = "installed, enabled, and right when it last ran"

_SLOWEST_S = 180
"""Maximum duration in seconds of one pass over sixteen rails on which `dcb` hangs (QUICK_S)."""
_DRIVERS = "openibd.service rdma-hw.target rdma-load-modules@rdma.service"
_NETWORK = "network.target NetworkManager.service systemd-networkd.service"


@dataclass(frozen=True)
class BootUnit:
    """The boot unit as a part, which takes the lock of the rails. One step writes its files, so
    that a run that is killed between them is repeated."""

    interfaces: tuple[str, ...]
    nics: Nics
    rail_checks: Sequence[Check]
    """The checks of the rails after this run."""
    wait_s: int = 60
    """Time limit in seconds for devices to appear and settings to take effect at boot."""
    before: tuple[str, ...] = ()
    """Units that start jobs and wait until the rails are set up."""
    asked: bool = True

    def plan(self, node: Node) -> Plan:
        if self._left_alone(node):
            return Plan()
        files, shown = self._differing(node)
        trouble = "" if self._needless else _trouble(node)
        starts = bool(shown or trouble) and not self._needless and self._holds and self._named
        if not shown and not starts:
            return Plan()
        act = partial(self._install, node, files, starts)
        return Plan([], [Step(BOOT_UNIT, trouble, "runs again", act, shown=shown)])

    def verify(self, node: Node) -> Verdict:
        return Verdict([self._check(node)], self.nics.resets(check_mode=node.check_mode))

    def _install(self, node: Node, files: Sequence[FilePlan], starts: bool) -> None:
        node.path(RESULT).unlink(missing_ok=True)
        for planned in files:
            planned.apply()
        systemd.link(node, BOOT_UNIT, not self._needless)
        if starts:
            # Its result is in RESULT and in the journal.
            node.run(("systemctl", "start", BOOT_UNIT), check=False)

    def _differing(self, node: Node) -> tuple[list[FilePlan], list[dict[str, str]]]:
        """The files in the order in which they are written, and the diff of those that differ."""
        texts: dict[str, Optional[str]] = dict.fromkeys((PROGRAM, STATE, UNIT_FILE, UDEV_RULE))
        wanted = not self._needless
        if wanted:
            texts = {
                PROGRAM: program_text(),
                STATE: state_text(self._ours, self.nics.with_rdma, self.nics.given),
                UNIT_FILE: unit_text(self.interfaces, self.wait_s, self.before),
                UDEV_RULE: udev_rule_text(self.interfaces),
            }
        packed = replace(node.record(PROGRAM, texts.pop(PROGRAM), mode=0o755), secret=True)
        files = [packed, *(node.record(path, text) for path, text in texts.items())]
        shown = diffs(files)
        enabled = systemd.linked(node, BOOT_UNIT)
        if enabled != wanted:
            words = {True: "enabled\n", False: "not enabled\n"}
            shown.append(diff(BOOT_UNIT, words[enabled], words[wanted]))
        return files, shown

    @property
    def _ours(self) -> list[str]:
        """Rails except those in another fabric mode, which the role refuses to set too."""
        other = self.nics.in_other_mode
        return [name for name in self.interfaces if name not in other]

    @property
    def _needless(self) -> str:
        """Why this node needs no boot unit; empty if it needs one."""
        if not self.asked:
            return "roce_rails_boot: false; the next run of the role sets what a reboot clears"
        if self._named and not self._forgetful:
            return "not applicable here: no rail has a setting that a reboot clears"
        return ""

    @property
    def _forgetful(self) -> bool:
        """Whether a rail has a setting that a reboot clears."""
        settings = self.nics.settings(check_mode=True)
        return any(
            state["persistence"] == RUNTIME and state["status"] != NOT_APPLICABLE
            for of_rail in settings.values()
            for state in of_rail.values()
        )

    @property
    def _holds(self) -> bool:
        """Whether names and run-time settings hold; the unit sets neither cables nor firmware."""
        settings = self.nics.settings(check_mode=True).values()
        states = [each for of_rail in settings for each in of_rail.items()]
        running = {f"rail_{name}" for name, state in states if state["persistence"] == RUNTIME}
        names = {*running, WHOLE, NAME}
        return not any(check.name in names and check.status == FAILED for check in self.rail_checks)

    @property
    def _named(self) -> bool:
        """Whether no rail waits for the next boot to be named."""
        return not any(
            check.name in (WHOLE, NAME) and check.status == REBOOT for check in self.rail_checks
        )

    def _left_alone(self, node: Node) -> Optional[Check]:
        """Return the check of a unit that is not changed: NICs are unreadable, or it is masked."""
        if self.asked and self._named and not self._forgetful:
            # Missing or refused NICs may be the reason why no setting was found.
            read = self.nics.settings(check_mode=True)
            unread = [name for name in self.interfaces if name not in read]
            if unread:
                reason = f"left as it was: {', '.join(unread)} could not be read"
                return not_applicable(CHECK, WANTED, reason)
        if not node.path(UNIT_FILE).is_symlink():
            return None
        if self._needless:
            return not_applicable(CHECK, WANTED, self._needless)
        reason = f"it is a symbolic link, so nothing was changed. Run: systemctl unmask {BOOT_UNIT}"
        return Check(CHECK, WANTED, f"/{UNIT_FILE} masked", FAILED, reason=reason)

    def _check(self, node: Node) -> Check:
        """Check the files again, and the result of the unit's last run."""
        left = self._left_alone(node)
        if left:
            return left
        status = differs(node.check_mode)
        shown = self._differing(node)[1]
        if shown:
            reason = ", ".join(each["before_header"] for each in shown)
            return Check(CHECK, WANTED, "missing or different", status, reason=reason)
        if self._needless:
            return not_applicable(CHECK, WANTED, self._needless)
        trouble = _trouble(node)
        if not trouble:
            return Check(CHECK, WANTED, WANTED, OK)
        if not self._named:
            status, more = REBOOT, "it runs at the next boot, when the rails have their names"
        elif not self._holds:
            more = "it was not started because the rails do not hold: see their checks"
        else:
            more = f"see: systemctl status {BOOT_UNIT}; /{PROGRAM} --check"
        return Check(CHECK, WANTED, "installed, enabled", status, reason=f"{trouble}; {more}")


def longest_s(wait_s: int) -> int:
    """Return the time after which systemd terminates the unit, in seconds."""
    return wait_s + LOCK_S + _SLOWEST_S


def _trouble(node: Node) -> str:
    """Return why the last run of the unit does not prove that it works; empty if it does."""
    try:
        result = json.loads(node.path(RESULT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "it has not run in this boot"
    return "; ".join(result["failed"])


def program_text() -> str:
    return program.text(boot_program.__name__)


def unit_text(interfaces: Sequence[str], wait_s: int, before: Sequence[str]) -> str:
    """Return a one-shot service that does not stay active: it can run again without `restart`,
    which would also restart the job manager that requires it."""
    # Escaped as by systemd-escape. Wants=, not Requires=: if a NIC is missing, the others are set
    # up and the missing one is reported.
    escaped = (name.replace("-", r"\x2d") for name in interfaces)
    devices = " ".join(f"sys-subsystem-net-devices-{name}.device" for name in escaped)
    first = f"Before={' '.join(before)}\n" if before else ""
    return with_header(f"""[Unit]
Description=RoCE settings of the rails, which a reboot forgets (baremetal.mpi_roce)
Wants={devices}
After={devices}
After={_DRIVERS} {_NETWORK}
{first}StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/{PROGRAM} --apply --wait {wait_s}
TimeoutStartSec={longest_s(wait_s)}

[Install]
WantedBy=multi-user.target
""")


def udev_rule_text(interfaces: Sequence[str]) -> str:
    """Return the rule that starts the unit when a NIC or RDMA device appears, as after a reload of
    its driver. While the unit is running, systemd merges the start with it.
    """
    names = "|".join(interfaces)
    start = f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{BOOT_UNIT}"'
    lines = [
        # An interface already has its name, or gets it with this event (NAME).
        f'ACTION!="remove", SUBSYSTEM=="net", KERNEL=="{names}", {start}',
        f'ACTION!="remove", SUBSYSTEM=="net", NAME=="{names}", {start}',
        f'ACTION=="add", SUBSYSTEM=="infiniband", {start}',
    ]
    return with_header("".join(f"{line}\n" for line in lines))
