# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of the modules that install drivers of the software set.

Their argument_spec: DRIVER_STACK in plugins/module_utils/software/software_set.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  software:
    description: Software set of the cluster, from the variable C(cluster_software).
    type: dict
    default: {}
  keys:
    description: Public keys of the repositories, by name, in base64.
    type: dict
    default: {}
  allow_downgrade:
    description: Whether to replace a package that is newer than the software set's with the older version.
    type: bool
    default: false
  rails:
    description: Rails of this host, from the variable C(cluster_rails).
    type: list
    elements: dict
    default: []
  gpus:
    description: GPUs of this host, from the variable C(cluster_gpus).
    type: list
    elements: dict
    default: []
"""
