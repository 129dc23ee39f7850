# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What virtual nodes of both kinds are given alike.

Their arguments: plugins/module_utils/virtual/nodes.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    NODES = r"""
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  management:
    description: The C(cluster_management) variable of every node, by host name.
    type: dict
    default: {}
  login_key:
    description: Public key that may log in as C(ops), who may sudo.
    type: str
    default: ""
  directory:
    description:
      - The controller's folder of this cluster, with the private half and the known hosts, as the
        SSH configuration names them.
    type: str
    default: ""
  state:
    description: V(absent) removes every node of this kind that the cluster has, disks included.
    type: str
    choices: [present, absent]
    default: present
"""
