# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: each source, both families, every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma import packages
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma.packages import source_of

from tests.unit.rdma_node import (
    DOCA_SET,
    OF_DOCA,
    OF_INBOX,
    RdmaNode,
    Store,
    StoreInstaller,
    found,
    wrong,
)

NONE = {"rdma": {"source": "none"}}
MODULES = "etc/modules-load.d/baremetal-mpi-roce-rdma.conf"


@pytest.fixture(params=["ubuntu", "rocky"])
def node(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RdmaNode:
    return made(request.param, tmp_path, monkeypatch)


@pytest.fixture
def ubuntu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RdmaNode:
    return made("ubuntu", tmp_path, monkeypatch)


def made(
    family: str, where: Path, monkeypatch: pytest.MonkeyPatch, machine: str = "b300-8x800g"
) -> RdmaNode:
    node = RdmaNode(family, where, machine)
    monkeypatch.setattr(packages, "Installer", StoreInstaller)
    return node


@pytest.mark.parametrize("software", [None, DOCA_SET], ids=["inbox", "doca"])
def test_fresh_node_converges(node: RdmaNode, software: Optional[Mapping[str, Any]]) -> None:
    if software:
        node.install_doca_drivers()
    outcome = node.settle(software)
    assert outcome.changed
    assert not outcome.errors
    assert {check.status for check in outcome.checks} <= {"ok", "reboot"}, wrong(outcome)
    assert node.tree.read(MODULES).splitlines()[1:] == ["mlx5_ib", "ib_umad", "rdma_ucm"]
    node.reboot()
    outcome = node.settle(software)
    assert wrong(outcome) == []
    assert reboots.recorded("rdma", node.tree.root) == []
    before = node.tree.snapshot()
    outcome = node.settle(software)
    assert not outcome.changed, outcome.diff
    assert wrong(outcome) == []
    assert node.tree.snapshot() == before
    assert not node.settle(software, check_mode=True).changed


@pytest.mark.parametrize("software", [None, DOCA_SET], ids=["inbox", "doca"])
def test_check_mode(node: RdmaNode, software: Optional[Mapping[str, Any]]) -> None:
    node.unable = {"ibv_devinfo", "ib_write_bw", "mstconfig", "mlxconfig"}
    before, control = node.tree.snapshot(), node.control(node.bridges()[-1])
    outcome = node.settle(software, check_mode=True)
    assert outcome.changed
    assert "failed" not in {check.status for check in outcome.checks}, wrong(outcome)
    assert found(outcome, "rdma_source")[""].status == "pending"
    assert found(outcome, "rdma_module")["rdma_ucm"].status == "pending"
    assert {each.status for each in found(outcome, "rdma_tool").values()} == {"pending"}
    assert node.tree.snapshot() == before
    assert node.control(node.bridges()[-1]) == control
    assert not node.store.acted
    assert not node.tree.ran("modprobe")


def test_without_rdma_nothing_is_done_and_what_was_ours_goes(node: RdmaNode) -> None:
    node.settle(nfs=True)
    assert node.tree.read(MODULES).splitlines()[-1] == "rpcrdma"
    node.reboot()
    outcome = node.settle(NONE)
    assert not (node.tree.root / MODULES).exists()
    assert found(outcome, "rdma_source")[""].status == "not_applicable"
    assert {each.wanted for each in outcome.reasons} == {"absent"}
    assert node.store.packages == OF_INBOX
    node.reboot()
    node.settle(NONE)
    assert not node.settle(NONE).changed


def test_the_source_changes_with_the_drivers_of_the_other_one(node: RdmaNode) -> None:
    node.settle()
    assert source_of(node.store.packages) == "inbox"
    node.install_doca_drivers()
    outcome = node.settle(DOCA_SET)
    assert source_of(node.store.packages) == "doca"
    running = found(outcome, "rdma_driver_running")[""]
    assert running.status == "reboot"
    assert "mlx5_core 25.10-1.7.1" in running.wanted
    assert "RDMA drivers" in {each.subject for each in reboots.recorded("rdma", node.tree.root)}
    node.reboot()
    assert wrong(node.settle(DOCA_SET)) == []


def test_back_to_inbox_asks_for_the_distribution_s_versions_by_name(node: RdmaNode) -> None:
    shared = {"linux-headers-6.8.0-49-generic": "6.8.0-49.49", "kernel-devel": "5.14.0-570.el9"}
    node.store.packages = {**OF_DOCA, **shared}
    node.store.pins = {**OF_DOCA, **shared}
    node.install_doca_drivers()
    node.reboot()
    for name in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"):
        node.modinfo[name] = ("6.8.0", f"IN-{name}", f"kernel/{name}.ko")
    node.settle()
    assert node.store.packages == {**OF_INBOX, **shared}
    assert node.store.downgrade is True
    wanted = node.store.acted[-1]
    versions = {each.name: each.version for stage in wanted.stages for each in stage.packages}
    assert versions == {"rdma-core": "50.0", "libibverbs1": "50.0", "perftest": "24.01.0"}
    assert set(wanted.absent) == {"doca-ofed", "mft", "mlnx-ofed-kernel-dkms"}
    node.reboot()
    node.settle()
    assert not node.settle().changed


def refusal(node: RdmaNode) -> str:
    """The refusal of DOCA-OFED; nothing changes, in check mode either."""
    before = node.tree.snapshot()
    with pytest.raises(PlanError) as caught:
        node.settle(DOCA_SET)
    with pytest.raises(PlanError):
        node.settle(DOCA_SET, check_mode=True)
    assert node.tree.snapshot() == before
    assert not node.store.acted
    return str(caught.value)


def test_secure_boot_is_checked_before_any_change(node: RdmaNode) -> None:
    node.install_doca_drivers()
    node.secure_boot = True
    assert node.settle().errors == node.settle(NONE).errors == [], "the kernel's own drivers"
    node.store.acted.clear()
    assert "software.rdma.source: inbox" in refusal(node)
    node.write("var/lib/dkms/mok.pub", "key")
    assert "mokutil --import /var/lib/dkms/mok.pub" in refusal(node)
    node.unable = {"mokutil"}
    efi = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    (node.hw / efi).parent.mkdir(parents=True)
    (node.hw / efi).write_bytes(b"\x06\0\0\0\1")
    assert "Install the package mokutil" in refusal(node)
    node.unable = set()
    node.enrolled = True
    assert node.settle(DOCA_SET).errors == []
    assert source_of(node.store.packages) == "doca"


def test_a_key_of_the_site_s_own_is_asked_for_first(ubuntu: RdmaNode) -> None:
    ubuntu.secure_boot = True
    ubuntu.write("var/lib/dkms/mok.pub", "key")
    ubuntu.write("etc/site/signing.der", "key")
    ubuntu.write("etc/dkms/framework.conf", "# mok_certificate=/etc/nobody.der\n")
    ubuntu.write("etc/dkms/framework.conf.d/site.conf", 'mok_certificate="/etc/site/signing.der"\n')
    assert "mokutil --import /etc/site/signing.der" in refusal(ubuntu)


def test_secure_boot_allows_drivers_that_load(ubuntu: RdmaNode) -> None:
    ubuntu.secure_boot = True
    refusal(ubuntu)
    ubuntu.install_doca_drivers()
    (ubuntu.sys("module/mlx5_core") / "taint").write_text("O\n")
    assert ubuntu.settle(DOCA_SET).errors == []


def mounted(node: RdmaNode, line: str) -> None:
    node.write("proc/self/mountinfo", f"51 22 0:44 / {line}\n")


def nvlsm(node: RdmaNode) -> None:
    node.open_device(4712, "nvlsm", "/dev/infiniband/umad0")
    node.write("proc/4712/cgroup", "0::/system.slice/nvidia-fabricmanager.service\n")


USES = {
    "a process": (lambda node: node.open_device(4711, "xhpl"), r"xhpl \(4711\)"),
    # As on every drained B300.
    "NVLSM": (nvlsm, r"nvlsm \(4712, nvidia-fabricmanager.service\).*systemctl stop"),
    "NFS": (lambda node: mounted(node, "/home rw - nfs4 a:/x rw,proto=rdma,port=20049"), "/home"),
    "Lustre": (lambda node: mounted(node, "/scratch rw - lustre 10.0.0.1@o2ib:/fs rw"), "/scratch"),
    "NVMe": (lambda node: node.write("sys/class/nvme/nvme3/transport", "rdma\n"), "nvme3"),
}


@pytest.mark.parametrize("use", USES)
def test_drivers_are_not_changed_while_rdma_is_in_use_unless_asked(
    ubuntu: RdmaNode, use: str
) -> None:
    ubuntu.settle()
    begin, named = USES[use]
    begin(ubuntu)
    before = ubuntu.tree.snapshot()
    with pytest.raises(PlanError, match=f"from inbox to doca.*{named}.*rdma_stack_change_in_use"):
        ubuntu.settle(DOCA_SET)
    assert ubuntu.tree.snapshot() == before
    assert ubuntu.store.packages == OF_INBOX
    ubuntu.install_doca_drivers()
    ubuntu.settle(DOCA_SET, change_in_use=True)
    assert source_of(ubuntu.store.packages) == "doca"


def test_new_release_is_a_driver_change(ubuntu: RdmaNode) -> None:
    ubuntu.install_doca_drivers()
    ubuntu.settle(DOCA_SET)
    ubuntu.store.packages["doca-ofed"] = "3.1.0-1"
    ubuntu.open_device(4711, "xhpl")
    with pytest.raises(PlanError, match=r"doca-ofed.*xhpl"):
        ubuntu.settle(DOCA_SET)


def test_an_outline_of_a_change_may_replace_drivers_in_use(
    ubuntu: RdmaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ubuntu.settle()
    plan = Store.plan
    monkeypatch.setattr(Store, "plan", lambda *args: replace(plan(*args), solved=False))
    ubuntu.open_device(4711, "xhpl")
    ubuntu.settle()
    del ubuntu.store.packages["perftest"]
    with pytest.raises(PlanError, match=r"of 1 packages \(perftest.*xhpl"):
        ubuntu.settle()


def test_in_a_container_what_is_the_host_s_is_not_applicable(ubuntu: RdmaNode) -> None:
    outcome = ubuntu.settle(container="podman")
    assert wrong(outcome) == []
    names = {check.name for check in outcome.checks if check.status == "not_applicable"}
    assert names == {
        "rdma_module",
        "rdma_driver_running",
        "kernel_argument",
        "acs_redirect",
        "iommu_group",
        "rdma_device",
        "rdma_devices_seen",
    }
    assert not ubuntu.tree.ran("modprobe")
    assert source_of(ubuntu.store.packages) == "inbox"
    assert not ubuntu.settle(container="podman").changed


def test_a_container_with_a_recorded_machine_is_judged_by_that(ubuntu: RdmaNode) -> None:
    ubuntu.answers["ib_write_bw"] = (0, "Version: 6.24 (simulated)\n")
    ubuntu.load("ib_umad", "", "")
    ubuntu.load("rdma_ucm", "", "")
    for bridge in ubuntu.bridges():
        ubuntu.configuration(bridge, 0x10)
    outcome = ubuntu.settle(container="podman", simulated=True)
    assert wrong(outcome) == []
    assert found(outcome, "rdma_device")["rail1"].found == "mlx5_2"
    assert ubuntu.notes == ["ib_write_bw answers from a recorded state"]
    assert not ubuntu.tree.ran("modprobe")


def test_soft_roce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = made("ubuntu", tmp_path, monkeypatch, "qemu-soft-roce")
    node.seen = ["rxe0", "rxe1"]
    rails = [{"interface": f"rail{k}", "pci": f"0000:00:1{k}.0"} for k in (0, 1)]
    outcome = node.settle(rails=rails, gpus=[])
    module = found(outcome, "rdma_module")
    assert module["mlx5_ib"].status == "not_applicable"
    assert module["ib_umad"].status == module["rdma_ucm"].status == "ok"
    assert "mlx5" not in node.tree.read(MODULES)
    assert {name: check.found for name, check in found(outcome, "rdma_device").items()} == {
        "rail0": "rxe0",
        "rail1": "rxe1",
    }
    assert {check.status for check in outcome.checks} <= {"ok", "not_applicable", "reboot"}
