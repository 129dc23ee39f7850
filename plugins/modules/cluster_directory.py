#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_directory
short_description: Returns one view of every host of the cluster, from the inventory
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_directory]
description:
  - Reads the variables of all hosts in the groups V(compute), V(launcher) and V(storage) from the
    inventory, regardless of the hosts of the play and of C(--limit), and returns them as one
    list.
  - Fails, before any host is touched, if C(roce_qos) or a C(cluster_) variable of a host differs
    from the compiled model, and names host and variable. Change C(cluster.yml) instead.
  - Fails on an inventory without a cluster model.
notes:
  - Runs on the controller and opens no connection. Use C(run_once).
seealso:
  - plugin: baremetal.mpi_roce.cluster
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Look up the whole cluster
  baremetal.mpi_roce.cluster_directory:
  run_once: true
  register: cluster

- name: Show the number of ranks
  ansible.builtin.debug:
    msg: "{{ cluster.total_slots }} ranks on {{ cluster.compute_hosts | join(', ') }}"
"""

RETURN = r"""
cluster_name: {type: str, returned: success, description: Name of the cluster.}
compute_hosts: {type: list, elements: str, returned: success, description: "Their names, in order."}
drained_hosts: {type: list, elements: str, returned: success, description: Drained hosts.}
total_slots: {type: int, returned: success, description: MPI slots of hosts that are not drained.}
launcher: {type: str, returned: success, description: "Host of the play that launches ranks."}
mpi_provider: {type: str, returned: success, description: "C(software.mpi.provider) of the model."}
software_doubts: {type: list, elements: str, returned: success, description: Warnings.}
directory:
  description: >-
    Compute hosts in the order of the model, launcher, storage hosts; see docs/architecture.md.
  type: list
  elements: dict
  returned: when O(directory) is true
names:
  description: >-
    For M(baremetal.mpi_roce.cluster_hosts), C(table) with a line of a hosts file for each host and
    rail, and C(own) with the names and addresses of each host itself.
  type: dict
  returned: when O(domain) is given
slurm:
  description: >-
    With C(scheduler: slurm) in the model, nodes and switches for Slurm, as JSON for the module
    C(slurm); otherwise empty.
  type: str
  returned: success
changes:
  description: >-
    What differs from O(against), as C(hosts), C(addresses), C(cables), C(ports), C(settings),
    C(site_variables), C(reboots), C(refused), and C(steps) to take in order; see
    docs/operations.md.
  type: dict
  returned: success, when O(against) is given
findings: {type: list, elements: str, returned: failure, description: Errors.}
"""

ARGUMENTS = {
    "role_variables": {"type": "bool", "default": False},
    "domain": {"type": "str"},
    "directory": {"type": "bool", "default": True},
    "needs": {"type": "str"},
    "launcher": {"type": "str", "default": ""},
    "against": {"type": "str"},
    "against_json": {"type": "path"},
    "moves": {"type": "str", "choices": ["refused", "accepted"], "default": "refused"},
}
