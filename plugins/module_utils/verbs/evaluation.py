# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare figures and packets with their requirements, and name remedies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.checks import FAILED, NOT_APPLICABLE, OK, Check, compare, not_applicable
from ..core.text import bits_text
from ..nic import health
from ..qos import RETRIES
from . import endpoints
from .exchanges import GPU, LATENCY, UCX, VerifyRequest, error_lines
from .wire import tos_text

SOFTWARE = "is Soft-RoCE: its figures prove its function, not the speed of a NIC"
NO_EXPECTATION = "no threshold set"
CLASS_SHARE = 0.5
"""Share of an exchange's payload that must be counted under the contract's priority.

An estimate, far from both cases: a NIC counts all or none of the payload there.
"""

MOST_RETRIES = 1e-5
"""Tolerated share of packets. An estimate: a lossless fabric drops none, and frames with errors
that FEC cannot correct are much rarer.
"""
_LOSSY = "RoCE data has no PFC (roce_qos.roce.lossless: false): lost packets are sent again"
LEAST_RETRIES = 10
"""Fewer are ignored: a burst may overflow a queue during a short exchange."""

NO_GPU_MEMORY = re.compile(r"DMA-BUF|cuMemGetHandleForAddressRange|allocate MR|create mr")


def driven(request: VerifyRequest, pairs: Sequence[Mapping[str, Any]]) -> list[Check]:
    return [check for pair in pairs for check in _pair(request, pair)]


