# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPU stack on a simulated node: installation, upgrade, interruption, refusals, resources."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Plan,
    PlanError,
    Step,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import modules, stack
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.modules import (
    DIFFERENT,
    DkmsModule,
    needs_peermem,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu.shared import (
    GpuKernel,
    Shared,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import read_software

from tests.unit.gpu_node import (
    DCGM,
    DRIVER,
    FABRIC_MANAGER,
    KERNEL,
    NEW,
    OLD,
    OPTIONS,
    PERSISTENCED,
    GpuNode,
    Installer,
    play,
    software,
)


@pytest.fixture
def node(tmp_path, monkeypatch):
    return play(GpuNode(tmp_path / "node"), monkeypatch)


def found(result, name):
    """Status by subject, of the checks with this name."""
    return {check.subject: check.status for check in result.outcome.checks if check.name == name}


def failed(result):
    return [check.line() for check in result.outcome.checks if check.status == "failed"]


def statuses(result):
    return {check.status for check in result.outcome.checks}


def changes(node):
    """The programs that ran, by their first words."""
    return [" ".join(call[:3]) for call in node.calls]


def test_a_fresh_node_is_installed_and_verified_once(node):
    result = node.converge()
    assert result.outcome.changed
    assert result.outcome.errors == []
    assert statuses(result) == {"ok"}
    assert node.driver == OLD
    assert node.active() == {PERSISTENCED, FABRIC_MANAGER, DCGM}
    assert {state[0] for state in node.units.values()} == {"enabled"}
    assert result.simulated == ["GPU hardware is played"]
    order = [
        "packages",
        "modprobe nvidia",
        f"systemctl start {PERSISTENCED}",
        f"systemctl start {FABRIC_MANAGER}",
        f"systemctl start {DCGM}",
    ]
    assert [each for each in changes(node) if each in order] == order
    before = node.snapshot()
    node.calls.clear()
    for check_mode in (False, True):
        again = node.converge(check_mode=check_mode)
        assert not again.outcome.changed, again.outcome.diff
        assert statuses(again) == {"ok"}
    assert node.calls == []
    assert node.snapshot() == before


def test_check_mode_on_a_fresh_node(node):
    before = node.snapshot()
    shown = node.converge(check_mode=True)
    assert node.snapshot() == before
    assert node.calls == []
    assert shown.outcome.changed
    assert failed(shown) == []
    done = node.converge()
    assert [each["before_header"] for each in shown.outcome.diff] == [
        each["before_header"] for each in done.outcome.diff
    ]


@pytest.mark.parametrize("options", [{"gpus": []}, {"driver": ""}])
def test_not_applicable_without_gpus_or_driver(node, options):
    before = node.snapshot()
    result = node.converge(**options)
    assert [check.status for check in result.outcome.checks] == ["not_applicable"]
    assert not result.outcome.changed
    assert node.snapshot() == before


def test_container_is_not_applicable_unless_hardware_is_simulated(node, tmp_path):
    node.write("run/systemd/container", "podman\n")
    [check] = node.converge().outcome.checks
    assert (check.name, check.status) == ("gpu_stack", "not_applicable")
    GpuNode(tmp_path / "tree", gpus=0)
    with pytest.raises(PlanError, match="no NVIDIA GPU"):
        node.converge(hardware_root=str(tmp_path / "tree"))


def test_upgrade_completes_after_the_reboot(node):
    node.converge()
    node.calls.clear()
    result = node.converge(NEW)
    ran = changes(node)
    assert ran[:3] == [f"systemctl stop {DCGM}", f"systemctl stop {FABRIC_MANAGER}", "packages"]
    assert not any(each.startswith(("modprobe", "systemctl start")) for each in ran)
    assert failed(result) == []
    assert node.driver == OLD
    assert found(result, "service") == {DCGM: "not_applicable"}
    recorded = reboots.recorded("gpu", node.root)
    assert [(each.wanted, each.running) for each in recorded] == [(NEW, OLD)]
    node.calls.clear()
    again = node.converge(NEW)
    assert not again.outcome.changed, again.outcome.diff
    assert node.calls == []
    node.reboot()
    after = node.converge(NEW)
    assert statuses(after) == {"ok"}
    assert node.driver == NEW
    assert node.active() == {PERSISTENCED, FABRIC_MANAGER, DCGM}
    assert reboots.required(node.root) == {}
    assert not node.converge(NEW).outcome.changed


def test_reload_driver_replaces_the_module(node):
    node.converge()
    node.load("nvidia_uvm")
    node.calls.clear()
    result = node.converge(NEW, reload_driver=True)
    assert statuses(result) == {"ok"}
    assert result.outcome.reasons == []
    assert node.driver == NEW
    assert node.active() == {PERSISTENCED, FABRIC_MANAGER, DCGM}
    ran = changes(node)
    assert ran.index("modprobe gdrdrv") > ran.index("modprobe nvidia")
    unloaded = [each for each in ran if each.startswith("modprobe -r")]
    assert unloaded == ["modprobe -r gdrdrv", "modprobe -r nvidia_uvm", "modprobe -r nvidia"]
    assert ran.index(f"systemctl stop {PERSISTENCED}") < ran.index(unloaded[0])
    assert not node.converge(NEW, reload_driver=True).outcome.changed


def test_a_module_in_use_is_never_taken_out(node):
    node.converge()
    node.process(4242, "python3", opens="/dev/nvidia-uvm")
    result = node.converge(NEW, reload_driver=True, change_under_jobs=True)
    assert not any("-r" in call for call in node.calls)
    assert node.driver == OLD
    assert [each.wanted for each in result.outcome.reasons] == [NEW]
    assert not node.converge(NEW, reload_driver=True).outcome.changed


JOBS = [
    ("python3", {"opens": "/dev/nvidia3"}),
    ("solver", {"environment": "HOME=/root\0OMPI_COMM_WORLD_RANK=3\0"}),
]


@pytest.mark.parametrize(("name", "how"), JOBS)
def test_driver_change_is_refused_under_a_job(node, name, how):
    node.converge()
    node.process(4242, name, **how)
    before = node.snapshot()
    with pytest.raises(PlanError) as caught:
        node.converge(NEW)
    for word in (name, "4242", OLD, NEW):
        assert word in str(caught.value)
    assert node.snapshot() == before
    with pytest.raises(PlanError):
        node.converge(NEW, check_mode=True)
    assert failed(node.converge(NEW, change_under_jobs=True)) == []


def test_job_started_after_the_plan(node, monkeypatch):
    """Read again directly before services stop."""
    node.converge()
    node.calls.clear()

    def come():
        node.process(4242, "python3", opens="/dev/nvidia-uvm")

    step = Step("a job", "none", "one", come)
    monkeypatch.setattr(modules.Nouveau, "plan", lambda self, on: Plan(steps=[step]))
    result = node.converge(NEW)
    [error] = result.outcome.errors
    assert "a job started since the plan" in error and "python3 (PID 4242" in error
    assert not {"packages", f"systemctl stop {FABRIC_MANAGER}"} & {*changes(node)}
    assert node.active() == {PERSISTENCED, FABRIC_MANAGER, DCGM}


def test_only_open_gpus_block_a_driver_change(node):
    """On a node drained in Slurm, where a prolog has started MPS."""
    node.converge()
    node.process(1361, "slurmstepd")
    node.write("proc/1361/cmdline", "/usr/sbin/slurmstepd\0infinity\0")
    node.process(1400, "nvidia-cuda-mps", environment="SLURM_JOB_ID=76\0")
    assert failed(node.converge(NEW)) == []
    node.process(1401, "nvidia-cuda-mps", opens="/dev/nvidiactl")
    with pytest.raises(PlanError, match=r"MPS \(echo quit \| nvidia-cuda-mps-control\)") as caught:
        node.converge(OLD, allow_downgrade=True)
    assert "PID 1401" in str(caught.value) and "PID 1400" not in str(caught.value)


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/dcgm-exporter.service\n", "dcgm-exporter.service"),
        ("0::/user.slice/user-9.slice/user@9.service/app.slice/x.service\n", ""),
    ],
)
def test_remaining_service_is_named(node, groups, unit):
    node.converge()
    node.process(4242, "dcgm-exporter", opens="/dev/nvidiactl")
    node.write("proc/4242/cgroup", groups)
    with pytest.raises(PlanError) as caught:
        node.converge(NEW)
    said = f"has /dev/nvidiactl open{f', {unit}' if unit else ''})"
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["nvidia-persiste", "nvlsm"])
def test_the_services_of_the_set_are_no_job(node, name):
    node.converge()
    node.process(4242, name, opens="/dev/nvidia3")
    assert failed(node.converge(NEW)) == []
    podman = "/machine.slice/libpod-7.scope/system.slice/nvidia-fabricmanager.service"
    node.write("proc/4242/cgroup", f"0::{podman}\n")
    assert failed(node.converge(OLD, allow_downgrade=True)) == []
    node.write("proc/4242/cgroup", "0::/user.slice/user-9.slice/session-3.scope\n")
    with pytest.raises(PlanError, match="PID 4242"):
        node.converge(NEW)


