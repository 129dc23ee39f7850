# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports of each kind for tests of pages, made by the code that makes them in a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    REBOOT,
    Check,
    as_dicts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import evaluation
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    RAIL,
    Figure,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import finite
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi import bench
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import planning, table
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import RunSummary

from tests.unit.acceptance_fabric import fabric

OSU = Path(__file__).parent / "data/osu/v7.5.txt"
HOSTILE = (
    "<script>stolen=1</script><img src=x onerror=stolen=2>\u202eabc\x1b[2J</td></table>{{7*7}}"
)
"""Text of a compromised host."""


def run(
    nodes: int = 4, per_layer: int = 3, name: str = "node{:02}", unreachable: bool = True
) -> dict[str, Any]:
    """A run with one failed rail on the second node, and an unreachable last node."""
    names = [name.format(number + 1) for number in range(nodes)]
    summary = RunSummary("site.yml", "c1", inventories=("inventories/c1",))
    summary.roles = {**dict.fromkeys(names, "compute"), "leaf01": "leaf", "spine01": "spine"}
    summary.racks = {node: f"r{number // 16}" for number, node in enumerate(names)}
    summary.ports = {
        "leaf01": [
            group("host", "rail0", {f"Ethernet{8 * at}": node for at, node in enumerate(names)}),
            group("uplink", "Ethernet0", {"Ethernet512": "spine01"}),
        ]
    }
    for node in names[:-1]:
        for layer in ("os", "rails"):
            checks = [Check("sysctl", 1, 1, OK, f"net.a{number}") for number in range(per_layer)]
            summary.add_result(node, {"layer": layer, "checks": as_dicts(checks)})
    wrong = Check("rail_mtu", 9000, 1500, FAILED, "rail0", "the leaf port has another MTU")
    other = Check("swap", "off", None, NOT_APPLICABLE, "", "in a container")
    summary.add_result(names[1], {"layer": "rails", "checks": as_dicts([wrong])})
    summary.add_result(names[0], {"layer": "os", "checks": as_dicts([other])})
    if unreachable:
        summary.unreachable[names[-1]] = "no route to host"
    summary.simulated["SONiC 4.2"] = ["leaf01"]
    summary.left_out["storage"] = ["storage01"]
    return finite(summary.report("2026-11-29T12:54:23.875855+00:00", 117.84, 60, False))


