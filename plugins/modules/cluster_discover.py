#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_discover
short_description: Drafts a cluster model from machines, or shows what differs from the model
version_added: "1.0.0"
author: [Baremetal MPI RoCE founders (@baremetal)]
attributes:
  check_mode:
    support: full
    description: Writes no file.
  diff_mode:
    support: full
    description: Shows the draft.
description:
  - Takes what M(baremetal.mpi_roce.rdma_facts) with O(baremetal.mpi_roce.rdma_facts#module:host)
    returned on the hosts of the play.
  - Without a cluster model, writes a draft of one that compiles. The majority decides its values;
    a comment with C(CHECK) stands where no machine showed one. Machines that differ from the
    majority are listed.
  - With a model (V(baremetal.mpi_roce.cluster) inventory), lists what differs from it, and writes
    nothing.
options:
  read: {type: str, required: true, description: Name of the variable that was registered.}
  path:
    description: File of the draft on the controller. A file that exists is not overwritten.
    type: path
    default: cluster.draft.yml
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
  description: What differs, each with C(host), C(where), C(what), C(found) and C(expected).
  type: list
  elements: dict
  returned: success
not_read: {type: list, elements: str, returned: success, description: Hosts that were not read.}
"""
