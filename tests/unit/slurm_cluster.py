# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Models with Slurm, compiled as by the action cluster_directory."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import (
    SlurmCluster,
    compile_cluster,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import compile_model, read
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import inventory_of

ROOT = Path(__file__).resolve().parents[2]
CPU = {"sockets": 2, "cores": 56, "threads": 2, "memory_mb": 2_063_000}
MIXED = """\
plugin: baremetal.mpi_roce.cluster
name: mixed
scheduler: slurm
management: {subnet: 10.0.0.0/16}
kinds:
  h100:
    cpu: {sockets: 2, cores: 48, threads: 1, memory_mb: 1031000, numa_nodes: 8}
    rails: {speed_gbps: 400, count: 2, gpu: [1, 3], numa: [2, 7]}
    gpus: {count: 4}
    software:
      driver: {version: 595.71.05, gpu: H100}
  cpu:
    cpu: {sockets: 1, cores: 64, threads: 2, memory_mb: 515000}
    gpus: {count: 0}
    rails: {count: 0}
    slots: 64
nodes:
  - count: 4
    cpu: {sockets: 2, cores: 56, threads: 2, memory_mb: 2063000}
    management_first: 10.0.1.254
    rack: "a{}"
    nodes_per_rack: 2
  - count: 2
    kind: h100
    name: "h{}"
    start: 9
    management_first: 10.0.3.1
    rack: "b.{}"
    drained: [h10]
  - {count: 2, kind: cpu, name: "cpu-{:02d}", management_first: 10.0.4.1, rack: "c{}"}
software:
  repositories: {cuda: {url: "file:///srv/cuda", key: keys/cuda.asc, key_sha256: ""}}
gpus: {count: 4, numa: [0, 0, 1, 1]}
rails: {count: 4, speed_gbps: 800}
addresses: {pool: 10.128.0.0/9, prefix: 24}
leaves: {count: 8, ports: 64, nodes_per_set: 4, management_first: 10.0.8.1}
spines: {count: 2, ports: 64, management_first: 10.0.9.1}
launchers:
  - {name: login01, management: 10.0.0.10}
  - {name: login02, management: 10.0.0.20}
"""


def hosts_of(text: str) -> dict[str, dict[str, Any]]:
    """The variables of every host."""
    inventory = inventory_of(compile_model(read("the model", text)))
    return {host.name: inventory.merged(host) for host in inventory.hosts}


def with_slurm(text: str) -> str:
    """A model to which the scheduler and processors are added."""
    model = yaml.safe_load(text)
    blocks = model["nodes"] if isinstance(model["nodes"], list) else [model["nodes"]]
    for block in blocks:
        block.setdefault("cpu", CPU)
    return str(yaml.safe_dump({**model, "scheduler": "slurm"}, sort_keys=False))


@cache
def example(name: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / f"inventories/{name}/cluster.yml").read_text(encoding="utf-8")
    return hosts_of(with_slurm(text))


@cache
def cluster(name: str) -> SlurmCluster:
    return compile_cluster(example(name))


@cache
def mixed() -> SlurmCluster:
    return compile_cluster(hosts_of(MIXED))
