# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sweeps of message sizes between ranks of the nodes."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

BENCH = "playbooks/bench.yml"
PAIRS = ["node01:0 - node01:1", "node01:0 - node02:0", "node01:0 - node02:1"]
"""Inside a node, by one leaf, over a spine."""


def variables(folder: Path) -> str:
    given = {"max_bytes": 256, "iterations": 4, "report_directory": str(folder)}
    return json.dumps({f"mpi_bench_{name}": value for name, value in given.items()})


def test_every_sweep_is_measured_between_the_pairs_of_the_model(
    nodes: Nodes, tmp_path: Path
) -> None:
    run = nodes.play(BENCH, "--limit=launcher", "--extra-vars", variables(tmp_path))
    report = json.loads((tmp_path / "bench-latest.json").read_text(encoding="utf-8"))
    ranks = sum(int(nodes.of(host)["cluster_slots"]) for host in nodes.group("compute"))
    pairwise = [(name, pair) for name in ("latency", "bw", "bibw") for pair in PAIRS]
    found = [(sweep["benchmark"], sweep["where"]) for sweep in report["sweeps"]]
    together = [(name, f"{ranks} ranks") for name in ("allreduce", "alltoall")]
    assert found == [*pairwise, *together]
    for sweep in report["sweeps"]:
        sizes = [row["bytes"] for row in sweep["by_size"]]
        assert sizes == [1 << bit for bit in range(2 * (sweep["benchmark"] == "allreduce"), 9)]
        assert all(row["gbytes_s"] > 0 for row in sweep["by_size"])
    assert report["virtual"] and run.total("changed") == 0
    statuses = {check["status"] for check in run.checks("bench")}
    assert statuses == {"not_applicable"} and "is nominal: on virtual nodes" in run.output
    drawn = re.findall(r"^bench: drawn in .+-(\w+)\.svg$", run.output, re.MULTILINE)
    if find_spec("matplotlib"):
        assert drawn == ["latency", "bw", "bibw", "allreduce", "alltoall"]
    else:
        assert "bench: not drawn: matplotlib is not installed" in run.output


def test_check_mode_measures_nothing_and_shows_the_command(nodes: Nodes, tmp_path: Path) -> None:
    run = nodes.play(BENCH, "--check", "--extra-vars", variables(tmp_path))
    assert re.search(r"would run mpirun .*sweep\.py latency bw bibw", run.output)
    assert "nothing is measured" in run.output and list(tmp_path.iterdir()) == []
