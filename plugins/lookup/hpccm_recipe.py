# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: hpccm_recipe
short_description: Recipe of HPCCM for a container image with the MPI of a software set
version_added: "1.0.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - The program C(hpccm) turns the recipe into a Dockerfile or a definition of Apptainer.
  - playbooks/recipe.yml writes it to a file.
options:
  _terms:
    description: Name and version of the distribution of the image, as in C(ubuntu) and C(24.04).
    required: true
  software:
    description: The software set, variable C(cluster_software).
    type: dict
    required: true
  base:
    description: Image to begin with. Required for a set with CUDA.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Write the recipe of an image
  ansible.builtin.copy:
    content: "{{ lookup('baremetal.mpi_roce.hpccm_recipe', 'ubuntu', '24.04',
      software=cluster_software, base='nvcr.io/nvidia/cuda:13.2.0-devel-ubuntu24.04') }}"
    dest: recipe.py
    mode: "0644"
"""

RETURN = r"""
_raw: {type: list, elements: str, description: The recipe.}
"""

from typing import Any, Optional

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..module_utils.core.distribution import distribution_of
from ..module_utils.core.part import PlanError
from ..module_utils.software.software_set import SoftwareSet
from ..plugin_utils.mpi.recipe import recipe


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        if len(terms) != 2:
            raise AnsibleError("hpccm_recipe: give the name and the version of a distribution")
        software = SoftwareSet.of(self.get_option("software") or {})
        try:
            distribution = distribution_of(*map(str, terms))
            return [recipe(software, distribution, self.get_option("base"))]
        except PlanError as error:
            raise AnsibleError(str(error)) from error
