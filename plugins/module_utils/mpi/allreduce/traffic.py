# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where the bytes of a run went: over the rails, by the transport asked for, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ...core.checks import FAILED, OK, Check, not_applicable
from ...core.dataclass import dataclass
from .parse import Records, bytes_text, least_bytes_per_node, listed, of_nodes, of_the_end
from .plan import Plan

OTHER_PACKETS = 500
OTHER_SHARE = 0.02
"""Packets on a rail beside those of a Soft-RoCE device that are no finding: neighbour discovery and
the like, and so many for each one of its own."""


@dataclass(frozen=True)
class Tolerances:
    """What is not a fault: a shell on management, a figure below none."""

    management_bytes: int = 1 << 20
    management_share: float = 0.02
    min_busbw_gbytes_s: Optional[float] = None

    def allowed(self, least: int) -> int:
        """Bytes that may pass where none should, in a run that needs `least` of every node."""
        return self.management_bytes + round(self.management_share * least)


def of_rail(rail: str, host: Mapping[str, Any], transport: str) -> dict[str, Any]:
    """One rail of one node. With `rc` what was sent is what its RDMA device sent.

    `device` is the one that counted; empty when none did, or none was asked for. `packets` it sent
    where it counts these and no bytes (Soft-RoCE). `tcp_bytes` were sent or received beside RDMA:
    by TCP, or all that passed the interface's own counters where RDMA passes these by; None when
    they were not counted. `other_packets` of the interface are not the device's.
    """
    sent, received = host["counters"].get(rail, (0, 0))
    found: dict[str, Any] = {"sent_bytes": 0, "received_bytes": 0, "device": ""}
    found.update(packets=None, tcp_bytes=None, other_packets=None)
    if transport == "tcp":
        return {**found, "sent_bytes": sent, "received_bytes": received}
    for device, counted in host.get("rdma", {}).items():
        if counted["interface"] == rail:
            found["device"] = device
            if "bytes" in counted:
                found["sent_bytes"], found["received_bytes"] = counted["bytes"]
                return {**found, "tcp_bytes": max(sent, received)}
            return {**found, **_soft((sent, received), rail, host.get("tcp"), counted)}
    return found


def _soft(
    total: Sequence[int],
    rail: str,
    tcp: Optional[Mapping[str, Sequence[int]]],
    counted: Mapping[str, Any],
) -> dict[str, Any]:
    """Soft-RoCE counts packets, and its interface all packets: with the bytes of TCP sockets, which
    the kernel has for itself, the rest of the interface's bytes is RDMA as far as its packets are.
    """
    own = counted["packets"]
    every = counted.get("interface_packets", (0, 0))
    of_tcp = (tcp or {}).get(rail, (0, 0))
    sent, received = (
        int(max(0, all_ - by_tcp) * min(1.0, mine / packets if packets > 0 else 0.0))
        for all_, by_tcp, mine, packets in zip(total, of_tcp, own, every)
    )
    return {
        "sent_bytes": sent,
        "received_bytes": received,
        "packets": own[0],
        "tcp_bytes": None if tcp is None else max(of_tcp),
        "other_packets": max(abs(all_ - mine) for all_, mine in zip(every, own)),
    }


def own_bytes(plan: Plan, records: Records) -> dict[str, dict[str, int]]:
    """By node, for each rail that can be proved, what was sent over it in the allreduces that rails
    have to themselves: of several runs, the one that sent most."""
    found = {node.name: dict.fromkeys(plan.provable(node), 0) for node in plan.nodes}
    for node, counted in of_nodes(plan, records, "rails"):
        own = found[node.name]
        for rail in own:
            own[rail] = max(own[rail], of_rail(rail, counted, plan.transport)["sent_bytes"])
    return found


def traffic(plan: Plan, records: Records) -> list[dict[str, Any]]:
    """By node: each rail, and bytes sent or received by everything that is no rail. `own_bytes` is
    what went over a rail in its own allreduce; None where it has none."""
    found = []
    own = own_bytes(plan, records)
    for node, host in of_nodes(plan, records):
        elsewhere = {
            name: max(moved) for name, moved in host["counters"].items() if name not in node.rails
        }
        for device, counted in host.get("rdma", {}).items():
            name = counted["interface"]
            if "bytes" in counted and name not in node.rails:
                elsewhere[f"{device} ({name})" if name else device] = max(counted["bytes"])
        rails = {
            rail: {**of_rail(rail, host, plan.transport), "own_bytes": own[node.name].get(rail)}
            for rail in node.rails
        }
        found.append({"node": node.name, "rails": rails, "elsewhere": elsewhere})
    return found


