# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drains of a node with faults in Slurm: only with consent, and never more than a share of it.

The breaker has no memory but Slurm's: the nodes that are drained with REASON. Nodes act at the same
time, so each counts again after it has drained itself and takes its drain back if there are too
many. The last one to drain sees all the others, so the limit holds whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Optional

from ..core.commands import CommandError, Runner
from ..core.text import one_line
from ..reboot import slurm
from ..slurm.state import MARKS, SlurmError
from .settings import Settings

REASON = "baremetal.mpi_roce node-check:"
"""Prefix of the reason that marks the drains of this program."""
SINFO = ("sinfo", "--all", "--noheader", "--Node", "--format=%N|%T|%E")
MOST_NODES = 100_000


class Row(NamedTuple):
    state: str
    reason: str


@dataclass(frozen=True)
class Done:
    """`drained`: whether this program has drained the node, now or before."""

    note: str
    drained: bool = False


def rows(text: str) -> dict[str, Row]:
    """Nodes of sinfo, which prints each once per partition."""
    found: dict[str, Row] = {}
    for line in text.split("\n")[: 10 * MOST_NODES]:
        name, first, rest = line.strip().partition("|")
        state, second, why = rest.partition("|")
        if name and first and second and len(found) < MOST_NODES:
            found[name] = Row(state.rstrip(MARKS).lower(), why)
    return found


def ours(found: dict[str, Row]) -> set[str]:
    return {
        name
        for name, row in found.items()
        if row.state.startswith("drain") and row.reason.startswith(REASON)
    }


def count(run: Runner) -> tuple[int, set[str]]:
    """How many nodes there are, and which this program has drained. Raises CommandError."""
    found = rows(run(SINFO).stdout)
    if not found:
        raise CommandError("sinfo lists no node")
    return len(found), ours(found)


def drain(run: Runner, node: str, why: str, settings: Settings) -> Done:
    """Drain this node if the breaker allows it and it is not drained yet."""
    try:
        nodes, drained = count(run)
        allowed = settings.allowed(nodes)
        here = slurm.read(run, node, "scontrol")
        if here is None:
            return Done(f"{node} is no node of Slurm, so it was not drained")
        if here.drained:
            return Done(f"already drained: {here.reason}", here.reason.startswith(REASON))
        if len(drained - {here.name}) >= allowed:
            return Done(_full(len(drained), allowed, nodes))
        _update(run, here.name, "state=drain", f"reason={REASON} {why}"[:200])
    except (CommandError, SlurmError, OSError) as error:
        return Done(f"not drained, as Slurm could not be asked: {one_line(str(error))}")
    try:
        nodes, drained = count(run)
        if len(drained) <= settings.allowed(nodes):
            return Done(f"drained in Slurm: {why}", True)
        why_not = _full(len(drained) - 1, allowed, nodes)
    except (CommandError, OSError) as error:
        why_not = f"how many nodes are drained is unknown: {one_line(str(error))}"
    try:
        _update(run, here.name, "state=resume")
    except (CommandError, OSError) as error:
        shown = one_line(str(error))
        return Done(f"{why_not}; but the drain could not be taken back: {shown}", True)
    return Done(f"the drain was taken back: {why_not}")


def resume(run: Runner, node: str) -> Optional[Done]:
    """Resume this node if this program has drained it; None if it has not."""
    try:
        here = slurm.read(run, node, "scontrol")
        if here is None or not here.drained or not here.reason.startswith(REASON):
            return None
        _update(run, here.name, "state=resume")
    except (CommandError, SlurmError, OSError) as error:
        return Done(f"Slurm could not be asked about this node: {one_line(str(error))}")
    return Done(f"resumed in Slurm, as all checks hold; it was drained for: {here.reason}")


def _full(drained: int, allowed: int, nodes: int) -> str:
    return (
        f"not drained: node-check has drained {drained} of {nodes} nodes, and max_drained_share "
        f"allows {allowed}. The node stays in service: act on its faults by hand"
    )


def _update(run: Runner, name: str, *words: str) -> None:
    run(["scontrol", "update", f"nodename={name}", *words])
