#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One round of the proof of shared file systems on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_use
short_description: Proves shared file systems by use, on every host at once
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Each host writes files of its own as the MPI user, with fsync and a rename over older ones; then
    it reads those of its neighbour in a ring over the hosts of the play, to the byte.
  - Nothing is written unless the directory that was opened is of the wanted file system.
  - Whatever may hang is done in a process of its own for at most O(time_limit_s). One that cannot
    be ended is left behind and named.
attributes:
  check_mode:
    description: Writes nothing. Mount, answer, writability and room are judged all the same.
    support: full
options:
  round:
    description:
      - V(plan) makes the ring; V(write) and V(read) run on each host; V(report) shows the figures
        of all; V(verdict) fails on the host that serves a file system, or else the slowest, where
        all together were too slow. All but V(write) and V(read) run on the controller.
      - Each result is registered as C(__shared_storage_ROUND), where the next rounds find it. As
        values of options, the results of all hosts would be templated for each of them.
    type: str
    required: true
    choices: [plan, write, read, report, verdict]
  filesystems:
    description: File systems, as in C(cluster_filesystems).
    type: list
    elements: dict
    default: []
  cluster: {type: str, default: "", description: "Name of the cluster, and of its directory."}
  user: {type: str, default: mpi, description: "MPI user, as which files are written and read."}
  uid: {type: int, description: "Number of the MPI user, for hosts that do not know the name yet."}
  size_mib:
    description: MiB of the large file. All hosts together take at most 5 % of what is free.
    type: int
    default: 64
  time_limit_s: {type: float, default: 60, description: Seconds for a file system in each round.}
  alone:
    description: Whether each host measures by itself, so that its figures can be judged.
    type: bool
    default: false
  report_directory: {type: path, description: Directory on the controller for the figures.}
  host: {type: str, default: "", description: Set by the action plugin. Name of this host.}
  groups:
    description: Set by the action plugin. Groups of this host.
    type: list
    elements: str
    default: []
  token: {type: str, default: "", description: Set by the action plugin. Mark of this run's files.}
  seats:
    description: Set by the action plugin. Writers, neighbour and its bytes, by file system.
    type: dict
    default: {}
seealso:
  - module: baremetal.mpi_roce.shared_storage
"""

EXAMPLES = r"""
- name: Make the ring
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
  description: What the host measured, by file system.
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
  description: Figures of each file system, as they were shown. 10^9 bytes per second.
  type: dict
  returned: after V(report)
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import end
from ..module_utils.core.engine import REMEDY
from ..module_utils.storage import rounds

LAYER = "storage"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "round": {
                "type": "str",
                "choices": ["plan", "write", "read", "report", "verdict"],
                "required": True,
            },
            "filesystems": {"type": "list", "elements": "dict", "default": []},
            "cluster": {"type": "str", "default": ""},
            "user": {"type": "str", "default": "mpi"},
            "uid": {"type": "int"},
            "size_mib": {"type": "int", "default": 64},
            "time_limit_s": {"type": "float", "default": 60},
            "alone": {"type": "bool", "default": False},
            "report_directory": {"type": "path"},
            "host": {"type": "str", "default": ""},
            "groups": {"type": "list", "elements": "str", "default": []},
            "token": {"type": "str", "default": "", "no_log": False},
            "seats": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    try:
        checks, measured = rounds.perform(given, module.check_mode)
        virtual = rounds.is_virtual()
    except (OSError, rounds.UserError) as error:
        module.fail_json(msg=f"storage: {error}", layer=LAYER, checks=[])
        return
    remedy = REMEDY.format(LAYER)
    end(module, LAYER, checks, remedy, measured=measured, virtual=virtual, invocation={})


if __name__ == "__main__":
    main()
