# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the bytes of a run went: over the rails, by the transport asked for, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...core.checks import FAILED, OK, Check, not_applicable
from ...core.text import bytes_text, some
from .launch import Records, of_nodes, of_the_end
from .plan import RunPlan

FRAME_BYTES = 4200
"""Most that a packet of RoCE has on the wire: 4096 and its headers."""
SOFT_BYTES = 2 << 20
"""Bytes beside RDMA that are no finding with Soft-RoCE, where they are not counted by themselves:
neighbour discovery and the like."""
RETRIES = (
    *("out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err"),
    "rx_icrc_encapsulated",
)
"""As the program has them, after the packets sent."""
LEAST_RETRIES = 10
"""Fewer are no finding: one burst in a queue, of a run that may send a few hundred packets."""
NEAR = 0.8
"""Of the largest share: alike. Of more than two nodes, the other ends have half of it at most."""
SHOWN = 5
"""Items in one reason; the rest are counted."""


@dataclass(frozen=True)
class Tolerances:
    """What is not a fault: a shell on management, a figure below none."""

    management_bytes: int = 1 << 20
    management_share: float = 0.02
    min_busbw_gbytes_s: Optional[float] = None
    tcp_retries: float = 0.01
    rdma_retries: float = 1e-5

    def allowed(self, least: int) -> int:
        """Bytes that may pass where none should, in a run that needs `least` of every node."""
        return self.management_bytes + round(self.management_share * least)


def least_bytes_per_node(plan: RunPlan, records: Records) -> int:
    """What every node has to send, whatever the algorithm: its part of the buffers, once over.

    A ring or a recursive halving sends about twice this, recursive doubling several times as much.
    """
    volume = int(of_the_end(records, "volume_bytes", 0))
    return volume * (len(plan.nodes) - 1) // max(1, len(plan.nodes))


def of_rail(rail: str, host: Mapping[str, Any], transport: str) -> dict[str, Any]:
    """One rail of one node. With `rc` what was sent is what its RDMA device sent.

    `device` is the one that counted; empty when none did, or none was asked for. `packets` it sent
    where it counts these and no bytes (Soft-RoCE). `tcp_bytes` were sent or received beside RDMA:
    all that passed the interface's own counters, which RDMA passes by, and with Soft-RoCE the rest
    of the interface's bytes.
    """
    total = host["counters"].get(rail, (0, 0))
    found: dict[str, Any] = {"sent_bytes": 0, "received_bytes": 0, "device": ""}
    found.update(packets=None, tcp_bytes=None)
    if transport == "tcp":
        return {**found, "sent_bytes": total[0], "received_bytes": total[1]}
    for device, counted in host.get("rdma", {}).items():
        if counted["interface"] != rail:
            continue
        found["device"] = device
        if "bytes" not in counted:
            return {**found, **_soft(total, counted)}
        sent, received = counted["bytes"]
        found.update(sent_bytes=sent, received_bytes=received, tcp_bytes=max(total))
    return found


def _soft(total: Sequence[int], counted: Mapping[str, Any]) -> dict[str, Any]:
    """Soft-RoCE counts packets, and its interface all packets and bytes: RDMA is as many of the
    bytes as its share of the packets, and no more than fit into its packets."""
    own = counted["packets"]
    every = counted.get("interface_packets", (0, 0))
    sent, received = (
        int(min(bytes_ * min(1.0, mine / packets if packets > 0 else 0.0), mine * FRAME_BYTES))
        for bytes_, mine, packets in zip(total, own, every)
    )
    return {
        "sent_bytes": sent,
        "received_bytes": received,
        "packets": own[0],
        "tcp_bytes": max(total[0] - sent, total[1] - received),
    }


def traffic(plan: RunPlan, records: Records) -> list[dict[str, Any]]:
    """By node: each rail, and bytes sent or received by every interface that is not a rail.

    `own_bytes` is what was sent over a rail in the allreduces that rails have to themselves: of
    several runs, the one that sent most; None where no rank of the node can prove the rail.
    """
    own: dict[str, dict[str, int]] = {}
    for node, counted in of_nodes(plan, records, "rails"):
        mine = own.setdefault(node.name, {})
        for rail in plan.provable(node):
            sent = of_rail(rail, counted, plan.transport)["sent_bytes"]
            mine[rail] = max(mine.get(rail, 0), sent)
    found = []
    for node, host in of_nodes(plan, records):
        elsewhere = {
            name: max(moved) for name, moved in host["counters"].items() if name not in node.rails
        }
        for device, counted in host.get("rdma", {}).items():
            name = counted["interface"]
            if "bytes" in counted and name not in node.rails:
                elsewhere[f"{device} ({name})" if name else device] = max(counted["bytes"])
        proved = dict.fromkeys(plan.provable(node), 0)
        proved.update(own.get(node.name, {}))
        rails = {
            rail: {**of_rail(rail, host, plan.transport), "own_bytes": proved.get(rail)}
            for rail in node.rails
        }
        found.append({"node": node.name, "rails": rails, "elsewhere": elsewhere})
    return found


