#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_bench
short_description: Latency and bandwidth of MPI between ranks, over message sizes
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Measures with the definitions of the OSU micro-benchmarks, as jobs of
    M(baremetal.mpi_roce.mpi_job). Prints a table for each benchmark, saves all as JSON and, if the
    controller has matplotlib, draws each as SVG.
options: # generated from layers/bench.yml by tools/generate_layers.py
  nodes:
    type: list
    elements: dict
    required: true
    description: Nodes, from RV(baremetal.mpi_roce.cluster_directory#module:directory). Drained
      nodes and hosts that do not compute are left out.
  user: {type: str, required: true, description: MPI user that launches the ranks.}
  hostfile:
    type: path
    default: /etc/baremetal-mpi-roce/hostfile
    description: Hostfile of the cluster on the launcher.
  provider:
    type: str
    default: distribution
    description: MPI provider in the cluster model. V(impi) launches with Intel MPI, any other with
      Open MPI.
  parameters:
    type: dict
    default: {}
    description: Additional Open MPI parameters. With Intel MPI, environment variables of the ranks.
  transport:
    type: str
    choices: [tcp, rc]
    default: rc
    description: Transport between nodes. With V(rc), the RDMA port of each rail must be active.
  program:
    type: str
    choices: [mpi4py, osu, nccl]
    default: mpi4py
    description: V(mpi4py) is the collection's own program; V(osu) runs C(osu_latency) and others,
      V(nccl) C(all_reduce_perf), C(alltoall_perf) and C(sendrecv_perf), which must be installed on
      every node.
  benchmarks:
    type: list
    elements: str
    choices: [latency, bw, bibw, allreduce, alltoall]
    default: [latency, bw, bibw, allreduce, alltoall]
    description: Benchmarks to run.
  pairs:
    type: list
    elements: str
    default: []
    description: Pairs of ranks for latency and bandwidth, as V(node01:0 - node02:0). If empty, one
      inside a node, one whose rails share a leaf, and one whose rails are on different leaves.
  min_bytes: {type: int, default: 1, description: 'Smallest message, in bytes.'}
  max_bytes: {type: int, default: 4194304, description: 'Largest message, in bytes.'}
  iterations:
    type: int
    default: 0
    description: Timed iterations of each size; V(0) for the numbers that the OSU micro-benchmarks
      use.
  python: {type: path, default: /usr/bin/python3, description: Python interpreter of the ranks.}
  program_directory:
    type: path
    default: ''
    description: Directory of OSU's programs or nccl-tests. If empty, they are looked up on the
      path.
  min_share:
    type: float
    description: Share of the line rate between two nodes that V(bw) and V(bibw) must reach.
  max_latency_us:
    type: float
    description: Largest latency of a message of up to 8 bytes between two nodes, in microseconds.
  min_busbw_gbytes_s:
    type: float
    description: Minimum bus bandwidth of MPI's V(allreduce), in 10^9 bytes per second.
  min_nccl_share:
    {type: float, description: Share of a node's line rate that NCCL's V(allreduce) must reach.}
  time_limit_s: {type: float, default: 1800, description: Seconds after which a job fails.}
  report_directory:
    type: path
    default: ''
    description: Directory on the controller for the results, relative to the current directory. If
      empty, nothing is saved.
"""

EXAMPLES = r"""
- name: Measure two ranks
  baremetal.mpi_roce.mpi_bench:
    nodes: "{{ cluster.directory }}"
    user: mpi
    benchmarks: [latency, bw]
    pairs: ["node01:0 - node02:0"]
"""

RETURN = r"""
sweeps:
  description: >-
    For each benchmark and set of ranks, C(benchmark), C(where), C(ranks), C(line_rate_gbytes_s),
    C(threshold), C(best), and C(by_size) with C(bytes), C(latency_us) and C(gbytes_s) in 10^9 bytes
    per second; for allreduce and alltoall the latter is the bus bandwidth.
  type: list
  elements: dict
  returned: when it was measured
virtual: {type: bool, returned: when it was measured, description: Whether line rates are nominal.}
report: {type: str, returned: when it was saved, description: Path of the report.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "user": {"type": "str", "required": True},
    "hostfile": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
    "provider": {"type": "str", "default": "distribution"},
    "parameters": {"type": "dict", "default": {}},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "program": {"type": "str", "choices": ["mpi4py", "osu", "nccl"], "default": "mpi4py"},
    "benchmarks": {
        "type": "list",
        "elements": "str",
        "choices": ["latency", "bw", "bibw", "allreduce", "alltoall"],
        "default": ["latency", "bw", "bibw", "allreduce", "alltoall"],
    },
    "pairs": {"type": "list", "elements": "str", "default": []},
    "min_bytes": {"type": "int", "default": 1},
    "max_bytes": {"type": "int", "default": 4194304},
    "iterations": {"type": "int", "default": 0},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "program_directory": {"type": "path", "default": ""},
    "min_share": {"type": "float"},
    "max_latency_us": {"type": "float"},
    "min_busbw_gbytes_s": {"type": "float"},
    "min_nccl_share": {"type": "float"},
    "time_limit_s": {"type": "float", "default": 1800},
    "report_directory": {"type": "path", "default": ""},
}
