#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_allreduce
short_description: Prove the cluster with an allreduce over every rank
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Launches an mpi4py allreduce from the launcher, as the MPI user, over the hostfile.
  - Checks every result to the bit on every rank, where the ranks run, which transport UCX used, and
    that the bytes went over the rails and not over management; each rail by an allreduce of its
    own.
  - Measures every size, and returns the figures beside the line rate.
  - On failure it runs again on fewer and fewer nodes until the node or the pair at fault is found.
  - A run ends after its time limit whatever happens, and no process of it is left on any node.
  - Changes nothing. Runs on the launcher; the action plugin of the same name shows progress, prints
    the figures and saves them on the controller.
options:
  nodes:
    description:
      - Nodes that take part, as entries of C(directory) of the
        M(baremetal.mpi_roce.cluster_directory) action. Those that are not compute nodes or are
        drained are left out.
    type: list
    elements: dict
    required: true
  user: {type: str, required: true, description: MPI user that launches.}
  hostfile:
    description: Hostfile on the launcher, in Open MPI's format.
    type: path
    default: /etc/baremetal-mpi-roce/hostfile
  rankfile:
    description: Rankfile on the launcher; empty places ranks slot by slot.
    type: str
    default: ""
  transport:
    description: Transport that UCX has to report between nodes.
    type: str
    choices: [tcp, rc]
    default: tcp
  max_bytes: {type: int, default: 67108864, description: "Largest buffer, in bytes."}
  size_step:
    description: Each size is this many times the one before, from 4 bytes on.
    type: int
    default: 4
  combinations:
    description:
      - How many combinations of type, operation and placement to check at each size, going round
        through all of them. V(0) checks all of them at each size.
    type: int
    default: 0
  iterations: {type: int, default: 200, description: Timed iterations of each size up to 64 KiB.}
  iterations_large: {type: int, default: 50, description: Timed iterations of each larger size.}
  warmup: {type: int, default: 2, description: Untimed iterations before those.}
  bind_rails:
    description: Whether each rank uses only the rail of its own GPU, so that every rail is used.
    type: bool
    default: true
  python: {type: path, default: /usr/bin/python3, description: Python interpreter of the ranks.}
  parameters:
    description: Further Open MPI parameters for the command line.
    type: dict
    default: {}
  time_limit_s:
    description: Seconds after which the run is stopped and counts as failed.
    type: float
    default: 300
  bisect_runs:
    description: At most this many short runs to find the node or pair at fault; V(0) for none.
    type: int
    default: 24
  bisect_limit_s:
    description: Seconds after which a short run counts as failed.
    type: float
    default: 30
  min_busbw_gbytes_s:
    description: Least bus bandwidth (10^9 bytes per second) that the best size has to reach.
    type: float
  management_bytes:
    description: Bytes on a management interface that are not yet a finding.
    type: int
    default: 1048576
  management_share:
    description: Share of a node's rail traffic that may pass management in addition.
    type: float
    default: 0.02
  program_sha256:
    description: Checksum that the allreduce program has to have on every node; empty accepts any.
    type: str
    default: ""
  run_id:
    description: Name of this run, in the command line of each of its processes; empty makes one up.
    type: str
    default: ""
  end:
    description:
      - Set by the action plugin for a run that it gives up. Ends what is left of C(run_id) on every
        node, and launches nothing.
    type: bool
    default: false
  report_directory:
    description:
      - Directory on the controller where the action plugin saves the result as JSON; a relative
        path starts where Ansible was started. Empty saves nothing.
    type: path
attributes:
  check_mode:
    description: Shows the command and launches nothing.
    support: full
seealso:
  - module: baremetal.mpi_roce.mpi_stack
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
    What was measured. Bandwidths are in 10^9 bytes per second; the line rate is what all rails of
    one node carry in each direction, nominal where C(virtual). C(by_size) has the times of each
    size in microseconds; that of an iteration is of its slowest rank. C(rails) has the least that a
    node sent over each rail, and the most beside RDMA.
  type: dict
  returned: always
traffic:
  description: Bytes of each rail of each node, and bytes on its other interfaces.
  type: list
  elements: dict
  returned: on success; after a failure it is in the report
lanes:
  description: What UCX reported its endpoints run over, and how many ranks did.
  type: list
  elements: dict
  returned: on success; after a failure it is in the report
nodes:
  description: Names of the nodes that took part, in the order of their ranks.
  type: list
  elements: str
  returned: always
culprit:
  description: What the search after a failure found; null without one.
  type: dict
  returned: always
