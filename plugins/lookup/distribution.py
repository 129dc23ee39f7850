# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: distribution
short_description: Packages of a supported distribution
version_added: "1.0.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Returns what the collection's table of distributions says about one release.
  - Fails for a distribution that is not supported, naming the supported ones.
options:
  _terms:
    description: Name and version, as in the facts C(distribution) and C(distribution_version).
    required: true
"""

EXAMPLES = r"""
- name: Install the tools of an MPI node
  ansible.builtin.package:
    name: "{{ lookup('baremetal.mpi_roce.distribution', ansible_facts.distribution,
      ansible_facts.distribution_version).base_packages }}"
"""

RETURN = r"""
_list:
  description: >-
    One dictionary with C(family) (V(debian) or V(redhat)), C(base_packages), the tools that the
    role os_baseline installs, C(perf), the package with C(perf), and C(slurm), Slurm's packages of
    a C(client), and in addition of a C(node) and of the C(controller).
  type: list
  elements: dict
"""

from dataclasses import asdict
from typing import Any, Optional

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..module_utils.core.distribution import distribution_of
from ..module_utils.core.part import PlanError


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[dict[str, Any]]:
        try:
            distribution = distribution_of(*map(str, terms))
        except PlanError as error:
            raise AnsibleError(str(error)) from error
        family = distribution.family
        slurm = {name: list(packages) for name, packages in asdict(family.slurm).items()}
        found = {"family": family.name, "base_packages": list(family.base_packages)}
        return [{**found, "perf": family.perf[distribution.name], "slurm": slurm}]
