# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Evaluate the records of a run: every check of the smoke test.

Ranks compare their results in roles/mpi_stack/files/allreduce.py (`verify`), which runs on the
nodes without the collection; `exactness` evaluates what they report.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from ...core.checks import FAILED, NOT_APPLICABLE, OK, Check, compare, not_applicable
from ...core.machine import IN_CONTAINER
from ...core.text import counted, some
from ..environment import CUDA_TRANSPORTS
from ..hostfile import parse_cores
from ..launch.node import LaunchNode
from .launch import Records, of_kind, of_nodes, of_the_end
from .plan import RunPlan
from .traffic import (
    MAX_ITEMS,
    Tolerances,
    management_traffic,
    rail_retries,
    rails_tcp,
    rails_traffic,
    verdict,
)


def judge(plan: RunPlan, records: Records, tolerances: Tolerances) -> list[Check]:
    return [
        world_size(plan, records),
        placement(plan, records),
        *rank_binding(plan, records),
        *exactness(records),
        transport(plan, records),
        *rails_traffic(plan, records),
        *rails_tcp(plan, records, tolerances),
        *rail_retries(plan, records, tolerances),
        management_traffic(plan, records, tolerances),
        threshold(plan, records, tolerances),
    ]


def world_size(plan: RunPlan, records: Records) -> Check:
    found = next((record["ranks"] for record in of_kind(records, "start")), None)
    return compare("world_size", plan.ranks, found, reason="ranks are missing, or too many started")


def placement(plan: RunPlan, records: Records) -> Check:
    """Check that ranks are assigned node by node, in the order of the hostfile."""
    found = {node.name: host["ranks"] for node, host in of_nodes(plan, records)}
    hosts = [host for host in of_kind(records, "host") if not of_nodes(plan, [host])]
    wrong = [f"ranks {h['ranks'][:8]} ran on {h['name']}, which is not in the plan" for h in hosts]
    begin = 0
    for node in plan.nodes:
        ranks, end = found.get(node.name), begin + node.slots
        exact = ranks == list(range(begin, end))
        if ranks is None:
            wrong.append(f"{node.name} has none")
        elif len(ranks) != node.slots or not (exact or plan.rankfile):
            wrong.append(f"{node.name} has ranks {ranks[:8]}, not {begin} to {end - 1}")
        begin = end
    text = f"{len(plan.nodes)} nodes as in the hostfile"
    return verdict("placement", text, text, wrong)


def rank_binding(plan: RunPlan, records: Records) -> list[Check]:
    """Check that ranks run on their share of the CPUs of their GPU's NUMA node; one check per
    fault."""
    name, wanted = "rank_binding", "each rank on CPUs of its GPU's NUMA node"
    if not plan.bind_rails and not plan.rankfile:
        return [not_applicable(name, wanted, "ranks are not bound (mpi_smoke_bind_rails)")]
    unknown: dict[str, list[str]] = {}
    checks: list[Check] = []
    right = 0
    for node, host in of_nodes(plan, records):
        here = host.get("topology") or {}
        numas = [_numa(node, here, local) for local in range(len(host["ranks"]))]
        reason = ""
        if here.get("container"):
            reason = f"{IN_CONTAINER}: its CPUs are those of its host"
        elif max(numas, default=-1) < 0:
            reason = "the NUMA node of GPUs and rails is unknown to the model and the node"
        if reason:
            unknown.setdefault(reason, []).append(node.name)
            continue
        try:
            found = _misbound(node, host, here, numas)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found = [f"its report cannot be parsed: {error}"]
        right += not found
        if found:
            checks.append(replace(verdict(name, wanted, "", found, node.name), at=node.name))
    if right:
        checks.append(Check(name, wanted, f"as expected on {counted(right, 'node')}", OK))
    for reason, names in unknown.items():
        checks.append(not_applicable(name, wanted, reason, subject=some(names, MAX_ITEMS)))
    return checks


def _numa(node: LaunchNode, here: Mapping[str, Any], local: int) -> int:
    """NUMA node to which a rank belongs: from the model, else from the node, else -1."""
    known = node.numa[local % len(node.numa)] if node.numa else None
    if known is not None:
        return known
    gpus = here.get("gpus") or []
    if gpus:
        return int(gpus[local % len(gpus)])
    rails = node.by_rank[local % len(node.by_rank)] if node.by_rank else ()
    return int(here.get("interfaces", {}).get(rails[0], -1)) if rails else -1


