# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of a run: the program's records, UCX's lanes, the launcher's error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ...core.dataclass import dataclass
from .plan import Node, Plan

MARK = "allreduce-record "
"""As the program has it."""

INSIDE_A_NODE = (
    *("self", "sysv", "posix", "cma", "knem", "xpmem"),
    *("cuda_ipc", "cuda_copy", "gdr_copy"),
)
KEEPALIVE = "ka"
"""How UCX calls the lane by which it asks whether the other end lives: it carries no data."""


def record(line: str) -> Optional[dict[str, Any]]:
    """The record on a line of the program's output, or None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        value = json.loads(line[len(MARK) :])
    except ValueError:
        return None  # cut short: the run ended in the middle of it
    return value if isinstance(value, dict) and "kind" in value else None


SHOWN = 5
"""Items in one reason; the rest are counted."""

Records = Sequence[Mapping[str, Any]]


def of_kind(records: Records, kind: str) -> list[Mapping[str, Any]]:
    return [one for one in records if one["kind"] == kind]


def listed(items: Sequence[str]) -> str:
    more = len(items) - SHOWN
    return "; ".join(items[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def bytes_text(count: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count} B"


def node_of(host: str, nodes: Mapping[str, Node]) -> Optional[Node]:
    """The model's node for a host name, which may carry a domain."""
    return nodes.get(host) or nodes.get(host.split(".", 1)[0])


def of_nodes(
    plan: Plan, records: Records, kind: str = "host"
) -> list[tuple[Node, Mapping[str, Any]]]:
    """What each node reported of itself, of those that are in the plan."""
    nodes = {node.name: node for node in plan.nodes}
    found = [(node_of(host["name"], nodes), host) for host in of_kind(records, kind)]
    return [(node, host) for node, host in found if node is not None]


def node_of_rank(plan: Plan, records: Records) -> dict[int, Node]:
    return {rank: node for node, host in of_nodes(plan, records) for rank in host["ranks"]}


def of_the_end(records: Records, key: str, default: Any) -> Any:
    """A value of the last record; `default` when the run did not come to its end."""
    return next((one[key] for one in of_kind(records, "end") if key in one), default)


def least_bytes_per_node(plan: Plan, records: Records) -> int:
    """What every node has to send, whatever the algorithm: its part of the buffers, once over.

    A ring or a recursive halving sends about twice this, recursive doubling several times as much.
    """
    volume = int(of_the_end(records, "volume_bytes", 0))
    return volume * (len(plan.nodes) - 1) // max(1, len(plan.nodes))


@dataclass(frozen=True)
class Lane:
    """One way an endpoint sends: `tcp/rail0`."""

    transport: str
    device: str


def lanes(text: str) -> tuple[Lane, ...]:
    """The lanes in a line of UCX's report that carry data, whatever kind of it.

    `ep_cfg[2]: tag(tcp/rail0 tcp/rail1)` in UCX 1.13 and before, in later versions
    `ucp_context_0 inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)`.
    """
    found = []
    for use, group in re.findall(r"\b(\w+)\(([^()]*)\)", text):
        for word in group.split() if use != KEEPALIVE else ():
            transport, separator, device = word.partition("/")
            if separator:
                found.append(Lane(transport, device))
    return tuple(found)


def between_nodes(text: str) -> tuple[Lane, ...]:
    """The lanes of a report line that leave the node; empty for one that stays inside."""
    found = lanes(text)
    if "intra-node" in text or "self cfg#" in text:
        return ()
    if "inter-node" not in text and any(lane.transport in INSIDE_A_NODE for lane in found):
        return ()
    return tuple(lane for lane in found if lane.transport not in INSIDE_A_NODE)


def is_transport(lane: Lane, asked: str) -> bool:
    """Whether a lane is of the transport asked for: `rc` has drivers (`rc_verbs`, `rc_mlx5`)."""
    return lane.transport == asked or lane.transport.startswith(f"{asked}_")


TELLING = re.compile(
    r"error|fail|unable|unreachable|not reach|signal|killed|abort|lost|refused|denied|timed? ?out|"
    r"cannot|could not|no route|not found|not installed|exited|not enough slots|"
    r"verification|mismatch|invalid|allreduce: rank|no components|no such",
    re.IGNORECASE,
)
WHERE = re.compile(
    r"^\s*((local |remote )?host|hostname|framework|component|process name|value|message)\s*:",
    re.I,
)
NOISE = re.compile(
    "|".join(
        (
            r"^-{20,}$",
            r"^\s*$",
            # Open MPI's boxes explain what may be wrong in general, at length.
            r"^\*  ?\w",
            r"^(please|primary job|your choice|this (may|is|usually)|means that)\b",
            r"^(fail during|problems|session terminated)\b",
            r"plm:rsh: warning: setpgid",
            r"^(not finding|lack of|an inability|the inability)\b",
            r"\b(likely to abort|job has been aborted|was unable to reliably)",
            r"\b(sent help message|set mca parameter|one or more processes exited)\b",
            r"\b(unable to be (found|used|opened)|network connectivity|mpi_init failed for some)\b",
            r"\*\*\* (unknown error|mpi_errors_are_fatal|reported by|on a |\s+and pot)",
        )
    ),
    re.IGNORECASE,
)
"""Looks telling and is not."""


def relevant_lines(text: str, limit: int = 12) -> list[str]:
    """What of the launcher's output tells the cause: no boxes, no advice, nothing twice."""
    found: list[str] = []
    seen: set[str] = set()
    for line in text.splitlines():
        line = line.strip()
        if NOISE.search(line) or not (TELLING.search(line) or WHERE.search(line)):
            continue
        kind = re.sub(r"\d+", "#", line) if line.startswith("[") else line
        if kind in seen:
            continue
        seen.add(kind)
        found.append(line if len(line) <= 300 else line[:297] + "...")
        if len(found) == limit:
            break
    return found


def hosts_named(lines: Sequence[str], names: Iterable[str]) -> list[str]:
    """Which of `names` the lines mention, as whole words."""
    text = "\n".join(lines)
    return [name for name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def first_ranks_named(lines: Iterable[str]) -> list[int]:
    """Ranks that the launcher or the program names as the ones that went wrong."""
    named = r"(?:process rank |allreduce: rank |Process name: \[\[\d+,1\],)(\d+)"
    return list(dict.fromkeys(int(rank) for rank in re.findall(named, "\n".join(lines))))
