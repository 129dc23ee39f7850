#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: storage_use
short_description: Prove the shared file systems by using them, on every host at once
version_added: "0.1.0"
description:
  - Each host writes files of its own as the MPI user, with fsync and a rename over older ones; in
    the next round it reads those of its neighbour in a ring over the hosts of the play, to the
    byte, and looks for those of the hosts that follow.
  - What is mounted is compared with what is wanted before anything is written, and again on the
    directory that was opened. A mount point where nothing is mounted is never written to.
  - Whatever may hang is done in a process of its own for at most O(time_limit_s). One that cannot
    be ended is left behind and named, and no second one is begun while it waits.
  - Figures are of one process with one file, written with fsync and read on another host than
    wrote it. They go through the page cache, as programs do, without O_DIRECT; what the host has
    in its cache is given up before it reads (posix_fadvise).
  - The steps but for V(write) and V(read) run on the controller, without a connection.
options:
  round:
    description:
      - V(plan) draws the ring and makes the token, V(write) and V(read) are done on each host, and
        V(report) shows the figures of all. V(verdict) tells the host that serves a file system, or
        else the slowest, what all of them did together; it alone fails where that is too slow.
        V(meet) says, between V(write) and V(read), who wrote well.
    type: str
    required: true
    choices: [plan, write, meet, read, report, verdict]
  filesystems:
    description: File systems, as in C(cluster_filesystems).
    type: list
    elements: dict
    default: []
  plan:
    description: Name of the variable that has the result of the step V(plan).
    type: str
    default: ""
  written:
    description: Name of the variable that has the result of the step V(write).
    type: str
    default: ""
  met:
    description: Name of the variable that has the result of the step V(meet).
    type: str
    default: ""
  used:
    description: Name of the variable that has the result of the step V(read).
    type: str
    default: ""
  reported:
    description: Name of the variable that has the result of the step V(report).
    type: str
    default: ""
  cluster:
    description: Name of the cluster; the directory of its files has this name.
    type: str
    default: ""
  user: {type: str, default: mpi, description: "MPI user, who writes and reads."}
  uid: {type: int, description: "Number of the MPI user, for hosts that do not know the name yet."}
  size_mib:
    description:
      - Size of the large file in MiB. All hosts together never take more than 5 % of what is free.
    type: int
    default: 64
  time_limit_s:
    description: Seconds that a file system has for each round.
    type: float
    default: 60
  alone:
    description:
      - Whether each host measures by itself, so that its figures can be judged. The task has to be
        throttled to one host at a time.
    type: bool
    default: false
  report_directory:
    description: Directory on the controller for the figures as JSON; empty saves nothing.
    type: path
  host: {type: str, default: "", description: Set by the action plugin. Name of this host.}
  groups:
    description: Set by the action plugin. Groups of this host.
    type: list
    elements: str
    default: []
  token:
    description: Set by the action plugin. What the files of this run have in them.
    type: str
    default: ""
  seats:
    description: Set by the action plugin. The place of this host in the ring, by file system.
    type: dict
    default: {}
  held:
    description: Set by the action plugin. What the step V(write) found on this host.
    type: dict
    default: {}
author:
  - Baremetal MPI RoCE founders (@baremetal)
attributes:
  check_mode:
    description:
      - Writes nothing and says so. What is mounted, and whether it answers, is writable and has
        room, is judged all the same.
    support: full
  diff_mode:
    description: There is nothing to differ; its files are its own, and written over by each run.
    support: none
seealso:
  - module: baremetal.mpi_roce.shared_storage
"""

EXAMPLES = r"""
- name: Say who reads whose files
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

- name: Say who wrote well
  baremetal.mpi_roce.storage_use:
    round: meet
    plan: plan
    written: written
  register: met
  run_once: true

