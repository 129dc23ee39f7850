# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a reboot on the node.

    read     return the input of the plan, without changes
    leave    drain, check for jobs again, record the current boot, and reboot by systemd
    arrive   wait until the system is up
    finish   resume the node in Slurm and clear reboot reasons disproved by verification

Each can be interrupted and repeated. Boots before such reboots are recorded, to prevent reboot
loops.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from ..core import machine, reboots
from ..core.commands import CommandError, Runner, find_program
from ..core.files import FilePlan, plan_file
from ..core.locks import HeldError, alone
from ..slurm.state import NodeState, SlurmError
from . import busy, slurm

POLL_S = 2.0
LOCK = Path("run/baremetal-mpi-roce/locks/reboot.lock")
"""Lock below the root. `leave` of an interrupted run may still be waiting for jobs."""
RECORD = Path("var/lib/baremetal-mpi-roce/reboots.json")
"""Record below the root: boot IDs and start times."""
KEPT_S = 7 * 86400
DELAY_S = 1
"""Delay of the reboot, so that the answer of `leave` arrives."""


class LeaveError(Exception):
    """The node is not rebooted; the message states the reason."""


class HistoryError(Exception):
    """The record is damaged; the message names the file and the remedy."""


@dataclass(frozen=True)
class RebootNode:
    """The node, a way to run programs on it, and its clock."""

    run: Runner
    root: Path = Path("/")
    uid: int = 0
    gid: int = 0
    find: Callable[[str], Optional[str]] = find_program
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    name: str = ""

    @property
    def scontrol(self) -> str:
        """Path of Slurm's program; empty without Slurm."""
        return self.find("scontrol") or ""


def read(here: RebootNode, more: Sequence[str] = ()) -> dict[str, Any]:
    """Read the input of the plan. `problems` lists what cannot be read."""
    problems: list[str] = []

    def tried(reader: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return reader()
        except (reboots.RecordError, HistoryError, SlurmError, OSError) as error:
            problems.append(str(error))
            return otherwise

    boot_id, latest = machine.boot_id(here.root), began(here.root)
    reasons = tried(lambda: reboots.required(here.root), {})
    known = {**tried(lambda: recorded_boots(here.root), {}), boot_id: latest}
    node = tried(lambda: _slurm(here), None)
    return {
        "boot_id": boot_id,
        "reasons": {record: [asdict(item) for item in found] for record, found in reasons.items()},
        # A start time after this boot comes from a wrong clock.
        "boots": sorted(round(min(when, latest), 1) for when in known.values()),
        "now": round(here.clock(), 1),
        "processes": [asdict(item) for item in busy.processes(here.root, more)],
        "slurm": slurm.as_dict(node) if node else None,
        "problems": problems,
    }


def leave(
    here: RebootNode, boot_id: str, reasons: Sequence[str], wait_s: float, more: Sequence[str] = ()
) -> None:
    """Drain, check again, and schedule the reboot.

    Raises LeaveError after restoring the former state: a node drained here is resumed.
    """
    try:
        with alone(here.root / LOCK, 0):
            _leave(here, boot_id, reasons, wait_s, more)
    except HeldError as error:
        raise LeaveError(f"another run is about to reboot it: {error}; run again later") from None


def _leave(
    here: RebootNode, boot_id: str, reasons: Sequence[str], wait_s: float, more: Sequence[str]
) -> None:
    if machine.boot_id(here.root) != boot_id:
        raise LeaveError("it has rebooted since the plan was made; run again")
    if not reboots.required(here.root):
        raise LeaveError("its reasons have been removed since the plan was made")
    reason = ", ".join(reasons)
    drained, node = False, None
    try:
        node = _slurm(here)
        if node is not None and not node.drained:
            slurm.drain(here.run, node.name, reason, here.scontrol)
        drained = node is not None and (slurm.ours(node) or not node.drained)
        still = _wait(here, wait_s, more)
        if still:
            raise LeaveError(still)
        record(here, boot_id).apply()
        _reboot(here, reason)
    except (SlurmError, CommandError, OSError, LeaveError) as error:
        message = str(error)
        if drained and node is not None:
            try:
                slurm.resume(here.run, node.name, here.scontrol)
            except SlurmError as problem:
                message += f"; and it is still drained in Slurm: {problem}"
        raise LeaveError(message) from error


def arrive(here: RebootNode, wait_s: float) -> dict[str, Any]:
    """Wait until systemd has finished booting. Return its state."""
    until = here.clock() + wait_s
    while True:
        done = here.run(["systemctl", "is-system-running"], check=False)
        state = done.stdout.strip()
        if state not in ("initializing", "starting") or here.clock() >= until:
            break
        here.sleep(POLL_S)
    return {"boot_id": machine.boot_id(here.root), "system": state}


def finish(here: RebootNode, records: Iterable[str], boot_id: str) -> dict[str, Any]:
    """Resume the node in Slurm if drained here, then clear older reasons of `records`.

    In this order, an interrupted run finds the reasons and repeats both.
    """
    if machine.boot_id(here.root) != boot_id:
        raise LeaveError("it rebooted again during verification")
    resumed = False
    try:
        node = _slurm(here)
        if node is not None and slurm.ours(node):
            slurm.resume(here.run, node.name, here.scontrol)
            resumed = True
    except SlurmError as error:
        raise LeaveError(f"it is verified, but Slurm does not resume it: {error}") from error
    struck = []
    for record in sorted(set(records)):
        known = reboots.recorded(record, here.root)
        left = [item for item in known if item.boot_id == boot_id]
        plan = reboots.plan(record, left, boot_id, root=here.root, uid=here.uid, gid=here.gid)
        if plan.changed:
            plan.apply()
            struck.append(record)
    rest = reboots.required(here.root)
    return {
        "resumed": resumed,
        "struck": struck,
        "left": {
            record: [item.reason or item.subject for item in found]
            for record, found in rest.items()
        },
    }


def recorded_boots(root: Path = Path("/")) -> dict[str, float]:
    """Start times by boot id."""
    path = root / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(item["boot_id"]): float(item["began"]) for item in found["boots"]}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path}: not a record of reboots ({error}); remove it") from error


