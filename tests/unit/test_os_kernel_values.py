# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel settings: parameters, hugepages, governor; now and at every boot."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import kernel_values

from tests.unit.os_tree import Tree, found

NUMA = "kernel.numa_balancing"
FILE = "etc/sysctl.d/90-baremetal-mpi-roce.conf"
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
NODE0 = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
TMPFILES = "etc/tmpfiles.d/baremetal-mpi-roce.conf"
UNIT = "etc/systemd/system/baremetal-mpi-roce-sysfs.service"


@pytest.fixture
def tree(tmp_path):
    return Tree("ubuntu", tmp_path)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.ipv4.tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net/ipv4/tcp_rmem", "net/ipv4/tcp_rmem"),
        ("net/ipv4/conf/eth0.100/arp_ignore", "net/ipv4/conf/eth0.100/arp_ignore"),
        ("net.ipv4.conf.eth0/100.arp_ignore", "net/ipv4/conf/eth0.100/arp_ignore"),
    ],
)
def test_the_first_separator_decides_as_in_sysctl_d(key, path):
    assert kernel_values.slashed(key) == path


def test_comments_exclusions_and_failure_marks_are_understood():
    text = "# a.b = 1\n; a.b = 2\n\n-net.ipv4.x = 3\n-net.ipv4.conf.lo\nvm.y=4\n"
    assert list(kernel_values.parse(text)) == [(4, "net/ipv4/x", "3"), (6, "vm/y", "4")]


def test_tabs_of_the_kernel_are_no_difference(tree):
    same = {"net.ipv4.tcp_rmem": "4096  131072 6291456"}
    tree.settle(sysctls=same)
    assert not tree.settle(sysctls=same).changed


def test_overriding_file_fails_with_name_and_line(tree):
    tree.write("etc/sysctl.conf", "# by hand\nkernel.numa_balancing = 1\n")
    outcome = tree.settle(sysctls={NUMA: 0})
    check = found(outcome, "sysctl_at_boot")[""]
    assert check.status == "failed"
    assert check.found == ["kernel.numa_balancing = 1 (/etc/sysctl.d/99-sysctl.conf line 2)"]
    assert tree.read("proc/sys/kernel/numa_balancing").strip() == "0"


@pytest.mark.parametrize(
    "later",
    [
        {
            "etc/sysctl.d/95-a.conf": "numa_balancing=1",
            "usr/lib/sysctl.d/99-b.conf": "numa_balancing=0",
        },
        {"usr/lib/sysctl.d/95-a.conf": "numa_balancing=1", "etc/sysctl.d/95-a.conf": "x=1"},
        {"etc/sysctl.d/89-a.conf": "numa_balancing=1"},
    ],
)
def test_files_without_effect_are_ignored(tree, later):
    for name, line in later.items():
        tree.write(name, f"kernel.{line}\n")
    (tree.root / "etc/sysctl.conf").unlink()  # 99-sysctl.conf is now a dangling link
    for check_mode in (True, False):
        outcome = tree.settle(sysctls={NUMA: 0}, check_mode=check_mode)
        assert found(outcome, "sysctl_at_boot")[""].status == "ok"


def test_unknown_key_is_refused_unless_optional(tree):
    with pytest.raises(PlanError, match=r"vm\.no_such"):
        tree.settle(sysctls={NUMA: 0, "vm.no_such": 1})
    assert tree.read("proc/sys/kernel/numa_balancing").strip() == "1"
    outcome = tree.settle(sysctls={NUMA: 0, "vm.no_such": 1}, optional_sysctls=["vm.no_such"])
    assert found(outcome, "sysctl")["vm.no_such"].status == "not_applicable"
    assert "\n# vm.no_such = 1: this kernel has no such key" in tree.read(FILE)


def test_host_s_namespace_in_a_container(tmp_path):
    tree = Tree("container", tmp_path)
    wanted = {
        "net.core.rmem_max": 67108864,
        "net.ipv4.neigh.default.gc_thresh3": 65536,
        "net.core.somaxconn": 16384,
    }
    outcome = tree.settle(sysctls=wanted)
    status = {key: check.status for key, check in found(outcome, "sysctl").items()}
    assert status == {
        "net.core.rmem_max": "not_applicable",
        "net.ipv4.neigh.default.gc_thresh3": "not_applicable",
        "net.core.somaxconn": "ok",
    }
    assert [line for line in tree.read(FILE).splitlines() if not line.startswith("#")] == [
        "net.core.somaxconn = 16384"
    ]
    assert "# net.core.rmem_max = 67108864: not applicable" in tree.read(FILE)


# Under /sys.


def test_every_cpu_gets_the_governor_now_and_at_boot(tree):
    tree.settle(governor="performance")
    assert [tree.read(GOVERNOR.format(n)) for n in (0, 1)] == ["performance", "performance"]
    pattern = "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance\n"
    assert pattern in tree.read(TMPFILES)
    assert f"--create /{TMPFILES}" in tree.read(UNIT)
    assert tree.ran("systemctl", "enable", "baremetal-mpi-roce-sysfs.service")
    tree.write(GOVERNOR.format(1), "powersave\n")
    check = found(tree.settle(check_mode=True, governor="performance"), "cpu_governor")[""]
    assert check.status == "pending"
    assert "powersave in 1 of 2" in check.found and "policy1" in check.found


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


def test_hugepages_in_fragmented_memory_await_a_reboot(tmp_path):
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


def test_empty_settings_remove_file_and_unit(tree):
    tree.settle(governor="performance")
    assert tree.settle().changed
    assert not (tree.root / TMPFILES).exists()
    assert not (tree.root / UNIT).exists()
    assert not tree.settle().changed