def test_repair_is_refused_under_a_job(node):
    node.converge()
    node.interrupted = "nvidia-open-580 is half installed"
    node.process(4242, "python3", opens="/dev/nvidia-uvm")
    with pytest.raises(PlanError, match=r"half installed.*python3"):
        node.converge()


def test_unsolved_plan_counts_as_a_driver_change(node, monkeypatch):
    plan = Installer.plan

    def unsolved(self):
        return replace(plan(self), solved=False)

    monkeypatch.setattr(Installer, "plan", unsolved)
    node.converge()  # the first installation
    node.process(4242, "python3", opens="/dev/nvidia-uvm")
    node.converge()
    del node.installed["cuda-toolkit-13-2"]
    with pytest.raises(PlanError, match=r"cuda-toolkit-13-2.*python3"):
        node.converge()


@pytest.mark.parametrize("start", ["fresh", "upgrade"])
def test_killed_run_is_completed_by_the_next(tmp_path, monkeypatch, start):
    """A run that was killed before any file, program or package is completed by the next."""

    def prepared(name):
        node = play(GpuNode(tmp_path / name), monkeypatch)
        if start == "upgrade":
            node.converge()
        return node

    wanted = NEW if start == "upgrade" else OLD
    whole = prepared("whole")
    whole.converge(wanted)
    goal = whole.snapshot()
    write = files.write_atomically
    for point in range(80):
        half = prepared(f"killed-{point}")

        def stopping_write(*args, half=half):
            half.spend()
            write(*args)

        half.steps_left = point
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_atomically", stopping_write)
            try:
                half.converge(wanted)
                killed = False
            except KeyboardInterrupt:
                killed = True
        half.steps_left = None
        half.converge(wanted)
        assert half.snapshot() == goal, point
        assert not half.converge(wanted).outcome.changed
        if not killed:
            assert point > 6
            return
    pytest.fail("never ran to its end")