- name: Read what the neighbour wrote
  baremetal.mpi_roce.storage_use:
    round: read
    plan: plan
    written: written
    met: met
    filesystems: "{{ cluster_filesystems }}"
    cluster: "{{ cluster_name }}"
    user: "{{ cluster_mpi_user }}"
  register: used

- name: Show the figures
  baremetal.mpi_roce.storage_use:
    round: report
    plan: plan
    written: written
    used: used
    filesystems: "{{ cluster_filesystems }}"
  register: reported
  run_once: true

- name: Tell whom it concerns how fast all of them were together
  baremetal.mpi_roce.storage_use:
    round: verdict
    reported: reported
"""

RETURN = r"""
layer: {type: str, returned: always, sample: storage, description: Tag of the layer.}
checks:
  description:
    - Each promise, what was wanted and what was found. After V(write) none of them are told yet;
      they are in RV(held), and V(read) tells all. After V(report) they are in RV(told).
  type: list
  elements: dict
  returned: always
  sample:
    - name: storage_neighbour
      subject: /mnt/checkpoints
      wanted: the neighbour's file, right to the byte
      found: the neighbour's file, right to the byte
      status: ok
      reason: ""
held:
  description: What the round found, by file system, with its figures.
  type: dict
  returned: after V(write) and V(read)
  sample:
    checkpoints:
      checks: []
      stopped: ""
      figures:
        wrote: {bytes: 67108864, seconds: 0.031, began: 1760000000.1, ended: 1760000000.2}
        own_address: 10.100.0.11
        served_here: false
plan:
  description: Token of the run, and the hosts of each file system in the order of the ring.
  type: dict
  returned: after V(plan)
  sample: {token: 4f1c0e1b2a3d, rings: {checkpoints: [node01, node02]}}
virtual:
  description: Whether the host is a container or a virtual machine, whose line rates are nominal.
  type: bool
  returned: after V(write) and V(read)
  sample: false
met:
  description: Bytes that each host wrote, of those that wrote well, by file system.
  type: dict
  returned: after V(meet)
  sample: {checkpoints: {node01: 67108864}}
told:
  description: What all hosts did together, by the host that V(verdict) tells.
  type: dict
  returned: after V(report)
  sample: {storage01: []}
figures:
  description: Figures of each file system, as they were shown. 10^9 bytes per second.
  type: dict
  returned: after V(report)
  sample: {checkpoints: {hosts: 4, write: {slowest: 1.9, median: 2.1, fastest: 2.2, together: 7.9}}}
"""

import os
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import machine
from ..module_utils.core.checks import end
from ..module_utils.ssh import account
from ..module_utils.storage.file_system import of_variable
from ..module_utils.storage.units import wanted_mounts
from ..module_utils.storage.use import proof

LAYER = "storage"
REMEDY = "Correct what the lines name, then run again with --tags storage; nothing else is needed."


def mpi_user(name: str, uid: int) -> account.Account:
    """The account, or its number alone: it may be made later, by the layer ssh."""
    there = account.find(name)
    if there is not None:
        return there
    return account.Account(name, uid, uid, Path("/"), "")


def rights_of(user: account.Account) -> Callable[[], None]:
    def take() -> None:
        if account.find(user.name) is not None:
            account.become(user)
        elif os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user.gid)
            os.setuid(user.uid)

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
    if given["round"] not in ("write", "read") or not (given["host"] and given["cluster"]):
        module.fail_json(
            msg="storage: this step runs on the controller: its action plugin is missing, or no "
            "cluster is named",
            layer=LAYER,
            checks=[],
        )
    try:
        user = mpi_user(given["user"], -1 if given["uid"] is None else given["uid"])
        if user.uid < 0:
            module.fail_json(
                msg=f"storage: there is no user {given['user']} on this host, and no number is "
                "given (cluster_mpi_uid)",
                layer=LAYER,
                checks=[],
            )
        here = proof.Here(rights_of(user), machine.container())
        found: dict[str, proof.Held] = {}
        for target in targets(given, user.uid, module.check_mode):
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
