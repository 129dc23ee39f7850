# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The hosts of a layer's play."""

from __future__ import annotations

DOCUMENTATION = r"""
name: layer_hosts
short_description: The hosts of a layer's play, without those on which the layer is unchanged
version_added: "1.0.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Without a look (P(baremetal.mpi_roce.cluster_look#module)) in this run, the groups of the layer.
options:
  _terms:
    description: Tag of the layer.
    required: true
  needs:
    description: Variable of the model without which no host takes part, and with which all do.
    type: str
  again:
    description: All hosts of the layer if an action of this run asked for them, else none.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Operating system
  hosts: "{{ lookup('baremetal.mpi_roce.layer_hosts', 'os') }}"
  roles: [baremetal.mpi_roce.os_baseline]
"""

RETURN = r"""
_raw:
  description: A pattern of hosts.
  type: list
  elements: str
"""

from typing import Any, Optional

from ansible.plugins.lookup import LookupBase

from ..plugin_utils import look


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[str]:
        given = variables or {}
        groups, needs = given.get("groups") or {}, kwargs.get("needs")
        if kwargs.get("again"):
            return [look.pattern_again(str(term)) for term in terms]
        if needs:
            return [look.with_variable(str(x), groups, given["hostvars"], needs) for x in terms]
        return [look.pattern(str(term), groups) for term in terms]
