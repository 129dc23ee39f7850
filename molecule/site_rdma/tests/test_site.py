# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole site on virtual machines, after a reboot: what containers cannot show.

Every run takes minutes there: one run to configure, one reboot, one run to verify.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCENARIO = Path(__file__).resolve().parents[1]
RDMA = ["rxe0", "rxe1"]
KERNEL = {
    "os": {"sysctl", "service_limit", "session_limit", "swap", "time_sync"},
    "rdma": {"rdma_module", "kernel_argument"},
    "storage": {"storage_mount", "storage_options", "storage_write", "storage_neighbour"},
}
"""Checks that are not applicable in a container, by layer."""
LEFT = {
    "os": {"cpu_governor"},
    # NICs (and mlx5_ib), IOMMUs and GPUs: these machines only have Soft-RoCE.
    "rdma": {"rdma_module", "rdma_device", "iommu_group", "acs_redirect"},
    # Not requested by the inventory.
    "storage": {
        "storage_space", "storage_files", "storage_write_rate", "storage_read_rate",
        "storage_together_write", "storage_together_read",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def proof(nodes):
    """Return verify.yml's run, once both machines have rebooted."""
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = {name: nodes.on(name).check_output(boot_id) for name in nodes.group("compute")}
    nodes.reboot("compute")
    for name, old in before.items():
        assert nodes.on(name).check_output(boot_id) != old
    # The first run measured verbs. The allreduce needs RDMA on every rail again, and logins.
    return nodes.play("playbooks/verify.yml", "--skip-tags=verbs,names,gpu,hostfile,ssh")


def test_after_a_reboot_everything_holds_without_ansible(nodes, proof):
    for name in nodes.group("compute"):
        assert "iommu=pt" in nodes.on(name).check_output("cat /proc/cmdline").split()
    for name, layer in proof.report["layers"].items():
        counts = layer["counts"]
        assert counts["failed"] == counts["pending"] == counts["reboot"] == 0, name
    # The only change is to clear the reasons for a reboot.
    assert proof.hosts_with("changed") <= set(nodes.group("compute"))
    assert proof.total("changed") == len(proof.hosts_with("changed"))


def test_nothing_of_the_kernel_is_left_to_somebody_else(nodes, proof):
    cluster = nodes.of(nodes.group("launcher")[0])["cluster_name"]
    converged = max((SCENARIO / "reports" / cluster).glob("converge-*.json"))
    storage = json.loads(converged.read_text(encoding="utf-8"))["layers"]["storage"]
    layers = {**proof.report["layers"], "storage": storage}  # verify.yml does not write them
    for layer, kernel in KERNEL.items():
        for name in nodes.group("compute"):
            checks = layers[layer]["hosts"][name]["checks"]
            assert {check["name"] for check in checks} >= kernel, (layer, name)
            left = [check for check in checks if check["status"] == "not_applicable"]
            assert {check["name"] for check in left} <= LEFT[layer]


def test_every_rail_has_its_rdma_device(nodes, proof):
    for name in nodes.group("compute"):
        links = nodes.on(name).check_output("rdma link show")
        for rail, device in zip(nodes.of(name)["cluster_rails"], RDMA):
            assert (
                f"link {device}/1 state ACTIVE physical_state LINK_UP netdev {rail['interface']}"
                in links
            )
