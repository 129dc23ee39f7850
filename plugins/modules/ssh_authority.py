#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation of the action of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_authority
short_description: Prepares on the controller the trust that every node receives over SSH
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.ssh_authority]
description:
  - Runs on the controller, once for all nodes (C(run_once)), without a connection.
  - Creates the cluster's certificate authorities for users and hosts, takes each due step of a
    rotation, and revokes nodes that left the inventory, regardless of the limit.
  - Maintains C(known_hosts) in O(state_directory), with which operators and the controller verify
    all nodes.
"""

EXAMPLES = r"""
- name: Prepare the authority on the controller
  baremetal.mpi_roce.ssh_authority:
    directory: "{{ cluster.directory }}"
    cluster_name: "{{ cluster_name }}"
  register: trust
  run_once: true
"""

RETURN = r"""
authority:
  description: >-
    Data for every node, for M(baremetal.mpi_roce.ssh_trust). Public keys, host patterns, the list
    of revoked certificates and the paths, but not the content, of private keys.
  type: dict
  returned: success
hosts: {type: dict, returned: success, description: "Names, targets and journal of each node."}
state_directory: {type: str, returned: success, description: The directory on the controller.}
removed: {type: list, elements: str, returned: without O(after), description: Revoked nodes.}
outdated: {type: list, elements: str, returned: success, description: Nodes with an old list.}
incomplete: {type: list, elements: str, returned: success, description: Nodes without a run yet.}
steps: {type: list, elements: str, returned: without O(after), description: Steps taken or due.}
"""

# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "directory": {"type": "list", "elements": "dict", "default": []},
    "cluster_name": {"type": "str", "required": True},
    "domain": {"type": "str", "default": ""},
    "management_prefix": {"type": "int", "default": 24},
    "user": {"type": "str", "default": "mpi"},
    "between_compute": {"type": "bool", "default": True},
    "extra_sources": {"type": "list", "elements": "str", "default": []},
    "state_directory": {"type": "path", "default": ""},
    "ca_generation": {"type": "int", "default": 1},
    "ca_overlap": {"type": "bool", "default": True},
    "user_ca_key": {"type": "path", "no_log": False, "default": ""},
    "host_ca_key": {"type": "path", "no_log": False, "default": ""},
    "signer": {"type": "list", "elements": "str", "default": []},
    "warn_days": {"type": "float", "default": 14},
    "max_removed": {"type": "int", "default": 1},
    "take_over": {"type": "str", "default": ""},
    "revoke": {"type": "list", "elements": "str", "default": []},
    "after": {"type": "bool", "default": False},
    "look": {"type": "bool", "default": False},
    "only": {"type": "list", "elements": "str", "default": []},
    "reached": {"type": "list", "elements": "str", "default": []},
}