def test_services_restart_after_a_failed_download(node):
    node.converge()
    result = node.converge(NEW, fails="before")
    assert any("repository does not answer" in error for error in result.outcome.errors)
    assert node.active() == {PERSISTENCED, FABRIC_MANAGER, DCGM}
    assert node.converge(OLD).outcome.changed is False


def test_partial_transaction_starts_no_mismatched_service(node):
    node.converge()
    node.installed[DRIVER[2]] = f"{NEW}-0ubuntu1"
    result = node.converge(NEW, fails="between")
    assert any("no space left" in error for error in result.outcome.errors)
    assert FABRIC_MANAGER not in node.active()
    assert failed(node.converge(NEW)) == []


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
        (f"nvidia/{OLD}, {KERNEL}, x86_64: installed (Original modules exist)", "installed"),
        (f"nvidia, {OLD}, {KERNEL}, x86_64: installed-weak from 6.8.0-1", "installed-weak"),
        # do_status of dell/dkms 2.8 and 3.1.
        (f"nvidia/{OLD}, {KERNEL}, x86_64: installed ({DIFF}) ({DIFF})", f"{DIFFERENT}{DIFF}"),
        (
            f"nvidia/{OLD}, {KERNEL}, x86_64: installed (Original modules exist) "
            "(Differences between built and installed modules)",
            f"{DIFFERENT}Differences between built and installed modules",
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
    [error] = node.converge(gpudirect="peermem").outcome.errors  # the kernel's own RDMA core
    assert peer.ERROR in error and peer.calls() == []
    peer.at(peer.CORE, 20)
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
    for _run in range(2):  # the first one is killed after the file
        node.calls.clear()
        node.converge()
        assert ["nvidia-smi", "--persistence-mode=1"] in node.calls
        node.reloads = "yes"
    node.reloads = "no"
    node.calls.clear()
    node.converge()
    assert ["nvidia-smi", "--persistence-mode=1"] not in node.calls


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
    assert [check.name for check in result.outcome.checks] == [
        "gpu_fabric",
        "floor",
    ]  # simulated GPUs
    assert result.outcome.reasons == []


def test_unmanaged_toolkit_is_only_compared(node):
    node.converge()
    (node.root / "etc/profile.d/baremetal-mpi-roce-cuda.sh").unlink()
    files = [path for path in node.snapshot() if "cuda" in path]
    node.calls.clear()
    right = node.converge(extra={**OTHERS, "cuda": "13.2"})
    assert (statuses(right), node.calls) == ({"ok"}, [])
    other = node.converge(extra={**OTHERS, "cuda": "12.9"}, check_mode=True)
    assert found(other, "cuda_toolkit") == {"": "failed"}
    assert [path for path in node.snapshot() if "cuda" in path] == files


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
    return stack.Health(Shared(GpuKernel(node.root, node.root), OLD), wanted, wait_s)


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


def test_what_is_installed_is_compared_with_minimum_versions(node):
    node.converge()
    node.reboot()
    assert found(node.converge(), "floor") == dict.fromkeys(
        ("NVIDIA driver", "CUDA toolkit", "DCGM"), "ok"
    )
    node.runc = "1.3.5"
    node.installed.update({"nvidia-container-toolkit": "1.18.2-1", "libnccl2": "2.28.7-1+cuda13.0"})
    below = {"runc": "pending", "NVIDIA Container Toolkit": "pending", "NCCL": "pending"}
    assert below.items() <= found(node.converge(), "floor").items()
    accepted = {"component": "runc", "version": "1.3.5", "reason": "x", "until": "2999-12-31"}
    result = node.converge(extra={"accepted": [accepted]})
    assert found(result, "floor")["runc"] == "not_applicable"
    node.installed["runc"] = "1.3.3-0ubuntu1~24.04.3"
    assert "runc" not in found(node.converge(), "floor")
