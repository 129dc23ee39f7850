# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the probe found, as checks. A fault is told once; what depends on it refers to it."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Optional

from ...core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ...core.dataclass import dataclass
from ...core.machine import IN_CONTAINER, NO_MOUNTS
from .. import mounted
from ..bounded import Answer
from .probe import DIRECTORY
from .target import Target

LOOKED = (
    *("storage_mounted", "storage_server", "storage_answers", "storage_read_only"),
    *("storage_space", "storage_files"),
)
WRITTEN = ("storage_write", "storage_rename", "storage_owner", "storage_write_rate")
READ = ("storage_neighbour", "storage_names", "storage_read_rate")
EVERY = (*LOOKED, *WRITTEN, *READ)

PROMISES = {
    "storage_mounted": "mounted",
    "storage_answers": "answers in time",
    "storage_read_only": "writable",
    "storage_space": "enough free",
    "storage_files": "enough free",
    "storage_write": "written, fsynced and read back",
    "storage_rename": "renamed over an older one",
    "storage_neighbour": "the neighbour's file, right to the byte",
    "storage_names": "files of all peers",
    "storage_write_rate": "as expected",
    "storage_read_rate": "as expected",
}
GIB = 1 << 30
NOBODY = (65534, 4294967294)
"""Who owns what an NFS server gives to nobody: as 16 bits have it, and as -2 reads in 32."""
ALONE = "no other host of this run writes to it: there is no neighbour"
_DIED = "the process that did it was killed: out of memory? dmesg says so"
_RIGHTS = (
    *("storage_write", "not allowed"),
    "{user} has to be allowed to make a directory in the top directory: its owner and mode (keys "
    "owner, mode), the same uid on the server, and the export's squash options",
)
_ERRORS = {
    errno.ESTALE: (
        *("storage_mounted", "stale handle"),
        "the server exports another directory or file system under this path than when it was "
        "mounted. End what uses the mount, then: systemctl restart {unit}",
    ),
    errno.EROFS: (
        *("storage_read_only", "read-only"),
        "mounted to be written to, and the server or the kernel made it read-only: look at the "
        "export there (exportfs -v: rw) and at its disk (dmesg: remounting read-only)",
    ),
    errno.EDQUOT: ("storage_space", "over quota", "raise the quota of {user} there"),
    errno.ENOSPC: (
        *("storage_space", "full"),
        "no space, or no inodes, are left there (df, df -i): remove old checkpoints",
    ),
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
}
"""What an error of a file system means: its check, in a word, and what to do."""
_NOT_MOUNTED = (
    *("storage_mounted", "could not be mounted"),
    "systemctl status {unit} says why: the server's name, its export, its service",
)
_NOT_THERE = (
    *("storage_neighbour", "not there"),
    "the neighbour has written it, and this node does not see it: do both mount the same export of "
    "the same server?",
)
_CORRUPT = (
    "what was written is not what is read: do not trust this file system before the cause is "
    "found (network without checksums, a server's disk or memory, a cache between)"
)
_ABOUT = {
    "own": ("storage_write", _CORRUPT),
    "rename": ("storage_rename", "the server does not rename atomically: which server is it?"),
    "token": (
        "storage_neighbour",
        "what the neighbour wrote just now is not what this node gets: is it the same export? A "
        "cache between them, or mount options such as nocto or a long actimeo, keep old data",
    ),
    "content": ("storage_neighbour", _CORRUPT),
}
"""What is wrong in one word, as the probe says it: its check, and what to do."""


