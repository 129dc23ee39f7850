# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel parameters: names as sysctl.d(5) has them, what the boot will set, and odd kernels."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.os_baseline import sysctl

from tests.unit.os_tree import Tree, found

NUMA = "kernel.numa_balancing"
FILE = "etc/sysctl.d/90-baremetal-mpi-roce.conf"


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
    assert sysctl.slashed(key) == path


def test_comments_exclusions_and_failure_marks_are_understood():
    text = "# a.b = 1\n; a.b = 2\n\n-net.ipv4.x = 3\n-net.ipv4.conf.lo\nvm.y=4\n"
    assert [(each.key, each.value) for each in sysctl.parse(text, "f")] == [
        ("net/ipv4/x", "3"),
        ("vm/y", "4"),
    ]
    assert sysctl.parse("\n\na.b = 1\n", "f")[0].where == "f line 3"


def test_tabs_of_the_kernel_are_no_difference(tree):
    same = {"net.ipv4.tcp_rmem": "4096  131072 6291456"}
    tree.settle(sysctls=same)
    assert not tree.settle(sysctls=same).changed


def test_a_later_file_that_wins_at_boot_fails_by_name_and_line(tree):
    tree.write("etc/sysctl.conf", "# by hand\nkernel.numa_balancing = 1\n")
    outcome = tree.settle(sysctls={NUMA: 0})
    check = found(outcome, "sysctl_at_boot")[""]
    assert check.status == "failed"
    assert check.found == ["kernel.numa_balancing = 1 (/etc/sysctl.d/99-sysctl.conf line 2)"]
    assert tree.read("proc/sys/kernel/numa_balancing").strip() == "0"


def test_of_two_later_files_the_last_counts(tree):
    tree.write("etc/sysctl.d/95-a.conf", "kernel.numa_balancing=1\n")
    tree.write("usr/lib/sysctl.d/99-b.conf", "kernel.numa_balancing=0\n")
    assert found(tree.settle(sysctls={NUMA: 0}), "sysctl_at_boot")[""].status == "ok"


def test_a_file_in_etc_hides_its_namesake_in_usr_lib(tree):
    tree.write("usr/lib/sysctl.d/95-a.conf", "kernel.numa_balancing=1\n")
    tree.write("etc/sysctl.d/95-a.conf", "# nothing\n")
    assert found(tree.settle(sysctls={NUMA: 0}), "sysctl_at_boot")[""].status == "ok"


def test_a_link_to_nowhere_is_passed_over_as_the_boot_does(tree):
    (tree.root / "etc/sysctl.conf").unlink()
    assert found(tree.settle(sysctls={NUMA: 0}), "sysctl_at_boot")[""].status == "ok"


def test_an_unknown_key_fails_before_anything_unless_it_is_optional(tree):
    with pytest.raises(PlanError, match=r"vm\.no_such"):
        tree.settle(sysctls={NUMA: 0, "vm.no_such": 1})
    assert tree.read("proc/sys/kernel/numa_balancing").strip() == "1"
    outcome = tree.settle(sysctls={NUMA: 0, "vm.no_such": 1}, optional_sysctls=["vm.no_such"])
    assert found(outcome, "sysctl")["vm.no_such"].status == "not_applicable"
    assert "\n# vm.no_such = 1: this kernel has no such key" in tree.read(FILE)


def test_in_a_container_values_of_the_hosts_namespace_are_excused(tmp_path):
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
