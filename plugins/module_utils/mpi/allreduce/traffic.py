# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check where the bytes of a run went: over the rails, and by the configured transport only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...core.checks import FAILED, OK, Check, not_applicable
from ...core.text import bytes_text, some
from ...qos import RETRIES
from .launch import Records, of_nodes, of_the_end
from .plan import RunPlan

FRAME_BYTES = 4200
"""Maximum size of a RoCE packet on the wire: 4096 bytes and headers."""
SOFT_BYTES = 2 << 20
"""Tolerated bytes of other traffic with Soft-RoCE, such as neighbour discovery."""
LEAST_RETRIES = 10
"""Fewer retransmissions are ignored: a burst may overflow a queue in a short run."""
NEAR = 0.8
"""Fraction of the maximum above which two nodes count as equal: a faulty node's peers have at most
half of its share."""
MAX_ITEMS = 5


@dataclass(frozen=True)
class Tolerances:
    """Limits on traffic on other interfaces and on retransmissions, and the minimum bandwidth."""

    management_bytes: int = 1 << 20
    management_share: float = 0.02
    min_busbw_gbytes_s: Optional[float] = None
    max_tcp_retries: float = 0.01
    max_rdma_retries: float = 1e-5

    def allowed(self, least: int) -> int:
        """Tolerated bytes where there should be none, if every node must send `least`."""
        return self.management_bytes + round(self.management_share * least)


def least_bytes_per_node(plan: RunPlan, records: Records) -> int:
    """Bytes that every node must send with any algorithm: its share of the buffers, once."""
    volume = int(of_the_end(records, "volume_bytes", 0))
    return volume * (len(plan.nodes) - 1) // max(1, len(plan.nodes))


def of_rail(rail: str, host: Mapping[str, Any], transport: str) -> dict[str, Any]:
    """Traffic of one rail of one node; with `rc`, that of its RDMA device.

    `device` is the RDMA device that counted, or empty. `packets` is set if the device counts
    packets but no bytes (Soft-RoCE). `tcp_bytes` is traffic other than RDMA: the interface's own
    counters, which RDMA bypasses, or with Soft-RoCE the rest of the interface's bytes.
    """
    total = host["counters"].get(rail, (0, 0))
    found: dict[str, Any] = {"sent_bytes": 0, "device": "", "packets": None, "tcp_bytes": None}
    if transport == "tcp":
        return {**found, "sent_bytes": total[0]}
    for device, counted in host.get("rdma", {}).items():
        if counted["interface"] != rail:
            continue
        found["device"] = device
        if "bytes" not in counted:
            return {**found, **_soft(total, counted)}
        found.update(sent_bytes=counted["bytes"][0], tcp_bytes=max(total))
    return found


def _soft(total: Sequence[int], counted: Mapping[str, Any]) -> dict[str, Any]:
    """Estimate RDMA bytes with Soft-RoCE, which counts packets only: the share of the interface's
    bytes that corresponds to its share of packets, at most a full frame for each packet."""
    own = counted["packets"]
    every = counted.get("interface_packets", (0, 0))
    sent, received = (
        int(min(bytes_ * min(1.0, mine / packets if packets > 0 else 0.0), mine * FRAME_BYTES))
        for bytes_, mine, packets in zip(total, own, every)
    )
    other = max(total[0] - sent, total[1] - received)
    return {"sent_bytes": sent, "packets": own[0], "tcp_bytes": other}


