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
NO_NODES = "no nodes in the system"
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
    done = _scontrol(run, program, "--oneliner", "show", "node", name)
    text = f"{done[1]}\n{done[2]}".strip()
    if done[0] != 0 or "State=" not in done[1]:
        if _UNKNOWN.search(text):
            return _by_host_name(run, program, name)
        raise SlurmError(f"scontrol show node {name}: exit status {done[0]}: {text[-500:]}")
    return parse(name, done[1])


def _by_host_name(run: Runner, program: str, host: str) -> Optional[SlurmNode]:
    """Find the node by its host name, which may differ from its name in Slurm."""
    rc, stdout, stderr = _scontrol(run, program, "--oneliner", "show", "node")
    text = f"{stdout}\n{stderr}".strip()
    if rc != 0 or ("NodeName=" not in stdout and NO_NODES not in text.lower()):
        raise SlurmError(f"scontrol show node: exit status {rc}: {text[-500:]}")
    for line in stdout.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("NodeHostName", "").partition(".")[0] == host:
            return parse(words.get("NodeName", host), line)
    return None


def drain(run: Runner, name: str, why: str, program: str = "scontrol") -> None:
    """Let running jobs continue, but start no new ones."""
    _update(run, program, name, "state=drain", f"reason={REASON}: {why}"[:200])


def resume(run: Runner, name: str, program: str = "scontrol") -> None:
    _update(run, program, name, "state=resume")


def _update(run: Runner, program: str, name: str, *what: str) -> None:
    rc, stdout, stderr = _scontrol(run, program, "update", f"nodename={name}", *what)
    if rc != 0:
        text = (stderr or stdout).strip()[-500:]
        raise SlurmError(f"scontrol update nodename={name} {what[0]}: exit status {rc}: {text}")


def _scontrol(run: Runner, *argv: str) -> tuple[int, str, str]:
    try:
        done = run(list(argv), check=False)
    except CommandError as error:
        raise SlurmError(str(error)) from error
    return done.rc, done.stdout, done.stderr


def shown(node: Mapping[str, Any]) -> str:
    return f"Slurm has it as {node['state']}" + (f" ({node['reason']})" if node["reason"] else "")
