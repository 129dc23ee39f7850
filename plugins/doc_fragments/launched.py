# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules that launch ranks over the hostfile are given alike.

Their arguments: LAUNCHED in plugins/module_utils/mpi/launch/launcher.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  nodes:
    description:
      - Nodes, as C(directory) of M(baremetal.mpi_roce.cluster_directory); those that are drained or
        do not compute are left out.
    type: list
    elements: dict
    required: true
  user: {type: str, required: true, description: MPI user that launches.}
  hostfile:
    description: The cluster's hostfile on the launcher.
    type: path
    default: /etc/baremetal-mpi-roce/hostfile
  provider:
    description: Provider of the model; ranks are launched by Open MPI, with V(impi) by Intel MPI.
    type: str
    default: distribution
  parameters:
    description: Further parameters of Open MPI; with O(provider=impi) variables of the ranks.
    type: dict
    default: {}
  transport:
    description: Transport of the cluster; with V(rc) the RDMA port of each rail has to be active.
    type: str
    choices: [tcp, rc]
    default: tcp
"""
