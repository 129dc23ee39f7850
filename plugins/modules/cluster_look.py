#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_look
short_description: Asks a host once whether all of its layers are as the last run left them
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_look]
description:
  - The action runs a program on the host that runs the module of each layer in check mode, with the
    options that the layer recorded when it last succeeded.
  - A layer counts only if the variables from which its options came are the same as then, if it has
    no change to make, and if the same holds for all layers before it.
  - Never fails because of the program. A host without a usable answer is treated as changed.
"""

EXAMPLES = r"""
- name: Prepare the look
  baremetal.mpi_roce.cluster_look:
    step: prepare
  register: plan
  run_once: true

- name: Look at every layer of this host
  baremetal.mpi_roce.cluster_look:
    step: look
    plan: "{{ plan }}"
"""

RETURN = r"""
unchanged: {type: list, elements: str, returned: with C(look), description: Tags of these layers.}
stopped:
  description: >-
    The layer at which the look stopped, if not all are unchanged, and why: C(new), there is no
    record with these variables, or C(differs).
  type: list
  elements: str
  returned: with C(look)
host: {type: str, returned: with C(look), description: Digest of the variables of this host.}
whole: {type: str, returned: with C(look), description: "The same, with the model of all hosts."}
seconds: {type: dict, returned: with C(look), description: Seconds that each layer took.}
sent: {type: bool, returned: with C(look), description: Whether the host got the program.}
"""
