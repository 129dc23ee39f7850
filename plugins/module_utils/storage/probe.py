# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What one node does on a shared file system to prove it: look, write, read what another wrote.

Runs as the MPI user in a process of its own, which may hang for ever; its parent waits for a
limited time. It reports each step before it takes it: the last one reported is the one that hangs.
All it needs is imported when this file is: the MPI user may not be allowed to read more.

Every file has a fixed name and is written over by the next run. The large one is removed by the
only node that reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

DIRECTORY = ".baremetal-mpi-roce"
"""In the top directory of a file system; below it one directory per cluster."""
MAGIC = b"baremetal-mpi-roce storage probe\n"
"""Every file of ours begins so."""
BLOCK = 1 << 20
SMALL = 4096
"""Bytes of the file that describes the large one."""
MODE_DIRECTORY, MODE_FILE = 0o770, 0o640
NOTE, DATA = "probe", "data"
"""Endings of the small file and of the large one."""
MISSING_SHOWN = 12
STUMP = struct.Struct("<Q")

Report = Callable[[dict[str, Any]], None]
"""Takes what was found as soon as it is, and `{"step": ...}` before whatever may hang."""


class Wrong(Exception):
    """The file system answers, and wrongly; `about` is what of it, in one word."""

    def __init__(self, about: str, text: str) -> None:
        super().__init__(text)
        self.about = about


def step(report: Report, text: str) -> None:
    report({"step": text})


# ---- where


