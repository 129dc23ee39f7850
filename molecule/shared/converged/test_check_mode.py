# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode on converged nodes: every check passes, nothing would change, no diff is shown."""

from __future__ import annotations


def test_check_mode_is_silent(nodes, converge):
    run = nodes.play(converge, "--check", "--diff")
    assert run.total("failed") == run.total("unreachable") == run.total("changed") == 0, run.output
    assert "+++ after" not in run.output and "--- before" not in run.output, run.output
    switches = nodes.group("leaf", "spine")
    # Two layers measure, which check mode skips; one has nothing to do on plain bridges.
    idle = {"smoke", "verbs"}
    if not any(nodes.of(name).get("cluster_system") for name in switches):
        idle.add("fabric")
    # Without a driver in the software set there are no checks of GPUs.
    sets = [nodes.of(name).get("cluster_software", {}) for name in nodes.group("compute")]
    if not any(software.get("driver") for software in sets):
        idle.add("gpu")
    for layer, found in run.report["layers"].items():
        counts = found["counts"]
        assert counts["ok"] > 0 or layer in idle, layer
        assert counts["failed"] == counts["pending"] == 0, (layer, counts)
