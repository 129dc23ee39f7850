# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: each source, both families, every refusal, and its findings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots, systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma import packages, pcie
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
def fresh(
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
def test_fresh_node_converges(fresh: RdmaNode, software: Optional[Mapping[str, Any]]) -> None:
    if software:
        fresh.install_doca_drivers()
    outcome = fresh.settle(software)
    assert outcome.changed
    assert not outcome.errors
    assert {check.status for check in outcome.checks} <= {"ok", "reboot"}, wrong(outcome)
    assert fresh.tree.read(MODULES).splitlines()[1:] == ["mlx5_ib", "ib_umad", "rdma_ucm"]
    fresh.reboot()
    outcome = fresh.settle(software)
    assert wrong(outcome) == []
    assert reboots.recorded("rdma", fresh.tree.root) == []
    before = fresh.tree.snapshot()
    outcome = fresh.settle(software)
    assert not outcome.changed, outcome.diff
    assert wrong(outcome) == []
    assert fresh.tree.snapshot() == before
    assert not fresh.settle(software, check_mode=True).changed


@pytest.mark.parametrize("software", [None, DOCA_SET], ids=["inbox", "doca"])
def test_check_mode(fresh: RdmaNode, software: Optional[Mapping[str, Any]]) -> None:
    fresh.unable = {"ibv_devinfo", "ib_write_bw", "mstconfig", "mlxconfig"}
    before, control = fresh.tree.snapshot(), fresh.control(fresh.bridges()[-1])
    without_rdma(fresh, 1)
    before = fresh.tree.snapshot()
    outcome = fresh.settle(software, check_mode=True)
    assert outcome.changed
    assert found(outcome, "rdma_device")["rail1"].status == "pending"
    assert "failed" not in {check.status for check in outcome.checks}, wrong(outcome)
    assert found(outcome, "rdma_source")[""].status == "pending"
    assert found(outcome, "rdma_module")["rdma_ucm"].status == "pending"
    assert {each.status for each in found(outcome, "rdma_tool").values()} == {"pending"}
    assert fresh.tree.snapshot() == before
    assert fresh.control(fresh.bridges()[-1]) == control
    assert not fresh.store.acted
    assert not fresh.tree.ran("modprobe")


def test_without_rdma_nothing_is_done_and_what_was_ours_goes(fresh: RdmaNode) -> None:
    fresh.settle(nfs=True)
    assert fresh.tree.read(MODULES).splitlines()[-1] == "rpcrdma"
    fresh.reboot()
    outcome = fresh.settle(NONE)
    assert not (fresh.tree.root / MODULES).exists()
    assert found(outcome, "rdma_source")[""].status == "not_applicable"
    assert {each.wanted for each in outcome.reasons} == {"absent"}
    assert fresh.store.packages == OF_INBOX
    fresh.reboot()
    fresh.settle(NONE)
    assert not fresh.settle(NONE).changed


def test_back_to_inbox_asks_for_the_distribution_s_versions_by_name(fresh: RdmaNode) -> None:
    shared = {"linux-headers-6.8.0-49-generic": "6.8.0-49.49", "kernel-devel": "5.14.0-570.el9"}
    fresh.store.packages = {**OF_DOCA, **shared}
    fresh.store.pins = {**OF_DOCA, **shared}
    fresh.install_doca_drivers()
    fresh.reboot()
    for name in ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs"):
        fresh.modinfo[name] = ("6.8.0", f"IN-{name}", f"kernel/{name}.ko")
    fresh.settle()
    assert fresh.store.packages == {**OF_INBOX, **shared}
    assert fresh.store.downgrade is True
    wanted = fresh.store.acted[-1]
    versions = {each.name: each.version for stage in wanted.stages for each in stage.packages}
    assert versions == {"rdma-core": "50.0", "libibverbs1": "50.0", "perftest": "24.01.0"}
    assert set(wanted.absent) == {"doca-ofed", "mft", "mlnx-ofed-kernel-dkms"}
    fresh.reboot()
    fresh.settle()
    assert not fresh.settle().changed


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


def test_secure_boot_is_checked_before_any_change(fresh: RdmaNode) -> None:
    fresh.install_doca_drivers()
    fresh.secure_boot = True
    assert fresh.settle().errors == fresh.settle(NONE).errors == [], "the kernel's own drivers"
    fresh.store.acted.clear()
    assert "software.rdma.source: inbox" in refusal(fresh)
    fresh.write("var/lib/dkms/mok.pub", "key")
    assert "mokutil --import /var/lib/dkms/mok.pub" in refusal(fresh)
    fresh.unable = {"mokutil"}
    efi = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    (fresh.hw / efi).parent.mkdir(parents=True)
    (fresh.hw / efi).write_bytes(b"\x06\0\0\0\1")
    assert "Install the package mokutil" in refusal(fresh)
    fresh.unable = set()
    fresh.enrolled = True
    assert fresh.settle(DOCA_SET).errors == []
    assert source_of(fresh.store.packages) == "doca"


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


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RdmaNode:
    """An Ubuntu node with DOCA-OFED, rebooted, without faults."""
    node = RdmaNode("ubuntu", tmp_path)
    monkeypatch.setattr(packages, "Installer", StoreInstaller)
    node.install_doca_drivers()
    node.settle(DOCA_SET)
    node.reboot()
    assert wrong(node.settle(DOCA_SET)) == []
    return node


def nic(node: RdmaNode, rail: int) -> Path:
    return node.sys("bus/pci/devices") / ("0000:11:00.0", "0000:2f:00.0")[rail]


def firmware(node: RdmaNode, rail: int, version: str) -> None:
    (file,) = (nic(node, rail) / "infiniband").glob("*/fw_ver")
    file.write_text(f"{version}\n")


def without_rdma(node: RdmaNode, rail: int) -> None:
    (device,) = (nic(node, rail) / "infiniband").iterdir()
    (node.sys("class/infiniband") / device.name).unlink()
    shutil.rmtree(nic(node, rail) / "infiniband")
    node.seen = [name for name in ("mlx5_0", "mlx5_1", "mlx5_2") if name != device.name]


def infiniband(node: RdmaNode, rail: int) -> None:
    (file,) = (nic(node, rail) / "infiniband").glob("*/ports/1/link_layer")
    file.write_text("InfiniBand\n")


def answer(**answers: tuple[int, str]) -> Callable[[RdmaNode], None]:
    return lambda node: node.answers.update(answers)


FAULTS: dict[str, tuple[Callable[[RdmaNode], None], str, str]] = {
    "no RDMA device": (lambda node: without_rdma(node, 1), "rdma_device", "rail1"),
    "InfiniBand": (lambda node: infiniband(node, 1), "rdma_device", "rail1"),
    "older firmware": (lambda node: firmware(node, 1, "40.43.8002"), "rdma_firmware", "rail1"),
    "tool missing": (lambda node: node.unable.add("ib_write_bw"), "rdma_tool", "ib_write_bw"),
    "tool fails": (answer(mlxconfig=(127, "libfoo.so: cannot open")), "rdma_tool", "mlxconfig"),
    "no RDMA in the kernel": (
        answer(ibv_devinfo=(255, "Failed to get IB devices list: Function not implemented\n")),
        "rdma_devices_seen",
        "",
    ),
    "no provider library": (
        lambda node: setattr(node, "seen", ["mlx5_0"]),
        "rdma_devices_seen",
        "",
    ),
    "drivers of the kernel": (
        lambda node: node.modinfo.update(
            mlx5_core=("25.10-1.7.1", "25.10-1.7.1-mlx5_core", "kernel/mlx5_core.ko")
        ),
        "rdma_driver_origin",
        "mlx5_core",
    ),
    "IOMMU translates a NIC": (
        lambda node: node.group("0000:2f:00.0", "DMA-FQ"),
        "iommu_group",
        "0000:2f:00.0",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_check(node: RdmaNode, fault: str) -> None:
    make, name, subject = FAULTS[fault]
    make(node)
    outcome = node.settle(DOCA_SET, check_mode=True)
    assert len(wrong(outcome)) == 1, wrong(outcome)
    check = found(outcome, name)[subject]
    assert check.status == "failed"
    assert check.reason
    assert not outcome.changed


def test_firmware_below_the_minimum_fails_on_each_rail_that_has_it(node: RdmaNode) -> None:
    outcome = node.settle(DOCA_SET, firmware_minimum="40.47.1026")
    assert {name: each.status for name, each in found(outcome, "rdma_firmware").items()} == {
        "rail0": "failed",
        "rail1": "failed",
    }
    node.answers["ib_write_bw"] = (1, "Version: 6.06\n")
    assert wrong(node.settle(DOCA_SET, firmware_minimum="40.46.3008")) == []
    with pytest.raises(PlanError, match="firmware_minimum"):
        node.settle(DOCA_SET, firmware_minimum="40.47-1")


def test_firmware_below_a_bulletin_waits_for_its_update(node: RdmaNode) -> None:
    firmware(node, 1, "40.44.1036")
    (check,) = [
        each for each in found(node.settle(DOCA_SET), "floor").values() if each.status != "ok"
    ]
    assert (check.status, check.found) == ("pending", "44.1036")
    assert check.subject.endswith(" rail1") and check.wanted.startswith("46.3008 ")


# Drivers


def test_drivers_that_changed_on_disk_wait_for_the_reboot_once(node: RdmaNode) -> None:
    node.install_doca_drivers("26.01-1.0.0")
    outcome = node.settle(DOCA_SET)
    (reason,) = outcome.reasons
    built = "mlx5_core 26.01-1.0.0 srcversion 26.01-1.0.0-mlx5_core"
    assert (reason.subject, reason.wanted) == ("RDMA drivers", built)
    assert len(wrong(outcome)) == 1
    version, _source, path = node.modinfo["mlx5_core"]
    node.modinfo["mlx5_core"] = ("25.10-1.7.1", "REBUILT", path)
    assert node.settle(DOCA_SET).reasons[0].wanted.endswith("srcversion REBUILT")
    node.modinfo["mlx5_core"] = (version, "NEW", path)
    node.settle(DOCA_SET)
    assert not node.settle(DOCA_SET).changed
    node.tree.reboot()  # without the new drivers
    assert found(node.settle(DOCA_SET), "rdma_driver_running")[""].status == "failed"
    node.reboot()
    assert wrong(node.settle(DOCA_SET)) == []
    assert reboots.recorded("rdma", node.tree.root) == []


def test_drivers_are_loaded_again_where_asked_and_nothing_uses_them(node: RdmaNode) -> None:
    node.install_doca_drivers("26.01-1.0.0")
    assert node.settle(DOCA_SET, restart_driver=True, check_mode=True).changed
    assert not node.tree.ran("systemctl", "restart")
    node.settle(DOCA_SET, restart_driver=True)
    assert node.tree.ran("systemctl", "restart", "openibd")


def test_drivers_in_use_are_not_loaded_again(node: RdmaNode) -> None:
    node.install_doca_drivers("26.01-1.0.0")
    node.open_device(77, "xhpl")
    outcome = node.settle(DOCA_SET, restart_driver=True)
    assert not node.tree.ran("systemctl", "restart")
    assert "xhpl (77)" in outcome.errors[0]
    assert found(outcome, "rdma_driver_running")[""].status == "reboot"


def test_a_leftover_of_doca_is_no_inbox_driver(node: RdmaNode) -> None:
    node.store.packages = {"rdma-core": "50.0-2", "libibverbs1": "50.0-2", "perftest": "24.01.0-1"}
    outcome = node.settle()
    names = {line.split()[1] for line in wrong(outcome)}
    assert names == {"rdma_driver_origin"}


@pytest.mark.parametrize(
    ("release", "doubted"), [("6.8.0-49-generic", False), ("5.14.0-687.5.1.el9_8.x86_64", True)]
)
def test_drivers_that_were_not_built_say_whether_doca_knows_the_kernel(
    node: RdmaNode, release: str, doubted: bool
) -> None:
    """The running kernel; the set names none."""
    make, name, subject = FAULTS["drivers of the kernel"]
    make(node)
    node.write("proc/sys/kernel/osrelease", f"{release}\n")
    reason = found(node.settle(DOCA_SET, check_mode=True), name)[subject].reason
    assert "dkms status" in reason and "before 3.2" in reason
    assert ("choose DOCA 3.2.3" in reason) is doubted


# Kernel


def test_the_kernel_of_the_set_has_to_run(node: RdmaNode) -> None:
    node.write("proc/sys/kernel/osrelease", "6.8.0-49-generic\n")
    assert wrong(node.settle({**DOCA_SET, "kernel": "6.8.0-49-generic"})) == []
    software = {**DOCA_SET, "kernel": "6.8.0-60-generic"}
    check = found(node.settle(software), "kernel_release")[""]
    assert (check.status, check.found) == ("failed", "6.8.0-49-generic")
    # The plan installs it, so it is pending in check mode.
    del node.store.packages["mft"]
    assert found(node.settle(software, check_mode=True), "kernel_release")[""].status == "pending"
    (node.tree.root / "lib/modules/6.8.0-60-generic").mkdir(parents=True)
    outcome = node.settle(software)
    assert found(outcome, "kernel_release")[""].status == "reboot"
    assert [each.wanted for each in outcome.reasons] == ["6.8.0-60-generic"]
    node.reboot()
    assert found(node.settle(software), "kernel_release")[""].status == "failed"


# IOMMU


@pytest.mark.parametrize(
    ("vendor", "setting", "arguments"),
    [
        ("GenuineIntel", "pt", "intel_iommu=on iommu=pt"),
        ("GenuineIntel", "on", "intel_iommu=on iommu=nopt"),
        ("GenuineIntel", "off", "intel_iommu=off iommu=off"),
        ("AuthenticAMD", "pt", "iommu=pt"),
        ("AuthenticAMD", "off", "amd_iommu=off iommu=off"),
        ("AuthenticAMD", "", ""),
    ],
)
def test_arguments_follow_the_processor(
    tmp_path: Path, vendor: str, setting: str, arguments: str
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert " ".join(pcie.arguments(setting, tmp_path)) == arguments


def test_groups_are_not_asked_for_before_the_reboot(node: RdmaNode) -> None:
    outcome = node.settle(DOCA_SET, iommu="on")
    assert found(outcome, "iommu_group") == {}
    assert {each.subject for each in outcome.reasons} == {
        "kernel argument iommu",
        "kernel argument iommu=pt",
    }
    node.reboot()
    failed = found(node.settle(DOCA_SET, iommu="on"), "iommu_group")
    assert {each.status for each in failed.values()} == {"failed"}
    for pci in failed:
        node.group(pci, "DMA-FQ")
    assert wrong(node.settle(DOCA_SET, iommu="on")) == []


def test_off_is_no_group_at_all(node: RdmaNode) -> None:
    node.settle(DOCA_SET, iommu="off")
    node.reboot()
    check = found(node.settle(DOCA_SET, iommu="off"), "iommu_group")[""]
    assert (check.status, check.found) == ("failed", "4 groups")
    shutil.rmtree(node.sys("kernel/iommu_groups"))
    assert wrong(node.settle(DOCA_SET, iommu="off")) == []


def test_missing_and_unused_iommu_differ(node: RdmaNode) -> None:
    shutil.rmtree(node.sys("kernel/iommu_groups"))
    check = found(node.settle(DOCA_SET), "iommu_group")[""]
    assert check.status == "not_applicable"
    table = node.sys("firmware/acpi/tables/DMAR")
    table.parent.mkdir(parents=True)
    table.write_bytes(b"DMAR")
    check = found(node.settle(DOCA_SET), "iommu_group")[""]
    assert check.status == "failed"


# ACS


def test_only_redirection_bits_below_the_common_bridge_are_cleared(node: RdmaNode) -> None:
    for bridge in node.bridges():
        node.configuration(bridge, 0x7F)
    outcome = node.settle(DOCA_SET)
    assert wrong(outcome) == []
    between = set(found(outcome, "acs_redirect"))
    assert between
    for bridge in node.bridges():
        assert node.control(bridge) == (0x7F & ~0x2C if bridge in between else 0x7F)
    # The root port and the common bridge forward everything.
    assert "0000:07:01.0" not in between
    assert {"0000:10:00.0", "0000:10:01.0"} <= between


def test_redirecting_bridge(node: RdmaNode) -> None:
    node.configuration("0000:10:00.0", 0x04)
    outcome = node.settle(DOCA_SET, check_mode=True)
    assert [line.split()[0] for line in wrong(outcome)] == ["pending"]
    assert node.control("0000:10:00.0") == 0x04
    outcome = node.settle(DOCA_SET, acs="verify")
    assert found(outcome, "acs_redirect")["0000:10:00.0"].status == "failed"
    assert node.control("0000:10:00.0") == 0x04


def test_a_kernel_that_is_locked_down_is_not_written_to(node: RdmaNode) -> None:
    (node.sys("kernel/security")).mkdir(parents=True)
    lockdown = node.sys("kernel/security/lockdown")
    node.configuration("0000:10:00.0", 0x1D)
    lockdown.write_text("none [integrity] confidentiality\n")
    for check_mode in (True, False):
        outcome = node.settle(DOCA_SET, check_mode=check_mode)
        assert (outcome.errors, outcome.changed) == ([], False)
        check = found(outcome, "acs_redirect")["0000:10:00.0"]
        assert check.status == "failed"
        assert "pci=disable_acs_redir=0000:10:00.0" in check.reason
    assert node.control("0000:10:00.0") == 0x1D
    lockdown.write_text("[none] integrity confidentiality\n")
    assert wrong(node.settle(DOCA_SET)) == []


def test_what_is_not_disabled_any_more_leaves_no_unit(node: RdmaNode) -> None:
    assert (node.tree.root / pcie.PROGRAM).exists()
    node.settle(DOCA_SET, acs="verify")
    for path in (pcie.PROGRAM, pcie.UNIT_FILE, f"{systemd.LINKS}/{pcie.UNIT}"):
        assert not (node.tree.root / path).exists()
        assert not (node.tree.root / path).is_symlink()
    assert not node.settle(DOCA_SET, acs="verify").changed
    assert found(node.settle(DOCA_SET, acs="keep"), "acs_redirect") == {}


def test_the_program_does_at_boot_what_the_module_did(node: RdmaNode) -> None:
    program = node.tree.root / pcie.PROGRAM
    assert program.stat().st_mode & 0o777 == 0o755
    node.configuration("0000:10:01.0", 0x1D)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-IS", str(program), *words, "--root", str(node.hw)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    checked = run("--check")
    assert checked.returncode == 1
    assert "0000:10:01.0 ACSCtl 0x001d REDIRECTS" in checked.stdout
    assert node.control("0000:10:01.0") == 0x1D
    assert run("--apply").returncode == 0
    assert node.control("0000:10:01.0") == 0x11
    assert run().returncode == 0
    (node.sys("bus/pci/devices") / "0000:10:01.0/config").write_bytes(bytes(64))
    hidden = run()
    assert hidden.returncode == 2
