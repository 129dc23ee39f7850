# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a run reported, looked up: by kind, by node, by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from .plan import Node, Plan

SHOWN = 5
"""Items a reason lists before it says how many more there are."""

Records = Sequence[Mapping[str, Any]]


def of_kind(records: Records, kind: str) -> list[Mapping[str, Any]]:
    return [one for one in records if one["kind"] == kind]


def listed(items: Sequence[str]) -> str:
    more = len(items) - SHOWN
    return "; ".join(items[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


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
