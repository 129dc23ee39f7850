# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: nvml_bindings
short_description: The Python bindings of NVML on the controller
version_added: "1.0.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Reads C(pynvml.py) of the package nvidia-ml-py on the controller, and compresses it for the
    module P(baremetal.mpi_roce.nvidia_gpu#module). Takes no terms.
options: {}
"""

EXAMPLES = r"""
- name: The GPU stack of the cluster's set
  baremetal.mpi_roce.nvidia_gpu:
    software: "{{ cluster_software }}"
    nvml_bindings: "{{ lookup('baremetal.mpi_roce.nvml_bindings') }}"
"""

RETURN = r"""
_list:
  description: C(pynvml.py), compressed and in base64.
  type: list
  elements: str
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..module_utils.gpu.stack import packed


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        found = find_spec("pynvml")
        if found is None or not found.origin:
            raise AnsibleError(
                "nvml_bindings: the Python of ansible-playbook lacks nvidia-ml-py, which nodes "
                "need to query NVML: pip install -r requirements/controller.txt"
            )
        return [packed(Path(found.origin).read_text(encoding="utf-8"))]
