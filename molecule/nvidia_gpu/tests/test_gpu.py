# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPU stack on nodes that imitate GPU nodes: real package managers and services, no GPU."""

from __future__ import annotations

import pytest

SERVICES = ["nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm"]
FILES = {
    "/etc/modprobe.d/90-baremetal-mpi-roce-nouveau.conf": "blacklist nouveau",
    "/etc/modules-load.d/90-baremetal-mpi-roce-gpu.conf": "gdrdrv",
    "/etc/profile.d/baremetal-mpi-roce-cuda.sh": "/usr/local/cuda/bin",
    "/etc/ld.so.conf.d/90-baremetal-mpi-roce-cuda.conf": "/usr/local/cuda/lib64",
}
MOST = 5
"""Module executions of this role per node, in a run without changes."""


@pytest.mark.parametrize("name", SERVICES)
def test_services_run_now_and_at_boot(compute, name):
    service = compute.service(name)
    assert service.is_running
    assert service.is_enabled or "static" in compute.run("systemctl is-enabled %s", name).stdout


@pytest.mark.parametrize("path", FILES)
def test_settings_lie_in_files_of_their_own(compute, path):
    file = compute.file(path)
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    assert file.content_string.splitlines()[0].startswith("# Managed by Ansible")
    assert FILES[path] in file.content_string


def test_cuda_is_found_by_a_login_and_by_the_linker(compute):
    assert "release 13.0" in compute.check_output("bash -lc 'nvcc --version'")
    assert "libcudart.so.13" in compute.check_output("ldconfig -p")


def test_nothing_waits_for_a_reboot(compute):
    assert not compute.file("/var/lib/baremetal-mpi-roce/reboot-required.d/gpu.json").exists


def test_an_unchanged_run_is_cheap_and_says_it_is_simulated(nodes, converge):
    run = nodes.play(converge)
    assert run.total("changed") == 0
    assert 0 < run.report["remote_module_executions"]["most_on_a_compute_node"] <= MOST
    counts = run.report["layers"]["gpu"]["counts"]
    assert counts["failed"] == counts["reboot"] == 0
    assert "simulated" in run.output


def test_services_that_were_stopped_start_again_and_nothing_else_changes(nodes, converge):
    node = nodes.group("compute")[0]
    nodes.on(node).check_output("systemctl stop nvidia-dcgm nvidia-fabricmanager")
    seen = nodes.play(converge, "--check", "--diff")
    assert seen.hosts_with("changed") == {node}
    repaired = nodes.play(converge)
    assert repaired.hosts_with("changed") == {node}
    assert nodes.on(node).service("nvidia-fabricmanager").is_running
