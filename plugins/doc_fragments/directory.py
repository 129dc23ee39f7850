# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory of the cluster, as the modules take it that need all of its hosts."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  directory:
    description:
      - Every host of the cluster, as the action M(baremetal.mpi_roce.cluster_directory) returns it
        under RV(baremetal.mpi_roce.cluster_directory#module:directory).
    type: list
    elements: dict
    required: true
"""