def record(here: RebootNode, boot_id: str) -> FilePlan:
    """The record including the current boot, without boots older than a week."""
    since = here.clock() - KEPT_S
    boots = {key: when for key, when in recorded_boots(here.root).items() if when > since}
    boots[boot_id] = began(here.root)
    ordered = sorted(boots.items(), key=lambda item: item[1])
    entries = [{"boot_id": key, "began": when} for key, when in ordered]
    text = json.dumps({"boots": entries}, indent=1) + "\n"
    return plan_file(here.root / RECORD, text, uid=here.uid, gid=here.gid)


def began(root: Path = Path("/")) -> float:
    """Start of this boot in seconds since the epoch: that of PID 1, for containers."""
    stat = (root / "proc/stat").read_text(encoding="ascii")
    kernel = next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("btime "))
    first = (root / "proc/1/stat").read_text(encoding="utf-8", errors="replace")
    return kernel + int(first.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _slurm(here: RebootNode) -> Optional[NodeState]:
    name = (here.name or socket.gethostname()).partition(".")[0]
    return slurm.read(here.run, name, here.scontrol) if here.scontrol else None


def _wait(here: RebootNode, wait_s: float, more: Sequence[str]) -> str:
    """What still runs after `wait_s`; empty for nothing."""
    until = here.clock() + wait_s
    while True:
        found, node = busy.processes(here.root, more), _slurm(here)
        still = f"MPI runs on it: {busy.listed(found)}" if found else ""
        if not still and node is not None and node.busy:
            still = slurm.shown(slurm.as_dict(node))
        if not still or here.clock() >= until:
            return still
        here.sleep(POLL_S)


def _reboot(here: RebootNode, why: str) -> None:
    """Reboot by systemd, independent of this session."""
    here.run(
        [
            *("systemd-run", "--quiet", "--collect", f"--on-active={DELAY_S}"),
            *("--timer-property=AccuracySec=100ms", f"--description=reboot: {why}"[:200]),
            *("systemctl", "reboot"),
        ]
    )
