# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Option `directory` of the modules that need every host of the cluster."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  directory:
    description:
      - Every host of the cluster, from
        RV(baremetal.mpi_roce.cluster_directory#module:directory).
    type: list
    elements: dict
    required: true
"""
