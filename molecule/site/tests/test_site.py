# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole site: every layer speaks, a proof changes nothing, drift is found and repaired."""

from __future__ import annotations

LAYERS = [
    *("names", "os", "rdma", "gpu", "rails", "fabric", "links", "storage"),
    *("mpi", "hostfile", "ssh", "verbs", "smoke"),
]


def test_every_layer_is_verified_and_cheap(nodes, converge):
    run = nodes.play(converge)
    assert run.total("changed") == 0
    assert list(run.report["layers"]) == LAYERS
    executions = run.report["remote_module_executions"]
    assert 0 < executions["most_on_a_compute_node"] <= executions["limit_per_compute_node"]


def test_drift_is_seen_proved_and_repaired_alone(nodes, converge):
    """Somebody sets the MTU of one rail by hand."""
    node = nodes.group("compute")[-1]
    nodes.on(node).check_output("ip link set rail3 mtu 1500")

    seen = nodes.play(converge, "--check", "--diff", "--skip-tags=smoke")
    assert seen.hosts_with("changed") == {node}, seen.output
    assert "rail3" in seen.output

    proof = nodes.play("playbooks/verify.yml", "--skip-tags=smoke", expect=2)
    assert proof.hosts_with("failed") == {node}
    assert "rail_mtu rail3: wanted 9000, found 1500" in proof.output

    repair = nodes.play(converge, "--tags=rails", f"--limit={node}")
    assert repair.hosts_with("changed") == {node}

    proof = nodes.play("playbooks/verify.yml", "--skip-tags=smoke")
    assert proof.total("changed") == 0