command: {type: str, returned: always, description: The launcher's command line.}
lines:
  description: The launcher's lines that tell the cause of a failure.
  type: list
  elements: str
  returned: always
seconds: {type: float, returned: always, description: Seconds it took in all.}
"""

import contextlib
import os
import signal
import uuid
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands, files, machine
from ..module_utils.core.checks import FAILED
from ..module_utils.core.locks import HeldError, alone
from ..module_utils.core.part import PlanError
from ..module_utils.mpi import environment as mpi_environment
from ..module_utils.mpi.allreduce import plan, session, traffic

PROGRESS_DIRECTORY = Path("/run/baremetal-mpi-roce")


def nodes_of(directory: list) -> tuple:
    """The nodes of the directory that run ranks."""
    return tuple(
        plan.Node(
            entry["name"],
            int(entry["slots"]),
            tuple(rail["interface"] for rail in entry.get("rails") or []),
            tuple(float(rail.get("speed_gbps") or 0) for rail in entry.get("rails") or []),
            networks=tuple(rail.get("network") or "" for rail in entry.get("rails") or []),
            by_rank=rails_by_rank(entry),
            management=entry.get("management_address") or "",
        )
        for entry in directory
        if entry.get("role", "compute") == "compute" and not entry.get("drained")
    )


def rails_by_rank(entry: dict) -> tuple:
    """The rails that each rank of a node is given: with fewer slots than GPUs not all of them."""
    rails = mpi_environment.rails_from_model(entry.get("rails") or [])
    ranks = mpi_environment.rails_by_rank(rails, int(entry["slots"]))
    return tuple(tuple(rail.interface for rail in own) for own in ranks)


def request_of(params: dict) -> session.Request:
    return session.Request(
        plan=plan.Plan(
            nodes=nodes_of(params["nodes"]),
            transport=params["transport"],
            max_bytes=params["max_bytes"],
            size_step=params["size_step"],
            combinations=params["combinations"],
            iterations=params["iterations"],
            iterations_large=params["iterations_large"],
            warmup=params["warmup"],
            bind_rails=params["bind_rails"],
            python=params["python"],
            parameters=tuple((name, str(value)) for name, value in params["parameters"].items()),
            rankfile=params["rankfile"],
        ),
        user=params["user"],
        hostfile=Path(params["hostfile"]),
        run_id=params["run_id"],
        program_sha256=params["program_sha256"],
        time_limit_s=params["time_limit_s"],
        bisect_runs=params["bisect_runs"],
        bisect_limit_s=params["bisect_limit_s"],
        tolerances=traffic.Tolerances(
            params["management_bytes"], params["management_share"], params["min_busbw_gbytes_s"]
        ),
        virtual=machine.container() is not None,
    )


def kill_module(progress: Path) -> None:
    """Kill the module whose progress that is, unless its number is another process's by now."""
    pid = (files.plan_file(progress, None).before or "").partition("\n")[0]
    with contextlib.suppress(OSError, ValueError):
        if b"mpi_allreduce" in Path("/proc", pid, "cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "user": {"type": "str", "required": True},
            "hostfile": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
            "rankfile": {"type": "str", "default": ""},
            "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "tcp"},
            "max_bytes": {"type": "int", "default": 67108864},
            "size_step": {"type": "int", "default": 4},
            "combinations": {"type": "int", "default": 0},
            "iterations": {"type": "int", "default": 200},
            "iterations_large": {"type": "int", "default": 50},
            "warmup": {"type": "int", "default": 2},
            "bind_rails": {"type": "bool", "default": True},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "parameters": {"type": "dict", "default": {}},
            "time_limit_s": {"type": "float", "default": 300},
            "bisect_runs": {"type": "int", "default": 24},
            "bisect_limit_s": {"type": "float", "default": 30},
            "min_busbw_gbytes_s": {"type": "float"},
            "management_bytes": {"type": "int", "default": 1048576},
            "management_share": {"type": "float", "default": 0.02},
            "program_sha256": {"type": "str", "default": ""},
            "run_id": {"type": "str", "default": ""},
            "end": {"type": "bool", "default": False},
            "report_directory": {"type": "path"},
        },
        supports_check_mode=True,
    )
    module.params["run_id"] = module.params["run_id"] or uuid.uuid4().hex[:12]
    progress = PROGRESS_DIRECTORY / f"{module.params['run_id']}.progress"
    launcher = session.mpirun(module.params["user"], commands.run)

    def say(text: str) -> None:
        files.write_atomically(progress, f"{os.getpid()}\n{text}\n", 0o644, 0, 0)

    def waiting(waited: float) -> None:
        say(f"allreduce: waiting for another one to end, {waited:.0f} s")

    def end() -> str:
        kill_module(progress)  # or it would start the next run, to find out why this one failed
        check = session.Session(request_of(module.params), commands.run, launcher, say).end()
        if check.status == FAILED:
            return f"its processes are not all ended: {check.reason}"
        return f"its processes are ended on every node: {check.reason or 'none was left'}"

    def start() -> dict:
        request = request_of(module.params)
        if module.check_mode:
            return session.Session(request, commands.run, launcher, say).result(request.plan, [])
        try:
            # Two tests would measure each other.
            with alone(PROGRESS_DIRECTORY / "smoke.lock", request.time_limit_s, waiting=waiting):
                return session.Session(request, commands.run, launcher, say).run()
        except HeldError as error:
            raise PlanError(
                f"another allreduce test runs: {error}; wait for its end, or end it with:"
                " systemctl stop 'baremetal-mpi-smoke-*'"
            ) from error

    try:
        if module.params["end"]:
            module.exit_json(changed=False, layer="smoke", msg=end())
        result = start()
    except (PlanError, commands.CommandError, OSError, KeyError) as error:
        module.fail_json(msg=f"smoke: {error}", layer="smoke", checks=[], figures={})
    finally:
        with contextlib.suppress(FileNotFoundError):
            progress.unlink()
    message = result.pop("message")
    if message:
        module.fail_json(msg=message, changed=False, layer="smoke", **result)
    module.exit_json(changed=False, layer="smoke", **result)


if __name__ == "__main__":
    main()
