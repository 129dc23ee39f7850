#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_allreduce
short_description: Prove the cluster with an allreduce over every rank
extends_documentation_fragment: [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.launched]
description:
  - Launches an mpi4py allreduce from the launcher, as the MPI user, over the hostfile.
  - Checks every result to the bit on every rank, where the ranks run, which transport UCX used, and
    that the bytes went over each rail and not over management. Measures every size.
  - Where every node has GPUs and MPI was built with CUDA, does so from GPU memory as well and reads
    from UCX whether it passed the host; then runs nccl-tests where they are.
  - On failure it runs again on fewer and fewer nodes until the node or the pair at fault is found.
  - A run ends after its time limit, and no process of it is left on any node. Changes nothing.
  - The action plugin of the same name shows progress and figures, and saves them on the controller.
options:
  rankfile: {type: str, default: "", description: Rankfile; empty places ranks slot by slot.}
  max_bytes: {type: int, default: 67108864, description: "Largest buffer, in bytes."}
  size_step: {type: int, default: 4, description: "Ratio of one size to the next, from 4 bytes on."}
  combinations:
    description:
      - Combinations of type, operation and placement to check at each size, in turn; V(0) for all.
    type: int
    default: 0
  iterations: {type: int, default: 200, description: Timed iterations of each size up to 64 KiB.}
  iterations_large: {type: int, default: 50, description: Timed iterations of each larger size.}
  warmup: {type: int, default: 2, description: Untimed iterations before those.}
  bind_rails: {type: bool, default: true, description: Give each rank its GPU's rails and cores.}
  python: {type: path, default: /usr/bin/python3, description: Python interpreter of the ranks.}
  time_limit_s: {type: float, default: 300, description: Seconds after which the run has failed.}
  bisect_runs:
    description: At most this many short runs to find the node or pair at fault; V(0) for none.
    type: int
    default: 24
  bisect_limit_s: {type: float, default: 30, description: Seconds for each of these.}
  min_busbw_gbytes_s:
    description: Least bus bandwidth (10^9 bytes per second) that the best size has to reach.
    type: float
  nccl_tests:
    description:
      - C(all_reduce_perf) of nccl-tests, built with MPI, by name or path on every node; where no
        node has it, the check C(nccl_allreduce) is not applicable.
    type: str
    default: all_reduce_perf
  nccl_min_bytes: {type: int, default: 1073741824, description: "Its smallest buffer, in bytes."}
  nccl_max_bytes: {type: int, default: 17179869184, description: "Its largest buffer, in bytes."}
  min_nccl_share:
    description: Share of a node's line rate that its average bus bandwidth has to reach.
    type: float
  gpu_limit_s:
    description: Seconds after which a run on GPU memory has failed.
    type: float
    default: 120
  management_bytes:
    description: Bytes on a management interface that are not yet a finding.
    type: int
    default: 1048576
  management_share:
    description: Share of a node's rail traffic that may pass management in addition.
    type: float
    default: 0.02
  max_tcp_retries:
    description: >-
      Share of the TCP segments of a rail that may be sent again because they were lost.
    type: float
    default: 0.01
  max_rdma_retries:
    description: >-
      Retries, timeouts and packets out of sequence that an RDMA device may count, as a share of the
      packets it sends.
    type: float
    default: 0.00001
  program_sha256:
    description: Checksum that the allreduce program has to have on every node; empty accepts any.
    type: str
    default: ""
  run_id:
    description: Name of this run, in the command line of each process; empty makes one up.
    type: str
    default: ""
  report_directory:
    description: Where the controller saves the result as JSON; empty saves nothing.
    type: path
attributes:
  check_mode:
    description: Shows the command and launches nothing.
    support: full
"""

EXAMPLES = r"""
- name: Prove the cluster
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
    What was measured, in 10^9 bytes per second and microseconds. The line rate is that of all rails
    of a node in one direction, nominal where C(virtual). The time of an iteration is that of its
    slowest rank. C(rails) has the least that a node sent over each rail, and the most beside RDMA.
    C(gpu) and C(nccl) are there where the allreduce of GPU memory and nccl-tests ran.
  type: dict
  returned: always
traffic: {type: list, elements: dict, returned: on success, description: Bytes by node and rail.}
lanes: {type: list, elements: dict, returned: on success, description: Endpoints that UCX reported.}
nodes: {type: list, elements: str, returned: always, description: Nodes in the order of ranks.}
culprit: {type: dict, returned: always, description: "What the search found, or null."}
command: {type: str, returned: always, description: The launcher's command line.}
lines: {type: list, elements: str, returned: always, description: Error lines of the launcher.}
seconds: {type: float, returned: always, description: Seconds it took in all.}
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
from ..module_utils.mpi.launcher import LAUNCHED, of_provider


def request_of(params: dict[str, Any]) -> session.Request:
    of_plan = (
        *("transport", "max_bytes", "size_step", "combinations", "iterations", "iterations_large"),
        *("warmup", "bind_rails", "python", "rankfile"),
    )
    of_request = (
        *("user", "run_id", "program_sha256", "time_limit_s", "bisect_runs", "bisect_limit_s"),
    )
    return session.Request(
        plan=plan.Plan(
            nodes=plan.nodes_of(params["nodes"]),
            launcher=of_provider(params["provider"]),
            parameters=tuple((name, str(value)) for name, value in params["parameters"].items()),
            **{name: params[name] for name in of_plan},
        ),
        hostfile=Path(params["hostfile"]),
        tolerances=traffic.Tolerances(
            params["management_bytes"],
            params["management_share"],
            params["min_busbw_gbytes_s"],
            params["max_tcp_retries"],
            params["max_rdma_retries"],
        ),
        gpu=gpu.Wanted(**{field.name: params[field.name] for field in fields(gpu.Wanted)}),
        virtual=machine.container() is not None,
        **{name: params[name] for name in of_request},
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **LAUNCHED,
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
            "max_rdma_retries": {"type": "float", "default": 0.00001},
            "program_sha256": {"type": "str", "default": ""},
            "run_id": {"type": "str", "default": ""},
            "report_directory": {"type": "path"},
        },
        supports_check_mode=True,
    )
    module.params["run_id"] = module.params["run_id"] or uuid.uuid4().hex[:12]
    launcher = session.mpirun(module.params["user"], commands.run)

    def start(show: Callable[[str], None]) -> dict[str, Any]:
        def waiting(waited: float) -> None:
            show(f"allreduce: waiting for another one to end, {waited:.0f} s")

        request = request_of(module.params)
        if module.check_mode:
            return session.Session(request, commands.run, launcher, show).result(request.plan, [])
        try:
            # Two tests would measure each other.
            with alone(LOCKS / "smoke.lock", request.time_limit_s, waiting=waiting):
                return session.Session(request, commands.run, launcher, show).run()
        except HeldError as error:
            raise PlanError(
                f"another allreduce test runs: {error}. Its ranks are ended with:"
                " systemctl stop 'baremetal-mpi-smoke-*'"
            ) from error

    try:
        with progress(module.params["run_id"]) as show:
            result = start(show)
    except (PlanError, commands.CommandError, OSError, KeyError) as error:
        module.fail_json(msg=f"smoke: {error}", layer="smoke", checks=[], figures={})
    message = result.pop("message")
    if message:
        module.fail_json(msg=message, changed=False, layer="smoke", **result)
    module.exit_json(changed=False, layer="smoke", **result)


if __name__ == "__main__":
    main()
