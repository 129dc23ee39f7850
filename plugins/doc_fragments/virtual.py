# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What virtual nodes of both kinds are given alike, and what their images are built with.

Their arguments: plugins/module_utils/virtual/{nodes,image}.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    NODES = r"""
attributes:
  check_mode:
    description: Says what would be made, started and removed.
    support: full
  diff_mode:
    description: Shows the same as a diff.
    support: full
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
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
"""

    BUILD = r"""
options:
  mirror:
    description:
      - Debian mirror. Security updates come from the same address with C(-security).
      - When empty, mmdebstrap takes the mirror it would take by itself.
    type: str
    default: ""
  log:
    description: File that gets each step and all output as it happens.
    type: path
    default: /var/log/baremetal-mpi-roce/virtual-image.log
"""
