# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs of one job: by `ansible-runner worker` on an execution node, or by ansible-playbook here.

The stream of a worker is read here instead of by `ansible-runner process`, which would unpack an
archive of the node on the controller: a compromised node could write any of its files.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Optional, cast

from ...module_utils.core.text import one_line, printable, shortened
from ..answers import mapping
from . import node as program
from .cut import Job
from .data import COLLECTION, REPORTS, Settings, selection, transmit
from .nodes import ExecutionNode

PROGRAM = Path(program.__file__)
MOST_LINE_BYTES = 4 << 20
MOST_ARCHIVE_BYTES = 256 << 20
MOST_LOG_BYTES = 64 << 20
MOST_ERROR = 500
BEAT_S = 5.0


class LostError(Exception):
    """The node did not finish its job, for the reason in the message."""


@dataclass(frozen=True)
class Outcome:
    """What a job left. Without a report, nothing is known about its hosts."""

    rc: int = -1
    report: Optional[Mapping[str, Any]] = None
    lost: str = ""
    """Why the job was not finished; then it can run elsewhere."""
    seconds: float = 0.0


@dataclass
class Log:
    """The output of a run in a file of limited size, and its end."""

    path: Path
    _left: int = MOST_LOG_BYTES
    tail: str = ""

    def add(self, text: str) -> None:
        line = str(printable(text)) + "\n"
        self.tail = (self.tail + line)[-2000:]
        self._left -= len(line)
        if self._left > 0:
            with self.path.open("a", encoding="utf-8", errors="replace") as stream:
                stream.write(line)

    @property
    def end(self) -> str:
        lines = [line for line in self.tail.splitlines() if line.strip()]
        return shortened(one_line(" | ".join(lines[-3:])), MOST_ERROR)


@dataclass
class Stream:
    """Standard output of node.py, with limits of size and of time."""

    pipe: IO[bytes]
    silence_s: float
    _bytes: bytearray = field(default_factory=bytearray)

    def _more(self) -> None:
        ready, _writable, _errors = select.select([self.pipe], [], [], self.silence_s)
        if not ready:
            raise LostError(f"no sign of life for {self.silence_s:.0f} s")
        part = os.read(self.pipe.fileno(), 1 << 16)
        if not part:
            raise LostError("the connection was closed")
        self._bytes += part

    def line(self) -> dict[str, Any]:
        """The next line that is a JSON object; others, such as a banner, are skipped."""
        begin = 0
        while (end := self._bytes.find(b"\n", begin)) < 0:
            begin = len(self._bytes)
            if begin > MOST_LINE_BYTES:
                raise LostError(f"a line of its answer is longer than {MOST_LINE_BYTES >> 20} MiB")
            self._more()
        text = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def take(self, size: int) -> bytes:
        while len(self._bytes) < size:
            self._more()
        found = bytes(self._bytes[:size])
        del self._bytes[:size]
        return found


def frame(content: bytes) -> bytes:
    return b"%d\n%s" % (len(content), content)


@dataclass
class Connection:
    """node.py on an execution node, and the thread that sends frames to it."""

    process: subprocess.Popen[bytes]
    _sending: Optional[threading.Thread] = None
    _stop: threading.Event = field(default_factory=threading.Event)
    error: str = ""

    def send(self, header: Mapping[str, Any], argv: Sequence[str] = ()) -> None:
        """Send the header, the output of a command, and signs of life until `close`."""
        self._sending = threading.Thread(target=self._send, args=(header, argv), daemon=True)
        self._sending.start()

    def _send(self, header: Mapping[str, Any], argv: Sequence[str]) -> None:
        pipe = cast(IO[bytes], self.process.stdin)
        with contextlib.suppress(OSError, ValueError):  # the node is gone: the reader says why
            pipe.write(frame(json.dumps(header).encode()))
            pipe.flush()
            if not argv:
                return
            with subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as source:
                output, errors = cast(IO[bytes], source.stdout), cast(IO[bytes], source.stderr)
                while part := output.read(1 << 16):
                    pipe.write(frame(part))
                said = errors.read(1 << 16).decode("utf-8", "replace")
            if source.returncode:
                said = said.strip().rpartition("\n")[2]
                self.error = f"ansible-runner transmit: {shortened(one_line(said), MOST_ERROR)}"
                pipe.close()
                return
            while True:
                pipe.write(frame(b""))
                pipe.flush()
                if self._stop.wait(BEAT_S):
                    return

    def close(self) -> str:
        """End the connection, and return what ssh printed."""
        self._stop.set()
        self.process.kill()
        said = b""
        with contextlib.suppress(OSError, ValueError):
            said = cast(IO[bytes], self.process.stderr).read(1 << 16)
        self.process.wait()
        if self._sending is not None:
            self._sending.join(BEAT_S * 2)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError, ValueError):
                cast(IO[bytes], pipe).close()
        return shortened(one_line(said.decode("utf-8", "replace")).strip(), MOST_ERROR)


