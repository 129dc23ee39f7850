# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI starts, finds its Python module, and knows which devices to use."""

from __future__ import annotations

import pytest

ENVIRONMENT = "/etc/baremetal-mpi-roce/mpi.env"
USER = "nobody"
HELLO = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"


def test_a_login_shell_runs_two_ranks(node):
    found = node.check_output(
        "su -s /bin/bash -l %s -c %s",
        USER,
        "cd / && mpirun --oversubscribe --mca plm isolated --mca btl self,vader "
        f"--mca pml ob1 -np 2 /usr/bin/python3 -c '{HELLO}'",
    )
    assert found.split() == ["2", "2"]


def test_the_environment_names_its_devices(compute, nodes):
    text = compute.file(ENVIRONMENT).content_string
    for rail in nodes.of(compute.backend.hostname)["cluster_rails"]:
        assert rail["interface"] in text
    assert "UCX_TLS" in text


@pytest.mark.parametrize("name", ["orted", "allreduce.py"])
def test_programs_are_installed_and_belong_to_root(node, name):
    file = node.file(f"/usr/local/libexec/baremetal-mpi-roce/{name}")
    assert (file.user, file.group, file.mode) == ("root", "root", 0o755)
