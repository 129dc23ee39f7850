#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: storage_use
short_description: Prove the shared file systems by using them, on every host at once
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Each host writes files of its own as the MPI user, with fsync and a rename over older ones; in
    the next round it
    reads those of its neighbour in a ring over the hosts of the play, to the byte.
  - What is mounted is compared with what is wanted before anything is written, and again on the
    directory that was
    opened. A mount point where nothing is mounted is never written to.
  - Whatever may hang is done in a process of its own for at most O(time_limit_s). One that cannot
    be ended is left
    behind and named, and no second one is started while it waits.
  - Figures are of one process with one file, through the page cache, written with fsync and read on
    another host.
options:
  round:
    description:
      - V(plan) draws the ring, V(write) and V(read) are done on each host. V(meet), between them,
        collects which hosts
        wrote. V(report) shows the figures of all. V(verdict) fails on the host that serves a file
          system, or else the
        slowest, where all together were too slow.
      - All but V(write) and V(read) run on the controller, without a connection.
    type: str
    required: true
    choices: [plan, write, meet, read, report, verdict]
  filesystems:
    description: File systems, as in C(cluster_filesystems).
    type: list
    elements: dict
    default: []
  plan: {type: str, default: "", description: Name of the variable with the result of V(plan).}
  written: {type: str, default: "", description: Name of the variable with the result of V(write).}
  met: {type: str, default: "", description: Name of the variable with the result of V(meet).}
  used: {type: str, default: "", description: Name of the variable with the result of V(read).}
  reported: {type: str, default: "", description: Name of the variable with the result of
    V(report).}
  cluster: {type: str, default: "", description: Name of the cluster and of the directory of its
    files.}
  user: {type: str, default: mpi, description: "MPI user, who writes and reads."}
  uid: {type: int, description: "Number of the MPI user, for hosts that do not know the name yet."}
  size_mib:
    description: Size of the large file in MiB. All hosts together never take more than 5 % of what
      is free.
    type: int
    default: 64
  time_limit_s: {type: float, default: 60, description: Seconds that a file system has for each
    round.}
  alone:
    description: Whether each host measures by itself, so that its figures can be judged. Throttle
      the task to one host.
    type: bool
    default: false
  report_directory: {type: path, description: Directory on the controller for the figures; empty
    saves nothing.}
  host: {type: str, default: "", description: Set by the action plugin. Name of this host.}
  groups: {type: list, elements: str, default: [], description: Set by the action plugin. Groups of
    this host.}
  token: {type: str, default: "", description: Set by the action plugin. Mark of the files of this
    run.}
  seats: {type: dict, default: {}, description: "Set by the action plugin. Place in the ring, by
    file system."}
  held: {type: dict, default: {}, description: Set by the action plugin. What V(write) found on this
    host.}
attributes:
  check_mode:
    description: Writes nothing. Mount, answer, writability and room are judged all the same.
    support: full
seealso:
  - module: baremetal.mpi_roce.shared_storage
"""

EXAMPLES = r"""
- name: Draw the ring
  baremetal.mpi_roce.storage_use:
    round: plan
    filesystems: "{{ cluster_filesystems }}"
  register: plan
  run_once: true

- name: Write
  baremetal.mpi_roce.storage_use:
    round: write
    plan: plan
    filesystems: "{{ cluster_filesystems }}"
    cluster: "{{ cluster_name }}"
    user: "{{ cluster_mpi_user }}"
  register: written
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
held:
  description: What the round found, by file system, with its figures.
  type: dict
  returned: after V(write) and V(read)
plan:
  description: Token of the run, and the hosts of each file system in the order of the ring.
  type: dict
  returned: after V(plan)
virtual:
  description: Whether the host is a container or a virtual machine, whose line rates are nominal.
  type: bool
  returned: after V(write) and V(read)
met:
  description: Bytes that each host wrote, of those that wrote well, by file system.
  type: dict
  returned: after V(meet)
told:
  description: Checks of all hosts together, by the host that reports them in V(verdict).
  type: dict
  returned: after V(report)
figures:
  description: Figures of each file system, as they were shown. 10^9 bytes per second.
  type: dict
  returned: after V(report)
"""

import os
import pwd
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import machine
from ..module_utils.core.checks import end
from ..module_utils.ssh import account
from ..module_utils.storage import proof
from ..module_utils.storage.file_system import of_variable
from ..module_utils.storage.units import wanted_mounts

LAYER = "storage"
REMEDY = "Correct what the lines name, then run again with --tags storage (checks: docs/checks.md)."


def mpi_user(name: str, uid: int) -> pwd.struct_passwd:
    """The account, or its number alone: it may be made later, by the layer ssh."""
    return account.find(name) or pwd.struct_passwd((name, "x", uid, uid, "", "/", ""))


def rights_of(user: pwd.struct_passwd) -> Callable[[], None]:
    def take() -> None:
        if os.geteuid() == 0:
            there = account.find(user.pw_name) is not None
            os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid) if there else [])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

    return take


def is_virtual(cpus: Path = Path("/proc/cpuinfo")) -> bool:
    """A container, or under a hypervisor: line rates are nominal there."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpus.read_text("utf-8"), re.MULTILINE)
    return machine.container() is not None or (
        flags is not None and "hypervisor" in flags[1].split()
    )


def targets(given: dict[str, Any], uid: int, check_mode: bool) -> list[proof.Target]:
    filesystems = [of_variable(entry) for entry in given["filesystems"]]
    wanted = wanted_mounts(filesystems, given["host"], given["groups"], 0)
    return [
        proof.Target(
            wanted=each,
            seat=proof.Seat(**(given["seats"].get(each.fs.name) or {})),
            host=given["host"],
            cluster=given["cluster"],
            token=given["token"],
            user=given["user"],
            uid=uid,
            size=given["size_mib"] << 20,
            limit_s=given["time_limit_s"],
            alone=given["alone"],
            check_mode=check_mode,
        )
        for each in wanted
    ]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "round": {
                "type": "str",
                "choices": ["plan", "write", "meet", "read", "report", "verdict"],
                "required": True,
            },
            "filesystems": {"type": "list", "elements": "dict", "default": []},
            "plan": {"type": "str", "default": ""},
            "written": {"type": "str", "default": ""},
            "met": {"type": "str", "default": ""},
            "used": {"type": "str", "default": ""},
            "reported": {"type": "str", "default": ""},
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
            "held": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    try:
        user = mpi_user(given["user"], -1 if given["uid"] is None else given["uid"])
        if user.pw_uid < 0:
            module.fail_json(
                msg=f"storage: there is no user {given['user']} on this host, and no number is "
                "given (cluster_mpi_uid)",
                layer=LAYER,
                checks=[],
            )
        here = proof.Here(rights_of(user), machine.container())
        found: dict[str, proof.Held] = {}
        for target in targets(given, user.pw_uid, module.check_mode):
            name = target.fs.name
            if given["round"] == "write":
                found[name] = proof.write(target, here)
            else:
                held = proof.Held(**(given["held"].get(name) or {}))
                found[name] = proof.read(target, held, here)
    except OSError as error:
        module.fail_json(msg=f"storage: {error}", layer=LAYER, checks=[])
    told = proof.checks_of(list(found.values())) if given["round"] == "read" else []
    held = {name: asdict(one) for name, one in found.items()}
    end(module, LAYER, told, REMEDY, held=held, virtual=is_virtual(), invocation={})


if __name__ == "__main__":
    main()
