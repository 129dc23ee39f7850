#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a program over MPI on the nodes of the hostfile, and clean up after it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_job
short_description: Runs a program over MPI on the nodes of the hostfile
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.launched]
description:
  - Runs on the launcher, as the MPI user. Before it starts anything, each node has to answer, with
    its rails up, the program and the working directory there, no other MPI job, idle GPUs, and
    shared file systems mounted, that of checkpoints with room.
  - Saves mpirun's command line as a script, with environment and hostfile, and the output of all
    ranks, each line with its rank, in a directory of the job.
  - Ends the job at its time limit, when a node is lost, when O(lease_s) runs out, and on SIGTERM,
    which the action plugin sends when ansible-playbook is interrupted. Kills what
    the job left on any node, and removes its session directories and shared memory.
  - The action plugin of the same name runs it detached and shows the output as it comes.
options:
  program:
    description: Program and arguments. A path is one on every node.
    type: list
    elements: str
    required: true
  ranks: {type: int, default: 0, description: Number of ranks; 0 for every slot.}
  places:
    description: Ranks by node, for a job on some of them; empty for every slot of all nodes.
    type: dict
    default: {}
  mapping:
    description:
      - V(gpu) places ranks node by node, each with the rail of its own GPU and on cores of that
        GPU's NUMA node; V(node) one on each node in turn, unbound; V(core) node by node, each bound
        to a core.
    type: str
    choices: [gpu, node, core]
    default: gpu
  environment:
    description: Variables of every rank, beside those of the cluster. They are not logged.
    type: dict
    default: {}
  work_directory: {type: path, default: /tmp, description: "Where ranks start, on every node."}
  time_limit_s:
    {type: float, default: 3600, description: Seconds after which the job is ended and has failed.}
  lease_s:
    description: Seconds without a sign of the controller after which the job is ended; 0 for never.
    type: float
    default: 0
  allow_missing:
    description: Whether to run without nodes that cannot take part.
    type: bool
    default: false
  checkpoint_directory:
    description:
      - Where ranks write checkpoints, as C(CLUSTER_CHECKPOINT_DIR); empty for that of the cluster.
        It, or its parent, has to be there on every node, and take files of the MPI user.
    type: path
  storage:
    description: Whether each node has to have the shared file systems.
    type: bool
    default: true
  checkpoint_room_gb:
    {type: float, default: 0, description: GB that have to be free there; 10^9 bytes.}
  run_id: {type: str, default: "", description: Name of this job; empty makes one up.}
attributes:
  check_mode:
    description: Shows the command and launches nothing.
    support: full
"""

EXAMPLES = r"""
- name: Train on every slot
  baremetal.mpi_roce.mpi_job:
    nodes: "{{ directory }}"
    user: mpi
    program: [python3, /srv/train.py, --steps, "1000"]
    environment: {OMP_NUM_THREADS: "8"}
"""

RETURN = r"""
rc: {type: int, returned: always, description: Exit status of mpirun.}
seconds: {type: float, returned: always, description: Seconds it ran.}
stopped: {type: str, returned: always, description: "Why it was ended, if it was."}
failed_rank: {type: int, returned: always, description: "The rank that failed first, or null."}
lines: {type: list, elements: str, returned: always, description: "Causes, then last lines."}
missing: {type: dict, returned: always, description: "By node that was left out, the reason."}
first_output_s: {type: float, returned: always, description: "Seconds to its first line, or null."}
checkpoint:
  description: >-
    C(directory), and C(path), C(bytes) and C(age_s) of the newest file in it as the first node sees
    it, with C(own), whether this job wrote it. Empty without a directory of checkpoints.
  type: dict
  returned: always
removed: {type: dict, returned: always, description: "By node, what killed ranks had left."}
command: {type: str, returned: always, description: The launcher's command line.}
directory: {type: str, returned: always, description: "Directory with script, hostfile and output."}
nodes: {type: list, elements: str, returned: always, description: Nodes in the order of ranks.}
virtual: {type: bool, returned: always, description: Whether line rates are nominal.}
layer: {type: str, returned: always, description: Always C(job).}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import shlex
import signal
import uuid
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.core.locks import LOCKS, HeldError, alone, progress
from ..module_utils.core.part import PlanError
from ..module_utils.mpi.job import plan
from ..module_utils.mpi.job.run import JobError, run
from ..module_utils.mpi.launch.launcher import LAUNCHED, MAPPINGS, of_provider
from ..module_utils.mpi.launch.node import nodes_of
from ..module_utils.ssh import account


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **LAUNCHED,
            "program": {"type": "list", "elements": "str", "required": True},
            "ranks": {"type": "int", "default": 0},
            "places": {"type": "dict", "default": {}},
            "mapping": {"type": "str", "choices": list(MAPPINGS), "default": "gpu"},
            "environment": {"type": "dict", "default": {}},
            "work_directory": {"type": "path", "default": "/tmp"},
            "time_limit_s": {"type": "float", "default": 3600},
            "lease_s": {"type": "float", "default": 0},
            "allow_missing": {"type": "bool", "default": False},
            "checkpoint_directory": {"type": "path"},
            "storage": {"type": "bool", "default": True},
            "checkpoint_room_gb": {"type": "float", "default": 0},
            "run_id": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
        # The environment is neither logged nor returned. With no_log on the option, each of its
        # values, even 8, would be masked in the whole result.
        no_log=True,
    )
    given = dict(module.params)
    given["run_id"] = given["run_id"] or uuid.uuid4().hex[:12]
    interrupted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: interrupted.append(number))

    def start() -> dict:
        user = account.find(given["user"])
        if user is None:
            raise PlanError(f"user {given['user']} does not exist: run --tags ssh")
        environment = plan.environment_of(given.pop("environment"))
        checkpoints = given.pop("checkpoint_directory")
        job = plan.Job(
            nodes=nodes_of(given.pop("nodes")),
            program=tuple(given.pop("program")),
            launcher=of_provider(given.pop("provider")),
            directory=plan.JOBS / given["run_id"],
            hostfile=Path(given.pop("hostfile")),
            places=plan.places_of(given.pop("places")),
            environment={
                **({plan.CHECKPOINTS: checkpoints} if checkpoints else {}),
                **environment,
            },
            parameters=plan.texts(given.pop("parameters"), "parameters of mpirun"),
            **given,
        )
        if module.check_mode:
            return {
                "command": shlex.join(job.command(plan.chosen(job, job.nodes))),
                "checks": [],
                "message": "",
            }
        with progress(job.run_id) as show, alone(LOCKS / "job.lock", 0):
            return run(job, commands.run, show, user.pw_uid, user.pw_gid, lambda: interrupted)

    shown = {**module.params, "environment": sorted(module.params["environment"]), "nodes": None}
    common = {"layer": "job", "invocation": {"module_args": shown}}
    try:
        result = start()
    except HeldError as error:
        module.fail_json(msg=f"job: another job is running: {error}", checks=[], **common)
    except JobError as error:
        module.fail_json(msg=f"job: {error}", changed=True, checks=[], **common)
    except (PlanError, commands.CommandError, OSError, KeyError) as error:
        module.fail_json(msg=f"job: nothing was started: {error}", checks=[], **common)
    message = result.pop("message")
    result = {**result, **common, "changed": True}
    if message:
        module.fail_json(msg=message, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
