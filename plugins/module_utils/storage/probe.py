# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's part of the write and read test: inspect the mount, write, read another host's file.

Runs as the MPI user in a child process, which may hang for ever. Each step is reported before it is
taken: the last reported step is the one that hangs. All modules are imported beforehand, as the MPI
user may not be able to read them. Every file is overwritten by the next run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

DIRECTORY = ".baremetal-mpi-roce"
"""Directory in the top directory of a file system, with a subdirectory per cluster."""
MAGIC = b"baremetal-mpi-roce storage probe\n"
"""First bytes of every file."""
BLOCK = 1 << 20
SMALL = 4096
"""Size of the file that describes the large one."""
MODE_DIRECTORY, MODE_FILE = 0o770, 0o640
NOTE, DATA = "probe", "data"
"""Suffixes of the small and the large file."""
NUMBER = struct.Struct("<Q")

Report = Callable[[dict[str, Any]], None]
"""As in core/bounded; this file imports nothing from the collection."""

OWN, RENAME, TOKEN, CONTENT = "own", "rename", "token", "content"
"""Kinds of wrong contents."""


class ContentError(Exception):
    """The file system returned wrong contents, of the kind `about`."""

    def __init__(self, about: str, text: str) -> None:
        super().__init__(text)
        self.about = about


def perform(task: dict[str, Any], report: Report, go: Callable[[dict[str, Any]], bool]) -> None:
    """Perform a task. Errors are reported, not raised. `go` decides from the result of `look`
    whether to continue, so that only the desired file system is written to."""
    try:
        try:
            handle = enter(task["mount"], report)
        except FileNotFoundError:  # not a mount point: nothing is mounted
            report({"line": ""})
            return
        result = look(handle, report)
        if not go(result) or task["do"] == "look":
            return
        folder = directory(handle, task["cluster"], report, make=task["do"] == "write")
        if task["do"] == "write":
            write(folder, task, result["free_bytes"], report)
        else:
            read(folder, task, report)
    except ContentError as error:
        report({"wrong": {"about": error.about, "text": str(error)}})
    except OSError as error:
        report({"error": {"number": error.errno or 0, "text": error.strerror or str(error)}})


# ---- where


