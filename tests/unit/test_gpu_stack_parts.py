# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each refusal, and each part of the GPU stack by itself."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import stack
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.modules import (
    Module,
    needs_peermem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.shared import (
    Kernel,
    Shared,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.stack import Health
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.unit.gpu_node import (
    KERNEL,
    NEW,
    OLD,
    OPTIONS,
    GpuNode,
    play,
    software,
)
from tests.unit.test_gpu_stack import failed, found, statuses


@pytest.fixture
def node(tmp_path, monkeypatch):
    return play(GpuNode(tmp_path / "node"), monkeypatch)


def refusal(node, **options):
    """Why the node is refused, with nothing touched, in check mode as well."""
    before = node.snapshot()
    with pytest.raises(PlanError) as caught:
        node.converge(**options)
    with pytest.raises(PlanError):
        node.converge(check_mode=True, **options)
    assert node.snapshot() == before
    assert [call for call in node.calls if call[0] != "mokutil"] == []
    return str(caught.value)


# Machines that are refused.


def test_secure_boot_without_an_enrolled_key_is_refused_with_the_way_to_enrol(node):
    node.secure_boot = True
    assert "update-secureboot-policy" in refusal(node)
    node.write("var/lib/shim-signed/mok/MOK.der", "key")
    assert "mokutil --import /var/lib/shim-signed/mok/MOK.der" in refusal(node)
    node.enrolled = True
    assert failed(node.converge()) == []


@pytest.mark.parametrize(
    "package",
    [
        "linux-modules-nvidia-580-server-open-6.8.0-79-generic",
        "nvidia-driver-580-server-open",
        "akmod-nvidia",
        "kmod-nvidia",
    ],
)
def test_a_driver_of_another_source_is_refused(node, package):
    node.installed[package] = "580.65.06-0ubuntu1"
    assert f"apt-get purge {package}" in refusal(node)


def test_another_kernel_than_the_sets_is_refused(node):
    found = refusal(node, extra={"kernel": "6.8.0-90-generic"})
    assert "6.8.0-90-generic" in found
    assert KERNEL in found
    assert failed(node.converge(extra={"kernel": KERNEL})) == []


MODULE = Module(("nvidia", "nvidia-open"), OLD)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (f"nvidia/{OLD}, {KERNEL}, x86_64: installed", "installed"),
        (f"nvidia-open/{OLD}, {KERNEL}, x86_64: installed", "installed"),
        (f"nvidia, {OLD}, {KERNEL}, x86_64: installed", "installed"),
        (f"nvidia/{OLD}, 6.8.0-1-generic, x86_64: installed", "not built for this kernel"),
        (f"nvidia/{OLD}: added", "not built for this kernel"),
        (f"nvidia/{NEW}, {KERNEL}, x86_64: installed", "not known to DKMS"),
        (f"nvidia-fs/{OLD}, {KERNEL}, x86_64: installed", "not known to DKMS"),
        (f"nvidia/{OLD}, {KERNEL}, x86_64: installed (Original modules exist)", "installed"),
    ],
)
def test_dkms_is_asked_for_this_version_and_this_kernel(node, monkeypatch, text, state):
    other = "mlnx-ofed-kernel/25.10.OFED, 6.8.0-1-generic, x86_64: installed"
    monkeypatch.setattr(GpuNode, "_dkms", lambda self, words: (0, f"{other}\n{text}\n"))
    assert MODULE.status(node.node(), KERNEL)[0] == state


@pytest.mark.parametrize("name", ["nvidia", "nvidia-open"])
def test_what_the_package_did_not_build_is_built(node, name):
    """EL calls the open modules otherwise."""
    node.dkms_name, node.dkms_builds = name, False
    assert statuses(node.converge()) == {"ok"}
    assert f"dkms install -m {name} -v {OLD} -k {KERNEL}" in [" ".join(c) for c in node.calls]


def test_a_build_that_fails_is_an_error_with_the_end_of_its_log(node):
    node.dkms_breaks = True
    result = node.converge()
    assert any("cc: error: no headers" in error for error in result.outcome.errors)
    assert found(result, "dkms") == {f"nvidia {OLD}": "failed", "gdrdrv 2.5.1": "failed"}
    assert {check.name for check in result.outcome.checks if check.status == "failed"} == {"dkms"}
    hidden = next(check for check in result.outcome.checks if check.name == "gpus")
    assert hidden.reason == f"not read: see dkms nvidia {OLD}"
    node.dkms_breaks = False
    assert failed(node.converge()) == []


# nouveau.


def test_nouveau_goes_by_a_reboot_and_never_by_force(node):
    node.load("nouveau")
    result = node.converge()
    assert found(result, "gpu_driver") == {"": "reboot"}
    assert not any(call[0] == "modprobe" for call in node.calls)
    assert [each.running for each in reboots.recorded("gpu", node.root)] == ["nouveau"]
    assert failed(result) == []
    node.reboot()
    assert statuses(node.converge()) == {"ok"}
    assert reboots.required(node.root) == {}


def test_the_blacklist_is_in_the_initramfs_also_after_an_interruption(node):
    node.converge()
    assert "blacklist nouveau" in node.read(f"boot/initrd.img-{KERNEL}")
    node.write(f"boot/initrd.img-{KERNEL}", "old")
    path = node.root / "etc/modprobe.d/90-baremetal-mpi-roce-nouveau.conf"
    later = (node.root / f"boot/initrd.img-{KERNEL}").stat().st_mtime + 10
    os.utime(path, (later, later))
    node.calls.clear()
    node.converge()
    assert ["update-initramfs", "-u", "-k", KERNEL] in node.calls


