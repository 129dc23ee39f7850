#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_reboot
short_description: Reboots the hosts that recorded a reason, in batches, none with a job on it
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - The steps of the role cluster_reboot, in the order of O(step). A host is rebooted only when a
    layer recorded a reason in the boot that runs.
options:
  step:
    description:
      - V(read) returns why a host waits for a reboot, what runs on it and when it booted.
      - V(plan) decides on the controller which hosts are rebooted, in which batch, and which are
        left and why.
      - V(turn) checks that exactly the hosts of the next batch play, and that those before came
        back.
      - V(reboot) drains the host, reboots it, and waits until it is up in another boot.
      - V(finish) resumes it in Slurm, and clears the reasons that a verification disproved.
      - V(failed) records why a host did not come back right.
      - V(verdict) returns the outcome of each host, and fails those that still wait for a reboot.
      - V(leave) and V(arrive) are the parts of V(reboot) that run on the host.
    type: str
    required: true
    choices: [read, plan, turn, reboot, finish, failed, verdict, leave, arrive]
  batch:
    description: Compute nodes rebooted at once; a number, or a share of those that wait (V(25%)).
    type: str
    default: "1"
  storage:
    description: Whether storage hosts are rebooted, last, or never.
    type: str
    choices: [last, never]
    default: never
  wait_s: {type: float, default: 0, description: Seconds to wait for jobs; 0 leaves a busy host.}
  min_hours: {type: float, default: 12, description: Hours between reboots; 0 for no limit.}
  max_per_day: {type: int, default: 3, description: Reboots in 24 hours; 0 for no limit.}
  timeout_s: {type: float, default: 1800, description: Seconds until a host has to be back.}
  commands:
    description: Names of further programs that keep a host from its reboot while they run.
    type: list
    elements: str
    default: []
  state_directory: {type: path, description: Directory on the controller for the lock.}
  boot_id: {type: str, default: "", description: The boot that ends or was verified.}
  reasons: {type: list, elements: str, default: [], description: Why the host is rebooted.}
  records:
    description: Names of the records whose layers were verified.
    type: list
    elements: str
    default: []
  task: {type: str, default: "", description: Name of the task that failed.}
  failure: {type: str, default: "", description: Message of that task.}
attributes:
  check_mode:
    description: In check mode V(read), V(plan) and V(verdict) are the whole of it.
    support: full
"""

EXAMPLES = r"""
- name: Read why this host waits for a reboot, and what runs on it
  baremetal.mpi_roce.cluster_reboot:
    step: read
  register: found
"""

RETURN = r"""
found: {type: dict, returned: by V(read), description: State of the host.}
reboot_plan: {type: dict, returned: by V(plan), description: Batches and hosts that are left.}
reboot_outcome: {type: dict, returned: by the last step of a turn, description: Of this host.}
layer: {type: str, returned: by V(verdict), description: V(reboot).}
checks: {type: list, elements: dict, returned: by V(verdict), description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import CommandError, run
from ..module_utils.reboot import node

REMOTE = ("read", "leave", "arrive", "finish")


TEXT = {"type": "str", "default": ""}
TEXTS = {"type": "list", "elements": "str", "default": []}
ARGUMENTS = {
    "step": {
        "type": "str",
        "required": True,
        "choices": [
            *("read", "plan", "turn", "reboot", "finish", "failed", "verdict"),
            *("leave", "arrive"),
        ],
    },
    "batch": {"type": "str", "default": "1"},
    "storage": {"type": "str", "choices": ["last", "never"], "default": "never"},
    "wait_s": {"type": "float", "default": 0},
    "min_hours": {"type": "float", "default": 12},
    "max_per_day": {"type": "int", "default": 3},
    "timeout_s": {"type": "float", "default": 1800},
    "commands": TEXTS,
    "state_directory": {"type": "path"},
    "boot_id": TEXT,
    "reasons": TEXTS,
    "records": TEXTS,
    "task": TEXT,
    "failure": TEXT,
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params
    step = params["step"]
    if step not in REMOTE:
        module.fail_json(msg=f"step {step} runs on the controller, in the action plugin")
    here = node.RebootNode(run=run)
    try:
        if step == "read":
            module.exit_json(changed=False, found=node.read(here, params["commands"]))
        if module.check_mode:
            module.exit_json(changed=True)
        if step == "leave":
            node.leave(
                here, params["boot_id"], params["reasons"], params["wait_s"], params["commands"]
            )
            module.exit_json(changed=True)
        if step == "arrive":
            module.exit_json(changed=False, **node.arrive(here, params["timeout_s"]))
        done = node.finish(here, params["records"], params["boot_id"])
        module.exit_json(changed=bool(done["struck"] or done["resumed"]), **done)
    except node.LeaveError as error:
        module.fail_json(msg=str(error), refused=True)
    except (CommandError, OSError, ValueError) as error:
        module.fail_json(msg=f"{step}: {error}")


if __name__ == "__main__":
    main()