def served(request: VerifyRequest, rails: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    return [check for rail, seen in rails.items() for check in _arrivals(request, rail, seen)]


def _pair(request: VerifyRequest, pair: Mapping[str, Any]) -> Iterator[Check]:
    where = f"{pair['rail']} -> {pair['peer']}"
    lost_ = f"{pair['peer']} failed before: see its own message" if pair.get("lost") else ""
    if skipped := lost_ or pair.get("shared"):
        yield not_applicable("pair", "measured", skipped, subject=where)
        return
    if pair.get("problem"):
        yield Check("pair", "measured", "not", FAILED, where, pair["problem"])
        return
    for name in request.exchanges:
        result = pair["exchanges"].get(name)
        if result is None:
            reason = "the previous exchange failed"
            yield Check(name, "measured", "not tried", FAILED, where, reason)
        elif "skipped" in result:
            yield not_applicable(name, "measured", result["skipped"], subject=where)
        elif result.get("problem"):
            reason = _remedied(request, pair["rail"], name, result["problem"])
            yield Check(name, "measured", "not", FAILED, where, reason)
        else:
            yield figure(request, pair, name, result)
            if name == "write_bw":
                # The kernel derives it from the rail's MTU and reports no value.
                yield compare(
                    "roce_mtu",
                    request.settings.roce_mtu,
                    result["path_mtu"],
                    subject=where,
                    reason=f"the MTU of {pair['rail']} is too small at one end: --tags rails",
                )
            yield from sent(request, pair, name, result)
    if not pair.get("software"):
        total: Counter[str] = Counter()
        for result in pair["exchanges"].values():
            total.update(result.get("growth") or {})
        yield retries(request, where, str(pair["rail"]), total)
        yield lost(request, where, str(pair["rail"]), total)
        yield congestion(request, where, total)


def _remedied(request: VerifyRequest, rail: str, name: str, problem: str) -> str:
    half = next(one for one in request.drives if one.rail == rail)
    advice = (
        f"ping -I {rail} {half.peer_address} on {request.host}; rdma link and dmesg on both hosts"
    )
    if name == GPU and NO_GPU_MEMORY.search(problem):
        advice = (
            "dma-buf needs NVIDIA's open kernel modules and kernel 5.12 or later; "
            "otherwise set nvidia_gpu_gpudirect: peermem, then run --tags gpu"
        )
    elif name == GPU and re.search(r"CUDA|\bcu[A-Z]", problem):
        advice = "nvidia-smi on both hosts; --tags gpu"
    return problem if "set rdma_verify_cuda_perftest" in problem else f"{problem}: {advice}"


def figure(
    request: VerifyRequest, pair: Mapping[str, Any], name: str, result: Mapping[str, Any]
) -> Check:
    where = f"{pair['rail']} -> {pair['peer']}"
    options, wanted, holds = request.options, "", True
    measured = result["median_us" if name == LATENCY else "gbits_s"]
    if measured is None:
        found = f"{result['iterations']} messages without a time"
        wanted, holds = "measured", False
        why = (
            "perftest found no clock rate: check for a fixed CPU frequency (--tags os) and "
            "a stable TSC"
        )
    elif name == LATENCY:
        found = f"median {measured:g} us, p99 {result['p99_us']:g} us"
        if options.max_latency_us is not None:
            wanted = f"median at most {options.max_latency_us:g} us"
            holds = measured <= options.max_latency_us
        why = "check CPU governor, NUMA node and PCIe link of both ends: --tags os, rails"
    else:
        rate = pair.get("line_rate_gbits_s")
        found = bits_text(measured)
        if rate:
            found += f" ({measured / rate:.1%} of {rate:g} Gb/s)"
        if name == UCX:
            return Check(name, "measured", found, OK, where)
        share = {
            "write_bw": options.min_write_share,
            "send_bw": options.min_send_share,
            GPU: options.min_gpu_write_share,
        }[name]
        if share and rate:
            wanted = f"at least {share * rate:g} Gb/s ({share:.2%} of {rate:g})"
            holds = measured >= share * rate
        why = "check link speed and PCIe width of both ends, congestion, and jobs on these nodes"
        if name == GPU:
            why = "if write_bw is ok: IOMMU and ACS (--tags rdma), GPU and NIC on one PCIe switch"
    if pair.get("software") or not wanted:
        reason = f"{pair['device']} {SOFTWARE}" if pair.get("software") else NO_EXPECTATION
        return Check(name, wanted or "measured", found, NOT_APPLICABLE, where, reason)
    return Check(name, wanted, found, OK if holds else FAILED, where, "" if holds else why)


def sent(
    request: VerifyRequest, pair: Mapping[str, Any], name: str, result: Mapping[str, Any]
) -> Iterator[Check]:
    """Check that packets sent during an exchange have the contract's traffic class."""
    where = f"{pair['rail']} -> {pair['peer']} {name}"
    if name == UCX:
        value = (result.get("environment") or {}).get("UCX_IB_TRAFFIC_CLASS")
        has = "no UCX_IB_TRAFFIC_CLASS" if value is None else f"UCX_IB_TRAFFIC_CLASS={value}"
        reason = (
            f"MPI sends this: {request.environment_file} has {has}, the contract (roce_qos) asks "
            f"for {request.settings.traffic_class}; run --tags mpi --limit {request.host}"
        )
    else:
        reason = (
            f"perftest set it on {pair['device']}: the device or a rule on {request.host} "
            "rewrites it; --tags rails"
        )
    wire = result.get("wire")
    if wire is not None:
        yield marks(request, "wire_sent", where, wire["out"], reason)
        return
    yield unseen(request, "wire_sent", where, str(pair["device"]))
    growth = endpoints.bytes_by_priority(result.get("growth") or {}, "tx")
    payload = int(result["bytes"]) * int(result["iterations"])
    if payload > 1 << 20:
        yield priority(request, "class_sent", where, growth, payload * CLASS_SHARE, reason)


def _arrivals(request: VerifyRequest, rail: str, seen: Mapping[str, Any]) -> Iterator[Check]:
    counted = False
    for name, outcome in seen["exchanges"].items():
        where = f"{rail} <- {seen['peer']} {name}"
        wire = outcome["wire"]
        if outcome["rc"] is None:
            reason = f"{seen['peer']} did not connect: see its own checks of {rail}"
            yield not_applicable("wire_arrived", tos(request), reason, subject=where)
        elif outcome["rc"] != 0:
            lines = error_lines(outcome["log"])
            reason = f"the server exited with status {outcome['rc']}: {lines}"
            yield Check("served", "served", "not", FAILED, where, reason)
        elif wire is None:
            counted = True
            yield unseen(request, "wire_arrived", where, rail)
        else:
            why = (
                f"see wire_sent of {seen['peer']}; if it is ok, a switch rewrote it: its "
                "ports must trust and preserve DSCP"
            )
            yield marks(request, "wire_arrived", where, wire["in"], why)
            why = f"{request.host} answered with it: --tags rails, mpi --limit {request.host}"
            yield marks(request, "wire_answered", where, wire["out"], why)
    if "health" in seen:
        yield Check(**seen["health"])
        where = f"{rail} <- {seen['peer']}"
        yield retries(request, where, rail, seen.get("growth") or {})
        yield lost(request, where, rail, seen.get("growth") or {})
        yield congestion(request, where, seen.get("growth") or {})
    if counted:
        growth = endpoints.bytes_by_priority(seen.get("growth") or {}, "rx")
        why = (
            "packets arrived under another priority: a switch rewrote their DSCP, or this NIC does "
            "not trust DSCP; --tags rails"
        )
        least = max(sum(growth.values()) * CLASS_SHARE, 1 << 20)
        yield priority(request, "class_arrived", f"{rail} <- {seen['peer']}", growth, least, why)


def retries(
    request: VerifyRequest, where: str, rail: str, growth: Mapping[str, int], *, none: bool = False
) -> Check:
    """Check that a rail lost no packets: few were retransmitted or arrived out of order.

    `none`: not one may be, as under congestion that is not to lose packets.
    """
    again = {name: growth[name] for name in RETRIES if growth.get(name)}
    count, packets = sum(again.values()), endpoints.packets(growth)
    wanted = "none retransmitted" if none else f"at most {MOST_RETRIES:.4%} retransmitted"
    found = f"{count} of {packets} packets"
    few = count < LEAST_RETRIES or count <= packets * MOST_RETRIES
    if not count or (few and not none):
        return Check("rail_retries", wanted, found, OK, where)
    if not request.settings.lossless:
        return Check("rail_retries", wanted, found, NOT_APPLICABLE, where, _LOSSY)
    named = ", ".join(f"{name} {number}" for name, number in again.items())
    reason = (
        f"{named}; check cable, transceiver and leaf port of {rail} on {request.host}: "
        f"ethtool -S {rail} (errors, discards, out of buffer) and the counters of the port"
    )
    return Check("rail_retries", wanted, found, FAILED, where, reason)


def lost(request: VerifyRequest, where: str, rail: str, growth: Mapping[str, int]) -> Check:
    """Check that no packet of a lossless class was dropped and no link paused."""
    limit = request.health.get("new_errors")
    found = health.findings(growth, request.settings.pfc_priorities)
    shown = {name: count for name, (count, _remedy) in found.items()}
    wanted = f"no loss (new_errors: {limit})"
    if shown and not request.settings.lossless:
        return Check("rail_losses", wanted, shown, NOT_APPLICABLE, where, _LOSSY)
    if not shown and not any(map(endpoints.PER_PRIORITY.match, growth)):
        reason = f"no per-priority counters (ethtool -S {rail})"
        return Check("rail_losses", wanted, "not counted", NOT_APPLICABLE, where, reason)
    if shown and limit is None:
        return Check("rail_losses", wanted, shown, NOT_APPLICABLE, where, "no limit: new_errors")
    if all(count <= (limit or 0) for count in shown.values()):
        return Check("rail_losses", wanted, shown, OK, where)
    why = f"{health.told(found)}; ethtool -S {rail} on {request.host}"
    return Check("rail_losses", wanted, shown, FAILED, where, why)


def congestion(
    request: VerifyRequest, where: str, growth: Mapping[str, int], expected: str = ""
) -> Check:
    """Check that packets marked as delayed are answered: at a receiver by CNPs, at a sender by a
    lower rate. `expected`: the counter of these that must grow."""
    settings, wanted = request.settings, "marked packets are answered by CNPs, and these obeyed"
    found = {name: growth[name] for name in health.CONGESTION if name in growth}
    if not settings.dcqcn:
        reason = "the contract has no DCQCN (roce_qos: fabric_mode, ecn, congestion_control)"
        return Check("rail_congestion", wanted, found, NOT_APPLICABLE, where, reason)
    why = health.unanswered(growth)
    if not why and expected and expected not in growth:
        reason = f"its driver does not count {expected}"
        return Check("rail_congestion", wanted, found, NOT_APPLICABLE, where, reason)
    if not why and expected and not growth[expected]:
        why = (
            "several nodes sent to it at line rate, but no packet was marked: ECN of the leaf's "
            "port to this rail (port_ecn, --tags fabric)"
        )
        if expected == health.OBEYED:
            why = (
                "no CNP arrived: see rail_congestion of the receiver; if it is ok, the fabric "
                f"loses packets of DSCP {settings.cnp_dscp} (--tags fabric)"
            )
    return Check("rail_congestion", wanted, found, FAILED if why else OK, where, why)


def tos(request: VerifyRequest) -> str:
    return f"UDP 4791, {tos_text(request.settings.traffic_class)}"


def marks(
    request: VerifyRequest, name: str, where: str, seen: Mapping[str, Any], why: str
) -> Check:
    """Check that the packets in one direction comply with the contract."""
    wanted = tos(request)
    count, wrong = seen["packets"], seen["wrong"]
    if not count:
        reason = "no RoCE v2 packet was seen: traffic took another path, or there was none"
        return Check(name, wanted, "no packet", FAILED, where, reason)
    if not wrong:
        return Check(name, wanted, f"{count} of {count} packets", OK, where)
    others = ", ".join(tos_text(value) for value in seen["tos_seen"])
    found = f"{count - wrong} of {count} packets; seen: {others}; first: {seen['first_wrong']}"
    return Check(name, wanted, found, FAILED, where, why)


def unseen(request: VerifyRequest, name: str, where: str, device: str) -> Check:
    """Check for packets that could not be inspected: they are reported and do not pass."""
    reason = (
        f"packets of {device} bypass the kernel; class_sent and class_arrived prove their priority"
    )
    return not_applicable(name, tos(request), reason, subject=where)


def priority(
    request: VerifyRequest, name: str, where: str, growth: Mapping[int, int], least: float, why: str
) -> Check:
    """Bytes that the NIC counted under the contract's priority."""
    settings = request.settings
    number = settings.dscp_to_priority[settings.traffic_class >> 2]
    wanted = f"at least {least:.3g} bytes under priority {number}"
    if not growth:
        reason = "the NIC has no per-priority counters (ethtool -S), so the class is not proved"
        return Check(name, wanted, "not counted", FAILED, where, reason)
    found = ", ".join(f"priority {one}: {count:.3g} bytes" for one, count in growth.items())
    holds = growth.get(number, 0) >= least
    return Check(name, wanted, found, OK if holds else FAILED, where, "" if holds else why)
