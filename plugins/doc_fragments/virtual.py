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
  login_user:
    description: Unprivileged account that may sudo.
    type: str
    default: ops
  login_key:
    description: Public key that may log in as O(login_user).
    type: str
    default: ""
  identity:
    description: Path of the private half on the controller, as the SSH configuration names it.
    type: str
    default: ""
  known_hosts:
    description: Path where the known hosts will lie, as the SSH configuration names it.
    type: str
    default: ""
  state:
    description: V(absent) removes every node of this kind that the cluster has, disks included.
    type: str
    choices: [present, absent]
    default: present
"""