@dataclass
class Book:
    """The checks of one file system, each under its name once."""

    target: Target
    checks: dict[str, Check] = field(default_factory=dict)

    stopped: str = ""
    """The name of the check whose failure kept the others from being made."""

    def promise(self, name: str) -> Any:
        if name == "storage_server":
            return self.target.wanted.source
        if name == "storage_owner":
            return f"uid {self.target.uid}"
        if name == "storage_read_only" and self.target.read_only:
            return "read-only"
        return PROMISES[name]

    def ok(self, name: str, found: Any = None, wanted: Any = None) -> None:
        wanted = self.promise(name) if wanted is None else wanted
        self._add(Check(name, wanted, wanted if found is None else found, OK, self.target.mount))

    def failed(
        self, name: str, found: Any, reason: str, wanted: Any = None, *, stops: bool = True
    ) -> None:
        """A failure takes the place of what seemed well before. `stops`: nothing is tried after it
        that would only fail for the same reason."""
        if stops and self.stopped:
            return
        self.stopped = self.stopped or (name if stops else "")
        wanted = self.promise(name) if wanted is None else wanted
        self.checks[name] = Check(name, wanted, found, FAILED, self.target.mount, reason)

    def skip(self, name: str, reason: str, found: Any = None) -> None:
        promise = self.promise(name)
        self._add(Check(name, promise, found, NOT_APPLICABLE, self.target.mount, reason))

    def _add(self, check: Check) -> None:
        self.checks.setdefault(check.name, check)

    def close(self, names: Sequence[str], reason: str = "") -> Book:
        """Those of `names` that nobody spoke of depended on the one that failed."""
        if self.stopped:
            names, reason = EVERY, f"not read: see {self.stopped}"
        for name in names:
            self.skip(name, reason or "not read: nothing was said of it")
        return self

    def in_order(self) -> list[Check]:
        return [self.checks[name] for name in EVERY if name in self.checks]


def unmounted(target: Target, container: Optional[str]) -> Book:
    """Nothing is mounted there: what is written would fill a directory of this node."""
    book = Book(target)
    if container:
        return book.close(EVERY, f"{IN_CONTAINER} ({container}): {NO_MOUNTS}")
    if target.check_mode:
        wanted = book.promise("storage_mounted")
        check = Check("storage_mounted", wanted, "not mounted", PENDING, target.mount)
        book.checks[check.name] = check
        return book.close(EVERY, "not mounted yet")
    book.failed(
        "storage_mounted",
        "not mounted",
        "what is there is a directory of this node, and nothing was written to it: run --tags "
        f"storage, or systemctl start {target.wanted.mount_unit}",
    )
    return book.close(EVERY)


def another(target: Target, running: mounted.Mount) -> Book:
    """Something else is mounted there, by the kernel's table; it was not touched."""
    book = Book(target)
    book.ok("storage_mounted")
    _another(book, running)
    return book.close(EVERY)


def _another(book: Book, running: mounted.Mount) -> None:
    book.failed(
        "storage_server",
        f"{running.source} ({running.kind})",
        "another file system is mounted there, and nothing was written to it: end what uses it, "
        f"then run --tags storage, or systemctl restart {book.target.wanted.mount_unit}",
    )


def after_writing(target: Target, answer: Answer, *, automount: bool = False) -> Book:
    """The first round, and what was looked at before it."""
    book = Book(target)
    found = answer.found
    if _is_of_others(target, answer):
        if "line" in found:
            seen = {key: value for key, value in found.items() if key != "error"}
            _looked(book, replace(answer, found=seen), automount)
        owner = target.fs.owner or "somebody else"
        why = f"it belongs to {owner} (owner, mode), and {target.user} writes nothing there"
        return book.close(EVERY, f"{why}; for a proof make {DIRECTORY} there, {target.user}'s")
    _looked(book, answer, automount)
    if book.stopped:
        return book.close(EVERY)
    if target.check_mode:
        return book.close(EVERY, "check mode writes nothing")
    if target.read_only:
        return book.close(EVERY, "read-only on purpose (its options say ro): nothing is written")
    if not found.get("renamed"):
        book.failed("storage_write", "its process ended early", _DIED)
        return book.close(EVERY)
    book.ok("storage_write")
    book.ok("storage_rename")
    _owner(book, found.get("owner"))
    _rate(book, "storage_write_rate", found.get("wrote"), target.fs.expect.write_gb_s)
    return book.close(WRITTEN)


def _is_of_others(target: Target, answer: Answer) -> bool:
    """Not allowed to make our directory, and by the model not meant to be."""
    error = answer.found.get("error") or {}
    refused = error.get("number") in (errno.EACCES, errno.EPERM)
    return refused and answer.step.startswith("opening ") and not target.is_for_user(answer.found)


