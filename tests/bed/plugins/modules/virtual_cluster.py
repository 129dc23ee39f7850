#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_cluster
short_description: Select the hosts that become virtual nodes
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Reads the variables of all hosts and sorts the hosts by kind, as the other modules of the role
    V(virtual_nodes) need them.
  - Runs on the controller and changes nothing.
options:
  names:
    description:
      - Hosts that become virtual nodes. The default is every host of the groups C(compute),
        C(launcher) and C(storage), and every leaf and spine with a C(cluster_system).
    type: list
    elements: str
  defaults:
    description: Values of host variables C(virtual_nodes_*) for hosts that do not set them.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Select the virtual nodes
  baremetal.bed.virtual_cluster:
    defaults: {virtual_nodes_kind: container, virtual_nodes_family: ubuntu}
  register: cluster
"""

RETURN = r"""
plan:
  description:
    - Lists of host names (C(names), C(machines), C(containers), C(switches), and C(servers), which
      are the containers that are no switches), the families of images, and the arguments of the
      modules by host name.
  type: dict
  returned: success
"""
