# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A shell on a switch, whoever opens it: what a system that is spoken by commands needs."""

from __future__ import annotations

from typing import Protocol

from ...module_utils.dataclass import dataclass


@dataclass(frozen=True)
class Completed:
    rc: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """Runs as root, in POSIX sh, without a terminal: what was begun goes on if the line is cut."""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        """Whatever its status; SwitchError where the connection was lost or time ran out."""
