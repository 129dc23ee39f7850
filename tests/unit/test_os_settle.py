# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The baseline on recorded nodes: fresh, converged, drifted, interrupted, and a container."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files, reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError

from tests.unit.os_tree import FULL, Tree, statuses

MACHINES = ["ubuntu", "rocky"]


@pytest.fixture(params=MACHINES)
def tree(request, tmp_path):
    return Tree(request.param, tmp_path)


@pytest.fixture
def container(tmp_path):
    return Tree("container", tmp_path)


def test_fresh_node_awaits_only_the_reboot(tree):
    outcome = tree.settle(**FULL)
    assert outcome.changed
    assert not outcome.errors
    assert [check.line() for check in outcome.checks if check.status == "failed"] == []
    assert statuses(outcome) == {"ok", "reboot"}
    assert {c.subject for c in outcome.checks if c.status == "reboot"} == {"iommu=pt"}
    assert [each.wanted for each in outcome.reasons] == ["iommu=pt"]


def test_second_run_is_idle(tree):
    tree.settle(**FULL)
    before = tree.snapshot()
    tree.calls.clear()
    outcome = tree.settle(**FULL)
    assert not outcome.changed, outcome.diff
    assert tree.snapshot() == before
    quiet = {"show", "id", "runuser", "grubby", "chronyc"}
    assert {call[1] if call[0] == "systemctl" else call[0] for call in tree.calls} <= quiet


def test_everything_is_ok_after_the_reboot(tree):
    tree.settle(**FULL)
    assert "os" in reboots.required(tree.root)
    tree.reboot()
    outcome = tree.settle(**FULL)
    record = str(reboots.path_of("os", tree.root))
    assert [each["after_header"] for each in outcome.diff] == [record]
    assert statuses(outcome) == {"ok"}
    assert outcome.reasons == [] and reboots.required(tree.root) == {}
    for check_mode in (True, False):
        again = tree.settle(check_mode=check_mode, **FULL)
        assert not again.changed and statuses(again) == {"ok"}


def test_check_mode_on_a_fresh_node(tree):
    before = tree.snapshot()
    outcome = tree.settle(check_mode=True, **FULL)
    assert tree.snapshot() == before
    assert outcome.changed and "failed" not in statuses(outcome)
    shown, real = (
        {each["before_header"] for each in found.diff if "(running)" in each["before_header"]}
        for found in (outcome, tree.settle(**FULL))
    )
    assert shown == real


@pytest.mark.parametrize(
    ("name", "text", "check"),
    [
        ("proc/sys/kernel/numa_balancing", "1\n", "sysctl"),
        ("etc/sysctl.d/90-baremetal-mpi-roce.conf", "# emptied by hand\n", "file"),
        ("etc/security/limits.d/90-baremetal-mpi-roce.conf", "* - memlock 64\n", "session_limit"),
        ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n", "cpu_governor"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n", "transparent"),
    ],
)
def test_drift_is_seen_and_repaired(tree, name, text, check):
    tree.settle(**FULL)
    tree.write(name, text)
    seen = tree.settle(check_mode=True, **FULL)
    pending = [each for each in seen.checks if each.status == "pending"]
    assert any(each.name.startswith(check) for each in pending)
    assert tree.read(name) == text
    repaired = tree.settle(**FULL)
    assert repaired.changed
    assert "failed" not in statuses(repaired)
    if "enabled" not in name:  # the recorded kernel does not put brackets around the value
        assert not tree.settle(**FULL).changed


LOOKING = ("id", "runuser", "chronyc")


def test_killed_run_is_completed_by_the_next(tree, tmp_path, monkeypatch):
    """Killed before the first, second, ... file or program, a run is completed by the next."""
    tree.settle(**FULL)
    goal = tree.snapshot()
    write = files.write_atomically
    left = [0]

    def spend():
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1

    def stopping_write(*args):
        spend()
        write(*args)

    for point in range(60):
        half = Tree(tree.root.name, tmp_path / f"killed-{point}")

        def stopping_run(argv, half=half, **more):
            if argv[0] not in LOOKING and "show" not in argv and "--info=ALL" not in argv:
                spend()
            return Tree.run(half, argv, **more)

        left[0] = point
        half.run = stopping_run
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_atomically", stopping_write)
            try:
                half.settle(**FULL)
            except KeyboardInterrupt:
                killed = True
            else:
                killed = False
        del half.run
        half.settle(**FULL)
        assert half.snapshot() == goal, point
        assert not half.settle(**FULL).changed
        if not killed:
            assert point > 10
            return
    pytest.fail("never ran to its end")


def test_container(container):
    before = container.read("proc/sys/kernel/numa_balancing")
    outcome = container.settle(**FULL)
    assert statuses(outcome) == {"ok", "not_applicable"}
    excused = {check.name for check in outcome.checks if check.status == "not_applicable"}
    assert excused == {
        "sysctl",
        "session_limit",
        "service_limit",
        "hugepages",
        "transparent_hugepages",
        "cpu_governor",
        "swap",
        "irqbalance",
        "time_sync",
        "kernel_argument",
    }
    assert all(
        check.reason.startswith("not applicable in a container (podman)")
        for check in outcome.checks
        if check.status == "not_applicable"
    )
    assert container.read("proc/sys/kernel/numa_balancing") == before
    assert container.read("proc/sys/net/ipv4/tcp_rmem").split() == ["4096", "131072", "67108864"]
    assert "dev/vdb" in container.read("proc/swaps")
    assert not container.settle(**FULL).changed


def test_container_gets_no_limit_above_its_own(container):
    name = "etc/security/limits.d/90-baremetal-mpi-roce.conf"
    container.settle(**FULL)
    assert all(line.startswith("#") for line in container.read(name).splitlines())
    container.settle(limits={"memlock": 8192, "nofile": 65536})
    lines = container.read(name).splitlines()[1:]
    assert lines == [
        "* - memlock 8192",
        "root - memlock 8192",
        "# nofile 65536: not applicable in a container (podman): its own hard limit is 20000",
    ]


def test_a_finding_of_any_part_leaves_everything_untouched(tree):
    before = tree.snapshot()
    with pytest.raises(PlanError) as caught:
        tree.settle(
            sysctls={"net.ipv4.tcp_no_such_thing": 1},
            limits={"nofile": 99999999},
            kernel_arguments=["iommu=pt"],
        )
    assert "tcp_no_such_thing" in str(caught.value)
    assert "fs.nr_open" in str(caught.value)
    assert tree.snapshot() == before