@pytest.mark.parametrize("image", [f"boot/initrd.img-{KERNEL}", f"boot/initramfs-{KERNEL}.img"])
def test_dracut_makes_the_image_that_the_node_boots_from(node, image):
    """Ubuntu 26.04 has dracut in place of initramfs-tools (packages.ubuntu.com/resolute-updates/
    linux-initramfs-tool), EL has it as ever; their images have different names."""
    (node.root / "usr/sbin/update-initramfs").unlink()
    (node.root / f"boot/initrd.img-{KERNEL}").unlink()
    node.write(image, "old")
    node.converge()
    assert ["dracut", "--force", f"/{image}", KERNEL] in node.calls
    assert "blacklist nouveau" in node.read(image)


# Modules at boot.


@pytest.mark.parametrize(
    ("release", "choice", "is_open", "needed"),
    [
        ("5.14.0-570.el9.x86_64", "auto", True, False),
        ("5.11.0-1-generic", "auto", True, True),
        ("6.8.0-79-generic", "auto", False, True),
        ("6.8.0-79-generic", "peermem", True, True),
        ("5.11.0-1-generic", "dmabuf", True, False),
    ],
)
def test_nvidia_peermem_is_the_fallback_of_dma_buf(release, choice, is_open, needed):
    assert needs_peermem(release, choice, is_open) is needed


def test_gdrcopy_that_no_repository_has_keeps_nothing_back(node):
    """Its packages are known to be missing when the repository was read: while acting."""
    at_boot = node.root / "etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf"
    node.lacks = {"gdrdrv-dkms"}
    shown = node.converge(check_mode=True)
    assert found(shown, "kernel_module").keys() == {"gdrdrv"}
    result = node.converge()
    assert result.outcome.errors == []
    assert failed(result) == []
    assert node.driver == OLD
    assert found(result, "dkms") == {f"nvidia {OLD}": "ok"}
    assert found(result, "kernel_module") == {}
    assert not at_boot.exists()
    assert not node.converge().outcome.changed
    node.lacks = set()
    assert failed(node.converge()) == []
    assert at_boot.read_text().splitlines()[1:] == ["gdrdrv"]
    assert not node.converge().outcome.changed


def test_peermem_that_is_asked_for_is_loaded_now_and_at_every_boot(node):
    result = node.converge(gpudirect="peermem")
    assert found(result, "kernel_module") == {"gdrdrv": "ok", "nvidia_peermem": "ok"}
    file = node.read("etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf")
    assert file.splitlines()[1:] == ["gdrdrv", "nvidia_peermem"]
    node.converge()
    file = node.read("etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf")
    assert file.splitlines()[1:] == ["gdrdrv"]


def test_persistence_mode_is_switched_on_where_the_daemon_runs_as_its_package_has_it(node):
    node.converge()
    (
        node.root / "etc/systemd/system/nvidia-persistenced.service.d/90-baremetal-mpi-roce.conf"
    ).unlink()
    node.calls.clear()
    node.converge()
    assert ["nvidia-smi", "--persistence-mode=1"] in node.calls
    node.calls.clear()
    node.converge()
    assert ["nvidia-smi", "--persistence-mode=1"] not in node.calls


# CUDA.


def test_a_link_to_another_toolkit_is_set_right(node):
    node.converge()
    node._update_alternatives(["", "--set", "cuda", "/usr/local/cuda-12.9"])
    (node.root / "usr/local/cuda-12.9").mkdir()
    seen = node.converge(check_mode=True)
    assert found(seen, "cuda_toolkit") == {"": "pending"}
    assert statuses(node.converge()) == {"ok"}


def test_the_bindings_of_nvml_come_from_the_controller_and_stay_the_same(node):
    name = "usr/local/libexec/baremetal-mpi-roce/pynvml.py"
    result = node.converge()
    assert node.read(name) == "# pynvml\n"
    assert all("# pynvml" not in str(each) for each in result.outcome.diff)
    node.write(name, "# older\n")
    assert node.converge(check_mode=True).outcome.changed
    node.converge()
    assert node.read(name) == "# pynvml\n"


def _health(node, wait_s, slept):
    wanted = stack.wanted(OPTIONS, read_software(software()).driver)
    shared = Shared(Kernel(node.root, node.root), OLD)
    return Health(shared, wanted, wait_s, clock=lambda: sum(slept), sleep=slept.append)


@pytest.mark.parametrize("check_mode", [False, True])
def test_the_fabric_gets_its_time_and_no_more(node, check_mode):
    """In check mode too: so a node is verified that has just booted."""
    node.converge()
    slept = []
    waiting = _health(node, 30.0, slept)
    on = node.node(check_mode)
    node.fabric = ["In Progress", "In Progress", "In Progress", "Completed"]
    assert [check.status for check in waiting.verify(on).checks] == ["ok"]
    assert slept == [5.0, 5.0]
    slept.clear()
    node.fabric = ["In Progress"]
    [late] = waiting.verify(on).checks
    assert late.status == ("pending" if check_mode else "failed")
    assert sum(slept) == 30.0
