# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Time: chrony's file, its service, and figures of the clock; irqbalance beside it."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import clock
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.os_tree import IN_STEP, LOST, Tree, found

LINES = st.lists(
    st.sampled_from(
        ["pool a iburst", "server b", " peer c", "driftfile /x", "# pool d", "", "makestep 1 3"]
    )
)


@pytest.fixture(params=["ubuntu", "rocky"])
def tree(request, tmp_path):
    return Tree(request.param, tmp_path)


@given(LINES, st.lists(st.sampled_from(["10.0.0.1", "time.example.org"]), unique=True))
def test_without_servers_the_distributions_file_comes_back(lines, servers):
    text = "".join(f"{line}\n" for line in lines)
    ours = clock.with_servers(text, servers)
    assert clock.with_servers(ours, servers) == ours
    assert clock.with_servers(ours, []) == text
    asked = [line for line in ours.splitlines() if line.split()[:1] in (["pool"], ["server"])]
    if servers:
        assert asked == [f"server {server} iburst" for server in servers]


def test_our_servers_are_asked_instead_of_the_distributions(tree):
    tree.settle(time=True, time_servers=["10.0.0.1", "10.0.0.2"])
    name = "etc/chrony.conf" if tree.root.name == "rocky" else "etc/chrony/chrony.conf"
    lines = tree.read(name).splitlines()
    assert "server 10.0.0.1 iburst" in lines
    assert not any(line.startswith("pool") for line in lines)
    assert tree.ran("systemctl", "restart")


def test_without_servers_the_file_is_not_touched(tree):
    before = tree.snapshot()
    outcome = tree.settle(time=True)
    assert tree.snapshot() == before
    assert not outcome.changed


def test_a_service_older_than_its_file_is_restarted(tree):
    wanted = {"time": True, "time_servers": ["10.0.0.1"]}
    tree.settle(**wanted)
    tree.services_started = 1.0
    tree.calls.clear()
    assert tree.settle(**wanted).changed
    assert tree.ran("systemctl", "restart")


def test_a_stopped_service_is_started_and_enabled(tree):
    unit = "chronyd.service" if tree.root.name == "rocky" else "chrony.service"
    tree.states[unit] = "disabled, inactive"
    seen = tree.settle(check_mode=True, time=True)
    assert found(seen, "time_service")[""].status == "pending"
    assert found(tree.settle(time=True), "time_service")[""].status == "ok"


def test_the_figures_of_the_clock_are_returned(tree):
    check = found(tree.settle(time=True), "time_sync")[""]
    assert check.status == "ok"
    assert check.found == {
        "synchronised": True,
        "source": "10.0.0.1",
        "stratum": 3,
        "offset_s": 0.000012,
    }


@pytest.mark.parametrize("tracking", [LOST, IN_STEP.replace("-0.000012", "-0.25"), "", "506 x"])
def test_a_clock_that_is_lost_off_or_silent_fails(tree, tracking):
    tree.tracking = tracking
    check = found(tree.settle(time=True), "time_sync")[""]
    assert check.status == "failed"
    assert "servers this node can reach" in check.reason


def test_only_a_real_run_waits_for_the_first_synchronisation(tree):
    tree.tracking = LOST
    tree.settle(check_mode=True, time=True)
    assert not tree.ran("chronyc", "waitsync")
    tree.settle(time=True)
    assert tree.ran("chronyc", "waitsync", "1", "0.1")


def test_without_chrony_a_real_run_fails_and_a_check_says_what_is_to_come(tree):
    for path in tree.root.glob("usr/lib/systemd/system/chrony*"):
        path.unlink()
    with pytest.raises(PlanError, match="chrony is not installed"):
        tree.settle(time=True)
    seen = tree.settle(check_mode=True, time=True)
    assert seen.changed
    assert found(seen, "time_service")[""].status == "pending"


def test_irqbalance_is_stopped_started_or_was_never_there(tmp_path):
    tree = Tree("ubuntu", tmp_path)
    assert found(tree.settle(irqbalance="on"), "irqbalance")[""].status == "ok"
    tree.settle(irqbalance="off")
    assert tree.ran("systemctl", "disable", "--now", "irqbalance.service")
    assert not tree.settle(irqbalance="off").changed
    bare = Tree("rocky", tmp_path)
    assert found(bare.settle(irqbalance="off"), "irqbalance")[""].status == "ok"
    assert not bare.calls or not bare.ran("systemctl", "disable")
