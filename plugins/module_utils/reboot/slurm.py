# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host as a node of Slurm: drained before its reboot, and resumed afterwards if drained here.

The reason marks the drains of this collection, so that another run, on any machine, can continue an
interrupted one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ..core.commands import CommandError, Runner

REASON = "baremetal.mpi_roce reboot"
"""Prefix of the reason that marks the collection's drains."""
QUIET = frozenset(["IDLE", "DOWN"])
MARKS = "*~#!%$@^-"
"""Suffixes of a state: not responding, powered down, ..."""
BUSY_FLAGS = frozenset(["COMPLETING", "ALLOCATED", "MIXED"])

_UNKNOWN = re.compile(r"^\s*node \S+ not found\s*$", re.IGNORECASE | re.MULTILINE)
"""scontrol's output for a host that is not a node, as opposed to a missing file."""
_STATE = re.compile(r"(?:^|\s)State=(\S+)")
_REASON = re.compile(r"(?:^|\s)Reason=(.*?)(?:\s+\[[^\]]*\])?(?:\s+(?:Comment|Extra)=.*)?$")


class SlurmError(Exception):
    """Slurm did not respond, or refused; the message contains its output."""


@dataclass(frozen=True)
class SlurmNode:
    name: str
    state: str
    """`IDLE`, `ALLOCATED+DRAIN`, ... without suffixes."""
    reason: str = ""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.state.split("+")

    @property
    def ours(self) -> bool:
        """Whether it was drained here."""
        return self.drained and self.reason.startswith(REASON)

    @property
    def busy(self) -> bool:
        words = self.state.split("+")
        return words[0] not in QUIET or bool(BUSY_FLAGS & set(words))

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "drained": self.drained, "ours": self.ours, "busy": self.busy}


def parse(name: str, text: str) -> SlurmNode:
    """Parse `scontrol --oneliner show node`."""
    line = text.strip().splitlines()[0] if text.strip() else ""
    state = _STATE.search(line)
    if state is None:
        raise SlurmError(f"scontrol show node {name}: no State= in its output: {line[:200]!r}")
    reason = _REASON.search(line)
    words = [word.rstrip(MARKS) for word in state[1].split("+")]
    return SlurmNode(name, "+".join(words), reason[1].strip() if reason else "")


def read(run: Runner, name: str, program: str) -> Optional[SlurmNode]:
    """This host in Slurm; None if it is not a node."""
    try:
        return parse(name, _scontrol(run, program, "--oneliner", "show", "node", name))
    except SlurmError as error:
        if not _UNKNOWN.search(str(error)):
            raise
    # The name of the node may differ from its host name.
    for line in _scontrol(run, program, "--oneliner", "show", "node").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("NodeHostName", "").partition(".")[0] == name:
            return parse(words.get("NodeName", name), line)
    return None


def drain(run: Runner, name: str, why: str, program: str) -> None:
    """Let running jobs continue, but start no new ones."""
    what = ("state=drain", f"reason={REASON}: {why}"[:200])
    _scontrol(run, program, "update", f"nodename={name}", *what)


def resume(run: Runner, name: str, program: str) -> None:
    _scontrol(run, program, "update", f"nodename={name}", "state=resume")


def _scontrol(run: Runner, program: str, *words: str) -> str:
    """The output. Raises SlurmError; `show node` without its answer is an error as well."""
    try:
        done = run([program, *words], check=False)
    except CommandError as error:
        raise SlurmError(str(error)) from error
    if done.rc or ("show" in words and "NodeName=" not in done.stdout):
        text = f"{done.stdout}\n{done.stderr}".strip()[-500:]
        what = " ".join(["scontrol", *(word for word in words if not word.startswith("--"))])
        raise SlurmError(f"{what}: exit status {done.rc}:\n{text}")
    return done.stdout


def shown(node: Mapping[str, Any]) -> str:
    return f"Slurm has it as {node['state']}" + (f" ({node['reason']})" if node["reason"] else "")
