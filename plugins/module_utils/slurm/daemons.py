# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A daemon of Slurm with its files: whether it has read them, and its limit of locked memory.

A daemon is restarted or reloaded when it is older than its files, so that the next run completes an
interrupted one. Jobs survive both: slurmd's unit kills only its main process.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Optional

from ..core import systemd
from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, Step, Verdict
from ..os_baseline.limits import UNLIMITED, Limit, excuse, parse_proc, shown

CONTROLLER, NODE = "slurmctld.service", "slurmd.service"
RUNNING = "enabled, active"
RELOADED = frozenset(["baremetal-partitions.conf", "topology.conf", "topology.yaml"])
"""Files that daemons read again on SIGHUP, as `scontrol reconfigure` has them do. Nodes, GRES and
plugins require a restart (slurm.conf(5), gres.conf(5))."""
MEMLOCK = Limit("memlock", UNLIMITED)
DROP_IN = f"/etc/systemd/system/{NODE}.d/90-{NAME}.conf"
# Steps inherit it from slurmd.
LIMITS = "[Service]\nLimitMEMLOCK=infinity\n"
STATE = ("/var/lib/slurm/slurmctld", "/var/lib/slurm/slurmd")
PMIX = "usr/lib/*/pmix*/lib/libpmix.so.2"


@dataclass(frozen=True)
class Daemon:
    """`unit` is empty on a host that only has the commands. `managed`: it is enabled and started,
    as with packages of the distribution."""

    unit: str
    texts: Mapping[str, Optional[str]] = field(default_factory=dict)
    """Content of files by absolute path; None removes one."""
    managed: bool = False
    restart: bool = True
    """Whether it is restarted or reloaded when its files change."""
    up: Callable[[], bool] = lambda: True
    """Whether it serves, which takes at most `wait_s` after a start."""
    wait_s: float = 0.0
    sends: bool = False
    """Whether slurmd has its files from this slurmctld, which sends them when it reads them again,
    and not when it is restarted."""

    def plan(self, node: Node) -> Plan:
        files = [_planned(node, path, text) for path, text in self.texts.items()]
        if not self.unit:
            return Plan(files)
        if systemd.installed(node, [self.unit]) is None:
            return Plan(files)
        if self.unit == NODE:
            files.append(node.file(DROP_IN, LIMITS))
        late = {planned.path.name for planned in files if planned.changed}
        late |= _names(self._late(node))
        state, steps = systemd.state(node, self.unit), []
        if self.managed and state != RUNNING:
            steps.append(self._step(node, state, RUNNING, "enable", "restart"))
        elif late and self.restart and state.endswith(", active"):
            verb = "reload" if late <= RELOADED else "restart"
            before = f"older than {', '.join(sorted(late))}"
            steps.append(self._step(node, before, f"{verb}ed", verb))
            if self.sends and self.unit == CONTROLLER and verb == "restart":
                send = node.doing("scontrol", "reconfigure")
                steps.append(Step("files of slurmd", "older", "sent by slurmctld", send))
        return Plan(files, steps)

    def _step(self, node: Node, before: str, after: str, *verbs: str) -> Step:
        def act() -> None:
            systemd.control(node, "daemon-reload")
            for verb in verbs:
                systemd.control(node, verb, self.unit)

        return Step(self.unit, before, after, act, holds=self.up, wait_s=self.wait_s)

    def _late(self, node: Node) -> list[str]:
        """Files that were written after the daemon read them. Those of the future were written
        before the clock was set back: no restart would make the daemon younger."""
        started = systemd.since(node, self.unit)
        read = systemd.since(node, self.unit, "StateChangeTimestamp")
        if started is None or read is None:
            return []
        found = []
        for name in (*self.texts, *([DROP_IN] if self.unit == NODE else [])):
            path = node.path(name)
            at = read if path.name in RELOADED else started
            if path.is_file() and at < int(path.stat().st_mtime) <= time.time():
                found.append(name)
        return found

    def verify(self, node: Node) -> Verdict:
        if not self.unit:
            return Verdict()
        repairs = node.check_mode and self.managed
        if systemd.installed(node, [self.unit]) is None:
            state = "not installed"
        else:
            state = systemd.state(node, self.unit)
        by_hand = "" if self.managed or state == RUNNING else f"systemctl enable --now {self.unit}"
        status = OK if state == RUNNING else differs(repairs)
        checks = [Check("slurm_service", RUNNING, state, status, self.unit, by_hand=by_hand)]
        if not state.endswith(", active"):
            return Verdict(checks)
        checks.append(self._loaded(node))
        if self.unit == NODE:
            checks.append(self._memlock(node))
        return Verdict(checks)

    def _loaded(self, node: Node) -> Check:
        late = sorted(_names(self._late(node)))
        if not late:
            return Check("slurm_loaded", [], [], OK, self.unit)
        by_hand = "" if self.restart else f"systemctl restart {self.unit}"
        status = differs(node.check_mode and self.restart)
        reason = "these files are newer than the daemon"
        return Check("slurm_loaded", [], late, status, self.unit, reason, by_hand=by_hand)

    def _memlock(self, node: Node) -> Check:
        """The limit of the running daemon, which ranks inherit."""
        name, unit = "slurm_memlock", self.unit
        values = systemd.show(node, unit, ["MainPID", "LimitMEMLOCK"])
        configured = values.get("LimitMEMLOCK", "")
        pid = values.get("MainPID", "")
        process = node.read(f"proc/{pid}/limits") if re.fullmatch(r"[0-9]{1,9}", pid) else None
        running = shown(parse_proc(process or "").get("memlock"))
        if running == UNLIMITED:
            return Check(name, UNLIMITED, running, OK, unit)
        excused = excuse(node, MEMLOCK)
        if excused and configured == "infinity":
            own = parse_proc(node.read("proc/1/limits") or "").get("memlock")
            if own is not None and running == own[1]:
                return not_applicable(name, UNLIMITED, excused, subject=unit)
        if configured == "infinity":
            reason, by_hand = "slurmd was started with a lower limit", f"systemctl restart {unit}"
        else:
            reason = f"LimitMEMLOCK={configured}"
            by_hand = f"remove LimitMEMLOCK from the drop-in that `systemctl cat {unit}` shows last"
        return Check(name, UNLIMITED, running, FAILED, unit, reason, by_hand=by_hand)


