# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running programs on the node: fixed locale, bounded time, errors an operator can act on."""

from __future__ import annotations

import os
import select
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from .text import bytes_text

SYSTEM = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Directories of administration programs, which the PATH of an ordinary login lacks."""
REAP_S = 5.0
"""Seconds that a killed program may take to exit; one in uninterruptible sleep takes longer."""
MAX_OUTPUT_BYTES = 32 << 20
"""Limit of a program's combined output: `dpkg -l` prints 1 MiB on a large machine."""


@dataclass(frozen=True)
class Result:
    argv: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """A program failed, is missing, took too long or printed too much; the text has its output."""


class NoAnswerError(CommandError):
    """A program took too long and was killed with every process that it had started."""

    def __init__(self, shown: str, timeout_s: float) -> None:
        super().__init__(f"{shown}: no answer within {timeout_s:g} s")
        self.timeout_s = timeout_s


class Runner(Protocol):
    """The signature of `run` for a fixed time limit; tests pass a fake."""

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result: ...


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    stdin: Optional[str] = None,
    timeout_s: float = 60.0,
    env: Optional[Mapping[str, str]] = None,
    popen: Optional[Mapping[str, Any]] = None,
) -> Result:
    """Run `argv` without a shell and return its exit status and output.

    Raises CommandError if the program is missing, exceeds `timeout_s` or MAX_OUTPUT_BYTES, or (with
    `check`) exits non-zero. `popen`: keyword arguments of Popen, which override those set here.
    """
    shown = " ".join(shlex.quote(word) for word in argv)
    environment = {**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})}
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a process group, which can be killed as a whole
            **{"env": environment, **(popen or {})},
        )
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]}: not installed (wanted to run: {shown})") from error
    # Not `with process`, which waits for the process without a limit.
    until = time.monotonic() + timeout_s
    try:
        stdout, stderr = _printed(process, shown, (stdin or "").encode("utf-8", "replace"), until)
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        _end(process)
        raise NoAnswerError(shown, timeout_s) from error
    except BaseException:
        _end(process)
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    result = Result(tuple(argv), process.returncode, stdout, stderr)
    if check and result.rc != 0:
        said = output(result, 2000) or "it printed nothing"
        raise CommandError(f"{shown}: exit status {result.rc}: {said}")
    return result


def output(result: Result, most: int) -> str:
    """Return the last `most` characters of a program's output, standard error first, as some print
    a heading there and the cause on standard output."""
    errors, printed = result.stderr.strip(), result.stdout.strip()
    errors = errors[-(most * 2 // 3 if printed else most) :]
    return "\n".join(text for text in (errors, printed[-(most - len(errors)) :]) if text)


def search_path() -> str:
    """Return PATH, followed by the directories of SYSTEM that it lacks."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*directories, *(path for path in SYSTEM if path not in directories)])


def find_program(name: str) -> Optional[str]:
    return shutil.which(name, path=search_path())


def _printed(
    process: subprocess.Popen[bytes], shown: str, stdin: bytes, until: float
) -> tuple[str, str]:
    """Return both outputs, once the program and its children have closed them."""
    outputs: dict[Any, bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as ready:
        for stream in outputs:
            ready.register(stream, selectors.EVENT_READ)
        if process.stdin is not None:
            ready.register(process.stdin, selectors.EVENT_WRITE)
        while ready.get_map():
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(shown, 0)
            for key, _events in ready.select(max(0.0, until - time.monotonic())):
                if key.fileobj in outputs:
                    data = os.read(key.fd, 1 << 16)
                    outputs[key.fileobj] += data
                    done = not data
                else:
                    try:  # no more than a ready pipe accepts without blocking
                        left = left[os.write(key.fd, left[: select.PIPE_BUF]) :]
                    except BrokenPipeError:
                        left = left[:0]
                    done = not left
                if done:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
            if sum(map(len, outputs.values())) > MAX_OUTPUT_BYTES:
                raise CommandError(
                    f"{shown}: killed, as it printed more than {bytes_text(MAX_OUTPUT_BYTES)}"
                )
    stdout, stderr = (
        output.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        for output in outputs.values()
    )
    return stdout, stderr


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its process group: a killed ssh or runuser leaves its children running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(REAP_S)
