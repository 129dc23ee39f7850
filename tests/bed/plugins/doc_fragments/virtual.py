# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options shared by the modules for containers and for machines.

Their argument specification is ARGUMENTS of plugins/module_utils/nodes.py.
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
    description: Public key that may log in as C(ops), an account with sudo.
    type: str
    default: ""
  directory:
    description:
      - The controller's folder of this cluster. The SSH configuration refers to the private key and
        to the known hosts in it.
    type: str
    default: ""
  state:
    description: V(absent) removes every node of this kind and cluster, including disks.
    type: str
    choices: [present, absent]
    default: present
"""