def enter(mount: str, report: Report) -> int:
    """Open the top directory. All access goes through this handle, so that no mount or unmount in
    between can redirect writes. `/.` triggers an automount."""
    report({"step": f"opening {mount}"})
    return os.open(f"{mount}/.", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def mount_line(handle: int) -> str:
    """The mountinfo line of a handle's mount; empty if there is none. Must not load modules or
    codecs."""
    result = Path(f"/proc/self/fdinfo/{handle}").read_text(encoding="utf-8")
    identity = re.search(r"^mnt_id:\s*(\d+)$", result, re.MULTILINE)
    if identity is None:
        return ""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return next((line for line in text.split("\n") if line.startswith(f"{identity[1]} ")), "")


def look(handle: int, report: Report) -> dict[str, Any]:
    """Report the mount, its free space, and this host's address as used towards the server."""
    line = mount_line(handle)
    report({"step": "asking for space and inodes"})
    status = os.statvfs(handle)
    server = re.search(r"[ ,]addr=([0-9a-fA-F.:]+)", line)
    result = {
        "line": line,
        "free_bytes": status.f_bavail * status.f_frsize,
        "free_files": status.f_favail,
        "all_files": status.f_files,
        "read_only": bool(status.f_flag & os.ST_RDONLY),
        "own_address": address_towards(server[1]) if server else "",
    }
    report(result)
    return result


def address_towards(server: str) -> str:
    """This host's address towards a server. Connecting a datagram socket sends nothing."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as handle:
            handle.connect((server.encode(), 2049))
            return str(handle.getsockname()[0])
    except OSError:
        return ""


def directory(handle: int, cluster: str, report: Report, *, make: bool) -> int:
    """Open this cluster's directory without following links. It is created only if opening fails:
    over NFS, mkdir reports a missing permission even if the directory exists."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = handle
    for name in (DIRECTORY, cluster):
        report({"step": f"opening the directory {name}"})
        try:
            opened = os.open(name, flags, dir_fd=opened)
        except FileNotFoundError:
            if not make:
                raise
            umask = os.umask(0)
            try:
                with suppress(FileExistsError):  # another node has created it by now
                    os.mkdir(name, MODE_DIRECTORY, dir_fd=opened)
            finally:
                os.umask(umask)
            opened = os.open(name, flags, dir_fd=opened)
    return opened


# ---- content


def content(token: str, name: str, size: int) -> Iterator[memoryview]:
    """Incompressible content of the large file, unique to the run and node, in numbered blocks."""
    seed = f"{token}\n{name}".encode()
    rest = bytearray(hashlib.shake_128(seed).digest(BLOCK))
    first = bytearray(MAGIC + rest[len(MAGIC) :])
    return _numbered(first, rest, size)  # both are prepared before the clock starts


def _numbered(first: bytearray, rest: bytearray, size: int) -> Iterator[memoryview]:
    for number in range((size + BLOCK - 1) // BLOCK):
        block = rest if number else first
        NUMBER.pack_into(block, len(MAGIC), number)
        yield memoryview(block)[: min(BLOCK, size - number * BLOCK)]


def note(task: dict[str, Any], sequence: int, size: int) -> bytes:
    result = {"token": task["token"], "name": task["name"], "bytes": size, "sequence": sequence}
    return (MAGIC + json.dumps(result).encode()).ljust(SMALL)


def read_note(data: bytes, name: str, about: str) -> dict[str, Any]:
    """Parse a small file. Raises ContentError if it is foreign or truncated."""
    if len(data) == SMALL and data.startswith(MAGIC):
        with suppress(ValueError, TypeError, RecursionError):
            result = dict(json.loads(data[len(MAGIC) :]))
            if {"token", "sequence", "bytes"} <= result.keys():
                return result
    raise ContentError(about, f"{name} has {len(data)} bytes of other content than was written")


# ---- writing


def put(
    folder: int, name: str, blocks: Sequence[bytes] | Iterator[memoryview], report: Report
) -> None:
    """Write a new file, fsync, rename it over the older one, and fsync the directory."""
    new = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    report({"step": f"writing {name}"})
    handle = os.open(new, flags, MODE_FILE, dir_fd=folder)
    try:
        try:
            for block in blocks:
                left = memoryview(block)
                while len(left):
                    left = left[os.write(handle, left) :]
            report({"step": f"fsync of {name}"})
            os.fsync(handle)
            # Later reads must be answered by the server.
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
        report({"step": f"renaming {name} over the older one"})
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        # Frees the space on a full file system.
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
    report({"step": f"fsync of the directory of {name}"})
    os.fsync(folder)


def get(folder: int, name: str, report: Report) -> tuple[bytes, int]:
    """Content and owner of a small file, from the server if the node can force that."""
    report({"step": f"reading {name}"})
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.read(handle, SMALL + 1), os.fstat(handle).st_uid
    finally:
        os.close(handle)


def write(folder: int, task: dict[str, Any], free: int, report: Report) -> None:
    """Write the large file and measure it, then the small file twice, the second over the first."""
    size = max(0, min(task["bytes"], int(free * task["share"])))
    large, small = f"{task['name']}.{DATA}", f"{task['name']}.{NOTE}"
    blocks = content(task["token"], task["name"], size)
    clock = time.monotonic()
    put(folder, large, blocks, report)
    seconds = time.monotonic() - clock
    report({"wrote": {"bytes": size, "seconds": seconds, "ended": time.time()}})
    for sequence in (1, 2):
        put(folder, small, [note(task, sequence, size)], report)
    data, owner = get(folder, small, report)
    result = read_note(data, small, OWN)
    if result["token"] != task["token"] or result["sequence"] != 2:
        raise ContentError(RENAME, f"{small} still has its content from before the rename")
    report({"step": "listing the directory"})
    if f".{small}.new" in os.listdir(folder):
        raise ContentError(RENAME, f".{small}.new is still there after it was renamed")
    report({"owner": owner})


# ---- reading


def read(folder: int, task: dict[str, Any], report: Report) -> None:
    name, size = task["neighbour"], task["neighbour_bytes"]
    owner = None
    if name:
        data, owner = get(folder, f"{name}.{NOTE}", report)
        result = read_note(data, f"{name}.{NOTE}", CONTENT)
        if result["token"] != task["token"]:
            text = f"stale: {name}.{NOTE} is from another run ({result['token']})"
            raise ContentError(TOKEN, text)
        if result["bytes"] != size:
            raise ContentError(
                CONTENT, f"{name}.{NOTE} has {result['bytes']} bytes; {size} were written"
            )
        read_large(folder, task["token"], name, size, report)
    with suppress(FileNotFoundError):
        report({"step": "removing the large file"})
        os.unlink(f"{name or task['name']}.{DATA}", dir_fd=folder)
    report({"owner": owner})


def read_large(folder: int, token: str, name: str, size: int, report: Report) -> None:
    large = f"{name}.{DATA}"
    report({"step": f"reading {large}"})
    buffer = memoryview(bytearray(BLOCK))
    blocks = content(token, name, size)
    clock = time.monotonic()
    handle = os.open(large, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        actual = os.fstat(handle).st_size
        if actual != size:
            raise ContentError(CONTENT, f"{large} has {actual} bytes here; {size} were written")
        done = 0
        for wanted in blocks:
            filled = 0
            while filled < len(wanted):
                count = os.readv(handle, [buffer[filled : len(wanted)]])
                if not count:
                    raise ContentError(
                        CONTENT, f"{large} ends after {done + filled} of {size} bytes"
                    )
                filled += count
            if buffer[:filled] != wanted:
                first = next(at for at in range(filled) if buffer[at] != wanted[at])
                raise ContentError(
                    CONTENT, f"{large} differs from what was written at {done + first}"
                )
            done += filled
    finally:
        os.close(handle)
    seconds = time.monotonic() - clock
    report({"read": {"bytes": size, "seconds": seconds, "ended": time.time()}})
