# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hostfile lists the whole cluster with every slot, in the order of the model."""

from __future__ import annotations

import re

HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"


def test_every_node_stands_in_it_with_its_slots(launcher, nodes):
    text = launcher.file(HOSTFILE).content_string
    found = re.findall(r"^(\S+) slots=(\d+)", text, re.MULTILINE)
    assert found == [
        (name, str(nodes.of(name)["cluster_slots"])) for name in nodes.group("compute")
    ]


def test_everybody_may_read_it_and_root_writes_it(launcher):
    file = launcher.file(HOSTFILE)
    assert (file.user, file.mode) == ("root", 0o644)
    assert "Managed by Ansible" in file.content_string.splitlines()[0]


def test_a_limited_run_writes_the_same(launcher, nodes, converge):
    before = launcher.file(HOSTFILE).content_string
    run = nodes.play(converge, "--limit", launcher.backend.hostname)
    assert run.total("changed") == 0
    assert launcher.file(HOSTFILE).content_string == before
