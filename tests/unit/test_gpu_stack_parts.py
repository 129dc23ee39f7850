# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refusals and single resources of the GPU stack."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import stack
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.modules import (
    DIFFERENT,
    DkmsModule,
    needs_peermem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.shared import (
    GpuKernel,
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
    """A node's refusal; nothing changes, in check mode either."""
    before = node.snapshot()
    with pytest.raises(PlanError) as caught:
        node.converge(**options)
    with pytest.raises(PlanError):
        node.converge(check_mode=True, **options)
    assert node.snapshot() == before
    assert [call for call in node.calls if call[0] != "mokutil"] == []
    return str(caught.value)


# Refused machines.


def test_secure_boot_without_an_enrolled_key_is_refused(node):
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
        "nvidia-firmware-570-server-570.86.15",  # packages.ubuntu.com/noble-updates
        "xserver-xorg-video-nvidia-570-server",
        "akmod-nvidia",
        "kmod-nvidia",
    ],
)
def test_a_driver_of_another_source_is_refused(node, package):
    node.installed[package] = "580.65.06-0ubuntu1"
    assert f"apt-get purge {package}" in refusal(node)


@pytest.mark.parametrize("kernel", ["6.8.0-1019-nvidia", "nvidia-64k", "generic"])
def test_gpudirect_storage_of_ubuntus_kernel_is_no_driver(node, kernel):
    """linux-nvidia depends on it (control file of linux-meta-nvidia)."""
    node.installed[f"linux-modules-nvidia-fs-{kernel}"] = "6.8.0-1019.20"
    assert failed(node.converge()) == []


def test_another_kernel_than_the_sets_is_refused(node):
    found = refusal(node, extra={"kernel": "6.8.0-90-generic"})
    assert "6.8.0-90-generic" in found
    assert KERNEL in found
    assert failed(node.converge(extra={"kernel": KERNEL})) == []


MODULE = DkmsModule(("nvidia", "nvidia-open"), OLD)
DIFF = "WARNING! Diff between built and installed module!"


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
        (f"nvidia, {OLD}, {KERNEL}, x86_64: installed (original_module exists)", "installed"),
        (f"nvidia, {OLD}, {KERNEL}, x86_64: installed-weak from 6.8.0-1", "installed-weak"),
        (f"nvidia/{OLD}: broken", "not built for this kernel"),
        # do_status of dell/dkms 2.8 and 3.1.
        (f"nvidia/{OLD}, {KERNEL}, x86_64: installed ({DIFF}) ({DIFF})", f"{DIFFERENT}{DIFF}"),
        (
            f"nvidia/{OLD}, {KERNEL}, x86_64: installed (Original modules exist) "
            "(Differences between built and installed modules)",
            f"{DIFFERENT}Differences between built and installed modules",
        ),
        (
            f"nvidia/{OLD}, {KERNEL}, x86_64: "
            "installed (Built modules are missing in the kernel modules folder)",
            f"{DIFFERENT}Built modules are missing in the kernel modules folder",
        ),
    ],
)
def test_dkms_status(node, monkeypatch, text, state):
    other = "mlnx-ofed-kernel/25.10.OFED, 6.8.0-1-generic, x86_64: installed"
    monkeypatch.setattr(GpuNode, "_dkms", lambda self, words: (0, f"{other}\n{text}\n"))
    assert MODULE.status(node.node(), KERNEL)[0] == state


def test_modules_that_differ_from_the_build_stay(node, monkeypatch):
    """They may be intentional, and signed. GPUs are checked nevertheless."""
    node.converge()
    node.calls.clear()
    ask = GpuNode._dkms

    def different(self, words):
        rc, text = ask(self, words)
        return rc, text.replace("x86_64: installed", f"x86_64: installed ({DIFF})")

    monkeypatch.setattr(GpuNode, "_dkms", different)
    result = node.converge()
    assert found(result, "dkms") == {f"nvidia {OLD}": "failed", "gdrdrv 2.5.1": "failed"}
    assert found(result, "gpu_fabric") == {"": "ok"}
    check = next(each for each in result.outcome.checks if each.name == "dkms")
    assert f"dkms install -m nvidia -v {OLD} -k {KERNEL} --force" in check.reason
    assert not any(call[0] == "dkms" for call in node.calls)


@pytest.mark.parametrize("name", ["nvidia", "nvidia-open"])
def test_what_the_package_did_not_build_is_built(node, name):
    """EL names the open modules differently."""
    node.dkms_name, node.dkms_builds = name, False
    assert statuses(node.converge()) == {"ok"}
    assert f"dkms install -m {name} -v {OLD} -k {KERNEL}" in [" ".join(c) for c in node.calls]


