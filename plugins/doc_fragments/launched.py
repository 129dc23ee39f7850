# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of the modules that launch ranks over the hostfile.

Their arguments: LAUNCHED in plugins/module_utils/mpi/launch/launcher.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  nodes:
    description:
      - Nodes, from RV(baremetal.mpi_roce.cluster_directory#module:directory). Drained nodes and
        hosts that do not compute are left out.
    type: list
    elements: dict
    required: true
  user: {type: str, required: true, description: MPI user that launches.}
  hostfile:
    description: Hostfile of the cluster on the launcher.
    type: path
    default: /etc/baremetal-mpi-roce/hostfile
  provider:
    description: Provider of the model. V(impi) launches with Intel MPI, any other with Open MPI.
    type: str
    default: distribution
  parameters:
    description: Open MPI parameters. With O(provider=impi), environment variables of the ranks.
    type: dict
    default: {}
  transport:
    description: Transport between nodes. With V(rc), the RDMA port of each rail must be active.
    type: str
    choices: [tcp, rc]
    default: rc
"""
