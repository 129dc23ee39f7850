# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What finished jobs left behind: processes, shared memory, memory of GPUs. Nothing is
removed here."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core import processes
from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.commands import CommandError, Runner
from ..core.text import bytes_text, some
from ..reboot.busy import RANK, SLURM_JOB, STEP

PROCESSES, MEMORY, GPU = "node_leftover_processes", "node_leftover_memory", "node_leftover_gpu"
SHM = "dev/shm"
FIRST_USER = 1000
"""Smallest user id of a person (`UID_MIN` of login.defs); others are services."""
OVERFLOW_UID = 65534
MOST = 100_000
MOST_BYTES = 1 << 16
"""How much of a process's environment is read; it may be MiBs."""
SHOWN = 5
QUERY = ("nvidia-smi", "--format=csv,noheader,nounits", "--query-gpu=pci.bus_id,memory.used")
APPS = ("nvidia-smi", "--format=csv,noheader,nounits", "--query-compute-apps=gpu_bus_id,pid")
# The output of both: csv of NVIDIA's documentation of nvidia-smi, "00000000:19:00.0, 1234".
_GROUP = re.compile(
    r"\d+:[^:]*:/(?:(?!user\.)[^/]+\.slice/[^/]*slurmstepd\.scope|slurm[^/]*/uid_\d+)"
    r"/job_(\d{1,10})(?:/|$)"
)
"""A job in a line of /proc/PID/cgroup, of version 2 or 1. Users make groups in user.slice only."""
_ROW = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]), *(\d{1,12})")


@dataclass(frozen=True)
class Process:
    pid: int
    uid: int
    parent: int
    name: str
    inside: str = ""
    """The Slurm job whose control group it is in."""
    claim: str = ""
    """The Slurm job in its environment, which its user can change."""
    rank: bool = False
    step: str = ""
    """The job of which it is Slurm's own daemon; empty for others."""

    @property
    def text(self) -> str:
        job = self.inside or self.claim
        return f"{self.name} (pid {self.pid}, uid {self.uid}{f', job {job}' if job else ''})"


def read(root: Path) -> list[Process]:
    found = (_process(root / f"proc/{pid}") for pid in processes.pids(root)[:MOST])
    return [each for each in found if each is not None]


def _process(folder: Path) -> Optional[Process]:
    """None for a kernel thread, a zombie, and a process that has exited meanwhile."""
    try:
        command = _head(folder / "cmdline")
        if not command:
            return None
        name, _end, rest = _head(folder / "stat").partition(b"(")[2].rpartition(b")")
        state, parent = rest.split()[:2]
        if state == b"Z":
            return None
        uid = folder.stat().st_uid
        pairs = dict(word.partition("=")[::2] for word in _environment(folder))
    except (OSError, ValueError):
        return None
    claim = next((pairs[key] for key in SLURM_JOB if pairs.get(key, "").isdigit()), "")
    group = next((m[1] for m in map(_GROUP.match, _text(folder / "cgroup")) if m), "")
    shown = name.decode("utf-8", "replace")
    rank = not RANK.isdisjoint(pairs)
    step = _step(folder, command, uid)
    return Process(int(folder.name), uid, int(parent), shown, group, claim, rank, step)


def _step(folder: Path, command: bytes, uid: int) -> str:
    """The job of a daemon of Slurm. Any user can give a process its title, and run a program of
    root under it (su); none can run Slurm's program as root."""
    title = STEP.fullmatch(command.replace(b"\0", b" ").decode("utf-8", "replace").strip())
    if title is None or uid >= FIRST_USER:
        return ""
    try:
        program = (folder / "exe").readlink().name
    except PermissionError:  # not root: run by hand
        return title[1]
    except OSError:
        return ""
    return title[1] if program.startswith("slurmstepd") else ""


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES)


def _text(path: Path) -> list[str]:
    try:
        return _head(path).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _environment(folder: Path) -> list[str]:
    try:
        return _head(folder / "environ").decode("utf-8", "replace").split("\0")
    except OSError:  # only root may read that of others
        return []


def running(found: Iterable[Process], finished: str) -> set[str]:
    """Jobs with a daemon of Slurm on this node, without the one that has just `finished`."""
    return {each.step for each in found if each.step} - {"", finished}


