# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The whole site on kernels of its own: what a container cannot show, before and after a reboot."""

from __future__ import annotations

import pytest

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
        *("storage_space", "storage_files", "storage_write_rate", "storage_read_rate"),
        *("storage_together_write", "storage_together_read"),
    },
}


def test_nothing_of_the_kernel_is_left_to_somebody_else(nodes, converge):
    run = nodes.play(converge, "--tags=os,rdma,rails,storage")
    assert run.total("changed") == 0, run.output
    for layer, kernel in KERNEL.items():
        for name in nodes.group("compute"):
            checks = run.report["layers"][layer]["hosts"][name]["checks"]
            assert {check["name"] for check in checks} >= kernel
            left = [check for check in checks if check["status"] == "not_applicable"]
            assert {check["name"] for check in left} <= LEFT[layer]


def test_every_rail_has_its_rdma_device(compute, nodes):
    links = compute.check_output("rdma link show")
    for rail, device in zip(nodes.of(compute.backend.hostname)["cluster_rails"], RDMA):
        assert (
            f"link {device}/1 state ACTIVE physical_state LINK_UP netdev {rail['interface']}"
            in links
        )


@pytest.mark.parametrize("device", RDMA)
def test_real_verbs_go_between_the_machines(nodes, device):
    server, client = nodes.group("compute")
    there = nodes.of(server)["cluster_rails"][RDMA.index(device)]["address"]
    nodes.on(server).check_output(
        "systemd-run --quiet --collect --unit=pingpong ibv_rc_pingpong -d %s -g 1", device
    )
    output = nodes.on(client).check_output(
        "for try in 1 2 3 4 5; do ibv_rc_pingpong -d %s -g 1 %s && exit; sleep 1; done; exit 1",
        device,
        there,
    )
    assert "1000 iters in" in output


def test_after_a_reboot_everything_holds_without_ansible(nodes, tmp_path_factory):
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = {name: nodes.on(name).check_output(boot_id) for name in nodes.group("compute")}
    playbook = tmp_path_factory.mktemp("reboot") / "reboot.yml"
    playbook.write_text(
        "- hosts: compute\n  gather_facts: false\n  become: true\n"
        "  tasks: [{ansible.builtin.reboot: {reboot_timeout: 300}}]\n"
    )
    nodes.play(str(playbook))
    for name, old in before.items():
        assert nodes.on(name).check_output(boot_id) != old
        assert "iommu=pt" in nodes.on(name).check_output("cat /proc/cmdline").split()
    proof = nodes.play("playbooks/verify.yml")
    for name, layer in proof.report["layers"].items():
        counts = layer["counts"]
        assert counts["failed"] == counts["pending"] == counts["reboot"] == 0, name
    # Nothing is to be done but to forget that a reboot was needed.
    assert proof.hosts_with("changed") <= set(nodes.group("compute"))
    assert proof.total("changed") == len(proof.hosts_with("changed"))
