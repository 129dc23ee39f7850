# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm has the nodes, GPUs and topology of the model, starts MPI, and all hosts share one key."""

from __future__ import annotations

import base64
import re

from tests import waiting

KEY = "/etc/munge/munge.key"
TOPOLOGY = """\
SwitchName=set01 Level=0 LinkSpeed=1 Nodes=node01
SwitchName=set02 Level=0 LinkSpeed=1 Nodes=node02
SwitchName=fabric01 Level=1 LinkSpeed=1 Nodes=node[01-02] Switches=set[01-02]
"""
NODES = """\
node01 idle 2:2:1 1024 gpu:2(S:0-1) rack_r01
node02 idle 2:2:1 1024 gpu:2(S:0-1) rack_r02
"""
RANKS = "from mpi4py import MPI; print('of', MPI.COMM_WORLD.size, flush=True)"


def nodes_in_slurm(launcher):
    return launcher.check_output("sinfo --noheader --Node --format='%n %T %z %m %G %f'") + "\n"


def test_slurm_has_the_nodes_of_the_model(launcher):
    waiting.until(lambda: re.sub(" +", " ", nodes_in_slurm(launcher)) == NODES, "idle nodes")


def test_the_topology_is_the_models(launcher):
    assert launcher.check_output("scontrol show topology") + "\n" == TOPOLOGY


def test_ranks_on_both_nodes_are_one_world(launcher):
    srun = ["srun --chdir=/tmp --nodes=2 --ntasks-per-node=2 python3 -c %s", RANKS]
    assert launcher.check_output(*srun).splitlines() == ["of 4"] * 4


def test_every_host_has_the_key_of_the_controller_and_only_munge_reads_it(node, nodes):
    assert node.file(KEY).content == (nodes.ssh_config.parent / "munge.key").read_bytes()
    assert (node.file(KEY).mode, node.file(KEY).user) == (0o400, "munge")


def test_the_key_is_not_told_at_any_verbosity(nodes, converge):
    key = (nodes.ssh_config.parent / "munge.key").read_bytes()
    output = nodes.play(converge, "-vvvv", "--diff").output
    assert base64.b64encode(key).decode()[:40] not in output
