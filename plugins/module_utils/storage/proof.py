# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems proved by use: each host writes, then reads what another host wrote.

There are two rounds, so that a reader waits for nothing. A host on which the first one failed has
no second one, and its files are not read. A fault is reported once; what depends on it refers to
it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..core import bounded, mounts
from ..core.bounded import Report, WorkResult
from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ..core.machine import IN_CONTAINER, NO_MOUNTS
from . import probe
from .file_system import HOME, SOFTWARE, FileSystem
from .units import WantedMount

FREE_SHARE = 0.05
"""Of what is free, all writers together take at most this much."""
GIB = 1 << 30
NOBODY = (65534, 4294967294)
"""The user nobody's ids as NFS servers give them: in 16 bits, and -2 as 32 bits read it."""

MOUNTED, ANSWERS, READ_ONLY, SPACE, FILES, WRITE, OWNER, WRITE_RATE, NEIGHBOUR, READ_RATE = (
    "storage_mounted", "storage_answers", "storage_read_only", "storage_space", "storage_files",
    "storage_write", "storage_owner", "storage_write_rate", "storage_neighbour",
    "storage_read_rate",
)  # fmt: skip
PROMISES = {
    MOUNTED: "mounted from its source",
    ANSWERS: "answers in time",
    READ_ONLY: "writable",
    SPACE: "enough free",
    FILES: "enough free",
    WRITE: "written, fsynced, renamed over an older one and read back",
    OWNER: "the MPI user",
    WRITE_RATE: "as expected",
    NEIGHBOUR: "the neighbour's file, right to the byte",
    READ_RATE: "as expected",
}
OF_READING = (NEIGHBOUR, READ_RATE)

_CORRUPT = (
    "what was written is not what is read: do not trust this file system before the cause is found "
    "(network without checksums, a server's disk or memory, a cache between)"
)
_RIGHTS = (
    "{user} must be allowed to make a directory in the top directory: its owner and mode (keys "
    "owner, mode), the same uid on the server, and the export's squash options"
)
BY_ERROR = {
    errno.ESTALE: (
        MOUNTED,
        "the server exports another directory under this path than when it was mounted. End what "
        "uses the mount, then: systemctl restart {unit}",
    ),
    errno.EROFS: (READ_ONLY, "see exportfs -v and dmesg on the server, and dmesg here"),
    errno.EDQUOT: (SPACE, "raise the quota of {user} there"),
    errno.ENOSPC: (SPACE, "no space, or no inodes, are left (df, df -i): remove old checkpoints"),
    errno.EACCES: (WRITE, _RIGHTS),
    errno.EPERM: (WRITE, _RIGHTS),
}
BY_ANSWER = {
    probe.OWN: (WRITE, _CORRUPT),
    probe.RENAME: (WRITE, "the server does not rename atomically: which server is it?"),
    probe.TOKEN: (
        NEIGHBOUR,
        "a cache keeps old data (mount options such as nocto or a long actimeo), or it is another "
        "export",
    ),
    probe.CONTENT: (NEIGHBOUR, _CORRUPT),
}
"""The check of what goes wrong, and the remedy."""


@dataclass(frozen=True)
class Target:
    """One file system on this host, and the place of this host among those that use it.

    `user` is the MPI user, `uid` its number; `become` takes its rights.
    """

    wanted: WantedMount
    host: str
    cluster: str
    token: str
    user: str
    uid: int
    size: int
    """Bytes of the large file."""
    limit_s: float
    writers: int = 1
    """Hosts that write at the same time."""
    neighbour: str = ""
    """Whose files are read; empty where no other host wrote."""
    neighbour_bytes: int = 0
    alone: bool = False
    """No other host of the run measures at the same time."""
    check_mode: bool = False
    container: Optional[str] = None
    become: Optional[Callable[[], None]] = None

    @property
    def fs(self) -> FileSystem:
        return self.wanted.fs

    @property
    def mount(self) -> str:
        return self.wanted.point

    @property
    def read_only(self) -> bool:
        """Read-only on purpose."""
        return "ro" in self.fs.options

    @property
    def of_others(self) -> bool:
        """Whether the top directory belongs to others, as the model has it. Homes and software of
        an external server do where no owner is given."""
        if self.fs.owner:
            return self.fs.owner not in (self.user, str(self.uid))
        return self.fs.serve is None and self.fs.purpose in (HOME, SOFTWARE)

    def mounted(self, line: str) -> Optional[mounts.Mount]:
        """What is mounted at the mount point, by the line of the directory that was opened: what
        the mount table had before may have changed since."""
        running = next(iter(mounts.parse(line)), None)
        if running is None or running.point != self.mount or running.kind == mounts.AUTOFS:
            return None
        return running

    def task(self, do: str) -> dict[str, Any]:
        """For the probe."""
        return {
            "do": do,
            "mount": self.mount,
            "cluster": self.cluster,
            "name": self.host,
            "token": self.token,
            "bytes": self.size,
            "share": FREE_SHARE / self.writers,
            "neighbour": self.neighbour,
            "neighbour_bytes": self.neighbour_bytes,
        }