def resumed(target: Target, written: Sequence[Mapping[str, Any]], stopped: str) -> Book:
    """The book as the first round left it."""
    checks = {str(each["name"]): Check(**each) for each in written}
    return Book(target, checks, stopped)


def after_reading(book: Book, answer: Answer) -> Book:
    """The second round. What it looks at again, it judges only where it is wrong by now."""
    target, found = book.target, answer.found
    again = Book(target)
    _looked(again, answer, False)
    if again.stopped:
        book.checks[again.stopped] = again.checks[again.stopped]
        book.stopped = again.stopped
        return book.close(EVERY)
    seen = found.get("seen_owner")
    if not found.get("read_right"):
        book.failed("storage_neighbour", "its process ended early", _DIED)
    elif seen is not None and seen[0] != target.uid:
        _wrong_owner(book, seen[0], f" on the file of {target.seat.neighbour}")
    if book.stopped:
        return book.close(EVERY)
    if not target.seat.neighbour:
        return book.close(EVERY, ALONE)
    book.ok("storage_neighbour")
    _names(book, found)
    _rate(book, "storage_read_rate", found.get("read"), target.fs.expect.read_gb_s)
    return book.close(EVERY)


def _looked(book: Book, answer: Answer, automount: bool) -> None:
    """Mounted, from the right server, answering, writable, roomy; and any error on the way."""
    target, found = book.target, answer.found
    if "line" in found:
        running = next(iter(mounted.parse(found["line"])), None)
        if running is None or running.point != target.mount or running.kind == mounted.AUTOFS:
            book.failed(
                "storage_mounted",
                "not mounted",
                "it was unmounted meanwhile, or its automount point mounted nothing; nothing was "
                f"written: systemctl status {target.wanted.mount_unit}",
            )
            return
        book.ok("storage_mounted")
        if found.get("foreign"):
            _another(book, running)
            return
        book.ok("storage_server")
    if not answer.answered:
        _hung(book, answer)
        return
    error, wrong = found.get("error"), found.get("wrong")
    if "line" in found:
        book.ok("storage_answers")
        _room(book, found)
        if error is None:
            _read_only(book, found)
    if error is not None:
        _error(book, int(error["number"]), str(error["text"]), answer.step, automount)
    elif wrong is not None:
        name, remedy = _ABOUT[wrong["about"]]
        book.failed(name, wrong["text"], remedy)
    elif "line" not in found:
        book.failed("storage_answers", "its process ended early", _DIED)


def _error(book: Book, number: int, text: str, step: str, automount: bool) -> None:
    code = errno.errorcode.get(number, f"error {number}")
    told = f"{text or code} ({code}) while {step}"
    reading = step.startswith("reading ")
    meaning = _ERRORS.get(number)
    if meaning is None and automount and step.startswith("opening /"):
        meaning = _NOT_MOUNTED
    elif meaning is None and number == errno.ENOENT and reading:
        meaning = _NOT_THERE
    if meaning is None:
        name = "storage_neighbour" if reading else "storage_write"
        book.failed(name, told, "the server's log and dmesg here say more")
        return
    name, word, remedy = meaning
    unit, user = book.target.wanted.mount_unit, book.target.user
    book.failed(name, f"{word}: {told}", remedy.format(unit=unit, user=user))


def _hung(book: Book, answer: Answer) -> None:
    target = book.target
    server = target.fs.server if target.fs.type == "nfs" else target.wanted.source
    if answer.earlier:
        found = f"process {answer.left_behind} of an earlier run still waits for it"
    else:
        found = f"no answer within {target.limit_s:g} s while {answer.step or 'starting'}"
        if answer.left_behind:
            found += f"; process {answer.left_behind} cannot be ended and waits on"
    book.failed(
        "storage_answers",
        found,
        f"is {server} up, and its service? What uses this mount waits until it answers and goes on "
        f"then. If it is gone for good: umount -f -l {target.mount}, and change the model",
    )


