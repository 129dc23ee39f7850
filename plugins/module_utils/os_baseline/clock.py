# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time: chrony runs, starts at boot, and keeps the clock within a bound that is read back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Optional

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.files import FilePlan, replace_block
from ..core.part import Node, Plan, PlanError, Step, Verdict

UNITS = ("chrony.service", "chronyd.service")
"""Debian and Ubuntu, RHEL and Rocky."""
CONFIGS = ("etc/chrony/chrony.conf", "etc/chrony.conf")
BLOCK = "time servers"
MARKER = "# set aside by baremetal.mpi_roce: "
RUNNING = "enabled, active"


@dataclass(frozen=True)
class Tracking:
    """What chronyc says of the clock."""

    synchronised: bool
    source: str
    stratum: int
    offset_s: float

    def figures(self) -> dict[str, Any]:
        return {
            "synchronised": self.synchronised,
            "source": self.source,
            "stratum": self.stratum,
            "offset_s": self.offset_s,
        }


def parse_tracking(text: str) -> Optional[Tracking]:
    """`chronyc -c tracking`: comma separated; name, stratum, offset and leap status are used."""
    fields = text.strip().split(",")
    if len(fields) != 14:
        return None
    leap = fields[13]
    return Tracking(leap != "Not synchronised", fields[1], int(fields[2]), abs(float(fields[4])))


def with_servers(text: str, servers: Sequence[str]) -> str:
    """chrony.conf asking `servers` and nobody else; without any, as the distribution made it."""
    lines = replace_block(text, [], BLOCK).split("\n")
    lines = [line.removeprefix(MARKER) for line in lines]
    if servers:
        source = re.compile(r"\s*(server|pool|peer)\s")
        lines = [MARKER + line if source.match(line) else line for line in lines]
    return replace_block("\n".join(lines), [f"server {each} iburst" for each in servers], BLOCK)


@dataclass(frozen=True)
class Clock:
    """No `servers`: those of the distribution stay. `wait_s` bounds the first synchronisation."""

    servers: Sequence[str] = ()
    max_offset_s: float = 0.1
    wait_s: int = 30

    def plan(self, node: Node) -> Plan:
        if node.container is not None:
            return Plan()
        unit = systemd.installed(node, UNITS)
        if unit is None:
            if node.check_mode:  # the package comes first, and only a real run brings it
                return Plan([], [Step("time service", "not installed", RUNNING, lambda: None)])
            raise PlanError("time: chrony is not installed; the role os_baseline installs it")
        config = self._config(node)
        steps = []
        state = systemd.state(node, unit)
        if state != RUNNING:
            steps.append(_command(node, unit, state, RUNNING, ["enable", "--now", unit]))
        if config is not None and (config.changed or _older_than_config(node, unit, config)):
            steps.append(
                _command(node, unit, "older settings", "settings of its file", ["restart", unit])
            )
        return Plan([] if config is None else [config], steps)

    def verify(self, node: Node) -> Verdict:
        wanted = {"synchronised": True, "max_offset_s": self.max_offset_s}
        if node.container is not None:
            why = node.not_here("the clock is the host's, and no container may steer it")
            return Verdict([not_applicable("time_sync", wanted, why)])
        unit = systemd.installed(node, UNITS)
        state = "not installed" if unit is None else systemd.state(node, unit)
        otherwise = PENDING if node.check_mode else FAILED
        service = Check("time_service", RUNNING, state, OK if state == RUNNING else otherwise)
        if state != RUNNING:
            return Verdict([service])
        tracking = self._tracking(node)
        good = (
            tracking is not None
            and tracking.synchronised
            and tracking.offset_s <= self.max_offset_s
        )
        found = None if tracking is None else tracking.figures()
        why = "" if good else "see chronyc sources: name servers this node can reach"
        status = OK if good else FAILED
        return Verdict([service, Check("time_sync", wanted, found, status, "", why)])

    def _config(self, node: Node) -> Optional[FilePlan]:
        """chrony.conf with our servers, or None when it is not ours to touch."""
        for name in CONFIGS:
            text = node.read(name)
            if text is not None:
                wanted = with_servers(text, self.servers)
                touched = self.servers or f"BEGIN baremetal.mpi_roce {BLOCK}" in text
                return node.edited(name, wanted) if touched else None
        if self.servers:
            raise PlanError(f"time: no chrony.conf (looked for {', '.join(CONFIGS)})")
        return None

    def _tracking(self, node: Node) -> Optional[Tracking]:
        tracking = _ask(node)
        if (tracking is not None and tracking.synchronised) or node.check_mode:
            return tracking
        node.run(
            ["chronyc", "waitsync", str(self.wait_s), str(self.max_offset_s), "0", "1"],
            check=False,
        )
        return _ask(node)


def _ask(node: Node) -> Optional[Tracking]:
    answer = node.run(["chronyc", "-c", "tracking"], check=False)
    return parse_tracking(answer.stdout) if answer.rc == 0 else None


def _older_than_config(node: Node, unit: str, config: FilePlan) -> bool:
    """Whether the service started before its file was last written: an interrupted run."""
    text = node.run(
        ["systemctl", "show", unit, "-p", "ActiveEnterTimestamp", "--timestamp=unix"]
    ).stdout
    match = re.search(r"@([0-9]+)", text)
    return match is not None and int(match.group(1)) < int(config.path.stat().st_mtime)


def _command(node: Node, unit: str, before: str, after: str, words: Sequence[str]) -> Step:
    def act() -> None:
        node.run(["systemctl", *words])

    return Step(unit, before, after, act)
