#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance
short_description: Measures a cluster, searches for its slow part, and writes a certificate
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.acceptance]
description:
  - The step V(look) runs on each node and reads which jobs run on it, and the versions of its
    kernel, GPU driver and NIC firmware. The other steps run in the action plugin of the same name,
    which measures by jobs of M(baremetal.mpi_roce.mpi_job).
  - State is saved after each measurement, so that an interrupted run can be resumed.
"""

EXAMPLES = r"""
- name: Look for jobs, and read versions
  baremetal.mpi_roce.acceptance:
    step: look
    rails: "{{ cluster_rails }}"
"""

RETURN = r"""
found:
  description: >-
    C(processes) of jobs, the node in C(slurm), C(gpu_processes), C(boot) (its ID), C(gpus) (whether
    a driver runs), C(versions) and C(problems).
  type: dict
  returned: for the step V(look)
nodes:
  description: Nodes whose GPUs are loaded next; none if there is no time for it.
  type: list
  elements: str
  returned: for the step V(load)
run: {type: dict, returned: for the step V(load), description: What the role gpu_burn needs for it.}
certificate: {type: str, returned: for the step V(certify), description: Path of the certificate.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import CommandError, find_program, run
from ..module_utils.hardware import tree
from ..module_utils.hardware.host import versions
from ..module_utils.reboot import busy, slurm
from ..module_utils.slurm.state import SlurmError

# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {
        "type": "str",
        "choices": ["look", "measure", "search", "load", "certify"],
        "required": True,
    },
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "user": {"type": "str", "default": ""},
    "hostfile": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
    "provider": {"type": "str", "default": "distribution"},
    "parameters": {"type": "dict", "default": {}},
    "transport": {"type": "str", "choices": ["tcp", "rc"], "default": "rc"},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "only": {"type": "list", "elements": "str", "default": []},
    "budget_s": {"type": "float", "default": 3600},
    "resume": {"type": "str", "choices": ["auto", "never"], "default": "auto"},
    "rounds": {"type": "int", "default": 0},
    "round_s": {"type": "float", "default": 1},
    "message_bytes": {"type": "int", "default": 1048576},
    "directions": {"type": "str", "choices": ["both", "one"], "default": "both"},
    "queue_pairs": {"type": "int", "default": 4},
    "cross_rail": {"type": "bool", "default": False},
    "burn": {"type": "bool", "default": True},
    "load": {"type": "dict", "default": {}},
    "later": {"type": "dict", "default": {}},
    "min_share": {"type": "float"},
    "max_latency_us": {"type": "float"},
    "sweeps": {
        "type": "list",
        "elements": "str",
        "choices": ["mpi4py", "osu", "nccl"],
        "default": ["mpi4py", "nccl"],
    },
    "sweep_iterations": {"type": "int", "default": 0},
    "sweep_max_bytes": {"type": "int", "default": 4194304},
    "sweep_limit_s": {"type": "float", "default": 600},
    "commands": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "report_directory": {"type": "path", "default": ""},
    "ssh_directory": {"type": "path", "default": ""},
    "cluster": {"type": "str", "default": ""},
    "looked": {"type": "str", "default": ""},
}
GPU_PROCESSES = ("--query-compute-apps=pid,process_name", "--format=csv,noheader")
MAX_SHOWN = 20


def look(params: dict[str, Any]) -> dict[str, Any]:
    problems: list[str] = []
    gpu_processes: list[str] = []
    known = None
    scontrol, smi = find_program("scontrol"), find_program("nvidia-smi")
    try:
        if scontrol:
            known = slurm.read(run, socket.gethostname().partition(".")[0], scontrol)
        if smi:
            lines = run([smi, *GPU_PROCESSES], check=False).stdout.splitlines()
            own = [line.strip() for line in lines if line[:1].isdigit() and busy.MPS not in line]
            gpu_processes = own[:MAX_SHOWN]
    except (CommandError, SlurmError) as error:
        problems.append(str(error))
    return {
        "processes": [asdict(process) for process in busy.processes(more=params["commands"])],
        "slurm": slurm.as_dict(known) if known else None,
        "gpu_processes": gpu_processes,
        "problems": problems,
        "boot": tree.text(Path("/proc/sys/kernel/random/boot_id")),
        "gpus": Path("/dev/nvidiactl").exists(),
        "versions": versions([str(rail.get("interface")) for rail in params["rails"]]),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if module.params["step"] != "look":
        module.fail_json(msg="only the step look runs on hosts")
    try:
        module.exit_json(changed=False, found=look(module.params))
    except (CommandError, OSError, ValueError) as error:
        module.fail_json(msg=f"acceptance: jobs on this node could not be read: {error}")


if __name__ == "__main__":
    main()