@dataclass
class Proof:
    """The checks of one round on one file system, each under its name once, and its figures."""

    target: Target
    figures: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, Check] = field(default_factory=dict)
    failed: str = ""
    """The check whose failure kept the others from being made."""

    @property
    def unit(self) -> str:
        return self.target.wanted.mount_unit

    def add(self, name: str, found: Any, status: str, reason: str = "", wanted: Any = None) -> None:
        wanted = self.target.wanted.source if name == MOUNTED else wanted or PROMISES[name]
        found = wanted if found is None and status == OK else found
        self.checks[name] = Check(name, wanted, found, status, self.target.mount, reason)

    def ok(self, name: str, found: Any = None, wanted: Any = None) -> None:
        self.add(name, found, OK, wanted=wanted)

    def fail(self, name: str, found: Any, reason: str, wanted: Any = None) -> None:
        """Nothing is tried after it that would only fail for the same reason."""
        self.failed = name
        self.add(name, found, FAILED, reason, wanted)

    def rest(self, reason: str, names: Sequence[str] = tuple(PROMISES)) -> Proof:
        """Those of `names` without a result; what failed is the reason, where something did."""
        for name in names:
            if name not in self.checks:
                why = f"not read: see {self.failed}" if self.failed else reason
                self.add(name, None, NOT_APPLICABLE, why)
        return self


# The rounds


def write(target: Target) -> Proof:
    """Judges the mount and writes; what is read is judged here only where nothing will be read."""
    answer = _ask(target, "look" if target.check_mode or target.read_only else "write")
    proof, found = Proof(target, _figures(target, answer)), answer.found
    refused = found.get("error", {}).get("number") in (errno.EACCES, errno.EPERM)
    if refused and answer.step.startswith("opening ") and target.of_others:
        if "line" in found:
            seen = {key: value for key, value in found.items() if key != "error"}
            _judge(proof, replace(answer, found=seen), WRITE)
        return proof.rest(
            f"it belongs to {target.fs.owner or 'others'} (owner), and {target.user} writes "
            f"nothing there; for a proof make {probe.DIRECTORY} there, {target.user}'s"
        )
    _judge(proof, answer, WRITE)
    if proof.failed or not found.get("right"):
        here = f"{IN_CONTAINER} ({target.container}): {NO_MOUNTS}"
        return proof.rest(here if target.container else "not mounted yet")
    if target.check_mode or target.read_only:
        why = "read-only on purpose (its options have ro)" if target.read_only else ""
        return proof.rest(why or "check mode writes nothing")
    if "owner" not in found:
        proof.fail(WRITE, *_ENDED)
        return proof.rest("")
    proof.ok(WRITE)
    _owner(proof, found["owner"])
    _rate(proof, WRITE_RATE, found["wrote"], target.fs.expect.write_gb_s)
    return proof.rest("") if proof.failed else proof


def read(target: Target) -> Proof:
    """Judges what is read; of the mount only what is wrong by now."""
    answer = _ask(target, "read")
    proof = Proof(target, _figures(target, answer))
    _judge(proof, answer, NEIGHBOUR)
    if not proof.failed:
        proof.checks.clear()
        found = answer.found
        if "owner" not in found:
            proof.fail(NEIGHBOUR, *_ENDED)
        elif target.neighbour:
            proof.ok(NEIGHBOUR)
            _owner(proof, found["owner"], f" on the file of {target.neighbour}")
            _rate(proof, READ_RATE, found["read"], target.fs.expect.read_gb_s)
    return proof.rest("no other host of this run writes to it", OF_READING)


def _ask(target: Target, do: str) -> WorkResult:
    def work(report: Report) -> None:
        def go(found: dict[str, Any]) -> bool:
            running = target.mounted(found["line"])
            right = running is not None and target.wanted.is_source(running, mounts.read())
            report({"right": right})
            return right and (do == "look" or not found["read_only"])

        probe.perform(target.task(do), report, go)

    return bounded.within(target.limit_s, work, become=target.become)


def _figures(target: Target, answer: WorkResult) -> dict[str, Any]:
    names = ("wrote", "read", "own_address")
    found = {key: answer.found[key] for key in names if answer.found.get(key)}
    return {**found, "served_here": target.wanted.is_bind} if found else {}


# What was found, as checks

_ENDED = ("its process ended early", "was it killed for want of memory? See dmesg")


def _judge(proof: Proof, answer: WorkResult, does: str) -> None:
    """Mounted, from the right server, answering, writable, roomy; and any error on the way.

    `does`: the check of what the round does.
    """
    found = answer.found
    if "line" in found and not _mounted(proof, found):
        return
    if not answer.answered:
        _hung(proof, answer)
        return
    if "line" in found:
        proof.ok(ANSWERS)
        _room(proof, found)
    error, wrong = found.get("error"), found.get("wrong")
    if error is not None:
        number, step = int(error["number"]), answer.step
        code = errno.errorcode.get(number, f"error {number}")
        name, remedy = BY_ERROR.get(number, (does, "see the server's log, and dmesg here"))
        if "line" not in found and number not in BY_ERROR:
            name, remedy = MOUNTED, "see systemctl status {unit}: the server, and its export"
        elif does == NEIGHBOUR and number == errno.ENOENT:
            remedy = "do both mount the same export of the same server?"
        remedy = remedy.format(unit=proof.unit, user=proof.target.user)
        proof.fail(name, f"{error['text'] or code} ({code}) while {step}", remedy)
    elif wrong is not None:
        name, remedy = BY_ANSWER[wrong["about"]]
        proof.fail(name, wrong["text"], remedy)
    elif "line" not in found:
        proof.fail(ANSWERS, *_ENDED)
    else:
        _read_only(proof, bool(found["read_only"]))


