# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPU stack on a simulated node: installation, upgrade, interruption."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import (
    Plan,
    PlanError,
    Step,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import modules

from tests.unit.gpu_node import (
    DCGM,
    DRIVER,
    FABRIC_MANAGER,
    NEW,
    OLD,
    PERSISTENCED,
    GpuNode,
    Installer,
    play,
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


# Installation.


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


# Upgrade.


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


# Jobs.

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
        return dataclasses.replace(plan(self), solved=False)

    monkeypatch.setattr(Installer, "plan", unsolved)
    node.converge()  # the first installation
    node.process(4242, "python3", opens="/dev/nvidia-uvm")
    node.converge()
    del node.installed["cuda-toolkit-13-0"]
    with pytest.raises(PlanError, match=r"cuda-toolkit-13-0.*python3"):
        node.converge()


# Interruptions and failures.


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


def test_failed_upgrade_restarts_services_and_records_the_reboot(node, monkeypatch):
    node.converge()
    write = files.write_atomically
    (node.root / "etc/profile.d/baremetal-mpi-roce-cuda.sh").unlink()

    def full(path, *more):
        if path.name == "baremetal-mpi-roce-cuda.sh":
            raise OSError(28, "No space left on device", str(path))
        write(path, *more)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", full)
        result = node.converge(NEW)
        assert [each.wanted for each in reboots.recorded("gpu", node.root)] == [NEW]
        same = node.converge(NEW, dcgm="4.5.0")
    for each in (result, same):
        [error] = each.outcome.errors
        assert "No space left" in error and "cuda.sh" in error
        assert found(each, "file")["/etc/profile.d/baremetal-mpi-roce-cuda.sh"] == "failed"
    assert failed(node.converge(NEW)) == []
