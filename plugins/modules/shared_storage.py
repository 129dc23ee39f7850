#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems of a host, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_storage
short_description: Mounts, and serves, the shared file systems of a host
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.shared_storage]
description:
  - Installs the required software, exports by NFS what this host serves, configures the Lustre
    client, mounts through systemd, and reads everything back.
  - Never unmounts a mount in use, mounts over a directory with content, or formats a device with
    content. A dead server is a failed check after O(mount_wait_s).
attributes:
  check_mode:
    support: full
    description:
      - Differences are C(pending) checks. Accessing a correctly configured automount point mounts
        its file system, as with any program.
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
simulated: {type: list, elements: str, returned: always, description: Simulated inputs.}
container: {type: str, returned: success, description: "Container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Why.}
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.storage.lustre import PRESENT
from ..module_utils.storage.options import storage

LAYER = Layer(
    "storage",
    command_s=900.0,  # enough for mkfs on a large device
    look_s=60.0,
)


def converge(given: Mapping[str, Any], node: Node) -> Settled:
    parts, simulated = storage(given, node)
    packages = (given["lustre"] or {}).get("packages") or {}
    whole = packages.get("method", PRESENT) == PRESENT
    return Settled(settle(parts, node), simulated, whole=whole)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
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
    "server_threads": {"type": "int", "default": 64},
    "server_restart": {"type": "bool", "default": False},
    "lustre": {"type": "dict", "default": {}},
    "lustre_root": {"type": "path", "default": "/"},
    "rdma_source": {"type": "str", "default": ""},
    "rails": {"type": "list", "elements": "dict", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
