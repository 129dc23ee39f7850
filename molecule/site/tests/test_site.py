# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A second run of the whole site: every layer reports, nothing changes, and it is cheap.

tests/integration/test_drift.py covers the repair of drift.
"""

from __future__ import annotations

LAYERS = [
    "names", "os", "rdma", "gpu", "rails", "fabric", "links", "storage",
    "mpi", "hostfile", "ssh", "node_check", "verbs", "smoke",
]  # fmt: skip


def test_every_layer_is_verified_and_cheap(nodes, converge):
    nodes.play(converge)  # after layers that ran by their own playbooks, which leave no record
    run = nodes.play(converge)
    assert run.total("changed") == 0, run.output
    assert list(run.report["layers"]) == LAYERS
    for name, found in run.report["layers"].items():
        assert found["counts"]["failed"] == found["counts"]["pending"] == 0, name
    executions = run.report["remote_module_executions"]
    assert 0 < executions["most_on_a_compute_node"] <= 5
