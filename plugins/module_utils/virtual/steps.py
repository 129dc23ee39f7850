# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of an image's build: each timed, and all output in a log as it happens."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


class VirtualImageError(Exception):
    """An image could not be made; the text says at which step and where the log lies."""


@dataclass(frozen=True)
class Step:
    name: str
    seconds: float


class Steps:
    def __init__(self, log: Path) -> None:
        self._log = log
        self.done: list[Step] = []

    def run(self, name: str, command: Sequence[str]) -> None:
        started = time.monotonic()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"== {name}\n")
            log.flush()
            code = _run_logged(command, log)
        if code != 0:
            raise VirtualImageError(
                f"could not {name}: {command[0]} ended with {code}:\n{_last_lines(self._log)}\n"
                f"The whole log: {self._log}"
            )
        self.done.append(Step(name, round(time.monotonic() - started, 1)))


def _run_logged(command: Sequence[str], log: TextIO) -> int:
    environment = {**os.environ, "LC_ALL": "C", "BUILDAH_FORMAT": "oci"}
    try:
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        ).returncode
    except FileNotFoundError as error:
        raise VirtualImageError(f"{command[0]} is not installed") from error


def _last_lines(log: Path, count: int = 8) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-count:])