def by_rail(plan: RunPlan, records: Records) -> list[dict[str, Any]]:
    """Each rail over all nodes: the least that one sent, the most of what should not be there."""
    window_s = float(of_the_end(records, "window_s", 0.0))
    speeds = {rail: speed for node in plan.nodes for rail, speed in zip(node.rails, node.speeds)}
    rails: dict[str, list[Mapping[str, Any]]] = {}
    for one in traffic(plan, records):
        for rail, moved in one["rails"].items():
            rails.setdefault(rail, []).append(moved)
    found = []
    for rail, moved in rails.items():
        sent = min(one["sent_bytes"] for one in moved)
        beside = [one["tcp_bytes"] for one in moved if one["tcp_bytes"] is not None]
        own = [one["own_bytes"] for one in moved if one["own_bytes"] is not None]
        found.append(
            {
                "rail": rail,
                "nodes": len(moved),
                "sent_bytes": sent,
                "own_bytes": min(own, default=None),
                "own_nodes": len(own),
                "tcp_bytes": max(beside, default=None),
                "gbps": round(sent * 8 / window_s / 1e9, 6) if window_s else None,
                "speed_gbps": speeds.get(rail),
            }
        )
    return found


def sent_over_rails(moved: Mapping[str, Any]) -> int:
    """What one node sent over all of its rails."""
    return sum(rail["sent_bytes"] for rail in moved["rails"].values())


def least_sent(plan: RunPlan, records: Records) -> int:
    return min(map(sent_over_rails, traffic(plan, records)), default=0)


# The checks.


def verdict(name: str, wanted: Any, found: Any, wrong: Sequence[str], subject: str = "") -> Check:
    """A check that holds unless something is wrong."""
    if wrong:
        return Check(name, wanted, f"{len(wrong)} not", FAILED, subject, some(wrong, SHOWN))
    return Check(name, wanted, found, OK, subject)


def rails_traffic(plan: RunPlan, records: Records) -> list[Check]:
    """Every node sent what an allreduce cannot do without over its rails, and over each of them
    what that rail's own allreduce cannot do without."""
    name = "rails_traffic"
    if len(plan.nodes) < 2:
        return [not_applicable(name, None, "one node alone: nothing leaves it")]
    least, own_least = least_bytes_per_node(plan, records), plan.rail_bytes // 2
    how = "by RDMA " if plan.transport == "rc" else ""
    wanted = f"at least {bytes_text(least)} sent {how}by every node"
    wanted += f", {bytes_text(own_least)} over each rail in its own allreduce"
    nodes = {node.name: node for node in plan.nodes}
    totals: list[int] = []
    wrong: list[str] = []
    for one in traffic(plan, records):
        node, moved = nodes[one["node"]], one["rails"]
        totals.append(sent_over_rails(one))
        if plan.transport == "rc":
            silent = [rail for rail in node.given if not moved[rail]["device"]]
            wrong += [f"{node.name}: no RDMA device counted for {rail}" for rail in silent]
        if totals[-1] < least:
            wrong.append(f"{node.name} sent {bytes_text(totals[-1])} over its rails")
        for rail, own in ((rail, moved[rail]["own_bytes"]) for rail in plan.provable(node)):
            if own < own_least:
                part = f"{bytes_text(own)} of {bytes_text(plan.rail_bytes)}" if own else "nothing"
                wrong.append(f"{node.name}: {part} went over {rail} in its own allreduce")
    if not totals:
        wrong.append("no node reported its counters")
    found = f"{bytes_text(min(totals, default=0))} or more"
    return [verdict(name, wanted, found, wrong), *_not_proved(plan, name)]


def _not_proved(plan: RunPlan, name: str) -> list[Check]:
    """The rails that no rank can prove, by name, with the reason."""
    if not plan.bind_rails:
        why = "ranks are not bound to rails (mpi_smoke_bind_rails): UCX chooses among them"
        return [not_applicable(name, None, why, subject="each rail")]
    reasons: dict[str, list[str]] = {}
    for node in plan.nodes:
        given, provable = node.given, plan.provable(node)
        for rail in (rail for rail in node.rails if rail not in provable):
            alone = "no other node has a rank of the same number"
            why = alone if rail in given else "given to no rank"
            reasons.setdefault(why, []).append(f"{node.name} {rail}")
    return [
        not_applicable(name, None, why, subject=some(rails, SHOWN))
        for why, rails in reasons.items()
    ]


