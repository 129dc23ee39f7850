# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host as a node of Slurm: drained before its reboot, and resumed afterwards if drained here.

The reason marks the drains of this collection, so that another run, on any machine, can continue an
interrupted one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..slurm.state import NodeState, SlurmError, parse_node

REASON = "baremetal.mpi_roce reboot"
"""Prefix of the reason that marks the collection's drains."""
_UNKNOWN = re.compile(r"^\s*node \S+ not found\s*$", re.IGNORECASE | re.MULTILINE)
"""scontrol's output for a host that is not a node, as opposed to a missing file."""


def ours(node: NodeState) -> bool:
    """Whether the node was drained here."""
    return node.drained and node.reason.startswith(REASON)


def as_dict(node: NodeState) -> dict[str, Any]:
    found = {"name": node.name, "state": node.state, "reason": node.reason}
    return {**found, "drained": node.drained, "ours": ours(node), "busy": node.busy}


def read(run: Runner, name: str, program: str) -> Optional[NodeState]:
    """This host in Slurm; None if it is not a node."""
    try:
        text = _scontrol(run, program, "--oneliner", "show", "node", name)
        return parse_node(name, text.strip().splitlines()[0])
    except SlurmError as error:
        if not _UNKNOWN.search(str(error)):
            raise
    # The name of the node may differ from its host name.
    for line in _scontrol(run, program, "--oneliner", "show", "node").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if words.get("NodeHostName", "").partition(".")[0] == name:
            return parse_node(words.get("NodeName", name), line)
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
