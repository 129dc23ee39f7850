# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports of Slurm's programs: nodes, switches, settings and the version.

Every user of the cluster can set comments and names of jobs: output is bounded, and lines of an
unknown form are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from .hostlist import expand

QUIET = frozenset(["IDLE", "DOWN"])
MARKS = "*~#!%$@^-"
"""Suffixes of a state: not responding, powered down, ..."""
BUSY_FLAGS = frozenset(["COMPLETING", "ALLOCATED", "MIXED"])
SILENT = frozenset(["DOWN", "UNKNOWN", "NOT_RESPONDING", "FUTURE", "INVALID_REG"])
"""States of a node that slurmctld has not heard of, or whose slurmd it does not accept."""
MOST_CHARACTERS = 20_000_000
"""Limit of the output of one program; 10,000 nodes are some 10 MB."""
MOST_VALUE = 500

_VERSION = re.compile(r"\bslurm\S*\s+(\d{2})\.(\d{2})\b")
_NAME = re.compile(r"NodeName=(\S+)")
_STATE = re.compile(r"(?:^|\s)State=(\S+)")
_REASON = re.compile(
    r"(?:^|\s)Reason=(.*?)(?:\s+\[[^\]]*\])?(?:\s+(?:Comment|Extra|Topology)=.*)?$"
)
_WORD = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_CONFIG = re.compile(r"([A-Za-z]\w*)(\[\d+\])?\s*=\s*(.*)")


class SlurmError(Exception):
    """Slurm did not respond, or refused; the message contains its output."""


@dataclass(frozen=True)
class NodeState:
    name: str
    state: str
    """`IDLE`, `ALLOCATED+DRAIN`, ... without suffixes."""
    reason: str = ""
    address: str = ""
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    memory_mb: int = 0
    gres: str = ""
    features: tuple[str, ...] = ()
    version: str = ""
    """Of its slurmd; empty before it registered."""

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.state.split("+")

    @property
    def busy(self) -> bool:
        words = self.state.split("+")
        return words[0] not in QUIET or bool(BUSY_FLAGS & set(words))

    @property
    def responds(self) -> bool:
        return SILENT.isdisjoint(self.state.split("+"))


@dataclass(frozen=True)
class SwitchState:
    name: str
    level: int
    nodes: frozenset[str]
    switches: frozenset[str]


def parse_version(text: str) -> Optional[tuple[int, int]]:
    """Major version of `slurmd -V`: `slurm-wlm 22.05.8` is (22, 5)."""
    match = _VERSION.search(text[:1000])
    return (int(match[1]), int(match[2])) if match else None


def parse_nodes(text: str) -> dict[str, NodeState]:
    """Parse `scontrol --oneliner show node`, by name."""
    found = {}
    for line in _lines(text):
        match = _NAME.match(line)
        if match:
            node = parse_node(match[1], line)
            found[node.name] = node
    return found


def parse_node(name: str, line: str) -> NodeState:
    """Parse one line of it. Raises SlurmError if it has no state."""
    state = _STATE.search(line)
    if state is None:
        raise SlurmError(f"scontrol show node {name}: no State= in its output: {line[:200]!r}")
    reason = _REASON.search(line)
    # Words after the reason may be part of it, or of a comment.
    words: dict[str, str] = {}
    for key, value in _WORD.findall(line[: reason.start()] if reason else line):
        words.setdefault(key, value[:MOST_VALUE])
    marks = [word.rstrip(MARKS) for word in state[1][:MOST_VALUE].split("+")]
    if "*" in state[1]:
        marks.append("NOT_RESPONDING")
    gres, features = words.get("Gres", ""), words.get("AvailableFeatures", "")
    return NodeState(
        name=name,
        state="+".join(marks),
        reason=reason[1].strip()[:MOST_VALUE] if reason else "",
        address=words.get("NodeAddr", ""),
        sockets=_number(words.get("Sockets")),
        cores=_number(words.get("CoresPerSocket")),
        threads=_number(words.get("ThreadsPerCore")),
        memory_mb=_number(words.get("RealMemory")),
        gres="" if gres == "(null)" else gres,
        features=() if features in ("", "(null)") else tuple(features.split(",")),
        version=words.get("Version", ""),
    )


def parse_topology(text: str) -> dict[str, SwitchState]:
    """Parse `scontrol show topology`. Slurm lists the nodes below a switch, not only its own."""
    found = {}
    for line in _lines(text):
        words = dict(_WORD.findall(line))
        name = words.get("SwitchName")
        if not name:
            continue
        try:
            nodes, switches = (expand(words.get(key, "")) for key in ("Nodes", "Switches"))
        except ValueError as error:
            raise SlurmError(f"scontrol show topology: {name[:80]}: {error}") from None
        found[name] = SwitchState(
            name, _number(words.get("Level")), frozenset(nodes), frozenset(switches)
        )
    return found


def parse_config(text: str) -> dict[str, str]:
    """Parse `scontrol show config`, with keys in lower case. Several values of one key
    (`Prolog[0]`, `Prolog[1]`) are a list with commas."""
    found: dict[str, str] = {}
    for line in _lines(text):
        match = _CONFIG.match(line)
        if match:
            key, value = match[1].lower(), match[3].strip()[:MOST_VALUE]
            value = "" if value in ("(null)", "(none)") else value
            if match[2] and key in found:
                found[key] = f"{found[key]},{value}"
            else:
                found.setdefault(key, value)
    return found


def _lines(text: str) -> Iterator[str]:
    # Not splitlines(): a reason may contain other separators.
    for line in text[:MOST_CHARACTERS].split("\n"):
        if line.strip():
            yield line.strip()


def _number(text: Optional[str]) -> int:
    return int(text) if text is not None and re.fullmatch(r"\d{1,12}", text) else 0
