# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's Slurm, installed and described by the layer slurm: it runs jobs, survives changes, and
ten faults made by hand are found, each by its check and on its host."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import mpi_source, waiting
from tests.bed.instances import describe
from tests.nodes import Nodes, Run

pytestmark = pytest.mark.nodes

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnslurmrole
scheduler: slurm
management: {subnet: 10.246.0.0/24, interface: mgmt0}
nodes:
  count: 4
  name: node{:02d}
  management_first: 10.246.0.11
  nodes_per_rack: 2
  slots: 8
  cpu: {sockets: 2, cores: 4, threads: 1, memory_mb: 1024}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10}
addresses: {pool: 10.146.0.0/16, prefix: 24}
leaves: {count: 4, management_first: 10.246.0.101, ports: 64, nodes_per_set: 2}
spines: {count: 2, management_first: 10.246.0.121, ports: 64}
launcher: {name: launcher01, management: 10.246.0.10}
"""
LAUNCHER = "launcher01"
LAYERS = "--tags=names,slurm"
LIBEXEC = "/usr/local/libexec/baremetal-mpi-roce"
# Of the layer mpi, which is not under test.
PROLOG = f"install -D -m 755 /dev/stdin {LIBEXEC}/task-prolog <<<'echo export RAILS=2'"
TOPOLOGY = """\
SwitchName=set01 Level=0 LinkSpeed=1 Nodes=node[01-02]
SwitchName=set02 Level=0 LinkSpeed=1 Nodes=node[03-04]
SwitchName=fabric01 Level=1 LinkSpeed=1 Nodes=node[01-04] Switches=set[01-02]
"""
KEY = "/etc/munge/munge.key"
SLURMD = "$(readlink -f /usr/sbin/slurmd)"
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Four nodes and a launcher on which the layer has installed Slurm."""
    nodes = describe(tmp_path_factory.mktemp("slurm") / "inventory", MODEL)
    with nodes.new():
        for name in nodes.group("compute"):
            nodes.on(name).check_output(f"bash -c {PROLOG!r}" if False else PROLOG_BY_SH)
        nodes.play("site.yml", LAYERS)
        yield nodes


PROLOG_BY_SH = (
    f"mkdir -p {LIBEXEC} && echo 'echo export RAILS=2' >{LIBEXEC}/task-prolog && "
    f"chmod 755 {LIBEXEC}/task-prolog"
)
