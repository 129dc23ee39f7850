# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who uses the GPUs: a driver is not changed under a job.

Read from /proc, where jobs of containers are seen as well: whatever has a device of the driver
open, and every MPI process, which may be about to open one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..hardware import tree
from ..reboot import busy
from ..reboot.busy import Process

DEVICES = "/dev/nvidia"
OWN = ("nvidia-persistenced", "nv-fabricmanager", "nvlsm", "nv-hostengine", "nvidia-imex")
"""Services of the set: stopped and started where it takes that."""
SHOWN = 5
"""So many processes stand in a message."""


def users(root: Path) -> list[Process]:
    """Every process of a job, by PID; not the set's own services, and not this run."""
    found = {each.pid: each for each in busy.processes(root)}
    for pid in (int(name) for name in tree.names(root / "proc") if name.isdigit()):
        where = root / "proc" / str(pid)
        name = tree.text(where / "comm")
        device = next(_devices(where), "")
        if device and name not in {own[: busy.COMM_LENGTH] for own in OWN}:
            found[pid] = Process(pid, "", name, f"has {device} open")
    for pid in _ourselves(root):
        found.pop(pid, None)
    return [found[pid] for pid in sorted(found)]


def listed(who: Sequence[Process]) -> str:
    shown = ", ".join(f"{each.command} (PID {each.pid}: {each.why})" for each in who[:SHOWN])
    rest = len(who) - SHOWN
    return shown + (f" and {rest} more" if rest > 0 else "")


def _ourselves(root: Path) -> Iterator[int]:
    """This process and those that started it: a run that an MPI job started is no job by that."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        fields = tree.text(root / "proc" / str(pid) / "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0


def _devices(where: Path) -> Iterator[str]:
    """What a process has open of the driver; processes come and go while this reads."""
    for name in tree.names(where / "fd"):
        try:
            target = str((where / "fd" / name).readlink())
        except OSError:
            continue
        if target.startswith(DEVICES):
            yield target
