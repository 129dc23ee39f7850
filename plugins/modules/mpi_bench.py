#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_bench
short_description: Latency and bandwidth of MPI between ranks, over message sizes
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.mpi_bench]
description:
  - Measures with the definitions of the OSU micro-benchmarks, as jobs of
    M(baremetal.mpi_roce.mpi_job). Prints a table for each benchmark, saves all as JSON and, if the
    controller has matplotlib, draws each as SVG.
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
    "start_with": {"type": "str", "choices": ["mpirun", "srun"], "default": "mpirun"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
    "kind": {"type": "list", "elements": "str", "default": []},
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
