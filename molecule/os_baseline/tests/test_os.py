# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages, limits and kernel parameters, as far as containers support them."""

from __future__ import annotations

import pytest

FILES = {
    "/etc/sysctl.d/90-baremetal-mpi-roce.conf": "net.ipv4.tcp_rmem",
    "/etc/security/limits.d/90-baremetal-mpi-roce.conf": "memlock",
}


@pytest.mark.parametrize("package", ["chrony", "ethtool", "jq", "numactl", "pciutils"])
def test_packages_are_installed(node, package):
    assert node.package(package).is_installed


@pytest.mark.parametrize("path", FILES)
def test_settings_lie_in_files_of_their_own(node, path):
    file = node.file(path)
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    assert file.content_string.splitlines()[0].startswith("# Managed by Ansible")
    assert FILES[path] in file.content_string


def test_network_parameters_hold_in_the_kernel(node):
    found = node.check_output("cat /proc/sys/net/ipv4/tcp_rmem /proc/sys/net/ipv4/tcp_mtu_probing")
    assert found.split() == ["4096", "131072", "67108864", "1"]


def test_a_session_without_a_terminal_may_lock_what_its_machine_allows(node):
    """Start a process as mpirun starts ranks. A container cannot exceed the host's hard limit."""
    hard = node.check_output("awk '/Max locked memory/ {print $5}' /proc/1/limits")
    session = node.check_output("su -s /bin/sh -c 'ulimit -H -l' %s", "nobody")
    assert session == "unlimited" or int(session) * 1024 == int(hard)


def test_no_reboot_is_asked_of_a_container(node):
    assert not node.file("/var/lib/baremetal-mpi-roce/reboot-required.d/os.json").exists


def test_time_is_kept_by_chrony_alone(node):
    """systemd-timesyncd may be installed, but must not run in addition."""
    assert not node.service("systemd-timesyncd").is_running


def test_what_a_container_cannot_do_is_said_and_counted(nodes, converge):
    run = nodes.play(converge)
    assert run.report["layers"]["os"]["counts"]["not_applicable"] > 0
    for check in run.checks("os"):
        assert check["status"] != "not_applicable" or check["reason"]