@dataclass(frozen=True)
class Workers:
    """Starts jobs of a run."""

    settings: Settings
    root: Path
    """The private data directory."""
    logs: Path
    cluster: str
    lease_s: int = 30

    def header(self, node: ExecutionNode) -> dict[str, Any]:
        return {"directory": node.directory, "cluster": self.cluster, "lease_s": self.lease_s}

    def probe(self, node: ExecutionNode) -> dict[str, Any]:
        """What node.py says about the node; `share` is `ready` or not."""
        connection = self._connect(node)
        try:
            connection.send({**self.header(node), "probe": True})
            stream = Stream(_stdout(connection), 60.0)
            while "share" not in (found := stream.line()):
                pass
            return found
        except LostError as error:
            said = connection.close()
            return {"share": "lost", "reason": said or f"{error}; see ssh to this node"}
        finally:
            connection.close()

    def _connect(self, node: ExecutionNode) -> Connection:
        argv = node.command(PROGRAM.read_text(encoding="utf-8"))
        return Connection(
            subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )

    def remote(self, node: ExecutionNode, job: Job, name: str) -> Outcome:
        """Run the job on the node."""
        began, log = time.monotonic(), Log(self.logs / f"{name}.log")
        log.add(f"{node.name}: layers {','.join(job.layers)} on {','.join(job.hosts)}")
        log.tail = ""
        connection = self._connect(node)
        argv = [sys.executable, "-m", "ansible_runner", *transmit(self.settings, self.root, job)]
        try:
            connection.send(self.header(node), argv)
            # Longer than the lease: by then, the node has killed what it had started.
            stream = Stream(_stdout(connection), self.lease_s * 2.0)
            rc, report = _received(stream, log)
            if report is None:
                how = f"was killed by signal {-rc}" if rc < 0 else f"exited with status {rc}"
                said = log.end
                raise LostError(
                    f"its ansible-runner {how}, without a report" + f": {said}" * bool(said)
                )
            return Outcome(rc, report, seconds=time.monotonic() - began)
        except LostError as error:
            said = connection.close()
            reason = connection.error or ": ".join(filter(None, (str(error), said)))
            log.add(f"lost: {reason}")
            return Outcome(lost=reason, seconds=time.monotonic() - began)
        finally:
            connection.close()

    def local(self, job: Optional[Job], layers: Sequence[str], name: str) -> Outcome:
        """Run layers on the controller; without a job on all hosts."""
        began, log = time.monotonic(), Log(self.logs / f"{name}.log")
        sources = [str(source) for source in self.settings.sources]
        chosen = selection(job) if job else ["--tags", ",".join(layers)]
        path = COLLECTION / "playbooks" / f"{self.settings.playbook}.yml"
        words = [*self.settings.arguments(str(self.root), sources), *chosen, str(path)]
        reports = self.root / "reports" / name
        variables = {"BAREMETAL_MPI_ROCE_REPORTS": str(reports), "ANSIBLE_NOCOLOR": "1"}
        with subprocess.Popen(
            [sys.executable, "-m", "ansible", "playbook", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            preexec_fn=ends_with_parent,
        ) as process:
            for line in cast(IO[bytes], process.stdout):
                log.add(line.decode("utf-8", "replace").rstrip("\n"))
        found = sorted(reports.glob("*/*.json"))
        report = json.loads(found[-1].read_text("utf-8")) if found else None
        lost = "" if report or not process.returncode else f"ansible-playbook: {log.end}"
        return Outcome(process.returncode, report, lost, time.monotonic() - began)


def ends_with_parent(number: signal.Signals = signal.SIGINT) -> None:
    """Get this signal when the parent process has died."""
    program.prctl(program.PR_SET_PDEATHSIG, number)


def _stdout(connection: Connection) -> IO[bytes]:
    return cast(IO[bytes], connection.process.stdout)


def _received(stream: Stream, log: Log) -> tuple[int, Optional[Mapping[str, Any]]]:
    """Exit status and report from the lines of a worker. Raises LostError."""
    report = None
    while True:
        found = stream.line()
        if found.get("share") == "finished":
            if found.get("reason"):
                raise LostError(shortened(one_line(str(found["reason"])), MOST_ERROR))
            rc = found.get("rc")
            return (rc if isinstance(rc, int) else -1), report
        if found.get("share") == "refused":
            raise LostError(shortened(one_line(str(found.get("reason"))), MOST_ERROR))
        if found.get("status") == "error":
            trace = str(found.get("result_traceback") or "").strip().splitlines()[-1:]
            text = " ".join([str(found.get("job_explanation")), *trace])
            raise LostError(shortened(one_line(str(printable(text))), MOST_ERROR))
        size = found.get("zipfile")
        if isinstance(size, int):
            report = _report(stream, size)
        elif isinstance(found.get("stdout"), str) and found["stdout"]:
            log.add(found["stdout"])


def _report(stream: Stream, size: int) -> Optional[Mapping[str, Any]]:
    """The report in the archive of a worker, which is read in memory; other files are ignored."""
    if not 0 < size <= MOST_ARCHIVE_BYTES:
        raise LostError(
            f"its archive has {size} bytes, the limit is {MOST_ARCHIVE_BYTES >> 20} MiB"
        )
    encoded = stream.take(4 * math.ceil(size / 3))
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(encoded, validate=True))) as archive:
            for info in archive.infolist():
                if re.fullmatch(rf"{REPORTS.name}/[^/]+/[^/]+\.json", info.filename):
                    if info.file_size > MOST_ARCHIVE_BYTES:
                        raise LostError("its report is too large")
                    with archive.open(info) as member:
                        return mapping(json.loads(member.read(MOST_ARCHIVE_BYTES))) or None
    # RuntimeError: too many levels, an unknown compression, or an encrypted member.
    except (ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise LostError(f"its archive cannot be read: {error!r}") from None
    return None
