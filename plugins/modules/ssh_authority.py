#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation of the action of the same name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_authority
short_description: Prepares on the controller what every node trusts over SSH
extends_documentation_fragment: [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.directory]
description:
  - Runs on the controller, once for all nodes (C(run_once)), without a connection.
  - Makes the cluster's certificate authorities for users and hosts, takes each due step of a
    rotation, and revokes nodes that left the inventory, whatever the limit.
  - Keeps C(known_hosts) in O(state_dir), with which operators and the controller verify all nodes.
options:
  cluster_name: {type: str, required: true, description: Name of the cluster.}
  domain: {type: str, default: "", description: DNS domain; nodes are then known by it as well.}
  management_prefix:
    description: Mask length of the management network, all of which trusts the authority.
    type: int
    default: 24
  user: {type: str, default: mpi, description: The MPI user.}
  between_compute:
    description: Whether compute nodes admit each other, and not launchers alone.
    type: bool
    default: true
  extra_sources:
    description: Addresses and networks from which user certificates are valid, besides the node's.
    type: list
    elements: str
    default: []
  state_dir:
    description: Directory of keys and journal; C(~/.local/state/baremetal.mpi_roce/CLUSTER/ssh-ca).
    type: path
    default: ""
  ca_generation: {type: int, default: 1, description: Number of the authority; raising it rotates.}
  ca_overlap:
    description: Trust the old authority until every node has certificates of the new one.
    type: bool
    default: true
  user_ca_key:
    description:
      - Key on the controller of an authority of your own, which then signs users. A private key,
        with C(.pub) beside it and its passphrase in variable C(ssh_trust_ca_passphrase); or its
        C(.pub) alone, of which an ssh-agent or O(signer) has the private half. Needs
        O(host_ca_key) as well.
    type: path
    default: ""
  host_ca_key: {type: path, default: "", description: The same for hosts.}
  signer:
    description: Command with its words that signs by the keys of O(user_ca_key) and O(host_ca_key).
    type: list
    elements: str
    default: []
  warn_days: {type: float, default: 14, description: Warn of certificates that expire within them.}
  revoke:
    description: Nodes to refuse everywhere with their keys, though the inventory has them.
    type: list
    elements: str
    default: []
  after:
    description:
      - Take no step and return what nodes get after a run, with the certificates that it replaced
        revoked. Nodes that still have an older list are warned of.
    type: bool
    default: false
  reached:
    description: With O(after), nodes that get the list next. They are not warned of.
    type: list
    elements: str
    default: []
  max_removed:
    description: Nodes that may leave the inventory between two runs; a launcher counts as two.
    type: int
    default: 1
  take_over:
    description:
      - The word of a refusal, by which the state of a cluster with other hosts is handed over to
        this inventory.
    type: str
    default: ""
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
    What every node gets, for M(baremetal.mpi_roce.ssh_trust). Public keys, host patterns, the list
    of revoked certificates and the paths, not the content, of private keys.
  type: dict
  returned: success
hosts: {type: dict, returned: success, description: "Names, targets and journal of each node."}
state_dir: {type: str, returned: success, description: The directory on the controller.}
removed: {type: list, elements: str, returned: without O(after), description: Revoked nodes.}
outdated: {type: list, elements: str, returned: success, description: With an old revocation list.}
incomplete: {type: list, elements: str, returned: success, description: Nodes without a run yet.}
steps: {type: list, elements: str, returned: without O(after), description: Steps taken or waiting.}
"""