def enter(mount: str, report: Report) -> int:
    """A handle on the top directory. What is done goes through it, so that nothing mounted, or
    unmounted, meanwhile can make us write to a directory of this node.

    `/.` makes an automount point mount; O_PATH by itself would not, and asks for no permission.
    """
    step(report, f"opening {mount}")
    return os.open(f"{mount}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def mount_line(handle: int, proc: Path = Path("/proc/self")) -> str:
    """The line of mountinfo of the mount that a handle is on; empty where there is none.

    Nothing here is to need a module, or a codec, that is not loaded: the MPI user may not be
    allowed to read the interpreter's files.
    """
    result = (proc / "fdinfo" / str(handle)).read_text(encoding="utf-8")
    identity = re.search(r"^mnt_id:\s*(\d+)$", result, re.MULTILINE)
    if identity is None:
        return ""
    text = (proc / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return next((line for line in text.split("\n") if line.startswith(f"{identity[1]} ")), "")


def look(handle: int, report: Report) -> dict[str, Any]:
    """What is mounted, its space, and the address of ours that talks to its server."""
    line = mount_line(handle)
    step(report, "asking for space and inodes")
    room = os.statvfs(handle)
    top = os.fstat(handle)
    found = {
        "line": line,
        "free_bytes": room.f_bavail * room.f_frsize,
        "free_files": room.f_favail,
        "all_files": room.f_files,
        "read_only": bool(room.f_flag & os.ST_RDONLY),
        "top": {"uid": top.st_uid, "gid": top.st_gid, "mode": stat.S_IMODE(top.st_mode)},
        "groups": sorted({os.getegid(), *os.getgroups()}),
        "place": [os.major(top.st_dev), os.minor(top.st_dev), top.st_ino],
    }
    server = re.search(r"[ ,]addr=([0-9a-fA-F.:]+)", line)
    found["server_address"] = server[1] if server else ""
    found["own_address"] = address_towards(server[1]) if server else ""
    report(found)
    return found


def address_towards(server: str) -> str:
    """Our own address on the way to a server. Connecting a datagram socket sends nothing."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as handle:
            handle.connect((server.encode(), 2049))
            return str(handle.getsockname()[0])
    except OSError:
        return ""


def directory(handle: int, cluster: str, report: Report, *, make: bool) -> int:
    """Our directory of this cluster. A symbolic link in its place is not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = handle
    for name in (DIRECTORY, cluster):
        step(report, f"opening the directory {name}")
        try:
            inner = os.open(name, flags, dir_fd=opened)
        except FileNotFoundError:
            if not make:
                raise
            make_directory(name, opened)
            inner = os.open(name, flags, dir_fd=opened)
        if opened != handle:
            os.close(opened)
        opened = inner
    return opened


def make_directory(name: str, at: int) -> None:
    """One that another node has made meanwhile is as good. Only made where it is not there: over
    NFS, a missing permission is reported before the existence."""
    with suppress(FileExistsError):
        umask = os.umask(0)
        try:
            os.mkdir(name, MODE_DIRECTORY, dir_fd=at)
        finally:
            os.umask(umask)


# ---- content


def block_of(token: str, name: str) -> bytearray:
    """A block that no other run or node writes. It does not compress."""
    seed = f"{token}\n{name}".encode()
    return bytearray(hashlib.shake_128(seed).digest(BLOCK))


def content(token: str, name: str, size: int) -> Iterator[memoryview]:
    """The large file, block by block: each has its number, so that none can stand for another."""
    first, rest = block_of(token, name), block_of(token, name)
    first[: len(MAGIC)] = MAGIC  # made here, before the clock starts
    return _numbered(first, rest, size)


def _numbered(first: bytearray, rest: bytearray, size: int) -> Iterator[memoryview]:
    for number in range((size + BLOCK - 1) // BLOCK):
        block = rest if number else first
        STUMP.pack_into(block, len(MAGIC), number)
        yield memoryview(block)[: min(BLOCK, size - number * BLOCK)]


def note(task: dict[str, Any], sequence: int, size: int) -> bytes:
    """The small file: whose, of which run, and how much is in the large one."""
    result = {"token": task["token"], "name": task["name"], "bytes": size, "sequence": sequence}
    return (MAGIC + json.dumps(result).encode()).ljust(SMALL)


def read_note(data: bytes, name: str, about: str) -> dict[str, Any]:
    """Raises Wrong where it is none of ours, or cut short."""
    if len(data) == SMALL and data.startswith(MAGIC):
        with suppress(ValueError):
            return dict(json.loads(data[len(MAGIC) :]))
    raise Wrong(about, f"{name} has {len(data)} bytes of another content than was written")


# ---- writing


def put(
    place: int, name: str, blocks: Sequence[bytes] | Iterator[memoryview], report: Report
) -> None:
    """Write beside, fsync, rename over the older one, fsync of the directory."""
    new = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    step(report, f"writing {name}")
    handle = os.open(new, flags, MODE_FILE, dir_fd=place)
    try:
        try:
            for block in blocks:
                left = memoryview(block)
                while len(left):
                    left = left[os.write(handle, left) :]
            step(report, f"fsync of {name}")
            os.fsync(handle)
            # What is read back has to come from the server.
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
        step(report, f"renaming {name} over the older one")
        os.rename(new, name, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        # A file system that is full is not left fuller.
        with suppress(OSError):
            os.unlink(new, dir_fd=place)
        raise
    step(report, f"fsync of the directory of {name}")
    os.fsync(place)


def get(place: int, name: str, report: Report) -> tuple[bytes, os.stat_result]:
    """A small file, from the server as far as this node can ask for that."""
    step(report, f"reading {name}")
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.read(handle, SMALL + 1), os.fstat(handle)
    finally:
        os.close(handle)


def size_within(wanted: int, free: int, share: float) -> int:
    """How large a file is allowed to be: never more than a share of what is free."""
    return max(0, min(wanted, int(free * share)))


def write(place: int, task: dict[str, Any], free: int, report: Report) -> dict[str, Any]:
    """The large file with its time, then the small one twice: the second over the first."""
    size = size_within(task["bytes"], free, task["share"])
    large = f"{task['name']}.{DATA}"
    blocks = content(task["token"], task["name"], size)
    began, clock = time.time(), time.monotonic()
    put(place, large, blocks, report)
    seconds = time.monotonic() - clock
    report({"wrote": {"bytes": size, "seconds": seconds, "began": began, "ended": time.time()}})
    small = f"{task['name']}.{NOTE}"
    for sequence in (1, 2):
        put(place, small, [note(task, sequence, size)], report)
    data, status = get(place, small, report)
    found = read_note(data, small, "own")
    if found["token"] != task["token"] or found["sequence"] != 2:
        raise Wrong("rename", f"{small} still has what was there before it was renamed over")
    step(report, "listing the directory")
    if f".{small}.new" in os.listdir(place):
        raise Wrong("rename", f".{small}.new is still there after it was renamed")
    report({"owner": [status.st_uid, status.st_gid]})
    report({"renamed": True})
    return {"bytes": size}


# ---- reading


def read(place: int, task: dict[str, Any], report: Report) -> None:
    """The neighbour's files: whose they are, of which run, right to the byte; then all names."""
    name = task["neighbour"]
    size = task["neighbour_bytes"]
    if name:
        data, status = get(place, f"{name}.{NOTE}", report)
        report({"seen_owner": [status.st_uid, status.st_gid]})
        found = read_note(data, f"{name}.{NOTE}", "content")
        if found["token"] != task["token"]:
            raise Wrong(
                "token", f"stale: {name}.{NOTE} is of another run ({found['token']}), not of this"
            )
        if found["bytes"] != size:
            raise Wrong("content", f"{name} says it wrote {found['bytes']} bytes, and wrote {size}")
        read_large(place, task, name, size, report)
    with suppress(FileNotFoundError):
        step(report, "removing the large file")
        os.unlink(f"{name or task['name']}.{DATA}", dir_fd=place)
    report({"read_right": True})
    names(place, task, report)


def read_large(place: int, task: dict[str, Any], name: str, size: int, report: Report) -> None:
    large = f"{name}.{DATA}"
    step(report, f"reading {large}")
    buffer = memoryview(bytearray(BLOCK))
    blocks = content(task["token"], name, size)
    began, clock = time.time(), time.monotonic()
    handle = os.open(large, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        there = os.fstat(handle).st_size
        if there != size:
            raise Wrong("content", f"{large} has {there} bytes here; {size} were written")
        done = 0
        for wanted in blocks:
            filled = 0
            while filled < len(wanted):
                count = os.readv(handle, [buffer[filled : len(wanted)]])
                if not count:
                    raise Wrong("content", f"{large} ends after {done + filled} of {size} bytes")
                filled += count
            if buffer[:filled] != wanted:
                first = next(at for at in range(filled) if buffer[at] != wanted[at])
                raise Wrong("content", f"{large} differs from what was written at {done + first}")
            done += filled
    finally:
        os.close(handle)
    seconds = time.monotonic() - clock
    report({"read": {"bytes": size, "seconds": seconds, "began": began, "ended": time.time()}})


def names(place: int, task: dict[str, Any], report: Report) -> None:
    """Whether the small files of the peers are there, with the size they were written with."""
    step(report, "listing the directory")
    wanted = {f"{peer}.{NOTE}" for peer in task["peers"]}
    missing = wanted - set(os.listdir(place))
    if missing:
        # A listing may be cached for a minute. A change of our own makes the kernel ask again.
        new = f".{task['name']}.{NOTE}.new"
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=place)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, MODE_FILE, dir_fd=place))
        os.unlink(new, dir_fd=place)
        missing = wanted - set(os.listdir(place))
    step(report, "asking for the size of each file")
    wrong = {}
    for name in sorted(wanted - missing):
        size = os.stat(name, dir_fd=place, follow_symlinks=False).st_size
        if size != SMALL:
            wrong[name] = size
    report({"seen": len(wanted) - len(missing), "missing": sorted(missing)[:MISSING_SHOWN]})
    report({"sizes": dict(list(wrong.items())[:MISSING_SHOWN])})


# ---- all of it

Go = Callable[[dict[str, Any]], bool]
"""Decides from what `look` found whether to go on: nothing is written to what is not the right
file system."""


def perform(task: dict[str, Any], report: Report, go: Go) -> None:
    """A task from its start to its end. What goes wrong is result, never raised, if it can be."""
    try:
        handle = enter(task["mount"], report)
        found = look(handle, report)
        if not go(found):
            report({"refused": True})
        elif task["do"] == "write":
            place = directory(handle, task["cluster"], report, make=True)
            write(place, task, found["free_bytes"], report)
        elif task["do"] == "read":
            place = directory(handle, task["cluster"], report, make=False)
            read(place, task, report)
        report({"end": True})
    except Wrong as error:
        report({"wrong": {"about": error.about, "text": str(error)}})
    except OSError as error:
        report({"error": {"number": error.errno or 0, "text": error.strerror or str(error)}})
