#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_job
short_description: Runs a program over MPI on the nodes of the hostfile
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.mpi_job]
description:
  - Runs on the launcher, as the MPI user, if each node is ready for the job (docs/jobs.md).
  - Saves the job's script, hostfile, and the output of all ranks in a directory of the job.
  - Stops the job at its time limit, when a node is lost, when O(lease_s) expires, and on SIGTERM.
    Kills its remaining processes on every node, and removes its session directories and shared
    memory.
  - The action plugin of the same name runs it detached and shows the output as it arrives.
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
rc: {type: int, returned: always, description: Exit status of mpirun or srun.}
seconds: {type: float, returned: always, description: Run time in seconds.}
stopped: {type: str, returned: always, description: Why the job was stopped.}
failed_rank: {type: int, returned: always, description: "The rank that failed first, or null."}
lines: {type: list, elements: str, returned: always, description: Causes of failure and last lines.}
missing: {type: dict, returned: always, description: Reason for each node that cannot take part.}
checkpoint:
  description: C(directory), with C(path), C(bytes) and C(age_s) of its newest file, and C(own),
    whether this job wrote it. Empty without a checkpoint directory.
  type: dict
  returned: always
removed: {type: dict, returned: always, description: "Remains of killed ranks, by node."}
command: {type: str, returned: always, description: The launcher's command line.}
directory: {type: str, returned: always, description: "Directory with script, hostfile and output."}
nodes: {type: list, elements: str, returned: always, description: Nodes in the order of ranks.}
virtual: {type: bool, returned: always, description: Whether line rates are nominal.}
layer: {type: str, returned: always, description: Always C(job).}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import pwd
import shlex
import signal
import uuid
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.core.locks import LOCKS, HeldError, alone, progress
from ..module_utils.core.part import PlanError
from ..module_utils.mpi.job import plan
from ..module_utils.mpi.job.run import JobError, run
from ..module_utils.mpi.launch.container import Container
from ..module_utils.mpi.launch.launcher import launcher_of
from ..module_utils.mpi.launch.node import nodes_of

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
    "program": {"type": "list", "elements": "str", "required": True},
    "ranks": {"type": "int", "default": 0},
    "kind": {"type": "list", "elements": "str", "default": []},
    "places": {"type": "dict", "default": {}},
    "mapping": {"type": "str", "choices": ["gpu", "node", "core"], "default": "gpu"},
    "environment": {"type": "dict", "default": {}},
    "work_directory": {"type": "path", "default": "/tmp"},
    "container": {"type": "str", "default": ""},
    "container_engine": {
        "type": "str",
        "choices": ["", "apptainer", "singularity", "enroot", "podman"],
        "default": "",
    },
    "container_mounts": {"type": "list", "elements": "str", "default": []},
    "time_limit_s": {"type": "float", "default": 3600},
    "lease_s": {"type": "float", "default": 0},
    "allow_missing": {"type": "bool", "default": False},
    "checkpoint_directory": {"type": "path"},
    "storage": {"type": "bool", "default": True},
    "checkpoint_room_gb": {"type": "float", "default": 0},
    "run_id": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
        # The environment is neither logged nor returned. With no_log on the option, each of its
        # values, even 8, would be masked in the whole result.
        no_log=True,
    )
    given = {**module.params, "run_id": module.params["run_id"] or uuid.uuid4().hex[:12]}
    interrupted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: interrupted.append(number))

    def start() -> dict[str, Any]:
        user = pwd.getpwnam(given["user"])
        checkpoints = given.pop("checkpoint_directory")
        changed = {
            "nodes": nodes_of(given["nodes"]),
            "program": tuple(given["program"]),
            "kind": tuple(given["kind"]),
            "directory": plan.JOBS / given["run_id"],
            "hostfile": Path(given["hostfile"]),
            "places": plan.places_of(given["places"]),
            "environment": {
                **({plan.CHECKPOINTS: checkpoints} if checkpoints else {}),
                **plan.environment_of(given["environment"]),
            },
            "parameters": plan.texts(given["parameters"], "parameters of mpirun"),
        }
        image, engine, mounts = (
            given.pop(name) for name in ("container", "container_engine", "container_mounts")
        )
        changed["container"] = Container(image, engine, tuple(mounts)) if image else None
        how = (given.pop(name) for name in ("provider", "start_with", "slurm_options"))
        launcher = launcher_of(*how)
        job = plan.Job(**{**given, **changed, "launcher": launcher})
        if module.check_mode:
            command = job.command(plan.chosen(job, job.nodes))
            return {"command": shlex.join(command), "checks": [], "message": ""}
        with progress(job.run_id) as show, alone(LOCKS / "job.lock", 0):
            return run(job, commands.run, show, user.pw_uid, user.pw_gid, lambda: interrupted)

    shown = {**module.params, "environment": sorted(module.params["environment"]), "nodes": None}
    common = {"layer": "job", "invocation": {"module_args": shown}}
    try:
        result = start()
    except JobError as error:
        module.fail_json(msg=f"job: {error}", changed=True, checks=[], **common)
    except (HeldError, PlanError, commands.CommandError, OSError, KeyError) as error:
        missing = getattr(error, "missing", {})
        text = f"job: nothing was started: {error}"
        module.fail_json(msg=text, checks=[], missing=missing, **common)
    result = {**result, **common, "changed": True}
    message = result.pop("message")
    if message:
        module.fail_json(msg=message, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
