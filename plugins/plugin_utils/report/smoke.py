# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The result of an allreduce as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils.core.checks import FAILED, OK
from ...module_utils.core.text import bits_text, bytes_text, columns
from .units import rate_text, time_text


def lines(result: Mapping[str, Any]) -> list[str]:
    """The figures as a table, with reference values and the verdict."""
    figures = result["figures"]
    rows: list[Sequence[str]] = [("size", "runs", "min", "median", "p99", "algbw", "busbw")]
    for item in figures["by_size"]:
        times = (time_text(item[key]) for key in ("min_us", "median_us", "p99_us"))
        rates = (rate_text(item[key]) for key in ("algbw_gbytes_s", "busbw_gbytes_s"))
        rows.append((bytes_text(item["bytes"]), str(item["iterations"]), *times, *rates))
    shown = []
    if figures["by_size"]:
        shown += [*columns(rows), against(figures), *rail_lines(figures), *gpu_lines(figures)]
    checks = result.get("checks", [])
    ok = sum(check["status"] == OK for check in checks)
    failed = [check["name"] for check in checks if check["status"] == FAILED]
    verdict = f"FAILED: {', '.join(dict.fromkeys(failed))}" if failed else "none failed"
    shown.append(f"{ok} of {len(checks)} checks hold, {verdict} ({result['seconds']:.1f} s)")
    head = "allreduce of {ranks} ranks on {nodes} nodes over {transport}".format(**figures)
    return [head, *(f"  {line}" for line in shown)]


def rail_lines(figures: Mapping[str, Any]) -> list[str]:
    """The minimum that any node sent over each rail, and the rail's line rate.

    The mean covers the entire run including pauses and checks. It shows that a rail was used; the
    bandwidths above show how well.
    """
    rails = figures.get("rails") or []
    if not rails:
        return []
    rdma = figures["transport"] == "rc"
    head = ["rail", "sent by RDMA" if rdma else "sent", "mean", "line rate", "own allreduce"]
    rows = [[*head, "sent by TCP"] if rdma else head]
    for item in rails:
        row = [
            item["rail"],
            bytes_text(item["sent_bytes"]),
            "-" if item["gbps"] is None else bits_text(item["gbps"]),
            bits_text(item["speed_gbps"]) if item["speed_gbps"] else "not known",
            own_text(item, figures["nodes"]),
        ]
        other = "not counted" if item["tcp_bytes"] is None else bytes_text(item["tcp_bytes"])
        rows.append([*row, other] if rdma else row)
    sent = bytes_text(figures["sent_bytes_per_node"])
    least = bytes_text(figures["least_bytes_per_node"])
    nodes = rails[0]["nodes"]
    return [
        *columns(rows),
        f"each of {nodes} nodes sent {sent} or more; at least {least} are expected",
    ]


def own_text(rail: Mapping[str, Any], nodes: int) -> str:
    """The minimum that any node sent in the allreduce over this rail, and the number of nodes."""
    if not rail["own_nodes"]:
        return "none"
    of = "" if rail["own_nodes"] == nodes else f" ({rail['own_nodes']} of {nodes} nodes)"
    return bytes_text(rail["own_bytes"]) + of


def gpu_lines(figures: Mapping[str, Any]) -> list[str]:
    """Bandwidth of GPU memory by MPI and NCCL, with the line rate."""
    found = []
    best = (figures.get("gpu") or {}).get("best")
    if best:
        found.append(("MPI best busbw", best["busbw_gbytes_s"], bytes_text(best["bytes"])))
    nccl = (figures.get("nccl") or {}).get("busbw_gbytes_s")
    if nccl:
        sizes = [bytes_text(item["bytes"]) for item in figures["nccl"]["by_size"]]
        found.append(("NCCL average busbw", nccl, f"{sizes[0]} to {sizes[-1]}"))
    rate = figures.get("gpu_line_rate_gbytes_s", figures["line_rate_gbytes_s"])
    of = f" of {figures['gpu_nodes']} nodes" if "gpu_nodes" in figures else ""
    return [
        f"GPU memory{of}: {what} {rate_text(busbw)} ({sizes}); line rate {rate:g} GB/s a node"
        + (f" ({100 * busbw / rate:.1f} %)" if rate else "")
        for what, busbw, sizes in found
    ]


def against(figures: Mapping[str, Any]) -> str:
    """The best figure, with line rate and threshold."""
    best = figures["best_busbw_gbytes_s"]
    rate = figures["line_rate_gbytes_s"]
    wanted = figures["threshold_gbytes_s"]
    text = f"best busbw {rate_text(best)}; line rate {rate:g} GB/s a node"
    if figures["virtual"]:
        text += " is nominal: on virtual nodes, only correctness is meaningful"
    elif rate:
        text += f" ({100 * best / rate:.1f} %)"
    return text + ("; no threshold set" if wanted is None else f"; threshold {wanted:g} GB/s")