def _mounted(proof: Proof, found: Mapping[str, Any]) -> bool:
    target = proof.target
    running = target.mounted(found["line"])
    if found.get("right"):
        proof.ok(MOUNTED)
        return True
    if running is not None:
        proof.fail(
            *(MOUNTED, f"{running.source} ({running.kind})"),
            "another file system is mounted there, and nothing was written to it: end what uses "
            f"it, then run --tags storage, or systemctl restart {proof.unit}",
        )
    elif target.check_mode and not target.container:
        proof.add(MOUNTED, "not mounted", PENDING)
    elif not target.container:
        proof.fail(
            *(MOUNTED, "not mounted"),
            f"nothing was written: run --tags storage, or systemctl start {proof.unit}",
        )
    return False


def _hung(proof: Proof, answer: WorkResult) -> None:
    target = proof.target
    found = f"no answer within {target.limit_s:g} s while {answer.step or 'starting'}"
    if answer.left_behind:
        found += f"; process {answer.left_behind} cannot be ended and waits on"
    proof.fail(
        *(ANSWERS, found),
        f"is {target.wanted.source} up, and its service? What uses this mount continues when it "
        f"answers. If it is gone for good: umount -f -l {target.mount}, and change the model",
    )


def _read_only(proof: Proof, found: bool) -> None:
    wanted, now = ("read-only" if each else "writable" for each in (proof.target.read_only, found))
    if now == wanted:
        proof.ok(READ_ONLY, now, wanted)
        return
    flag = "ro" if proof.target.read_only else "rw"
    why = f"see dmesg: mount -o remount,{flag} {proof.target.mount}, or run --tags storage"
    proof.fail(READ_ONLY, now, why, wanted)


def _room(proof: Proof, found: Mapping[str, Any]) -> None:
    """Too little room keeps nothing else from being tried."""
    fs = proof.target.fs
    free = int(found["free_bytes"]) / GIB
    files = int(found["free_files"]) if found["all_files"] else None
    for name, now, shown, wanted, promise in (
        (SPACE, free, f"{free:.1f} GiB free", fs.space_gib, f"{fs.space_gib} GiB free"),
        (FILES, files, files, fs.files, fs.files),
    ):
        if not wanted or now is None:
            reason = "nothing is asked for (space_gib, files), or it has no fixed number of inodes"
            proof.add(name, shown, NOT_APPLICABLE, reason)
        elif now >= wanted:
            proof.ok(name, shown, promise)
        else:
            reason = "remove old checkpoints, or change what is asked for"
            proof.add(name, shown, FAILED, reason, promise)


def _owner(proof: Proof, uid: int, where: str = "") -> None:
    """Of a file that the MPI user has just written; it is the last that the probe reports."""
    user, wanted = proof.target.user, f"uid {proof.target.uid}"
    if uid == proof.target.uid:
        proof.ok(OWNER, wanted, wanted)
    elif uid in NOBODY:
        why = (
            f"the server does not know {user}: all_squash in the export, or idmapd maps names to "
            "nobody (one domain in /etc/idmapd.conf, or nfs4_disable_idmapping=Y on both sides)"
        )
        proof.fail(OWNER, f"nobody ({uid}){where}", why, wanted)
    else:
        why = f"{user} has another number there, or the export has anonuid: cluster_mpi_uid for all"
        proof.fail(OWNER, f"uid {uid}{where}", why, wanted)


def _rate(proof: Proof, name: str, measured: Optional[Mapping[str, Any]], expected: float) -> None:
    """One node's rate is judged where it was alone: beside others it has a share of the server."""
    rate = None
    if measured and measured["bytes"] and measured["seconds"] > 0:
        rate = float(measured["bytes"]) / float(measured["seconds"]) / 1e9
    shown = None if rate is None else f"{rate:.3g} GB/s"
    others = proof.target.writers - 1
    if not expected:
        proof.add(name, shown, NOT_APPLICABLE, "no expectation is set (expect)")
    elif rate is None:
        proof.add(name, shown, NOT_APPLICABLE, "too little is free to measure anything")
    elif others and not proof.target.alone:
        why = f"measured beside {others} others; judged with shared_storage_use_alone"
        proof.add(name, shown, NOT_APPLICABLE, why)
    elif rate >= expected:
        proof.ok(name, shown, f"{expected:g} GB/s")
    else:
        why = "slower than expected: nconnect, the rail's MTU and counters, the server's threads"
        proof.add(name, shown, FAILED, why, f"{expected:g} GB/s")