def _misbound(
    node: LaunchNode, host: Mapping[str, Any], here: Mapping[str, Any], numas: Sequence[int]
) -> list[str]:
    allowed = set(parse_cores(here["allowed"]))
    found = []
    for local, (rank, text, numa) in enumerate(zip(host["ranks"], host["cpus"], numas)):
        if numa < 0:
            continue
        who = f"rank {rank}" + (f", GPU {local % node.gpus}" if node.gpus else "")
        near = here["numa"].get(str(numa))
        if not near:
            found.append(
                f"{who}: the node has no NUMA node {numa}: correct gpus.numa, or the BIOS settings"
            )
            continue
        usable = set(parse_cores(near)) & allowed
        cpus = set(parse_cores(text))
        share = len(usable) // numas.count(numa)
        # A share consists of whole cores, so it may be somewhat smaller.
        if not cpus <= usable or 2 * len(cpus) < share:
            found.append(f"{who}: on CPUs {text}, wanted {share} of {near} (NUMA node {numa})")
    return found


def exactness(records: Records) -> list[Check]:
    """Return one check per type and operation, over all sizes, placements and ranks."""
    tested: dict[tuple[str, str], int] = {}
    for record in of_kind(records, "size"):
        for kind, operation, _placement in record["tested"]:
            tested[kind, operation] = tested.get((kind, operation), 0) + 1
    if any(of_kind(records, "size")):
        timed = tested.get(("float32", "SUM"), 0)
        tested["float32", "SUM"] = timed + len(of_kind(records, "size"))
    wrong: dict[tuple[str, str], list[str]] = {}
    for record in of_kind(records, "wrong"):
        wrong.setdefault((record["type"], record["operation"]), []).append(
            f"rank {record['rank']} on {record['host']}: {record['elements']} element(s) of "
            f"{record['bytes']} bytes {record['placement']}, first at {record['first']}: "
            f"wanted {record['wanted']}, found {record['found']}"
        )
    checks = []
    for key in sorted({*tested, *wrong}):
        text = f"{tested.get(key, 0)} allreduces bit-exact"
        checks.append(verdict("exactness", text, text, wrong.get(key, []), f"{key[0]} {key[1]}"))
    total = of_the_end(records, "wrong_results", None)
    if total is None or (total and not wrong):
        reason = "ranks did not report the errors"
        checks.append(Check("exactness", 0, total, FAILED, "", reason))
    return checks


INSIDE_A_NODE = ("self", "sysv", "posix", "cma", "knem", "xpmem", *CUDA_TRANSPORTS)
KEEPALIVE = "ka"
"""Lane by which UCX checks whether the peer is alive; it carries no data."""


def lanes_between_nodes(text: str) -> tuple[tuple[str, str], ...]:
    """Transport and device of the lanes in a line of UCX's report that carry data between nodes.

    `ep_cfg[2]: tag(tcp/rail0 tcp/rail1)` up to UCX 1.13, `ucp_context_0 inter-node cfg#3
    tag(rc_mlx5/mlx5_0:1)` in later versions.
    """
    if "intra-node" in text or "self cfg#" in text:
        return ()
    found = []
    for use, group in re.findall(r"\b(\w+)\(([^()]*)\)", text):
        for word in group.split() if use != KEEPALIVE else ():
            name, separator, device = word.partition("/")
            if separator:
                found.append((name, device))
    inside = [lane for lane in found if lane[0] in INSIDE_A_NODE]
    if inside and "inter-node" not in text:
        return ()
    return tuple(lane for lane in found if lane not in inside)


def is_transport(used: str, asked: str) -> bool:
    """Whether a lane uses the transport: `rc` includes its drivers (`rc_verbs`, `rc_mlx5`)."""
    return used == asked or used.startswith(f"{asked}_")


