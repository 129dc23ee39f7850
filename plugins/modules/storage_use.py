#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One round of the write and read test of shared file systems on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_use
short_description: Verifies shared file systems by use, on all hosts simultaneously
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.storage_use]
description:
  - Each host writes its own files as the MPI user, then reads those of its neighbour in a ring over
    the hosts of the play and compares every byte.
  - Operations that may hang run in a separate process for at most O(time_limit_s).
attributes:
  check_mode:
    description: Writes nothing. Mount, response, writability and free space are still checked.
    support: full
seealso:
  - module: baremetal.mpi_roce.shared_storage
"""

EXAMPLES = r"""
- name: Plan the ring
  baremetal.mpi_roce.storage_use:
    round: plan
    filesystems: "{{ cluster_filesystems }}"
  register: __shared_storage_plan
  run_once: true

- name: Write
  baremetal.mpi_roce.storage_use:
    round: write
    filesystems: "{{ cluster_filesystems }}"
    cluster: "{{ cluster_name }}"
    user: "{{ cluster_mpi_user }}"
  register: __shared_storage_write
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
measured:
  description: Measurements of the host, by file system.
  type: dict
  returned: after V(write) and V(read)
virtual:
  description: Whether the host is a container or a virtual machine, whose line rates are nominal.
  type: bool
  returned: after V(write) and V(read)
plan:
  description: Token of the run, and the hosts of each file system in the order of the ring.
  type: dict
  returned: after V(plan)
verdicts:
  description: Checks of all hosts together, by the host that reports them in V(verdict).
  type: dict
  returned: after V(report)
figures:
  description: Figures of each file system as shown, in 10^9 bytes per second.
  type: dict
  returned: after V(report)
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import end
from ..module_utils.core.engine import REMEDY
from ..module_utils.storage import proof

LAYER = "storage"


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "round": {
        "type": "str",
        "choices": ["plan", "write", "read", "report", "verdict"],
        "required": True,
    },
    "filesystems": {"type": "list", "elements": "dict", "default": []},
    "cluster": {"type": "str", "default": ""},
    "user": {"type": "str", "default": "mpi"},
    "uid": {"type": "int"},
    "host": {"type": "str", "default": ""},
    "groups": {"type": "list", "elements": "str", "default": []},
    "size_mib": {"type": "int", "default": 64},
    "time_limit_s": {"type": "float", "default": 60},
    "alone": {"type": "bool", "default": False},
    "token": {"type": "str", "no_log": False, "default": ""},
    "seats": {"type": "dict", "default": {}},
    "report_directory": {"type": "path"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given: dict[str, Any] = module.params
    try:
        checks, measured = proof.perform(given, module.check_mode)
        virtual = proof.is_virtual()
    except (OSError, proof.UserError) as error:
        module.fail_json(msg=f"storage: {error}", layer=LAYER, checks=[])
        return
    remedy = REMEDY.format(LAYER)
    end(module, LAYER, checks, remedy, measured=measured, virtual=virtual, invocation={})


if __name__ == "__main__":
    main()
