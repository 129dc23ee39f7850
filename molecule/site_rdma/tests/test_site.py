# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole site on kernels of its own, after a reboot: what a container cannot show.

Every run takes minutes there: one that sets everything up, one reboot, one that reads it all.
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
"""Checks that a container has to leave to its host, by their layer."""
LEFT = {
    "os": {"cpu_governor"},
    # What is a NIC's (the module mlx5_ib too), an IOMMU's or a GPU's: there is Soft-RoCE alone.
    "rdma": {"rdma_module", "rdma_device", "iommu_group", "acs_redirect"},
    # What the inventory asks nothing of.
    "storage": {
        "storage_space", "storage_files", "storage_write_rate", "storage_read_rate",
        "storage_together_write", "storage_together_read",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def proof(nodes):
    """What verify.yml says once both machines have rebooted."""
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = {name: nodes.on(name).check_output(boot_id) for name in nodes.group("compute")}
    nodes.reboot("compute")
    for name, old in before.items():
        assert nodes.on(name).check_output(boot_id) != old
    # The first run measured verbs; the allreduce needs every rail by RDMA again, and logins.
    return nodes.play("playbooks/verify.yml", "--skip-tags=verbs,names,gpu,hostfile,ssh")


def test_after_a_reboot_everything_holds_without_ansible(nodes, proof):
    for name in nodes.group("compute"):
        assert "iommu=pt" in nodes.on(name).check_output("cat /proc/cmdline").split()
    for name, layer in proof.report["layers"].items():
        counts = layer["counts"]
        assert counts["failed"] == counts["pending"] == counts["reboot"] == 0, name
    # Nothing is to be done but to forget that a reboot was needed.
    assert proof.hosts_with("changed") <= set(nodes.group("compute"))
    assert proof.total("changed") == len(proof.hosts_with("changed"))


def test_nothing_of_the_kernel_is_left_to_somebody_else(nodes, proof):
    cluster = nodes.of(nodes.group("launcher")[0])["cluster_name"]
    converged = max((SCENARIO / "reports" / cluster).glob("converge-*.json"))
    storage = json.loads(converged.read_text(encoding="utf-8"))["layers"]["storage"]
    layers = {**proof.report["layers"], "storage": storage}  # verify.yml writes nothing there
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