def test_failed_build_reports_errors_of_its_log(node):
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


def test_nouveau_needs_a_reboot(node):
    node.load("nouveau")
    result = node.converge()
    assert found(result, "gpu_driver") == {"": "reboot"}
    assert not any(call[0] == "modprobe" for call in node.calls)
    assert [each.running for each in reboots.recorded("gpu", node.root)] == ["nouveau"]
    assert failed(result) == []
    node.reboot()
    assert statuses(node.converge()) == {"ok"}
    assert reboots.required(node.root) == {}


def test_interrupted_initramfs_is_rebuilt(node):
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
def test_dracut_image(node, image):
    """Ubuntu 26.04 has dracut instead of initramfs-tools (packages.ubuntu.com/resolute-updates/
    linux-initramfs-tool), as EL; their images have different names."""
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
    """Reading the repository, during the change, shows that packages are missing."""
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


class PeerMemory:
    """Modules of DOCA-OFED and of the driver on disk, and a kernel that accepts matching ones."""

    CORE = f"lib/modules/{KERNEL}/updates/dkms/ib_core.ko.zst"
    OWN = f"lib/modules/{KERNEL}/updates/dkms/nvidia-peermem.ko.zst"
    ERROR = "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument"

    def __init__(self, node, monkeypatch):
        self.node, self.fits = node, True
        probe, dkms = GpuNode._modprobe, GpuNode._dkms

        def modprobe(node, words):
            bad = words[-1] == "nvidia_peermem" and not self.fits
            return (1, self.ERROR) if bad else probe(node, words)

        def builds(node, words):
            done = dkms(node, words)
            if words[1] == "install" and words[3].startswith("nvidia"):
                self.fits = True
                self.at(self.OWN, 30)
            return done

        monkeypatch.setattr(GpuNode, "_modprobe", modprobe)
        monkeypatch.setattr(GpuNode, "_dkms", builds)

    def at(self, name, when):
        path = self.node.write(name, "")
        os.utime(path, (when, when))

    def calls(self):
        return [" ".join(call[:4]) for call in self.node.calls if call[0] == "dkms"]


AGAIN = ["dkms build -m nvidia", "dkms install -m nvidia"]


def test_peermem_is_rebuilt_after_an_rdma_change(node, monkeypatch):
    """In the run that finds it, so that the next boot loads it; NVIDIA/gpu-operator 2868."""
    peer = PeerMemory(node, monkeypatch)
    node.converge(gpudirect="peermem")
    peer.at(peer.OWN, 10)
    peer.at(peer.CORE, 20)
    node.calls.clear()
    shown = node.converge(check_mode=True, gpudirect="peermem")
    assert found(shown, "kernel_module")["nvidia_peermem"] == "pending"
    assert peer.calls() == []
    result = node.converge(gpudirect="peermem")
    assert peer.calls() == AGAIN
    assert failed(result) == []
    assert not node.converge(gpudirect="peermem").outcome.changed


def test_rejected_peermem_is_rebuilt(node, monkeypatch):
    """File times are not conclusive."""
    peer = PeerMemory(node, monkeypatch)
    peer.fits = False
    result = node.converge(gpudirect="peermem")
    assert peer.calls() == AGAIN
    assert failed(result) == []


def test_peermem_that_stays_refused_says_so(node, monkeypatch):
    never = property(lambda self: False, lambda self, value: None)
    monkeypatch.setattr(PeerMemory, "fits", never, raising=False)
    peer = PeerMemory(node, monkeypatch)
    peer.at(peer.CORE, 20)
    [error] = node.converge(gpudirect="peermem").outcome.errors
    assert peer.ERROR in error and peer.calls() == AGAIN


def test_peermem_is_loaded_now_and_at_boot(node):
    result = node.converge(gpudirect="peermem")
    assert found(result, "kernel_module") == {"gdrdrv": "ok", "nvidia_peermem": "ok"}
    file = node.read("etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf")
    assert file.splitlines()[1:] == ["gdrdrv", "nvidia_peermem"]
    node.converge()
    file = node.read("etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf")
    assert file.splitlines()[1:] == ["gdrdrv"]


def test_persistence_mode_is_enabled_for_a_running_daemon(node):
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


# A driver that others installed.

OTHERS = {"driver": {"manage": False}, "cuda": "", "dcgm": "", "gdrcopy": "", "nccl": ""}
DGX_OS = {
    "linux-modules-nvidia-580-server-open-6.8.0-79-generic": "6.8.0-79.79",
    "nvidia-driver-580-server-open": "580.95.05-0ubuntu1",
    "datacenter-gpu-manager-4-cuda13": "1:4.5.2-1",
    "nvidia-fabricmanager": "580.95.05-1",
}


