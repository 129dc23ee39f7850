# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that an execution node runs: a lease around `ansible-runner worker`.

The controller sends its text, so that a node needs only Python, ansible-core and ansible-runner.
Its standard input is a sequence of frames, each a line with the number of bytes and those bytes:
first a JSON object (`Workers.header`), then the stream of `ansible-runner transmit`, an empty frame
as its end, and further empty frames as signs of life. Without a frame for `lease_s` seconds, or
after the end of the input, every process that the worker has started is killed. Therefore the
controller may give the hosts of a lost node to another one. Standard output is that of the worker,
between lines `{"share": ...}` of this program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Optional, cast

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KEEPALIVE_S = 5
MOST_PENDING_BYTES = 1 << 20
GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL."""
NO_LEASE, REFUSED = 70, 71
"""Exit statuses."""


class RefusedError(Exception):
    """Nothing was started, for the reason in the message."""


def tell(**fields: Any) -> None:
    os.write(1, (json.dumps(fields) + "\n").encode())


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


class Input:
    """The frames of standard input."""

    def __init__(self) -> None:
        self.seen = time.monotonic()
        self.over = False
        self._bytes = b""

    def read(self) -> None:
        """Read a part; blocks if there is none."""
        part = os.read(0, 1 << 16)
        self.seen, self.over = time.monotonic(), not part
        self._bytes += part

    def frames(self) -> Iterator[bytes]:
        while b"\n" in self._bytes[:20]:
            head, rest = self._bytes.split(b"\n", 1)
            size = int(head)
            if len(rest) < size:
                return
            self._bytes = rest[size:]
            yield rest[:size]

    def first(self) -> dict[str, Any]:
        while not self.over:
            for frame in self.frames():
                return dict(json.loads(frame))
            self.read()
        raise RefusedError("the controller sent nothing")


def descendants() -> list[int]:
    """Processes that this one, their subreaper, has below it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[1-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(path.parent.name)] = int(fields[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def kill_all() -> None:
    """SIGTERM, then SIGKILL until no process is left."""
    began, number = time.monotonic(), signal.SIGTERM
    while pids := descendants():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.2)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() - began > GRACE_S:
            number = signal.SIGKILL


def take_lock(directory: Path, cluster: str) -> int:
    """A lock that is held as long as this process or the worker runs."""
    path = directory / f".baremetal-share-{os.getuid()}-{cluster}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
        raise RefusedError(f"{path} belongs to another user, who could hold the lock: remove it")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        reason = f"another run of this cluster is here, process {pid} (lock {path})"
        raise RefusedError(f"{reason}: wait for it, or terminate it on this node") from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def probe(directory: Path) -> dict[str, Any]:
    space = os.statvfs(directory)
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": {name: version(name) for name in ("ansible-core", "ansible-runner")},
        "free_bytes": space.f_bavail * space.f_frsize,
        "writable": os.access(directory, os.W_OK | os.X_OK),
    }


def environment(private: Path) -> dict[str, str]:
    """Nothing of the node's user: files below the home directory are those of the controller."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(private / "data/home"),
        "TMPDIR": str(private / "tmp"),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
    }


def run(found: Input, header: dict[str, Any], private: Path, lock: int) -> tuple[int, str]:
    """Exit status of the worker, and why it was killed; empty if it was not."""
    (private / "tmp").mkdir()
    # `--delete`: the worker removes its files also if this program was killed.
    options = ["--private-data-dir", str(private / "data"), "--delete"]
    options += ["--keepalive-seconds", str(KEEPALIVE_S)]
    worker = subprocess.Popen(
        [sys.executable, "-m", "ansible_runner", "worker", *options],
        stdin=subprocess.PIPE,
        cwd=private,
        env=environment(private),
        pass_fds=(lock,),
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    stdin = cast(IO[bytes], worker.stdin)
    pipe: Optional[int] = stdin.fileno()
    os.set_blocking(stdin.fileno(), False)
    pending, complete = b"", False
    try:
        while worker.poll() is None:
            for frame in found.frames():
                complete = complete or not frame
                pending += frame
            reading = [] if found.over or len(pending) > MOST_PENDING_BYTES else [0]
            writing = [pipe] if pipe is not None and pending else []
            readable, writable, _errors = select.select(reading, writing, [], 0.5)
            if writable and pipe is not None:
                try:
                    pending = pending[os.write(pipe, pending[: 1 << 16]) :]
                except BrokenPipeError:
                    pending, pipe = b"", None
            if complete and not pending and pipe is not None:
                stdin.close()
                pipe = None
            if readable:
                found.read()
            if found.over:
                return NO_LEASE, "the connection to the controller was closed"
            if time.monotonic() - found.seen > header["lease_s"]:
                return NO_LEASE, f"no sign of life from the controller for {header['lease_s']} s"
        return worker.returncode, ""
    finally:
        kill_all()


def main() -> int:
    os.umask(0o077)
    found = Input()
    try:
        header = found.first()
        directory = Path(header["directory"])
        if header.get("probe"):
            tell(share="ready", **probe(directory))
            return 0
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        lock = take_lock(directory, header["cluster"])
        prefix = f"baremetal-share-{os.getuid()}-{header['cluster']}-"
        for path in directory.glob(f"{prefix}*"):  # of a run that was killed
            if re.fullmatch(re.escape(prefix) + "[a-z0-9_]{8}", path.name):
                shutil.rmtree(path, ignore_errors=True)
        private = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    except (OSError, RefusedError) as error:
        tell(share="refused", reason=str(error))
        return REFUSED
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    try:
        status, reason = run(found, header, private, lock)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    with contextlib.suppress(OSError):  # the controller may be gone
        tell(share="finished", rc=status, reason=reason)
    return status


if __name__ == "__main__":
    sys.exit(main())
