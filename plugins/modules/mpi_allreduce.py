#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_allreduce
short_description: Verifies the cluster with an allreduce over every rank
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Launches an mpi4py allreduce from the launcher, as the MPI user, over the hostfile. Changes
    nothing.
  - Verifies on every rank that the results are bit-exact, and checks where the ranks run, which
    transport UCX used, and that the bytes went over each rail and not over management.
  - If every node has GPUs and MPI was built with CUDA, repeats the test from GPU memory; then runs
    nccl-tests if it is installed.
  - After a failure, runs on fewer and fewer nodes until the node or the pair at fault is found.
  - The action plugin of the same name shows progress and figures, and saves them on the
    controller.
options: # generated from layers/smoke.yml by tools/generate_layers.py
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
    description: Hostfile on the launcher, in Open MPI's format.
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
  rankfile:
    type: str
    default: ''
    description: Rankfile on the launcher. If empty, ranks are placed slot by slot.
  max_bytes: {type: int, default: 67108864, description: 'Largest buffer, in bytes.'}
  size_step:
    type: int
    default: 4
    description: Ratio of one buffer size to the next, starting at 4 bytes.
  combinations:
    type: int
    default: 0
    description: Number of combinations of type, operation and placement to check at each size, in
      rotation; V(0) for all.
  iterations: {type: int, default: 200, description: Timed iterations of each size up to 64 KiB.}
  iterations_large: {type: int, default: 50, description: Timed iterations of each larger size.}
  warmup: {type: int, default: 2, description: Untimed iterations before the timed ones.}
  bind_rails:
    type: bool
    default: true
    description: Whether each rank uses the rail and the cores of its GPU, so that every rail is
      tested.
  python: {type: path, default: /usr/bin/python3, description: Python interpreter of the ranks.}
  time_limit_s:
    type: float
    default: 300
    description: Seconds after which the run is stopped and counts as failed.
  bisect_runs:
    {type: int, default: 24, description: Maximum number of short runs; V(0) disables the search.}
  bisect_limit_s:
    type: float
    default: 30
    description: Seconds after which a short run that locates a fault counts as failed.
  min_busbw_gbytes_s:
    type: float
    description: Minimum bus bandwidth at the best size, in 10^9 bytes per second. If unset, there
      is no threshold.
  nccl_tests:
    type: str
    default: all_reduce_perf
    description: C(all_reduce_perf) of nccl-tests, built with MPI, by name or path on every node. If
      no node has it, the check C(nccl_allreduce) is not applicable.
  nccl_min_bytes:
    {type: int, default: 1073741824, description: 'Smallest buffer of nccl-tests, in bytes.'}
  nccl_max_bytes:
    {type: int, default: 17179869184, description: 'Largest buffer of nccl-tests, in bytes.'}
  min_nccl_share:
    type: float
    description: Share of a node's line rate that the average bus bandwidth of nccl-tests must
      reach.
  gpu_limit_s:
    type: float
    default: 120
    description: Seconds after which a run on GPU memory is stopped and counts as failed.
  management_bytes:
    {type: int, default: 1048576, description: Number of bytes tolerated on a management interface.}
  management_share:
    type: float
    default: 0.02
    description: Share of a node's rail traffic that is additionally tolerated on the management
      interface.
  max_tcp_retries:
    type: float
    default: 0.01
    description: Share of a rail's TCP segments that may be retransmitted because of loss.
  max_rdma_retries:
    type: float
    default: 1.0e-05
    description: Retries, timeouts and out-of-sequence packets of an RDMA device, as a share of the
      packets that it sends.
  program_sha256:
    type: str
    default: ''
    description: Checksum that the allreduce program must have on every node. If empty, it is not
      checked.
  run_id:
    type: str
    default: ''
    description: Name of this run, which is part of each process's command line. If empty, a name is
      generated.
  report_directory:
    type: path
    description: Directory on the controller for the results, relative to the current directory. If
      empty, nothing is saved.
attributes:
  check_mode:
    description: Shows the command and launches nothing.
    support: full
"""

EXAMPLES = r"""
- name: Verify the cluster
  baremetal.mpi_roce.mpi_allreduce:
    nodes: "{{ directory }}"
    user: mpi
    max_bytes: 1048576
    min_busbw_gbytes_s: 200
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
figures:
  description: >-
    Measurements, in 10^9 bytes per second and microseconds. The line rate is the sum of all rails
    of a node in one direction, nominal if C(virtual). C(rails) has the smallest amount that a node
    sent over each rail, and the largest that bypassed RDMA. C(gpu) and C(nccl) exist if these ran.
  type: dict
  returned: always
