#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems of a host, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_storage
short_description: Mounts, and serves, the shared file systems of a host
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Installs what mounting and serving take, serves by NFS what this host serves, sets up the client
    of Lustre, mounts through systemd, and reads all of it back.
  - What is mounted is read from the kernel's table alone. A dead server is a failed check, after
    O(mount_wait_s).
  - A mount that is in use is not unmounted; its processes are named. A directory that holds
    anything is not mounted over, and a device that has anything on it is not formatted.
  - In a container mounts are C(not_applicable); units, packages and exports are real.
attributes:
  check_mode:
    support: full
    description:
      - Differences are C(pending) checks. An automount point that is armed and as wanted is used as
        any program would, so its file system is mounted.
options:
  filesystems:
    description: The shared file systems of the cluster, as the variable C(cluster_filesystems).
    type: list
    elements: dict
    default: []
  host: {type: str, default: "", description: Set by the action plugin. Name of this host.}
  groups:
    description: Set by the action plugin. Groups of this host.
    type: list
    elements: str
    default: []
  directory:
    description:
      - RV(baremetal.mpi_roce.cluster_directory#module:directory). The action plugin makes
        O(clients) of it.
    type: list
    elements: dict
    default: []
  clients:
    description:
      - Set by the action plugin. Addresses that may mount it, by name of a file system that this
        host serves.
    type: dict
    default: {}
  user: {type: str, default: mpi, description: "MPI user, the default owner."}
  uid: {type: int, description: "Number of the MPI user, for a host that does not know the name."}
  absent:
    description:
      - Mount points that are unmounted and whose units are removed, and served directories that are
        no longer exported. What they hold stays.
    type: list
    elements: str
    default: []
  mount_timeout_s:
    description: Seconds that a unit gives a mount, and an unmount, to succeed.
    type: int
    default: 600
  mount_wait_s:
    description: Seconds that this module waits for all mounts together, and for each unmount.
    type: int
    default: 60
  server_threads: {type: int, default: 64, description: Threads of the kernel's NFS server.}
  server_restart:
    description: Whether the NFS server is restarted for settings that need it, under its clients.
    type: bool
    default: false
  lustre:
    description: How this host is a client of Lustre, as the variable C(shared_storage_lustre).
    type: dict
    default: {}
  lustre_root:
    description:
      - Directory below which C(sys) and C(proc) of Lustre are read. Another one than C(/) is a
        simulation, which the result names.
    type: path
    default: /
  rdma_source: {type: str, default: "", description: "RDMA drivers, C(doca) or C(inbox)."}
  rails:
    description: The rails of this host, as the variable C(cluster_rails).
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Look the whole cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
  register: cluster
  run_once: true

- name: Shared file systems
  baremetal.mpi_roce.shared_storage:
    filesystems: "{{ cluster_filesystems }}"
    directory: "{{ cluster.directory }}"
    user: "{{ cluster_mpi_user }}"
    uid: "{{ cluster_mpi_uid }}"
    rails: "{{ cluster_rails | default([]) }}"
    absent: [/mnt/old]
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
simulated: {type: list, elements: str, returned: always, description: "What was simulated."}
container: {type: str, returned: success, description: "The container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Its reasons.}
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.storage.options import storage
from ..module_utils.storage.service import THREADS

LAYER = Layer(
    "storage",
    command_s=900.0,  # mkfs on a large device
    look_s=60.0,
)


def converge(given: Mapping[str, Any], node: Node) -> Settled:
    parts, simulated = storage(given, node)
    return Settled(settle(parts, node), simulated)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "filesystems": {"type": "list", "elements": "dict", "default": []},
            "host": {"type": "str", "default": ""},
            "groups": {"type": "list", "elements": "str", "default": []},
            "directory": {"type": "list", "elements": "dict", "default": []},
            "clients": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": "mpi"},
            "uid": {"type": "int"},
            "absent": {"type": "list", "elements": "str", "default": []},
            "mount_timeout_s": {"type": "int", "default": 600},
            "mount_wait_s": {"type": "int", "default": 60},
            "server_threads": {"type": "int", "default": THREADS},
            "server_restart": {"type": "bool", "default": False},
            "lustre": {"type": "dict", "default": {}},
            "lustre_root": {"type": "path", "default": "/"},
            "rdma_source": {"type": "str", "default": ""},
            "rails": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
