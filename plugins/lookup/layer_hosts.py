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
  - One host on which it is unchanged takes part as well, so that not all hosts of a play can fail,
    and must leave the play (O(unchanged)).
options:
  _terms:
    description: Tag of the layer.
    required: true
  needs:
    description: Variable of the model without which no host takes part.
    type: str
  whole:
    description: Also all hosts on which the layer is unchanged.
    type: bool
    default: false
  unchanged:
    description: Return instead whether the layer is unchanged on this host.
    type: bool
    default: false
  again:
    description: All hosts of the layer if an action of this run asked for them, else none.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Operating system
  hosts: "{{ lookup('baremetal.mpi_roce.layer_hosts', 'os') }}"
  tasks:
    - ansible.builtin.meta: end_host
      when: lookup('baremetal.mpi_roce.layer_hosts', 'os', unchanged=true)
    - ansible.builtin.import_role:
        name: baremetal.mpi_roce.os_baseline
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
from ..plugin_utils.layers import HOSTS


class LookupModule(LookupBase):
    def run(
        self, terms: list[Any], variables: Optional[dict[str, Any]] = None, **kwargs: Any
    ) -> list[Any]:
        return [self._of(str(term), variables or {}, **kwargs) for term in terms]

    def _of(self, tag: str, variables: dict[str, Any], **kwargs: Any) -> Any:
        groups, needs = variables.get("groups") or {}, kwargs.get("needs")
        if kwargs.get("unchanged"):
            return look.state(variables["inventory_hostname"], tag) is not None
        if kwargs.get("again"):
            return look.pattern_again(tag)
        if needs and look.is_absent(needs, tag, groups, variables.get("hostvars")):
            return "!all"
        if kwargs.get("whole"):
            return ":".join(HOSTS[tag])
        return look.pattern(tag, groups)