def _planned(node: Node, path: str, text: Optional[str]) -> FilePlan:
    return node.record(path, None) if text is None else node.edited(path, text)


def _names(paths: Iterable[str]) -> set[str]:
    return {PurePosixPath(path).name for path in paths}


@dataclass(frozen=True)
class Surroundings:
    """What Debian's and EPEL's packages leave to the administrator: directories of state, and the
    name libpmix.so, under which the plugin mpi/pmix opens a library that only development packages
    have."""

    directories: Sequence[str] = STATE

    def plan(self, node: Node) -> Plan:
        steps = []
        for directory in self.directories:
            if not node.path(directory).is_dir():
                make = ("install", "-d", "-o", "slurm", "-g", "slurm", "-m", "0755", directory)
                steps.append(Step(directory, "absent", "directory of slurm", node.doing(*make)))
        for link in _missing_links(node):
            act = partial(os.symlink, "libpmix.so.2", link)
            shown_link = f"/{link.relative_to(node.root)}"
            steps.append(Step(shown_link, "absent", "link to libpmix.so.2", act))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        lacking = [f"/{link.relative_to(node.root)}" for link in _missing_links(node)]
        return Verdict([compare("slurm_pmix", [], lacking, check_mode=node.check_mode)])


def _missing_links(node: Node) -> list[Path]:
    links = [path.with_name("libpmix.so") for path in sorted(node.root.glob(PMIX))]
    return [link for link in links if not link.exists() and not link.is_symlink()]
