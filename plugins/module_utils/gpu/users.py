# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who uses the GPUs: a driver is not changed under a job.

Read from /proc, where jobs of containers are seen as well: whatever has a device of the driver
open, and every MPI process, which may be about to open one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core import processes
from ..core.text import some
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
    own = {name[: processes.COMM_LENGTH] for name in OWN}
    for each in processes.openers(root, lambda path: path.startswith(DEVICES)):
        if each.name not in own:
            found[each.pid] = Process(each.pid, "", each.name, f"has {each.file} open")
    for pid in _ourselves(root):
        found.pop(pid, None)
    return [found[pid] for pid in sorted(found)]


def listed(who: Sequence[Process]) -> str:
    return some([f"{each.command} (PID {each.pid}: {each.why})" for each in who], SHOWN)


def _ourselves(root: Path) -> Iterator[int]:
    """This process and those that started it: a run that an MPI job started is no job by that."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        fields = tree.text(root / "proc" / str(pid) / "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
