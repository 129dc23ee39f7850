#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_network
short_description: Create the network of a virtual cluster in network namespaces
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Creates one network namespace per container, and one with a bridge per leaf and the management
    bridge. Connects them with veth pairs.
  - The cables of O(machines) are taps whose other end is QEMU.
  - The host gets a single interface, the controller's port on the management network.
  - The node's end of a rail has MTU 1500 and no address, as on a freshly installed server.
  - With O(switches) each leaf and spine is a router in a separate namespace, with static routes.
    Traffic between rails passes from leaf to spine to leaf. Containers only.
  - Raises the kernel's limit of inotify instances to 1024 if it is lower, until the last virtual
    cluster is down.
  - Runs as root on the machine that hosts the virtual nodes.
options:
  cluster:
    description: Name of the cluster, and prefix of its namespaces. Several clusters can coexist.
    type: str
    required: true
  management:
    description: The C(cluster_management) variable of every node, by host name.
    type: dict
    default: {}
  rails:
    description: The C(cluster_rails) variable of every node that has rails, by host name.
    type: dict
    default: {}
  machines:
    description: Nodes that are virtual machines. The others are containers.
    type: list
    elements: str
    default: []
  addressing:
    description:
      - With V(subnet_per_rail) a leaf carries the gateway of each rail network.
      - With V(point_to_point) the gateway is on the leaf's port of each link.
    type: str
    choices: [subnet_per_rail, point_to_point]
    default: subnet_per_rail
  switches:
    description:
      - The C(cluster_ports) variable of each leaf and spine of a routed fabric, by host name.
      - If empty, leaves are bridges.
    type: dict
    default: {}
  bgp:
    description: Whether O(switches) are containers that learn routes by BGP.
    type: bool
    default: false
  state:
    description: V(absent) removes everything that was created for this cluster, and nothing else.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Create the network of a virtual cluster
  baremetal.bed.virtual_network:
    cluster: virtual
    management:
      node01: {address: 10.99.0.11, prefix: 24, interface: mgmt0}
    rails:
      node01:
        - interface: rail0
          leaf: leaf1
          leaf_port: Ethernet0
          network: 10.10.0.0/24
          gateway: 10.10.0.254
"""

RETURN = r"""
commands:
  description: iproute2 commands that were run, or would be in check mode.
  type: list
  elements: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    run,
)

from ..module_utils.cabling import plan_network
from ..module_utils.host_network import (
    HostNetwork,
    Instances,
    NetworkJournal,
    create,
    destroy,
)
from ..module_utils.inventory import VirtualError, parse_nodes
from ..module_utils.nodes import diff


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "management": {"type": "dict", "default": {}},
            "rails": {"type": "dict", "default": {}},
            "machines": {"type": "list", "elements": "str", "default": []},
            "addressing": {
                "type": "str",
                "choices": ["subnet_per_rail", "point_to_point"],
                "default": "subnet_per_rail",
            },
            "switches": {"type": "dict", "default": {}},
            "bgp": {"type": "bool", "default": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    cluster = wanted["cluster"]
    host = HostNetwork(run)
    journal = NetworkJournal(cluster)
    check = module.check_mode
    try:
        if wanted["state"] == "absent":
            commands = destroy(cluster, host, journal, check_mode=check)
        else:
            plan = plan_network(
                cluster,
                parse_nodes(wanted["management"], wanted["rails"], wanted["machines"]),
                point_to_point=wanted["addressing"] == "point_to_point",
                switches=wanted["switches"],
                bgp=wanted["bgp"],
            )
            commands = create(plan, host, journal, check_mode=check)
        if not check:  # after the journal was written or removed
            (Instances().lift if wanted["state"] == "present" else Instances().put_back)()
    except (CommandError, OSError, VirtualError) as error:
        module.fail_json(msg=f"virtual network of {cluster}: {error}")
    module.exit_json(
        changed=bool(commands),
        diff=diff(f"network namespaces of {cluster}", commands),
        commands=list(commands),
    )


if __name__ == "__main__":
    main()
