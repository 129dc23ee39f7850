# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems proved by use: each host writes, then reads what another host wrote.

There are two rounds, so that a reader waits for nothing.
What the first round found goes back to the controller and comes again with the second, which alone
fails the host: one that failed earlier would miss the second round with its other file systems too.
A fault is reported once; what depends on it refers to it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Optional

from ..core import mounts as mounted
from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ..core.dataclass import dataclass
from ..core.machine import IN_CONTAINER, NO_MOUNTS
from . import bounded, probe
from .bounded import Answer
from .file_system import HOME, SOFTWARE, FileSystem
from .units import WantedMount, escape_path

Mounts = tuple[mounted.Mount, ...]

FREE_SHARE = 0.05
"""Of what is free, all writers together take at most this much."""
GIB = 1 << 30
NOBODY = (65534, 4294967294)
"""Owner of what an NFS server gives to nobody: as 16 bits have it, and as -2 reads in 32."""

PROMISES = {
    "storage_mounted": "mounted",
    "storage_server": "the wanted file system",
    "storage_answers": "answers in time",
    "storage_read_only": "writable",
    "storage_space": "enough free",
    "storage_files": "enough free",
    "storage_write": "written, fsynced and read back",
    "storage_rename": "renamed over an older one",
    "storage_owner": "the MPI user",
    "storage_write_rate": "as expected",
    "storage_neighbour": "the neighbour's file, right to the byte",
    "storage_names": "files of all peers",
    "storage_read_rate": "as expected",
}
EVERY = tuple(PROMISES)
WRITTEN = EVERY[: EVERY.index("storage_neighbour")]

_CORRUPT = (
    "what was written is not what is read: do not trust this file system before the cause is found "
    "(network without checksums, a server's disk or memory, a cache between)"
)
_RIGHTS = (
    *("storage_write", "not allowed: "),
    "{user} must be allowed to make a directory in the top directory: its owner and mode (keys "
    "owner, mode), the same uid on the server, and the export's squash options",
)
FINDINGS: dict[Any, tuple[str, str, str]] = {
    errno.ESTALE: (
        *("storage_mounted", "stale handle: "),
        "the server exports another directory under this path than when it was mounted. End what "
        "uses the mount, then: systemctl restart {unit}",
    ),
    errno.EROFS: (
        *("storage_read_only", "read-only: "),
        "the server or the kernel made it read-only: see exportfs -v and dmesg there",
    ),
    errno.EDQUOT: ("storage_space", "over quota: ", "raise the quota of {user} there"),
    errno.ENOSPC: (
        *("storage_space", "full: "),
        "no space, or no inodes, are left there (df, df -i): remove old checkpoints",
    ),
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    "automount": (
        *("storage_mounted", "could not be mounted: "),
        "see systemctl status {unit}: the server's name, its export, its service",
    ),
    "absent": (
        *("storage_neighbour", "not there: "),
        "the neighbour has written it: do both mount the same export of the same server?",
    ),
    "reading": ("storage_neighbour", "", "see the server's log, and dmesg here"),
    "writing": ("storage_write", "", "see the server's log, and dmesg here"),
    "own": ("storage_write", "", _CORRUPT),
    "rename": ("storage_rename", "", "the server does not rename atomically: which server is it?"),
    "token": (
        *("storage_neighbour", ""),
        "a cache keeps old data (mount options such as nocto or a long actimeo), or it is another "
        "export",
    ),
    "content": ("storage_neighbour", "", _CORRUPT),
}
"""What goes wrong: by errno, by the word with which the probe reports it, or by what was done.
Its check, what is shown in front of the error, and the remedy."""
_KILLED = "its process was killed: out of memory? See dmesg"


@dataclass(frozen=True)
class Seat:
    """The place of one host in the ring of one file system."""

    writers: int = 1
    """Hosts that write at the same time."""
    neighbour: str = ""
    """Whose files it reads; empty for one that is alone."""
    neighbour_bytes: int = 0
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """`user` is the MPI user, `uid` its number."""

    wanted: WantedMount
    seat: Seat
    host: str
    cluster: str
    token: str
    user: str
    uid: int
    size: int
    """Bytes of the large file."""
    limit_s: float
    alone: bool = False
    """No other host of the run measures at the same time."""
    check_mode: bool = False

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

    def is_for_user(self, found: Mapping[str, Any]) -> bool:
        """Whether the MPI user is meant to write in the top directory, as the model says.

        `found`: what the probe saw of that directory, and the groups it ran with. Homes and
        software of an external server belong to others if nothing is said of them.
        """
        fs = self.fs
        if not fs.owner:
            return fs.serve is not None or fs.purpose not in (HOME, SOFTWARE)
        mode = int(fs.mode, 8)
        if fs.owner in (self.user, str(self.uid)) or mode & 0o002:
            return True
        of_group = (found.get("top") or {}).get("gid") in (found.get("groups") or ())
        return bool(mode & 0o020) and of_group

    def task(self, do: str) -> dict[str, Any]:
        """For the probe."""
        return {
            "do": do,
            "mount": self.mount,
            "cluster": self.cluster,
            "name": self.host,
            "token": self.token,
            "bytes": self.size,
            "share": FREE_SHARE / max(1, self.seat.writers),
            "neighbour": self.seat.neighbour,
            "neighbour_bytes": self.seat.neighbour_bytes,
            "peers": list(self.seat.peers),
        }