def members(found: Collection[Process]) -> dict[int, str]:
    """The job of each process by PID, by what its user cannot change: its control group, or else
    Slurm's daemon among its parents."""
    by_pid = {each.pid: each for each in found}
    known: dict[int, str] = {}
    for each in found:
        path: dict[int, None] = {}
        now: Optional[Process] = each
        while now is not None and now.pid not in known and now.pid not in path:
            path[now.pid] = None
            if now.inside or now.step:
                known[now.pid] = now.inside or now.step
                break
            now = by_pid.get(now.parent)
        job = known.get(now.pid, "") if now is not None else ""
        known.update(dict.fromkeys(path, job))
    return {pid: job for pid, job in known.items() if job}


def orphans(found: Collection[Process], finished: str = "") -> list[Process]:
    """Processes of users whose job has no daemon any more, and ranks without a job whose launcher
    is gone: a service that a rank of a job starts has no parent either, and ends with the job.

    A process that only claims a job belongs to it if its user has others there."""
    jobs, inside = running(found, finished), members(found)
    owners: dict[str, set[int]] = {}
    for each in found:
        if each.uid >= FIRST_USER and each.pid in inside:
            owners.setdefault(inside[each.pid], set()).add(each.uid)

    def left(each: Process) -> bool:
        if each.pid in inside:
            return inside[each.pid] not in jobs
        if each.claim:
            return each.claim not in jobs or each.uid not in owners.get(each.claim, {each.uid})
        return each.rank and each.parent == 1

    return [each for each in found if FIRST_USER <= each.uid != OVERFLOW_UID and left(each)]


def of_processes(found: Collection[Process], finished: str = "") -> Check:
    left = orphans(found, finished)
    if not left:
        return Check(PROCESSES, [], [], OK)
    pids = " ".join(str(each.pid) for each in left[:50])
    shown = some([each.text for each in left], SHOWN)
    reason = f"their jobs have finished: {shown}. kill -9 {pids}"
    return Check(PROCESSES, [], [each.pid for each in left], FAILED, "", reason)


def of_memory(root: Path, found: Collection[Process], most_mib: float) -> Check:
    """Files in shared memory whose owners have no process on this node any more."""
    owners = {each.uid for each in found}
    sizes: dict[int, int] = {}
    names: dict[int, str] = {}
    for name, size, uid in _files(root / SHM):
        if FIRST_USER <= uid != OVERFLOW_UID and uid not in owners:
            sizes[uid] = sizes.get(uid, 0) + size
            names.setdefault(uid, name)
    wanted, total = f"at most {most_mib:g} MiB", sum(sizes.values())
    if total <= most_mib * (1 << 20):
        return Check(MEMORY, wanted, bytes_text(total), OK)
    shown = [f"uid {uid} {bytes_text(sizes[uid])} ({names[uid]}, ...)" for uid in sorted(sizes)]
    reason = f"/{SHM} has files of users without a process: {some(shown, SHOWN)}. Remove them"
    return Check(MEMORY, wanted, bytes_text(total), FAILED, "", reason)


def _files(top: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and owner of the files below a directory, without following links."""
    count = 0
    for folder, _directories, files in os.walk(top):
        for name in files:
            count += 1
            if count > MOST:
                return
            try:
                status = (Path(folder) / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield name, status.st_blocks * 512, status.st_uid


def of_gpus(run: Runner, most_mib: float) -> list[Check]:
    """Memory that is in use on a GPU on which no process runs."""
    try:
        used, apps = _rows(run(QUERY).stdout), _rows(run(APPS).stdout)
    except CommandError as error:
        return [not_applicable(GPU, f"at most {most_mib:g} MiB", f"not read: {error}")]
    return list(_gpus(used, apps, most_mib))


def _gpus(used: Mapping[str, int], apps: Mapping[str, int], most_mib: float) -> Iterator[Check]:
    wanted = f"at most {most_mib:g} MiB without a process"
    bad = {pci: mib for pci, mib in used.items() if mib > most_mib and pci not in apps}
    if not bad:
        yield Check(GPU, wanted, "no more", OK)
    for pci, mib in bad.items():
        reason = f"GPU {pci} has {mib} MiB in use and no process: reset it (docs/gpu.md)"
        yield Check(GPU, wanted, f"{mib} MiB", FAILED, pci, reason)


def _rows(text: str) -> dict[str, int]:
    """PCI address (`0000:19:00.0`) to the number in the second column."""
    found = (_ROW.fullmatch(line.strip()) for line in text.splitlines())
    return {f"{int(m[1], 16):04x}:{m[2].lower()}": int(m[3]) for m in found if m}
