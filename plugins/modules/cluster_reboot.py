#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_reboot
short_description: Reboots hosts that recorded a reason, in batches, never one with a running job
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_reboot]
description:
  - Implements the steps of the role cluster_reboot, in the order of O(step). A host is rebooted
    only if a layer recorded a reason during the current boot.
attributes:
  check_mode:
    description: Only V(read), V(plan) and V(verdict) run in check mode.
    support: full
"""

EXAMPLES = r"""
- name: Read why this host needs a reboot, and its running jobs
  baremetal.mpi_roce.cluster_reboot:
    step: read
  register: found
"""

RETURN = r"""
found: {type: dict, returned: by V(read), description: State of the host.}
reboot_plan: {type: dict, returned: by V(plan), description: Batches and skipped hosts.}
reboot_outcome: {type: dict, returned: by the last step of a turn, description: Outcome.}
layer: {type: str, returned: by V(verdict), description: V(reboot).}
checks: {type: list, elements: dict, returned: by V(verdict), description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import CommandError, run
from ..module_utils.reboot import node

REMOTE = ("read", "leave", "arrive", "finish")
# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {
        "type": "str",
        "choices": [
            "read",
            "plan",
            "turn",
            "reboot",
            "finish",
            "failed",
            "verdict",
            "leave",
            "arrive",
        ],
        "required": True,
    },
    "batch": {"type": "str", "default": "1"},
    "storage": {"type": "str", "choices": ["last", "never"], "default": "never"},
    "wait_s": {"type": "float", "default": 0},
    "min_hours": {"type": "float", "default": 12},
    "max_per_day": {"type": "int", "default": 3},
    "timeout_s": {"type": "float", "default": 1800},
    "commands": {"type": "list", "elements": "str", "default": []},
    "state_directory": {"type": "path"},
    "boot_id": {"type": "str", "default": ""},
    "reasons": {"type": "list", "elements": "str", "default": []},
    "records": {"type": "list", "elements": "str", "default": []},
    "task": {"type": "str", "default": ""},
    "failure": {"type": "str", "default": ""},
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