def transport(plan: RunPlan, records: Records) -> Check:
    """Check that between nodes UCX used only the configured transport and the rails."""
    name, asked = "transport", plan.transport
    if len(plan.nodes) < 2:
        return not_applicable(name, asked, "a single node: no traffic between nodes")
    silent: Sequence[int] = of_the_end(records, "silent_ranks", [])
    if silent:
        reason = f"UCX reported no lanes on ranks {silent[:8]}: they did not use UCX (is pml ucx?)"
        return Check(name, asked, "no report", FAILED, "", reason)
    by_rank = {rank: node for node, host in of_nodes(plan, records) for rank in host["ranks"]}
    # Soft-RoCE has only rc_verbs; an NVIDIA NIC is slow with it.
    soft = any(node.software for node in plan.nodes)
    used: set[str] = set()
    wrong = []
    connected: set[int] = set()
    for record in of_kind(records, "lane"):
        found = lanes_between_nodes(record["text"])
        if not found:
            continue
        connected.update(record["ranks"])
        used.update(by for by, _device in found)
        for by, device in found:
            if not is_transport(by, asked) or (by == "rc_verbs" and not soft):
                wrong.append(f"{by}/{device} on ranks {record['ranks'][:8]}")
                continue
            for reason, ranks in _strays(device, asked, record["ranks"], by_rank).items():
                wrong.append(f"{device} {reason} ranks {ranks[:8]}")
    reached = {by_rank[rank].name for rank in connected if rank in by_rank}
    silent_nodes = [node.name for node in plan.nodes if node.name not in reached]
    wrong += [f"{name} reported no endpoint between nodes" for name in silent_nodes]
    if wrong:
        found_text = ", ".join(sorted(used)) or "nothing"
        return Check(name, asked, found_text, FAILED, "", some(wrong, MAX_ITEMS))
    return Check(name, asked, asked, OK, "", ", ".join(sorted(used)))


def _strays(
    device: str, asked: str, ranks: Sequence[int], by_rank: Mapping[int, LaunchNode]
) -> dict[str, list[int]]:
    """Ranks for which `device` is not a rail of their node, grouped by reason."""
    found: dict[str, list[int]] = {}
    for rank in ranks:
        node = by_rank.get(rank)
        rails = node.rails if node is not None else ()
        behind = {device}
        if asked != "tcp":
            devices = node.devices if node is not None else ()
            behind = {interface for name, interface in devices if name == device}
        if not behind:
            reason = "has no interface that the node knows, so it is not a rail of"
        elif behind.isdisjoint(rails):
            shown = "" if behind == {device} else f"({', '.join(sorted(behind))}) "
            reason = f"{shown}is not a rail of"
        else:
            continue
        found.setdefault(reason, []).append(rank)
    return found


def threshold(plan: RunPlan, records: Records, tolerances: Tolerances) -> Check:
    wanted = tolerances.min_busbw_gbytes_s
    best = best_busbw(figures(records, plan.ranks))
    found = None if best is None else best["busbw_gbytes_s"]
    if wanted is None:
        return Check("threshold", None, found, NOT_APPLICABLE, "", "no threshold set")
    reason = "best bus bandwidth of any size, in GB/s; compare rails and cores of the slow node"
    status, reason = (OK, "") if found is not None and found >= wanted else (FAILED, reason)
    return Check("threshold", f"at least {wanted:g} GB/s", found, status, "", reason)


# Figures.


def figure(size: int, times_us: Sequence[float], ranks: int) -> dict[str, Any]:
    """Figures of one size. Bandwidths are in 10^9 bytes per second, from the median time.

    Bus bandwidth is the load of each rank's link, independent of the algorithm: an allreduce moves
    2(n-1)/n times the buffer into and out of every rank.
    """
    ordered = sorted(times_us)
    middle = statistics.median(ordered)
    algbw = size / middle / 1000 if middle > 0 else 0.0
    return {
        "bytes": size,
        "iterations": len(ordered),
        "min_us": ordered[0],
        "median_us": round(middle, 2),
        "p99_us": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "algbw_gbytes_s": round(algbw, 9),
        "busbw_gbytes_s": round(algbw * 2 * (ranks - 1) / ranks, 9),
    }


def figures(records: Iterable[Mapping[str, Any]], ranks: int) -> list[dict[str, Any]]:
    return [
        figure(record["bytes"], record["times_us"], ranks)
        for record in records
        if record["kind"] == "size" and record["times_us"]
    ]


def best_busbw(found: Iterable[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """The size with the highest bus bandwidth, to which the threshold applies."""
    return max(found, key=lambda record: float(record["busbw_gbytes_s"]), default=None)
