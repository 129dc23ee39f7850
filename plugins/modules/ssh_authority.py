#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation of the action of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_authority
short_description: Prepares on the controller the trust that every node receives over SSH
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Runs on the controller, once for all nodes (C(run_once)), without a connection.
  - Creates the cluster's certificate authorities for users and hosts, takes each due step of a
    rotation, and revokes nodes that left the inventory, regardless of the limit.
  - Maintains C(known_hosts) in O(state_directory), with which operators and the controller verify
    all nodes.
options: # generated from layers/ssh.yml by tools/generate_layers.py
  directory:
    type: list
    elements: dict
    required: true
    description: Every host of the cluster, from
      RV(baremetal.mpi_roce.cluster_directory#module:directory).
  cluster_name: {type: str, required: true, description: Name of the cluster.}
  domain: {type: str, default: '', description: DNS domain in which nodes have names as well.}
  management_prefix:
    type: int
    default: 24
    description: Prefix length of the management network, in which the authority is trusted.
  user:
    type: str
    default: mpi
    description: MPI user. Defaults to the inventory's C(cluster_mpi_user), or V(mpi).
  between_compute:
    type: bool
    default: true
    description: Whether compute nodes admit each other, which mpirun on a compute node and
      C(mpi_stack_tree_spawn) require. With V(false) they admit only launchers and themselves.
  extra_sources:
    type: list
    elements: str
    default: []
    description: Addresses and networks from which user certificates are valid, in addition to the
      node's addresses in the model; V(0.0.0.0/0) for all.
  state_directory:
    type: path
    default: ''
    description:
      - Directory on the controller with the authority's private keys and its journal.
      - Defaults to C(~/.local/state/baremetal.mpi_roce/CLUSTER/ssh-ca).
  ca_generation:
    type: int
    default: 1
    description: Number of the authority. Increasing it rotates the authority; each run takes the
      steps that are due.
  ca_overlap:
    type: bool
    default: true
    description: Whether the old authority stays trusted until every node has certificates of the
      new one. V(false) drops it immediately.
  user_ca_key:
    type: path
    default: ''
    description: Key of an existing authority, on the controller, to sign user certificates with.
      Either a private key with its C(.pub) in the same directory, or only a C(.pub) whose private
      half is in an ssh-agent or behind O(signer). Requires O(host_ca_key).
  host_ca_key: {type: path, default: '', description: The same for host certificates.}
  signer:
    type: list
    elements: str
    default: []
    description: Command and arguments of a program that signs with the keys above
      (docs/ssh-trust.md).
  warn_days:
    type: float
    default: 14
    description: Remaining days below which any node's certificate causes a warning.
  max_removed:
    type: int
    default: 1
    description: Number of nodes that may leave the inventory between two runs. A launcher counts as
      two.
  take_over:
    type: str
    default: ''
    description: Word from the refusal of a state directory that belongs to other hosts; it hands
      the directory over to this inventory. For a single run, with C(-e).
  revoke:
    type: list
    elements: str
    default: []
    description: Nodes in the inventory that all others refuse, including their keys
      (docs/ssh-trust.md).
  after:
    type: bool
    default: false
    description: Take no step; return the data for nodes after a run, with the replaced certificates
      revoked. Nodes that still have an older revocation list cause a warning.
  reached:
    type: list
    elements: str
    default: []
    description: With O(after), nodes that get the list next and cause no warning.
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
    "directory": {"type": "list", "elements": "dict", "required": True},
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
    "reached": {"type": "list", "elements": "str", "default": []},
}
