#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_discover
short_description: Drafts a cluster model from machines, or reports differences from the model
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.cluster_discover]
attributes:
  check_mode: {description: Writes no file., support: full}
  diff_mode: {description: Shows the draft., support: full}
description:
  - Uses the results of M(baremetal.mpi_roce.rdma_facts) with
    O(baremetal.mpi_roce.rdma_facts#module:host) from the hosts of the play.
  - Without a cluster model, writes a draft that compiles. The majority of the machines determines
    its values; the comment C(CHECK) marks values that no machine showed. Machines that differ
    from the majority are listed.
  - With a model (V(baremetal.mpi_roce.cluster) inventory), lists the differences from it, and
    writes nothing.
notes:
  - Runs on the controller and opens no connection. Use C(run_once).
seealso:
  - module: baremetal.mpi_roce.rdma_facts
  - plugin: baremetal.mpi_roce.cluster
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Read the machine
  baremetal.mpi_roce.rdma_facts:
    host: true
  register: discover_read

- name: Draft the model
  baremetal.mpi_roce.cluster_discover:
    read: discover_read
    path: cluster.draft.yml
  run_once: true
"""

RETURN = r"""
path: {type: str, returned: without a model, description: File of the draft.}
differences:
  description: Differences, each with C(host), C(where), C(what), C(found) and C(expected).
  type: list
  elements: dict
  returned: success
not_read: {type: list, elements: str, returned: success, description: Hosts that were not read.}
"""

ARGUMENTS = {
    "read": {"type": "str", "required": True},
    "path": {"type": "path", "default": "cluster.draft.yml"},
}