def traffic(plan: RunPlan, records: Records) -> list[dict[str, Any]]:
    """By node, traffic of each rail, and bytes of every other interface.

    `own_bytes` were sent over a rail in that rail's allreduce; of several runs, the maximum counts.
    None if no rank of the node can prove the rail.
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
    """Each rail across all nodes: the minimum of bytes sent, the maximum of other traffic."""
    window_s = float(of_the_end(records, "window_s", 0.0))
    speeds: dict[str, float] = {}
    for each in plan.nodes:
        for rail, speed in zip(each.rails, each.speeds):
            speeds[rail] = min(speed, speeds.get(rail, speed))
    rails: dict[str, list[Mapping[str, Any]]] = {}
    for node in traffic(plan, records):
        for rail, moved in node["rails"].items():
            rails.setdefault(rail, []).append(moved)
    found = []
    for rail, nodes in rails.items():
        sent = min(moved["sent_bytes"] for moved in nodes)
        tcp, own = (
            [moved[key] for moved in nodes if moved[key] is not None]
            for key in ("tcp_bytes", "own_bytes")
        )
        found.append(
            {
                "rail": rail,
                "nodes": len(nodes),
                "sent_bytes": sent,
                "own_bytes": min(own, default=None),
                "own_nodes": len(own),
                "tcp_bytes": max(tcp, default=None),
                "gbps": round(sent * 8 / window_s / 1e9, 6) if window_s else None,
                "speed_gbps": speeds.get(rail),
            }
        )
    return found


def sent_over_rails(moved: Mapping[str, Any]) -> int:
    return sum(rail["sent_bytes"] for rail in moved["rails"].values())


def least_sent(plan: RunPlan, records: Records) -> int:
    return min(map(sent_over_rails, traffic(plan, records)), default=0)


# Checks.


def verdict(name: str, wanted: Any, found: Any, wrong: Sequence[str], subject: str = "") -> Check:
    if wrong:
        return Check(name, wanted, f"{len(wrong)} not", FAILED, subject, some(wrong, MAX_ITEMS))
    return Check(name, wanted, found, OK, subject)


def rails_traffic(plan: RunPlan, records: Records) -> list[Check]:
    """Check the bytes that every node sent over its rails, and over each in its own allreduce."""
    name = "rails_traffic"
    if len(plan.nodes) < 2:
        return [not_applicable(name, None, "a single node: no traffic between nodes")]
    least, own_least = least_bytes_per_node(plan, records), plan.rail_bytes // 2
    wanted = f"at least {bytes_text(least)} sent by every node, {bytes_text(own_least)} over each "
    wanted += "rail in its own allreduce"
    nodes = {node.name: node for node in plan.nodes}
    totals: list[int] = []
    wrong: list[str] = []
    for of_node in traffic(plan, records):
        node, moved = nodes[of_node["node"]], of_node["rails"]
        totals.append(sent_over_rails(of_node))
        if plan.transport == "rc":
            silent = [rail for rail in node.given if not moved[rail]["device"]]
            wrong += [f"{node.name}: no RDMA device counted for {rail}" for rail in silent]
        if totals[-1] < least:
            wrong.append(f"{node.name} sent {bytes_text(totals[-1])} over its rails")
        for rail in plan.provable(node):
            own = moved[rail]["own_bytes"]
            if own < own_least:
                part = f"{bytes_text(own)} of {bytes_text(plan.rail_bytes)}" if own else "nothing"
                wrong.append(f"{node.name}: {part} went over {rail} in its own allreduce")
    if not totals:
        wrong.append("no node reported its counters")
    found = f"{bytes_text(min(totals, default=0))} or more"
    return [verdict(name, wanted, found, wrong), *_not_proved(plan, name)]


def _not_proved(plan: RunPlan, name: str) -> list[Check]:
    """Rails that no rank can prove, with the reason."""
    if not plan.bind_rails:
        reason = "ranks are not bound to rails (mpi_smoke_bind_rails): UCX selects them"
        return [not_applicable(name, None, reason, subject="each rail")]
    reasons: dict[str, list[str]] = {}
    for node in plan.nodes:
        given, provable = node.given, plan.provable(node)
        for rail in (rail for rail in node.rails if rail not in provable):
            alone = "no other node has a rank of the same number"
            why = alone if rail in given else "assigned to no rank"
            reasons.setdefault(why, []).append(f"{node.name} {rail}")
    return [
        not_applicable(name, None, reason, subject=some(rails, MAX_ITEMS))
        for reason, rails in reasons.items()
    ]


def rails_tcp(plan: RunPlan, records: Records, tolerances: Tolerances) -> list[Check]:
    """Check that, with `rc`, traffic other than RDMA on rails is within the tolerance."""
    if plan.transport != "rc" or len(plan.nodes) < 2:
        return []
    allowed = tolerances.allowed(least_bytes_per_node(plan, records))
    most = 0
    wrong = []
    for node in traffic(plan, records):
        for rail, moved in node["rails"].items():
            other = moved["tcp_bytes"]
            if not moved["device"]:
                continue  # reported by rails_traffic
            most = max(most, other)
            if other > allowed + (SOFT_BYTES if moved["packets"] is not None else 0):
                wrong.append(f"{node['node']} {rail}: {bytes_text(other)} other than RDMA")
    wanted = f"at most {bytes_text(allowed)} other than RDMA on any rail"
    return [verdict("rails_tcp", wanted, bytes_text(most), wrong)]


def rail_retries(plan: RunPlan, records: Records, tolerances: Tolerances) -> list[Check]:
    """Check the retransmissions on each rail. Loss shows at both ends: the node with the largest
    share is named, or several with similar shares."""
    name = "rail_retries"
    if len(plan.nodes) < 2:
        return []
    rdma = plan.transport == "rc"
    allowed = tolerances.max_rdma_retries if rdma else tolerances.max_tcp_retries
    if rdma and any(node.software for node in plan.nodes):
        return [not_applicable(name, None, "Soft-RoCE retransmits when the kernel is busy")]
    by_rail: dict[str, dict[str, tuple[float, str]]] = {}
    most = 0.0
    for node, host in of_nodes(plan, records):
        for rail in node.rails:
            retried, sent, text = _rdma_retries(rail, host) if rdma else _tcp_retries(rail, host)
            share = retried / sent if sent else 0.0
            most = max(most, share if retried >= LEAST_RETRIES else 0.0)
            if retried >= LEAST_RETRIES and share > allowed:
                by_rail.setdefault(rail, {})[node.name] = share, text
    wanted = f"at most {allowed:.4%} retransmitted"
    found = []
    for rail, nodes in by_rail.items():
        worst = max(share for share, _what in nodes.values())
        for node_name, (share, text) in nodes.items():
            if share < worst * NEAR:
                continue
            reason = (
                f"{text}; check cable, transceiver and leaf port of {rail} on {node_name}: "
                f"ethtool -S {rail} (errors, discards, out of buffer) and the counters of the port"
            )
            subject = f"{node_name} {rail}"
            found.append(Check(name, wanted, f"{share:.2%}", FAILED, subject, reason, at=node_name))
    return found or [Check(name, wanted, f"{most:.4%}", OK)]


def _tcp_retries(rail: str, host: Mapping[str, Any]) -> tuple[int, int, str]:
    retried, sent = host.get("resent", {}).get(rail, (0, 0))
    return retried, sent, f"{retried} of {sent} TCP segments on it were lost"


def _rdma_retries(rail: str, host: Mapping[str, Any]) -> tuple[int, int, str]:
    sent, counted = 0, Counter[str]()
    for device in host.get("rdma", {}).values():
        if device["interface"] == rail and "retries" in device:
            packets, *counts = device["retries"]
            sent += packets
            counted.update(dict(zip(RETRIES, counts)))
    grown = [f"{event} {count}" for event, count in counted.items() if count > 0]
    return sum(counted.values()), sent, f"{', '.join(grown)} of {sent} packets"


def management_traffic(plan: RunPlan, records: Records, tolerances: Tolerances) -> Check:
    """Check the traffic on interfaces other than rails, including management."""
    allowed = tolerances.allowed(least_bytes_per_node(plan, records))
    wrong = []
    most = 0
    for node in traffic(plan, records):
        if not node["elsewhere"]:
            wrong.append(f"{node['node']}: management traffic was not counted")
        for interface, moved in node["elsewhere"].items():
            most = max(most, moved)
            if moved > allowed:
                wrong.append(f"{node['node']} {interface}: {bytes_text(moved)}")
    wanted = f"at most {bytes_text(allowed)} on any interface other than rails"
    return verdict("management_traffic", wanted, bytes_text(most), wrong)
