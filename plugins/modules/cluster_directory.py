#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_directory
short_description: One view of every host of the cluster, from the inventory
version_added: "0.1.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Reads the variables of all hosts in the groups V(compute), V(launcher) and V(storage) from the
    inventory, whatever hosts the play has and whatever C(--limit) says, and returns them as one
    list.
  - Fails, before any host is touched, when C(roce_qos) or a C(cluster_) variable of a host is not
    what the model compiled, naming host and variable. Change C(cluster.yml) instead.
  - Fails on an inventory without a cluster model.
options:
  role_variables:
    description:
      - Check also what the inventory and the command line set of the variables of this collection's
        roles, on every host, against the C(meta/argument_specs.yml) of the roles.
    type: bool
    default: false
  domain:
    description:
      - DNS domain of the cluster, or empty. With one a host's canonical name is its full one.
      - RV(names) is made, and names are checked, where this is given.
    type: str
notes:
  - Runs on the controller and opens no connection. Use C(run_once).
  - Also fails when the inventory is empty because a cluster model was refused and
    C(any_unparsed_is_failed) is off, and tells why it was refused.
attributes:
  check_mode:
    description: Can run in check mode, where it does the same.
    support: full
  diff_mode:
    description: Will return details on what has changed when in diff mode.
    support: none
  action:
    description: Has an action plugin, which does all of it on the controller.
    support: full
seealso:
  - plugin: baremetal.mpi_roce.cluster
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Know the whole cluster
  baremetal.mpi_roce.cluster_directory:
  run_once: true
  register: cluster

- name: Show where ranks run
  ansible.builtin.debug:
    msg: "{{ cluster.total_slots }} ranks on {{ cluster.compute_hosts | join(', ') }}"
  run_once: true
"""

RETURN = r"""
cluster_name: {type: str, returned: success, sample: b300, description: Name of the cluster.}
compute_hosts:
  description: Names of all compute hosts, in order.
  type: list
  elements: str
  returned: success
  sample: [node01, node02]
drained_hosts:
  description: Those of them that get no ranks.
  type: list
  elements: str
  returned: success
  sample: [node02]
total_slots:
  description: MPI slots of all compute hosts that are not drained, the size of the MPI world.
  type: int
  returned: success
  sample: 32
software_doubts:
  description: What is doubtful or unknown of the software set, a line each; warned of, too.
  type: list
  elements: str
  returned: success
directory:
  description: Compute hosts in order of C(cluster_index), then launcher, then storage hosts.
  type: list
  elements: dict
  returned: success
  contains:
    name: {type: str, sample: node01, description: "Inventory name, which is the host name."}
    role: {type: str, sample: compute, description: "V(compute), V(launcher) or V(storage)."}
    management_address: {type: str, sample: 10.10.1.1, description: Its management address.}
    rack: {type: str, sample: r01, description: "Its rack, empty unless it is a compute host."}
    slots: {type: int, sample: 8, description: "Its MPI slots, 0 unless it is a compute host."}
    gpus: {type: int, sample: 8, description: How many GPUs it has.}
    drained: {type: bool, sample: false, description: Whether it gets no ranks.}
    rails:
      description: Its rails, ordered by rail, then plane.
      type: list
      elements: dict
      sample:
        - rail: 0
          plane: 0
          interface: rail0
          address: 10.100.0.11
          prefix: 24
          network: 10.100.0.0/24
          speed_gbps: 800
          leaf: leaf01
          gpu: 0
          numa: 0
names:
  description: What M(baremetal.mpi_roce.cluster_hosts) takes of every host and rail.
  type: dict
  returned: when O(domain) is given
  contains:
    table:
      description: A line of a hosts file for each host and each rail.
      type: str
      sample: "10.10.1.1 node01
10.100.0.11 node01-rail0
"
    own:
      description: By host, its own names with their addresses.
      type: dict
      sample: {node01: {node01: 10.10.1.1, node01-rail0: 10.100.0.11}}
findings:
  description: Everything that is wrong, one line each.
  type: list
  elements: str
  returned: failure
  sample: ["node02.cluster_slots: 4 is not what the model compiled. Remove it ..."]
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Never reached: the action plugin of the same name does the work on the controller."""
    module = AnsibleModule(
        argument_spec={
            "role_variables": {"type": "bool", "default": False},
            "domain": {"type": "str"},
        },
        supports_check_mode=True,
    )
    module.fail_json(msg="cluster_directory runs on the controller: its action plugin is missing.")


if __name__ == "__main__":
    main()