traffic: {type: list, elements: dict, returned: on success, description: Bytes by node and rail.}
lanes: {type: list, elements: dict, returned: on success, description: Endpoints reported by UCX.}
nodes: {type: list, elements: str, returned: always, description: Nodes in the order of ranks.}
culprit: {type: dict, returned: always, description: "Node or pair at fault, or null."}
command: {type: str, returned: always, description: The launcher's command line.}
lines: {type: list, elements: str, returned: always, description: Error lines of the launcher.}
seconds: {type: float, returned: always, description: Total time in seconds.}
"""

import uuid
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands, machine
from ..module_utils.core.locks import LOCKS, HeldError, alone, progress
from ..module_utils.core.part import PlanError
from ..module_utils.mpi.allreduce import gpu, plan, session, traffic
from ..module_utils.mpi.launch.launcher import of_provider
from ..module_utils.mpi.launch.node import nodes_of


def smoke_test(params: dict[str, Any]) -> session.SmokeTest:
    """The test that the options describe; most are named after fields."""

    def of(kind: Any) -> dict[str, Any]:
        names = (field.name for field in fields(kind))
        return {name: params[name] for name in names if name in params}

    of_plan = {
        **of(plan.RunPlan),
        "nodes": nodes_of(params["nodes"]),
        "launcher": of_provider(params["provider"]),
        "parameters": tuple((name, str(value)) for name, value in params["parameters"].items()),
    }
    of_test = {
        **of(session.SmokeTest),
        "hostfile": Path(params["hostfile"]),
        "tolerances": traffic.Tolerances(**of(traffic.Tolerances)),
        "gpu": gpu.GpuOptions(**of(gpu.GpuOptions)),
        "virtual": machine.container() is not None,
    }
    return session.SmokeTest(plan.RunPlan(**of_plan), **of_test)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "user": {"type": "str", "required": True},
    "hostfile": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
    "provider": {"type": "str", "default": "distribution"},
    "parameters": {"type": "dict", "default": {}},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "rankfile": {"type": "str", "default": ""},
    "max_bytes": {"type": "int", "default": 67108864},
    "size_step": {"type": "int", "default": 4},
    "combinations": {"type": "int", "default": 0},
    "iterations": {"type": "int", "default": 200},
    "iterations_large": {"type": "int", "default": 50},
    "warmup": {"type": "int", "default": 2},
    "bind_rails": {"type": "bool", "default": True},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "time_limit_s": {"type": "float", "default": 300},
    "bisect_runs": {"type": "int", "default": 24},
    "bisect_limit_s": {"type": "float", "default": 30},
    "min_busbw_gbytes_s": {"type": "float"},
    "nccl_tests": {"type": "str", "default": "all_reduce_perf"},
    "nccl_min_bytes": {"type": "int", "default": 1073741824},
    "nccl_max_bytes": {"type": "int", "default": 17179869184},
    "min_nccl_share": {"type": "float"},
    "gpu_limit_s": {"type": "float", "default": 120},
    "management_bytes": {"type": "int", "default": 1048576},
    "management_share": {"type": "float", "default": 0.02},
    "max_tcp_retries": {"type": "float", "default": 0.01},
    "max_rdma_retries": {"type": "float", "default": 1e-05},
    "program_sha256": {"type": "str", "default": ""},
    "run_id": {"type": "str", "default": ""},
    "report_directory": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = {**module.params, "run_id": module.params["run_id"] or uuid.uuid4().hex[:12]}
    launcher = session.mpirun(params["user"], commands.run)

    def start(show: Callable[[str], None]) -> dict[str, Any]:
        test, text = smoke_test(params), "allreduce: waiting for another test to finish"
        if module.check_mode:
            return session.Session(test, commands.run, launcher, show).result(test.plan, [])
        # Simultaneous tests would distort each other's measurements.
        lock, limit_s = LOCKS / "smoke.lock", test.time_limit_s
        with alone(lock, limit_s, waiting=lambda waited: show(f"{text}, {waited:.0f} s")):
            return session.Session(test, commands.run, launcher, show).run()

    try:
        with progress(params["run_id"]) as show:
            result = start(show)
    except (HeldError, PlanError, commands.CommandError, OSError, KeyError) as error:
        module.fail_json(msg=f"smoke: {error}", layer="smoke", checks=[], figures={})
    message = result.pop("message")
    if message:
        module.fail_json(msg=message, changed=False, layer="smoke", **result)
    module.exit_json(changed=False, layer="smoke", **result)


if __name__ == "__main__":
    main()