def _read_only(book: Book, found: Mapping[str, Any]) -> None:
    if bool(found["read_only"]) == book.target.read_only:
        book.ok("storage_read_only")
    elif book.target.read_only:
        book.failed("storage_read_only", "writable", "its options say ro: run --tags storage")
    else:
        book.failed(
            "storage_read_only",
            "read-only",
            "remounted by hand, or the kernel did after an error (dmesg): "
            f"mount -o remount,rw {book.target.mount}, or run --tags storage",
        )


def _room(book: Book, found: Mapping[str, Any]) -> None:
    fs = book.target.fs
    free, wanted = int(found["free_bytes"]) / GIB, fs.space_gib
    if not wanted:
        book.skip("storage_space", "no space is asked for (space_gib)", f"{free:.1f} GiB free")
    elif free >= wanted:
        book.ok("storage_space", f"{free:.1f} GiB free", f"{wanted} GiB free")
    else:
        book.failed(
            "storage_space",
            f"{free:.1f} GiB free",
            "remove old checkpoints, or change space_gib",
            f"{wanted} GiB free",
            stops=False,
        )
    files, every = int(found["free_files"]), int(found["all_files"])
    if not fs.files or not every:
        why = "it has no fixed number of inodes" if fs.files else "no inodes are asked for (files)"
        book.skip("storage_files", why, files)
    elif files >= fs.files:
        book.ok("storage_files", files, fs.files)
    else:
        remedy = "remove what is not needed, or change files"
        book.failed("storage_files", files, remedy, fs.files, stops=False)


def _owner(book: Book, owner: Optional[Sequence[int]]) -> None:
    """Whose the file is, that the MPI user has just written."""
    if owner is None:
        book.failed("storage_owner", "not known", _DIED)
    elif owner[0] == book.target.uid:
        book.ok("storage_owner")
    else:
        _wrong_owner(book, owner[0])


def _wrong_owner(book: Book, uid: int, where: str = "") -> None:
    user = book.target.user
    why = f"{user} has another number there or the export says anonuid: cluster_mpi_uid for all"
    if uid in NOBODY:
        why = (
            f"the server does not know {user}: all_squash in the export, or names that idmapd maps "
            "to nobody (the same domain in /etc/idmapd.conf everywhere, or numbers: "
            "nfs4_disable_idmapping=Y on both sides)"
        )
    found = f"nobody ({uid})" if uid in NOBODY else f"uid {uid}"
    book.failed("storage_owner", f"{found}{where}", why)


def _names(book: Book, found: Mapping[str, Any]) -> None:
    count = len(book.target.seat.peers)
    missing, sizes = found.get("missing") or [], found.get("sizes") or {}
    wanted = f"{count} files"
    if missing:
        book.failed(
            "storage_names",
            f"{found.get('seen', 0)} files; not {', '.join(missing)}",
            "other hosts wrote them, and this one does not see them: do all mount the same export?",
            wanted,
            stops=False,
        )
    elif sizes:
        told = ", ".join(f"{name} has {size} bytes" for name, size in sizes.items())
        book.failed("storage_names", told, "a node's file is not whole here", wanted, stops=False)
    else:
        book.ok("storage_names", wanted, wanted)


def _rate(book: Book, name: str, measured: Optional[Mapping[str, Any]], expected: float) -> None:
    """One node's rate is judged where it was alone: beside others it has a share of the server."""
    rate = None
    if measured and measured["bytes"] and measured["seconds"] > 0:
        rate = float(measured["bytes"]) / float(measured["seconds"]) / 1e9
    shown = None if rate is None else f"{rate:.3g} GB/s"
    if not expected:
        book.skip(name, "no expectation is set (expect)", shown)
    elif rate is None:
        book.skip(name, "too little is free to measure anything", shown)
    elif not book.target.alone and book.target.seat.writers > 1:
        book.skip(
            name,
            f"measured while {book.target.seat.writers} nodes did the same; judged when each node "
            "is alone (shared_storage_use_alone)",
            shown,
        )
    elif rate >= expected:
        book.ok(name, shown, f"{expected:g} GB/s")
    else:
        book.failed(
            name,
            shown,
            "slower than expected of one node alone: nconnect, the rail's MTU and counters, the "
            "server's load and threads",
            f"{expected:g} GB/s",
            stops=False,
        )
