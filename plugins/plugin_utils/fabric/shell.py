# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A shell on a switch, whoever opens it: what a system that is spoken by commands needs."""

from __future__ import annotations

import re
from typing import Protocol

from ...module_utils.core.dataclass import dataclass


@dataclass(frozen=True)
class Completed:
    rc: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """Runs as root, in POSIX sh, without a terminal: what was begun goes on if the line is cut."""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        """Whatever its status; SwitchError where the connection was lost or time ran out."""


# The lines of a command's output that matter, for a message.

MOST_LINES = 3
MOST_CHARACTERS = 600
_NOISE = re.compile(r"^(usage:|try .* for help|\s*$)", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REASON = re.compile(r"error|fail|refus|illegal|invalid|not |no such|denied|space", re.IGNORECASE)


def told(answer: Completed) -> str:
    """`: what it said`; nothing where it said nothing."""
    text = _COLOUR.sub("", f"{answer.stderr}\n{answer.stdout if answer.rc else ''}")
    lines = list(
        dict.fromkeys(line.strip() for line in text.splitlines() if not _NOISE.match(line))
    )
    chosen = [line for line in lines if _REASON.search(line)] or lines
    chosen = [line for line in chosen if not _is_repeated(line, chosen)]
    said = "; ".join(chosen[-MOST_LINES:])
    if len(said) > MOST_CHARACTERS:
        said = said[:MOST_CHARACTERS] + " ..."
    return f": {said.rstrip('.')}" if said else ""


def _is_repeated(line: str, lines: list[str]) -> bool:
    """click says again, after `Error:`, what was said before."""
    said = line[len("Error: ") :]
    return line.startswith("Error: ") and any(said in other for other in lines if other != line)
