# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Print the end of ./demo: a short summary of the newest report of site.yml.

Usage: demo_summary.py CLUSTER TIMES COMMAND. TIMES has a line `STAGE<tab>SECONDS` for each stage;
COMMAND is the command line of the demo.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "collections"))

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import (  # noqa: E402
    bytes_text,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.units import (  # noqa: E402
    rate_text,
    time_text,
)


def newest_report(cluster: str) -> Path:
    """Names contain the time of the run: the last one in order is the newest."""
    reports = sorted((TOP / "reports" / cluster).glob("site-*.json"))
    if not reports:
        raise SystemExit(
            f"reports/{cluster}/ has no report of site.yml: did the run reach its end?"
        )
    return reports[-1]


def checks(report: dict[str, Any]) -> str:
    counts: Counter[str] = Counter()
    for layer in report["layers"].values():
        counts.update(layer["counts"])
    parts = [f"{counts['ok']} checks ok"]
    for status in ("not_applicable", "reboot", "pending", "failed"):
        if counts[status]:
            parts.append(f"{counts[status]} {status.replace('_', ' ')}")
    return ", ".join(parts)


def reasons(report: dict[str, Any]) -> Iterator[str]:
    """Return the reasons why checks were not applicable, without the part after a colon."""
    counts = Counter(
        check["reason"].partition(":")[0]
        for layer in report["layers"].values()
        for host in layer["hosts"].values()
        for check in host["checks"]
        if check["status"] == "not_applicable"
    )
    for reason, count in counts.most_common():
        yield f"{count} {reason}"


def allreduce(smoke: dict[str, Any]) -> Iterator[str]:
    """Yield the exactness of the results, three of the sizes, and the nominal line rate."""
    figures = smoke["measured"]["figures"]
    sizes = figures["by_size"]
    exact = {(check["name"], check["status"]) for check in smoke["checks"]} >= {("exactness", "ok")}
    results = "every result bit-exact" if exact else "results not verified"
    yield f"{figures['ranks']} ranks over {figures['transport']}, {results}"
    for size in (sizes[0], sizes[len(sizes) // 2], sizes[-1]):
        yield (
            f"{bytes_text(size['bytes'])}: median {time_text(size['median_us'])}, "
            f"p99 {time_text(size['p99_us'])}, busbw {rate_text(size['busbw_gbytes_s'])}"
        )
    nominal = " (nominal: these rails are virtual)" if figures["virtual"] else ""
    yield f"line rate of a node {rate_text(figures['line_rate_gbytes_s'])}{nominal}"


def storage(report: dict[str, Any]) -> Iterator[str]:
    """Each file system: its server, its clients, the number of mounts, and its rates."""
    hosts = report["layers"].get("storage", {"hosts": {}})["hosts"]
    checked = [(host, check) for host, entry in hosts.items() for check in entry["checks"]]
    for host, check in checked:
        if check["name"] == "nfs_exports" and check["status"] == "ok":
            yield f"{host} serves {check['subject']} to {check['found']} only"
    mounts = [check for _host, check in checked if check["name"] == "storage_mount"]
    for point in sorted({check["subject"] for check in mounts}):
        counts = Counter(check["status"] for check in mounts if check["subject"] == point)
        if counts["not_applicable"]:
            yield f"{point} is set up on {counts['not_applicable']} containers, which mount nothing"
        if counts["ok"]:
            read = [
                check["subject"] == point and check["status"] == "ok"
                for _host, check in checked
                if check["name"] == "storage_neighbour"
            ]
            readers = f"{sum(read)} read another node's file"
            yield f"{point} is mounted on {counts['ok']} nodes; {readers}"
    for entry in hosts.values():
        for used in entry.get("measured", {}).get("figures", {}).values():
            speeds = [
                f"{access} {rate_text(used[access]['together'])}"
                for access in ("write", "read")
                if used.get(access)
            ]
            if speeds and "mount" in used:
                nominal = " (nominal: these nodes are virtual)" if used["virtual"] else ""
                yield f"{used['mount']} on all nodes: {', '.join(speeds)}{nominal}"


def rows(report: dict[str, Any], path: Path, times: str, command: str) -> Iterator[tuple[str, str]]:
    hosts = sorted({host for layer in report["layers"].values() for host in layer["hosts"]})
    switches = set(report["layers"].get("fabric", {"hosts": {}})["hosts"])
    yield "nodes", ", ".join(host for host in hosts if host not in switches)
    if switches:
        yield "switches", f"{', '.join(sorted(switches))} (simulated)"
    smoke = next(
        (
            host
            for host in report["layers"].get("smoke", {"hosts": {}})["hosts"].values()
            if "measured" in host
        ),
        None,
    )
    if smoke:
        yield (
            "ranks",
            f"{smoke['measured']['figures']['ranks']} on {', '.join(smoke['measured']['nodes'])}",
        )
    yield "layers", ", ".join(report["layers"])
    yield "", checks(report)
    for line in reasons(report):
        yield "", line
    for number, line in enumerate(storage(report)):
        yield "" if number else "storage", line
    if smoke:
        lines = allreduce(smoke)
        yield "allreduce", next(lines)
        for line in lines:
            yield "", line
    remote = report["remote_module_executions"]
    yield (
        "executions",
        f"{remote['most_on_a_compute_node']} modules at most per compute node "
        f"(limit {remote['limit_per_compute_node']})",
    )
    if report["changed"]:
        changed = sum(report["changed"].values())
        yield "changed", f"{changed} tasks (run {command} again: an unchanged run changes none)"
    else:
        yield "changed", "nothing"
    yield "time", times
    page = path.with_suffix(".html")
    yield (
        "page",
        str(page.relative_to(TOP)) if page.exists() else "not written: see the warning above",
    )
    yield "report", str(path.relative_to(TOP))
    yield "log in", f"{command} login node01"
    yield "take down", f"{command} down"


def main() -> None:
    cluster, times_file, command = sys.argv[1:]
    path = newest_report(cluster)
    report = json.loads(path.read_text(encoding="utf-8"))
    stages = [line.split("\t") for line in Path(times_file).read_text("utf-8").splitlines()]
    times = ", ".join(f"{name} {seconds} s" for name, seconds in stages)
    print("\nThe virtual cluster is up and verified.\n")
    for name, text in rows(report, path, times, command):
        print(f"  {name:<11}{text}")
    print()


if __name__ == "__main__":
    main()