def rails_tcp(plan: RunPlan, records: Records, tolerances: Tolerances) -> list[Check]:
    """With `rc`: nothing to speak of went over the rails beside RDMA."""
    if plan.transport != "rc" or len(plan.nodes) < 2:
        return []
    allowed = tolerances.allowed(least_bytes_per_node(plan, records))
    most = 0
    wrong = []
    for one in traffic(plan, records):
        for rail, moved in one["rails"].items():
            where = f"{one['node']} {rail}"
            if not moved["device"]:
                continue  # a finding of rails_traffic
            most = max(most, moved["tcp_bytes"])
            if moved["tcp_bytes"] > allowed + (SOFT_BYTES if moved["packets"] is not None else 0):
                wrong.append(f"{where}: {bytes_text(moved['tcp_bytes'])} beside RDMA")
    wanted = f"at most {bytes_text(allowed)} beside RDMA on any rail"
    return [verdict("rails_tcp", wanted, bytes_text(most), wrong)]


def rail_retries(plan: RunPlan, records: Records, tolerances: Tolerances) -> list[Check]:
    """Packets of a rail were not lost: few were sent again between it and any other.

    Loss shows at both ends. Of each rail the node with the largest share is named, or two alike.
    """
    name = "rail_retries"
    if len(plan.nodes) < 2:
        return []
    rdma = plan.transport == "rc"
    allowed = tolerances.rdma_retries if rdma else tolerances.tcp_retries
    if rdma and any(node.software for node in plan.nodes):
        return [not_applicable(name, None, "Soft-RoCE sends again where the kernel is busy")]
    by_rail: dict[str, dict[str, tuple[float, str]]] = {}
    most = 0.0
    for node, host in of_nodes(plan, records):
        for rail in node.rails:
            again, sent, what = _rdma_retries(rail, host) if rdma else _tcp_retries(rail, host)
            share = again / sent if sent else 0.0
            most = max(most, share if again >= LEAST_RETRIES else 0.0)
            if again >= LEAST_RETRIES and share > allowed:
                by_rail.setdefault(rail, {})[node.name] = share, what
    wanted = f"at most {allowed:.4%} sent again"
    found = []
    for rail, nodes in by_rail.items():
        worst = max(share for share, _what in nodes.values())
        for node_name, (share, what) in nodes.items():
            if share < worst * NEAR:
                continue
            why = (
                f"{what}; look at cable, transceiver and leaf port of {rail} on {node_name}: "
                f"ethtool -S {rail} (errors, discards, out of buffer) and the counters of the port"
            )
            subject = f"{node_name} {rail}"
            found.append(Check(name, wanted, f"{share:.2%}", FAILED, subject, why, at=node_name))
    return found or [Check(name, wanted, f"{most:.4%}", OK)]


def _tcp_retries(rail: str, host: Mapping[str, Any]) -> tuple[int, int, str]:
    again, sent = host.get("resent", {}).get(rail, (0, 0))
    return again, sent, f"{again} of {sent} TCP segments from and to it were lost"


def _rdma_retries(rail: str, host: Mapping[str, Any]) -> tuple[int, int, str]:
    sent, counted = 0, Counter[str]()
    for device in host.get("rdma", {}).values():
        if device["interface"] == rail and "retries" in device:
            packets, *each = device["retries"]
            sent += packets
            counted.update(dict(zip(RETRIES, each)))
    grown = [f"{event} {count}" for event, count in counted.items() if count > 0]
    return sum(counted.values()), sent, f"{', '.join(grown)} of {sent} packets"


def management_traffic(plan: RunPlan, records: Records, tolerances: Tolerances) -> Check:
    """Nothing to speak of on any interface that is not a rail, management among them."""
    allowed = tolerances.allowed(least_bytes_per_node(plan, records))
    wrong = []
    most = 0
    for one in traffic(plan, records):
        if not one["elsewhere"]:
            wrong.append(f"{one['node']}: management was not counted")
        for interface, moved in one["elsewhere"].items():
            most = max(most, moved)
            if moved > allowed:
                wrong.append(f"{one['node']} {interface}: {bytes_text(moved)}")
    wanted = f"at most {bytes_text(allowed)} on any interface that is not a rail"
    return verdict("management_traffic", wanted, bytes_text(most), wrong)
