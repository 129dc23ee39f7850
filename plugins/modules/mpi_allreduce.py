#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_allreduce
short_description: Verifies the cluster with an allreduce over every rank
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.mpi_allreduce]
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
from ..module_utils.mpi.launch.launcher import launcher_of
from ..module_utils.mpi.launch.node import nodes_of, with_rails


def smoke_test(params: dict[str, Any]) -> session.SmokeTest:
    """The test that the options describe; most are named after fields."""

    def of(kind: Any) -> dict[str, Any]:
        names = (field.name for field in fields(kind))
        return {name: params[name] for name in names if name in params}

    every = nodes_of(params["nodes"])
    nodes = with_rails(every)
    of_plan = {
        **of(plan.RunPlan),
        "nodes": nodes,
        "launcher": launcher_of(params["provider"], params["start_with"], params["slurm_options"]),
        "parameters": tuple((name, str(value)) for name, value in params["parameters"].items()),
    }
    of_test = {
        **of(session.SmokeTest),
        "hostfile": Path(params["hostfile"]),
        "tolerances": traffic.Tolerances(**of(traffic.Tolerances)),
        "gpu": gpu.GpuOptions(**of(gpu.GpuOptions)),
        "virtual": machine.container() is not None,
        "without_rails": tuple(node.name for node in every if node not in nodes),
    }
    return session.SmokeTest(plan.RunPlan(**of_plan), **of_test)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "user": {"type": "str", "required": True},
    "hostfile": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
    "provider": {"type": "str", "default": "distribution"},
    "start_with": {"type": "str", "choices": ["mpirun", "srun"], "default": "mpirun"},
    "slurm_options": {"type": "list", "elements": "str", "default": []},
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
    launcher = session.start_as(params["user"], commands.run)

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
