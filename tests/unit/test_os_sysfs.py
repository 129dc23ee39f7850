# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hugepages, transparent hugepages and the governor: written now and at every boot."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError

from tests.unit.os_tree import Tree, found

GOVERNOR = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
NODE0 = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
TMPFILES = "etc/tmpfiles.d/baremetal-mpi-roce.conf"
UNIT = "etc/systemd/system/baremetal-mpi-roce-sysfs.service"


@pytest.fixture
def tree(tmp_path):
    return Tree("ubuntu", tmp_path)


def test_every_cpu_gets_the_governor_now_and_at_boot(tree):
    tree.settle(governor="performance")
    assert [tree.read(GOVERNOR.format(n)) for n in (0, 1)] == ["performance", "performance"]
    assert (
        "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance\n"
        in tree.read(TMPFILES)
    )
    assert f"--create /{TMPFILES}" in tree.read(UNIT)
    assert tree.ran("systemctl", "enable", "baremetal-mpi-roce-sysfs.service")


def test_one_cpu_that_differs_is_told_by_its_path(tree):
    tree.settle(governor="performance")
    tree.write(GOVERNOR.format(1), "powersave\n")
    check = found(tree.settle(check_mode=True, governor="performance"), "cpu_governor")[""]
    assert check.status == "pending"
    assert "powersave in 1 of 2" in check.found
    assert "policy1" in check.found


def test_a_governor_the_driver_does_not_offer_fails_with_what_it_offers(tree):
    check = found(tree.settle(governor="schedutil"), "cpu_governor")[""]
    assert check.status == "failed"
    assert "performance, powersave" in check.reason
    assert not (tree.root / TMPFILES).exists()


def test_without_cpufreq_the_governor_is_not_applicable(tree):
    for path in (tree.root / "sys/devices/system/cpu/cpufreq").iterdir():
        path.rename(path.with_name("gone-" + path.name))
    check = found(tree.settle(governor="performance"), "cpu_governor")[""]
    assert check.status == "not_applicable"
    assert "firmware" in check.reason


def test_a_numa_node_that_is_not_there_fails(tree):
    outcome = tree.settle(hugepages=[{"size": "2M", "count": 512, "node": 7}])
    assert found(outcome, "hugepages")["2M on NUMA node 7"].status == "failed"


@pytest.mark.parametrize(
    ("pools", "arguments"),
    [
        ([{"size": "2M", "count": 8}], ""),
        ([{"size": "1G", "count": 16}], "hugepagesz=1G hugepages=16"),
        (
            [{"size": "1G", "count": 8, "node": 0}, {"size": "1G", "count": 4, "node": 1}],
            "hugepagesz=1G hugepages=0:8,1:4",
        ),
    ],
)
def test_pages_of_1_gib_are_kernel_arguments(tree, pools, arguments):
    tree.settle(hugepages=pools)
    assert tree.read("boot/grub/grub.cfg").count(arguments or "hugepagesz") == bool(arguments)


def test_pools_that_contradict_each_other_are_refused(tree):
    with pytest.raises(PlanError, match="hugepages 2M"):
        tree.settle(hugepages=[{"size": "2M", "count": 1}, {"size": "2M", "count": 1, "node": 0}])


def test_a_negative_count_is_refused(tree):
    with pytest.raises(PlanError, match="hugepages 1G: count is -1"):
        tree.settle(hugepages=[{"size": "1G", "count": -1}])


def test_a_kernel_out_of_memory_in_one_piece_waits_for_a_reboot_without_trying_again(tmp_path):
    """The kernel of this test grants 100 pages, whatever is written."""
    tree = Tree("ubuntu", tmp_path)
    wanted = {"hugepages": [{"size": "2M", "count": 512, "node": 0}]}
    node = tree.node()
    write = type(node.path(NODE0)).write_text

    def stingy(path, text, **more):
        return write(path, "100" if path.name == "nr_hugepages" else text, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(node.path(NODE0)), "write_text", stingy)
        outcome = tree.settle(**wanted)
        check = found(outcome, "hugepages")["2M on NUMA node 0"]
        assert (check.status, check.found) == ("reboot", "100")
        assert [each.wanted for each in outcome.reasons] == ["512"]
        again = tree.settle(**wanted)
        assert not again.changed
        assert found(again, "hugepages")["2M on NUMA node 0"].status == "reboot"
        silent = tree.settle(check_mode=True, **wanted)
        assert not silent.changed
        tree.reboot()
        after = tree.settle(**wanted)
        check = found(after, "hugepages")["2M on NUMA node 0"]
        assert check.status == "failed"
        assert "although the node was rebooted" in check.reason


def test_nothing_wanted_any_more_takes_file_and_unit_away(tree):
    tree.settle(governor="performance")
    assert tree.settle().changed
    assert not (tree.root / TMPFILES).exists()
    assert not (tree.root / UNIT).exists()
    assert not tree.settle().changed
