# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Unpacked MPIs: selecting the one that shells find, and removing former ones."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..core import processes
from ..core.checks import OK, Check, differs, not_applicable
from ..core.part import Node, Plan, Step, Verdict

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Default PATH of sshd and cron, before any profile."""
LOGIN = "login"
SHELLS = {LOGIN: "-lc", "non-login": "-c"}
PREFIXES = "opt/baremetal-mpi-roce"
KINDS = ("hpcx-*", "impi-*", "source-*")
"""Directories that providers create there; others are left untouched."""


PRECEDES = "it precedes the expected one on the path: remove it, or its line in a profile"


@dataclass(frozen=True)
class Paths:
    """Check that shells find mpirun in `directory`: another would start other ranks."""

    directory: str

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        checks, wanted = [], f"{self.directory}/mpirun"
        for shell, option in SHELLS.items():
            argv = ["env", "-i", f"PATH={PATH}", "/bin/sh", option, "command -v mpirun"]
            # Profiles may print lines as well.
            found = node.run(argv, check=False).stdout.strip().rpartition("\n")[2]
            # Only the profile adds directories outside the default path.
            well = found == wanted or (not found and shell != LOGIN)
            status = OK if well else differs(node.check_mode)
            reason = "" if well or not found else PRECEDES
            checks.append(Check("mpi_path", wanted, found or "none", status, shell, reason))
        return Verdict(checks)


@dataclass(frozen=True)
class Former:
    """Remove former MPIs, except those in use and those kept for modulefiles, and leftovers of
    builds."""

    prefix: str
    kept: bool = False

    def plan(self, node: Node) -> Plan:
        return Plan(
            steps=[
                Step(str(path), "unpacked", "absent", partial(shutil.rmtree, path))
                for path in self._others(node)
                if not _users(node, path)
            ]
        )

    def verify(self, node: Node) -> Verdict:
        checks = []
        for path in self._others(node):
            using = _users(node, path)
            if using:
                reason = f"process {using[0]} uses it: run again after the process has exited"
                checks.append(not_applicable("mpi_former", "absent", reason, subject=str(path)))
            else:
                status = differs(node.check_mode)
                checks.append(Check("mpi_former", "absent", "unpacked", status, str(path)))
        return Verdict(checks)

    def _others(self, node: Node) -> list[Path]:
        paths = sorted(path for kind in KINDS for path in node.path(PREFIXES).glob(kind))
        if self.kept:
            paths = [path for path in paths if path.suffix in (".build", ".part")]
        return [path for path in paths if path != node.path(self.prefix.lstrip("/"))]


def _users(node: Node, directory: Path) -> list[int]:
    """Processes that use a program or library of the directory, such as ranks of a job."""
    found = []
    for pid in processes.pids(node.root):
        with suppress(OSError):  # it has exited
            if f"{directory}/" in (node.read(f"proc/{pid}/maps") or ""):
                found.append(pid)
    return found
