# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The allreduce uses every rank and the rails, reports its figures, and leaves no process
behind."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def smoke(nodes, converge) -> dict:
    """Return the report of one run of the smoke test."""
    hosts = nodes.play(converge).report["layers"]["smoke"]["hosts"]
    assert list(hosts) == nodes.group("launcher")
    return hosts[nodes.group("launcher")[0]]


def test_every_slot_had_a_rank(smoke, nodes):
    slots = sum(nodes.of(name)["cluster_slots"] for name in nodes.group("compute"))
    assert smoke["measured"]["figures"]["ranks"] == slots
    assert smoke["measured"]["nodes"] == nodes.group("compute")
    assert {check["status"] for check in smoke["checks"]} <= {"ok", "not_applicable"}
    proofs = ("gpu_allreduce", "gpu_zero_copy", "nccl_allreduce")
    reasons = {check["name"]: check["reason"] for check in smoke["checks"]}
    assert {name: reasons[name] for name in proofs} == dict.fromkeys(proofs, "no node has a GPU")


def test_figures_add_up(smoke):
    figures = smoke["measured"]["figures"]
    ranks = figures["ranks"]
    sizes = [entry["bytes"] for entry in figures["by_size"]]
    assert sizes[0] == 4 and sizes == sorted(set(sizes))
    for entry in figures["by_size"]:
        assert 0 < entry["min_us"] <= entry["median_us"] <= entry["p99_us"]
        busbw = entry["bytes"] / entry["median_us"] / 1000 * 2 * (ranks - 1) / ranks
        assert entry["busbw_gbytes_s"] == pytest.approx(busbw, rel=0.02, abs=1e-6)


def test_traffic_went_over_the_rails(smoke):
    for entry in smoke["measured"]["traffic"]:
        rails = sum(moved["sent_bytes"] for moved in entry["rails"].values())
        assert rails > 10 * sum(entry["elsewhere"].values()), entry


def test_no_process_of_it_stays(node):
    # Search for the path: Ansible's watcher of mpi_allreduce runs a few seconds longer.
    found = node.run("pgrep -a -f 'libexec/baremetal-mpi-roce/|orted|mpirun'").stdout
    assert [line for line in found.splitlines() if "pgrep" not in line] == []