def by_rail(plan: Plan, records: Records) -> list[dict[str, Any]]:
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
                "tcp_bytes": max(beside) if beside else None,
                "gbps": round(sent * 8 / window_s / 1e9, 6) if window_s else None,
                "speed_gbps": speeds.get(rail),
            }
        )
    return found


def least_sent(plan: Plan, records: Records) -> int:
    """What the node that sent least sent over all of its rails."""
    totals = [
        sum(moved["sent_bytes"] for moved in one["rails"].values())
        for one in traffic(plan, records)
    ]
    return min(totals, default=0)


def rails_traffic(plan: Plan, records: Records) -> list[Check]:
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
        totals.append(sum(rail["sent_bytes"] for rail in moved.values()))
        if plan.transport == "rc":
            silent = [rail for rail in node.given if not moved[rail]["device"]]
            wrong += [f"{node.name}: no RDMA device counted for {rail}" for rail in silent]
        if totals[-1] < least:
            wrong.append(f"{node.name} sent {bytes_text(totals[-1])} over its rails")
        for rail, own in ((rail, moved[rail]["own_bytes"]) for rail in plan.provable(node)):
            if own < own_least:
                told = f"{bytes_text(own)} of {bytes_text(plan.rail_bytes)}" if own else "nothing"
                wrong.append(f"{node.name}: {told} went over {rail} in its own allreduce")
    if not totals:
        wrong.append("no node reported its counters")
    check = Check(name, wanted, f"{bytes_text(min(totals, default=0))} or more", OK)
    if wrong:
        check = replace(check, found=f"{len(wrong)} not", status=FAILED, reason=listed(wrong))
    return [check, *_not_proved(plan, name)]


def _not_proved(plan: Plan, name: str) -> list[Check]:
    """The rails that no rank can prove, by name, with the reason."""
    if not plan.bind_rails:
        why = "ranks are not bound to rails (mpi_smoke_bind_rails): UCX chooses among them"
        return [not_applicable(name, None, why, subject="each rail")]
    reasons: dict[str, list[str]] = {}
    for node in plan.nodes:
        given, provable = node.given, plan.provable(node)
        for rail in node.rails:
            if rail not in given:
                why = "given to no rank"
            elif rail not in provable:
                why = "no other node has a rank of the same number"
            else:
                continue
            reasons.setdefault(why, []).append(f"{node.name} {rail}")
    return [
        not_applicable(name, None, why, subject=listed(rails)) for why, rails in reasons.items()
    ]


def rails_tcp(plan: Plan, records: Records, tolerances: Tolerances) -> list[Check]:
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
            if moved["tcp_bytes"] is None:
                wrong.append(f"{where}: its TCP could not be counted (kernel without tcp_diag?)")
                continue
            most = max(most, moved["tcp_bytes"])
            if moved["tcp_bytes"] > allowed:
                wrong.append(f"{where}: {bytes_text(moved['tcp_bytes'])} beside RDMA")
            others = moved["other_packets"] or 0
            if others > OTHER_PACKETS + OTHER_SHARE * (moved["packets"] or 0):
                wrong.append(f"{where}: {others} packets that are not {moved['device']}'s")
    return [_at_most("rails_tcp", f"{bytes_text(allowed)} beside RDMA on any rail", most, wrong)]


def _at_most(name: str, wanted: str, most: int, wrong: Sequence[str]) -> Check:
    if wrong:
        return Check(name, f"at most {wanted}", f"{len(wrong)} not", FAILED, "", listed(wrong))
    return Check(name, f"at most {wanted}", bytes_text(most), OK)


def management_traffic(plan: Plan, records: Records, tolerances: Tolerances) -> Check:
    """Nothing to speak of on any interface that is not a rail."""
    allowed = tolerances.allowed(least_bytes_per_node(plan, records))
    most = 0
    wrong = _uncounted(plan, records)
    for one in traffic(plan, records):
        for interface, moved in one["elsewhere"].items():
            most = max(most, moved)
            if moved > allowed:
                wrong.append(f"{one['node']} {interface}: {bytes_text(moved)}")
    wanted = f"{bytes_text(allowed)} on any interface that is no rail"
    return _at_most("management_traffic", wanted, most, wrong)


def _uncounted(plan: Plan, records: Records) -> list[str]:
    """Nodes whose management interface was not counted."""
    counters = {node.name: host["counters"] for node, host in of_nodes(plan, records)}
    wrong = []
    for node in plan.nodes:
        counted = counters.get(node.name, {})
        others = [name for name in counted if name not in node.rails]
        if node.interface and node.interface not in counted:
            wrong.append(f"{node.name}: its management interface {node.interface} was not counted")
        elif not node.interface and not others:
            wrong.append(f"{node.name}: no management interface was counted")
    return wrong
