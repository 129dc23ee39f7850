# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the modules that install drivers from the cluster's set are given alike.

Their arguments: DRIVER_STACK in plugins/module_utils/software/software_set.py.
"""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  software:
    description: The set of software, as the variable C(cluster_software).
    type: dict
    default: {}
  keys:
    description: Public keys of the repositories, by name, in base64.
    type: dict
    default: {}
  allow_downgrade:
    description: Whether a package of a newer version than the set's is replaced by the older one.
    type: bool
    default: false
  rails:
    description: The rails of this host, as the variable C(cluster_rails).
    type: list
    elements: dict
    default: []
  gpus:
    description: The GPUs of this host, as the variable C(cluster_gpus).
    type: list
    elements: dict
    default: []
"""