def large(nodes: int, checks: int = 120) -> dict[str, Any]:
    """A run of many nodes, whose checks are those of one, except on every fiftieth."""
    report = run(3, name="node{:04}")
    names = [f"node{number + 1:04}" for number in range(nodes)]
    for layer in report["layers"].values():
        good, bad = (layer["hosts"][name]["checks"] for name in ("node0001", "node0002"))
        own = {0: bad * (checks // len(bad)), 1: good * (checks // len(good))}
        layer["hosts"] = {name: {"checks": own[at % 50 > 0]} for at, name in enumerate(names)}
    leaves = [f"leaf{number:03}" for number in range(nodes // 4)]
    rails = [
        [leaf, f"Eth{at}", names[n], f"rail{at}"]
        for at in range(8)
        for n, leaf in ((n, leaves[(n // 32 * 8 + at) % len(leaves)]) for n in range(nodes))
    ]
    spines = [f"spine{number:02}" for number in range(64)]
    up = [[leaf, f"Up{at}", spine, leaf] for leaf in leaves for at, spine in enumerate(spines)]
    roles = {"compute": names, "leaf": leaves, "spine": spines}
    report["topology"] = {"roles": roles, "racks": {"r1": names[:8]}, "cables": rails + up}
    return report


def group(kind: str, far: str, peers: dict[str, str]) -> dict[str, Any]:
    return {"kind": kind, "peer_interface": far, "speed_gbps": 800, "mtu": 9000, "peers": peers}


def certificate(sets: int = 2, per_set: int = 3) -> dict[str, Any]:
    """One rail of one node receives half; one pair has no figure."""
    topology = fabric(sets, per_set, rails=2, spines=2)
    nodes, slow = topology.nodes, topology.nodes[2]
    figures = [
        Figure(rail, one, other, 390.5 if (rail, other) == ("rail1", slow) else 768.25, 2.5)
        for rail in topology.rails
        for one in nodes
        for other in nodes
        if one != other
    ]
    figures[0] = Figure("rail0", nodes[0], nodes[1], None, None, "no answer within the round")
    found = evaluation.evaluate(
        figures, topology, min_share=0.9, verdicts=[Verdict(RAIL, f"{slow} rail1", ("slow",))]
    )
    osu = bench.parse(OSU.read_text(encoding="utf-8"), "8 ranks", ranks=8)
    return {
        "schema": 1,
        "made": "2026-11-29T12:57:49Z",
        "cluster": "c1",
        "verdict": "failed",
        "virtual": False,
        "versions": {"kernel": {"6.8.0": list(nodes)}},
        "coverage": {"nodes": list(nodes), "rails": ["rail0", "rail1"], "pairs": len(figures)},
        "seconds": 31,
        **found.as_dict(),
        "pairs": evaluation.matrices(figures, topology),
        "topology": topology.as_dict(),
        "cables": [{"kind": "errors", "cable": f"{topology.cables[0]} (up)", "evidence": "32"}],
        "sweeps": {"osu": {"sweeps": [sweep.as_dict() for sweep in osu], "checks": []}},
        "not_measured": [{"what": "congestion", "why": "on request", "partial": True}],
        "checks": as_dicts(found.checks),
        "signature": "unsigned",
    }


def large_certificate(nodes: int) -> dict[str, Any]:
    """Eight rails of many nodes, in 48 groups."""
    report, names = certificate(), [f"node{number + 1:04}" for number in range(nodes)]
    size = -(-nodes // 48)
    groups = [names[at : at + size] for at in range(0, nodes, size)]
    numbers = range(len(groups))
    rates = [[700.0 + (row * 7 + column * 13) % 90 for column in numbers] for row in numbers]
    late = [[2.0 + (row * 3 + column * 5) % 17 / 10 for column in numbers] for row in numbers]
    rails = {f"rail{rail}": {"gbits_s": rates, "latency_us": late} for rail in range(8)}
    return report | {"pairs": {"groups": groups, "rails": rails}}


def benchmark() -> dict[str, Any]:
    sweeps = bench.parse(OSU.read_text(encoding="utf-8"), "node01:0 - node02:0", ranks=8)
    for sweep in sweeps:
        sweep.line_rate_gbytes_s, sweep.threshold = 50.0, 45.0
    checks = as_dicts([bench.evaluate(sweep, False) for sweep in sweeps])
    shown = [sweep.as_dict() for sweep in sweeps]
    return {"made": "20261129T131500Z", "program": "osu", "transport": "rc", "sweeps": shown} | {
        "virtual": False,
        "checks": checks,
    }


def reboot(status: str = table.VERIFIED, check_mode: bool = False) -> dict[str, Any]:
    """A run of playbooks/reboot.yml: `status` is the outcome of the first of two hosts."""
    summary = RunSummary("reboot.yml", "c1", inventories=("inventories/c1",))
    names = ("node01", "node02")
    summary.roles = dict.fromkeys((*names, "login01"), "compute")
    verdicts: list[tuple[str, planning.Decision]] = [
        (name, planning.Turn(name, "compute", planning.REBOOT, ("os",), ("os",), ("os: iommu=pt",)))
        for name in names
    ]
    verdicts.append(("login01", planning.Left("login01", "MPI runs on it", ("os: x",))))
    plan = planning.plan(verdicts, planning.RebootSettings())
    summary.add_reboots(names[0], {"reboot_plan": {**plan, "check_mode": check_mode}})
    for name, seconds, how in zip(names, (241.4, 97.0), (status, table.VERIFIED)):
        outcome = {"status": how, "text": f"{how}: os", "seconds": seconds}
        summary.add_reboots(name, {"reboot_outcome": outcome})
    for host, row in summary.rebooted().items():
        left = {table.VERIFIED: OK, table.LEFT: REBOOT}.get(row["status"], FAILED)
        check = Check("reboot_needed", "no", "no" if left == OK else "yes", left)
        summary.add_result(host, {"layer": "reboot", "checks": as_dicts([check])})
    return finite(summary.report("2026-11-29T12:54:23.875855+00:00", 350.5, 60, check_mode))


def drift(found: Any = 1500) -> dict[str, Any]:
    row = {"host": "node02", "layer": "rails", "check": "rail_mtu", "subject": "rail0"}
    row |= {"found": found, "desired": 9000, "reason": "", "part": "node02 rail0", "new": True}
    row |= {"command": "ansible-playbook site.yml --tags rails --limit node02", "by_hand": ""}
    row |= {"since": "2026-11-28T03:00:00+00:00", "ignored": None}
    ignored = {**row, "host": "node03", "ignored": {"reason": "RMA", "until": "2027-01-01"}}
    hosts = {"asked": 6, "answered": 5, "silent": {"node04": "no route to host"}}
    return {"format": 1, "kind": "drift", "cluster": "c1", "verdict": "drift", "hosts": hosts} | {
        "started": "2026-11-29T03:00:00+00:00",
        "seconds": 48.25,
        "findings": [row, ignored],
        "expired": [{"host": "node01", "check": "swap", "subject": "", "until": "2026-01-01"}],
        "unused": [],
        "offenders": [{"part": "node02 rail0", "times": 4, "last": "2026-11-28T03:00:00+00:00"}],
    }


def poisoned(report: Any, text: str, keys: bool = True) -> Any:
    """The report with `text` appended to every text, and to every key that names a host."""
    if isinstance(report, dict):
        return {
            (key + text if keys and "0" in key else key): poisoned(each, text, keys)
            if key not in ("status", "kind", "playbook", "verdict", "name", "layer", "check")
            else each
            for key, each in report.items()
        }
    if isinstance(report, list):
        return [poisoned(each, text, keys) for each in report]
    return report + text if isinstance(report, str) else report


KINDS = {
    name: cache(made)
    for name, made in [
        ("site", run),
        ("reboot", reboot),
        ("drift", drift),
        ("bench", benchmark),
        ("acceptance", certificate),
    ]
}
