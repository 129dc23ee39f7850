# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Findings about the RDMA stack: one check per fault, with its remedy."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots, systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rdma import packages, pcie

from tests.unit.rdma_node import DOCA_SET, RdmaNode, StoreInstaller, found, wrong


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
    "older firmware": (lambda node: firmware(node, 1, "40.44.1000"), "rdma_firmware", "rail1"),
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
    assert wrong(node.settle(DOCA_SET, firmware_minimum="40.45.1020")) == []
    with pytest.raises(PlanError, match="firmware_minimum"):
        node.settle(DOCA_SET, firmware_minimum="40.47-1")


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


def test_arguments_follow_the_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "proc/cpuinfo"
    cpuinfo.parent.mkdir()
    table = {
        "GenuineIntel": {
            "pt": ["intel_iommu=on", "iommu=pt"],
            "on": ["intel_iommu=on", "iommu=nopt"],
            "off": ["intel_iommu=off", "iommu=off"],
            "": [],
        },
        "AuthenticAMD": {
            "pt": ["iommu=pt"],
            "on": ["iommu=nopt"],
            "off": ["amd_iommu=off", "iommu=off"],
            "": [],
        },
    }
    for vendor, settings in table.items():
        cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
        assert {each: pcie.arguments(each, tmp_path) for each in settings} == settings


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