@dataclass(frozen=True)
class Here:
    """This host, as far as the rounds have to do with it."""

    become: Optional[Callable[[], None]] = None
    """Gives up the rights of root for those of the MPI user."""
    container: Optional[str] = None
    mounts: Callable[[], Mounts] = mounted.read
    records: Path = bounded.LEFT_BEHIND


@dataclass
class Held:
    """What was found of one file system, as it travels between the rounds."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""
    """The name of the check whose failure kept the others from being made."""
    figures: dict[str, Any] = field(default_factory=dict)


# The rounds


def write(target: Target, here: Here) -> Held:
    mounts = here.mounts()
    running, trap = mounted.on(mounts, target.mount), mounted.trap(mounts, target.mount)
    book = _Book(target)
    if running is None and trap is None:
        # What is written would fill a directory of this node.
        if here.container:
            return book.rest(f"{IN_CONTAINER} ({here.container}): {NO_MOUNTS}")
        if target.check_mode:
            book.add("storage_mounted", "not mounted", PENDING)
            return book.rest("not mounted yet")
        book.fail(
            *("storage_mounted", "not mounted"),
            f"nothing was written: run --tags storage, or systemctl start {book.unit}",
        )
        return book.rest()
    if running is not None and not target.wanted.is_source(running, mounts):
        book.another(running)
        return book.rest()
    answer = _ask(target, here, "look" if target.check_mode or target.read_only else "write")
    return _after_writing(book, answer, automount=trap is not None)


def read(target: Target, held: Held, here: Here) -> Held:
    if held.stopped or "wrote" not in held.figures:
        return Held(held.checks, held.stopped)
    answer = _ask(target, here, "read")
    return _after_reading(_Book(target, {x["name"]: Check(**x) for x in held.checks}), held, answer)


def _ask(target: Target, here: Here, do: str) -> Answer:
    def work(report: probe.Report) -> None:
        def go(found: dict[str, Any]) -> bool:
            right = is_right(target, found["line"], here.mounts())
            if right is False:
                report({"foreign": True})
            return bool(right) and (do == "look" or not found["read_only"])

        probe.perform(target.task(do), report, go)

    record = here.records / f"{escape_path(target.mount)}.pid"
    return bounded.within(target.limit_s, work, become=here.become, record=record)


def is_right(target: Target, line: str, mounts: Mounts) -> Optional[bool]:
    """Whether the directory that was opened is of the wanted file system; None where it is of no
    file system that is mounted there. By the open directory: what the mount table said before may
    have changed since."""
    running = next(iter(mounted.parse(line)), None)
    if running is None or running.point != target.mount or running.kind == mounted.AUTOFS:
        return None
    return target.wanted.is_source(running, mounts)


def checks_of(held: Sequence[Held]) -> list[Check]:
    return [Check(**check) for one in held for check in one.checks]


# What was found, as checks


@dataclass
class _Book:
    """The checks of one file system, each under its name once."""

    target: Target
    checks: dict[str, Check] = field(default_factory=dict)
    stopped: str = ""

    @property
    def unit(self) -> str:
        return self.target.wanted.mount_unit

    def add(self, name: str, found: Any, status: str, reason: str = "", wanted: Any = None) -> None:
        wanted = PROMISES[name] if wanted is None else wanted
        if name == "storage_server":
            wanted = self.target.wanted.source
        self.checks[name] = Check(name, wanted, found, status, self.target.mount, reason)

    def ok(self, name: str, found: Any = None, wanted: Any = None) -> None:
        if name not in self.checks:
            wanted = PROMISES[name] if wanted is None else wanted
            self.add(name, wanted if found is None else found, OK, wanted=wanted)

    def fail(self, name: str, found: Any, reason: str, wanted: Any = None) -> None:
        """Nothing is tried after it that would only fail for the same reason."""
        if not self.stopped:
            self.stopped = name
            self.add(name, found, FAILED, reason, wanted)

    def rest(self, reason: str = "", names: Sequence[str] = EVERY, **figures: Any) -> Held:
        """Those of `names` without a result depended on the one that failed."""
        if self.stopped:
            names, reason = EVERY, f"not read: see {self.stopped}"
        for name in names:
            if name not in self.checks:
                self.add(name, None, NOT_APPLICABLE, reason)
        checks = [asdict(self.checks[name]) for name in EVERY if name in self.checks]
        return Held(checks, self.stopped, figures)

    def another(self, running: mounted.Mount) -> None:
        self.ok("storage_mounted")
        self.fail(
            *("storage_server", f"{running.source} ({running.kind})"),
            "another file system is mounted there, and nothing was written to it: end what uses "
            f"it, then run --tags storage, or systemctl restart {self.unit}",
        )

    def finding(self, key: Any, text: str) -> None:
        name, word, remedy = FINDINGS[key]
        remedy = remedy.format(unit=self.unit, user=self.target.user)
        self.fail(name, f"{word}{text}", remedy)


def _figures(target: Target, answer: Answer) -> dict[str, Any]:
    names = ("wrote", "read", "own_address")
    found = {key: answer.found[key] for key in names if answer.found.get(key)}
    return {**found, "served_here": target.wanted.is_bind} if found else {}


def _after_writing(book: _Book, answer: Answer, *, automount: bool) -> Held:
    target, found = book.target, answer.found
    figures = _figures(target, answer)
    error = found.get("error") or {}
    refused = error.get("number") in (errno.EACCES, errno.EPERM)
    if refused and answer.step.startswith("opening ") and not target.is_for_user(found):
        # Not allowed to make our directory, and by the model not meant to be.
        if "line" in found:
            seen = {key: value for key, value in found.items() if key != "error"}
            _look(book, replace(answer, found=seen), automount)
        owner = target.fs.owner or "others"
        why = f"it belongs to {owner} (owner, mode), and {target.user} writes nothing there"
        why += f"; for a proof make {probe.DIRECTORY} there, {target.user}'s"
        return book.rest(why, **figures)
    _look(book, answer, automount)
    if book.stopped or target.check_mode:
        return book.rest("check mode writes nothing", **figures)
    if target.read_only:
        return book.rest("read-only on purpose (its options say ro)", **figures)
    if not found.get("renamed"):
        book.fail("storage_write", "its process ended early", _KILLED)
    else:
        book.ok("storage_write")
        book.ok("storage_rename")
        _owner(book, found["owner"][0])
        _rate(book, "storage_write_rate", found.get("wrote"), target.fs.expect.write_gb_s)
    return book.rest("not read", WRITTEN, **figures)


def _after_reading(book: _Book, held: Held, answer: Answer) -> Held:
    """What was looked at before is judged only where it is wrong by now."""
    target, found = book.target, answer.found
    figures = {**held.figures, **_figures(target, answer)}
    again = _Book(target)
    _look(again, answer, False)
    if again.stopped:
        book.stopped, book.checks[again.stopped] = again.stopped, again.checks[again.stopped]
    elif not found.get("read_right"):
        book.fail("storage_neighbour", "its process ended early", _KILLED)
    elif found.get("seen_owner"):
        book.checks.pop("storage_owner", None)
        _owner(book, found["seen_owner"][0], f" on the file of {target.seat.neighbour}")
    if book.stopped or not target.seat.neighbour:
        return book.rest("no other host of this run writes to it", **figures)
    book.ok("storage_neighbour")
    _names(book, found)
    _rate(book, "storage_read_rate", found.get("read"), target.fs.expect.read_gb_s)
    return book.rest("not read", **figures)


def _look(book: _Book, answer: Answer, automount: bool) -> None:
    """Mounted, from the right server, answering, writable, roomy; and any error on the way."""
    target, found = book.target, answer.found
    if "line" in found:
        running = next(iter(mounted.parse(found["line"])), None)
        if running is None or running.point != target.mount or running.kind == mounted.AUTOFS:
            book.fail(
                *("storage_mounted", "not mounted"),
                "it was unmounted meanwhile, or its automount point mounted nothing; nothing was "
                f"written: systemctl status {book.unit}",
            )
            return
        if found.get("foreign"):
            book.another(running)
            return
        book.ok("storage_mounted")
        book.ok("storage_server", target.wanted.source, target.wanted.source)
    if not answer.answered:
        _hung(book, answer)
        return
    error, wrong = found.get("error"), found.get("wrong")
    if "line" in found:
        book.ok("storage_answers")
        _room(book, found)
        if error is None:
            _read_only(book, bool(found["read_only"]))
    if error is not None:
        number, step = int(error["number"]), answer.step
        code = errno.errorcode.get(number, f"error {number}")
        reading = step.startswith("reading ")
        key: Any = "reading" if reading else "writing"
        if number in FINDINGS:
            key = number
        elif automount and step.startswith("opening /"):
            key = "automount"
        elif reading and number == errno.ENOENT:
            key = "absent"
        book.finding(key, f"{error['text'] or code} ({code}) while {step}")
    elif wrong is not None:
        book.finding(wrong["about"], wrong["text"])
    elif "line" not in found:
        book.fail("storage_answers", "its process ended early", _KILLED)


def _hung(book: _Book, answer: Answer) -> None:
    target = book.target
    if answer.earlier:
        found = f"process {answer.left_behind} of an earlier run still waits for it"
    else:
        found = f"no answer within {target.limit_s:g} s while {answer.step or 'starting'}"
        if answer.left_behind:
            found += f"; process {answer.left_behind} cannot be ended and waits on"
    book.fail(
        *("storage_answers", found),
        f"is {target.wanted.source} up, and its service? What uses this mount continues when it "
        f"answers. If it is gone for good: umount -f -l {target.mount}, and change the model",
    )


def _read_only(book: _Book, found: bool) -> None:
    wanted = "read-only" if book.target.read_only else "writable"
    now = "read-only" if found else "writable"
    if now == wanted:
        book.ok("storage_read_only", now, wanted)
        return
    flag = "ro" if book.target.read_only else "rw"
    why = (
        f"remounted, see dmesg: mount -o remount,{flag} {book.target.mount}, or run --tags storage"
    )
    book.fail("storage_read_only", now, why, wanted)


def _room(book: _Book, found: Mapping[str, Any]) -> None:
    """Too little room keeps nothing else from being tried."""
    fs = book.target.fs
    free = int(found["free_bytes"]) / GIB
    files = int(found["free_files"]) if found["all_files"] else None
    for name, now, shown, wanted, promise in (
        ("storage_space", free, f"{free:.1f} GiB free", fs.space_gib, f"{fs.space_gib} GiB free"),
        ("storage_files", files, files, fs.files, fs.files),
    ):
        if not wanted or now is None:
            reason = "nothing is asked for (space_gib, files), or it has no fixed number of inodes"
            book.add(name, shown, NOT_APPLICABLE, reason)
        elif now >= wanted:
            book.ok(name, shown, promise)
        else:
            reason = "remove old checkpoints, or change what is asked for"
            book.add(name, shown, FAILED, reason, promise)


def _owner(book: _Book, uid: int, where: str = "") -> None:
    """Of a file that the MPI user has just written."""
    user, wanted = book.target.user, f"uid {book.target.uid}"
    if uid == book.target.uid:
        book.ok("storage_owner", wanted, wanted)
        return
    why = f"{user} has another number there, or the export has anonuid: cluster_mpi_uid for all"
    if uid in NOBODY:
        why = (
            f"the server does not know {user}: all_squash in the export, or idmapd maps names to "
            "nobody (one domain in /etc/idmapd.conf, or nfs4_disable_idmapping=Y on both sides)"
        )
    found = f"nobody ({uid})" if uid in NOBODY else f"uid {uid}"
    book.fail("storage_owner", f"{found}{where}", why, wanted)


def _names(book: _Book, found: Mapping[str, Any]) -> None:
    wanted = f"{len(book.target.seat.peers)} files"
    wrong = [f"no {name}" for name in found.get("missing") or []]
    sizes = (found.get("sizes") or {}).items()
    wrong += [f"{name} has {size} bytes" for name, size in sizes]
    if wrong:
        why = "other hosts wrote them: do all mount the same export?"
        book.add("storage_names", ", ".join(wrong), FAILED, why, wanted)
    else:
        book.ok("storage_names", wanted, wanted)


def _rate(book: _Book, name: str, measured: Optional[Mapping[str, Any]], expected: float) -> None:
    """One node's rate is judged where it was alone: beside others it has a share of the server."""
    rate = None
    if measured and measured["bytes"] and measured["seconds"] > 0:
        rate = float(measured["bytes"]) / float(measured["seconds"]) / 1e9
    shown = None if rate is None else f"{rate:.3g} GB/s"
    writers = book.target.seat.writers
    if not expected:
        book.add(name, shown, NOT_APPLICABLE, "no expectation is set (expect)")
    elif rate is None:
        book.add(name, shown, NOT_APPLICABLE, "too little is free to measure anything")
    elif not book.target.alone and writers > 1:
        why = f"measured beside {writers - 1} others; judged with shared_storage_use_alone"
        book.add(name, shown, NOT_APPLICABLE, why)
    elif rate >= expected:
        book.ok(name, shown, f"{expected:g} GB/s")
    else:
        why = "slower than expected: nconnect, the rail's MTU and counters, the server's threads"
        book.add(name, shown, FAILED, why, f"{expected:g} GB/s")
