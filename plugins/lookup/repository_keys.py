# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: repository_keys
short_description: Public keys of the package repositories of a software set
version_added: "1.0.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Reads the public keys of the repositories that a layer needs from files on the controller, and
    verifies their checksums. Fails with one line per missing or different key.
options:
  _terms:
    description: The layer, V(rdma) or V(gpu).
    required: true
  software:
    description: The software set, variable C(cluster_software).
    type: dict
    required: true
  directory:
    description: Directory to which file names are relative, variable C(inventory_dir).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Install the RDMA stack
  baremetal.mpi_roce.rdma_stack:
    software: "{{ cluster_software }}"
    keys: "{{ lookup('baremetal.mpi_roce.repository_keys', 'rdma', software=cluster_software,
      directory=inventory_dir) }}"
"""

RETURN = r"""
_list:
  description: One dictionary from repository names to base64-encoded keys, for the layer's module.
  type: list
  elements: dict
"""

import base64
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..module_utils.software.software_set import SoftwareSet
from ..plugin_utils.model.key_files import KeyFileError, read_keys

LAYERS = ("rdma", "gpu")


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[dict[str, str]]:
        self.set_options(var_options=variables, direct=kwargs)
        if len(terms) != 1 or terms[0] not in LAYERS:
            raise AnsibleError(
                f"repository_keys: {terms!r} is not one layer. Write one of {', '.join(LAYERS)}"
            )
        try:
            software = SoftwareSet.of(self.get_option("software"))
            keys = read_keys(software, terms[0], Path(self.get_option("directory")))
        except KeyFileError as error:
            raise AnsibleError(str(error)) from error
        return [{name: base64.b64encode(key).decode() for name, key in keys.items()}]