@pytest.mark.parametrize("check_mode", [False, True])
def test_unmanaged_driver_is_only_verified(node, check_mode):
    """Packages of Ubuntu and DGX OS, and files of NVIDIA's .run installer, are no refusal."""
    node.installed.update(DGX_OS)
    node.write("usr/bin/nvidia-uninstall", "")
    node.load("nvidia", OLD)
    node.write("usr/local/libexec/baremetal-mpi-roce/pynvml.py", "# pynvml\n")
    node.secure_boot = True
    before = node.snapshot()
    result = node.converge(extra=OTHERS, check_mode=check_mode)
    assert node.snapshot() == before
    assert (node.calls, result.outcome.changed, result.outcome.errors) == ([], False, [])
    assert [check.name for check in result.outcome.checks] == ["gpu_fabric"]  # simulated GPUs
    assert result.outcome.reasons == []


def test_unmanaged_toolkit_is_only_compared(node):
    node.converge()
    (node.root / "etc/profile.d/baremetal-mpi-roce-cuda.sh").unlink()
    files = [path for path in node.snapshot() if "cuda" in path]
    node.calls.clear()
    right = node.converge(extra={**OTHERS, "cuda": "13.0"})
    assert (statuses(right), node.calls) == ({"ok"}, [])
    other = node.converge(extra={**OTHERS, "cuda": "12.9"}, check_mode=True)
    assert found(other, "cuda_toolkit") == {"": "failed"}
    assert [path for path in node.snapshot() if "cuda" in path] == files


# The fabric manager.


def test_early_fabric_manager_is_started_again(node):
    node.races = 1
    result = node.converge()
    assert (result.outcome.errors, statuses(result)) == ([], {"ok"})
    assert ["systemctl", "restart", "nvidia-fabricmanager.service"] in node.calls


def test_failing_fabric_manager_reports_its_log(node):
    node.races = 2
    result = node.converge()
    [error] = result.outcome.errors
    assert "not all local fabric manager instances finished" in error
    assert "Connected to 1 node" not in error
    assert len([call for call in node.calls if "nvidia-fabricmanager.service" in call]) == 3
    assert statuses(node.converge()) == {"ok"}


def test_masked_unit_names_the_remedy(node):
    """NVIDIA/gpu-operator issue 356, NVIDIA/ansible-role-nvidia-driver issue 79."""
    node.converge()
    node.units["nvidia-fabricmanager.service"] = ["masked", "inactive"]
    [error] = node.converge().outcome.errors
    assert "systemctl unmask nvidia-fabricmanager.service" in error


# CUDA.


def test_a_link_to_another_toolkit_is_set_right(node):
    node.converge()
    node._update_alternatives(["", "--set", "cuda", "/usr/local/cuda-12.9"])
    (node.root / "usr/local/cuda-12.9").mkdir()
    seen = node.converge(check_mode=True)
    assert found(seen, "cuda_toolkit") == {"": "pending"}
    assert statuses(node.converge()) == {"ok"}


def test_nvml_bindings_are_installed_once(node):
    name = "usr/local/libexec/baremetal-mpi-roce/pynvml.py"
    result = node.converge()
    assert node.read(name) == "# pynvml\n"
    assert all("# pynvml" not in str(each) for each in result.outcome.diff)
    node.write(name, "# older\n")
    assert node.converge(check_mode=True).outcome.changed
    node.converge()
    assert node.read(name) == "# pynvml\n"


def _health(node, wait_s):
    wanted = stack.wanted(OPTIONS, read_software(software()).driver)
    return Health(Shared(GpuKernel(node.root, node.root), OLD), wanted, wait_s)


@pytest.mark.parametrize("check_mode", [False, True])
def test_fabric_wait(node, check_mode):
    """In check mode too, as a node that has just booted is verified that way."""
    node.converge()
    slept = []
    waiting = _health(node, 30.0)
    on = replace(node.node(check_mode), clock=lambda: sum(slept), sleep=slept.append)
    node.fabric = ["In Progress", "In Progress", "In Progress", "Completed"]
    assert [check.status for check in waiting.verify(on).checks] == ["ok"]
    assert slept == [5.0, 5.0]
    slept.clear()
    node.fabric = ["In Progress"]
    [late] = waiting.verify(on).checks
    assert late.status == ("pending" if check_mode else "failed")
    assert sum(slept) == 30.0
