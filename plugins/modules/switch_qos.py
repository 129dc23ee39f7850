#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: switch_qos
short_description: Applies the QoS contract to a leaf or spine
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.switch_qos]
description:
  - Compares the settings of a switch with the cluster model and the QoS contract, reports the
    impact of a change, and applies it under the switch's own rollback timer (docs/fabric.md).
  - Runs on the controller, over Ansible's connection or HTTPS.
  - Reads variables of the cluster model and, for HTTPS, the variables of the role switch_qos.
    Secrets are not options, because Ansible prints options.
attributes:
  check_mode: {support: full, description: Only V(plan) runs in check mode; nothing is changed.}
requirements:
  - httpx (on the controller, for switches configured over HTTPS)
  - pyavd (on the controller, for Arista switches)
"""

EXAMPLES = r"""
- name: Compare every switch with the contract
  baremetal.mpi_roce.switch_qos: {step: plan}
  register: switch_qos_state

- name: Order the switches
  baremetal.mpi_roce.switch_qos: {step: batches}
  run_once: true
  register: order

- name: Change those of the first batch
  baremetal.mpi_roce.switch_qos: {step: apply, order: "{{ order }}"}
  when: inventory_hostname in order.batches[0]
"""

RETURN = r"""
layer: {type: str, returned: by V(plan) and V(apply), description: Tag of the layer.}
checks:
  description: One check per aspect and group of equal ports. Empty if V(apply) follows V(plan).
  type: list
  elements: dict
  returned: by V(plan) and V(apply)
differs: {type: bool, returned: by V(plan) and V(apply), description: Whether a change is needed.}
impact: {type: dict, returned: by V(plan) and V(apply), description: Impact of the change.}
problem:
  description: Why the contract cannot apply, or routing cannot be read.
  type: str
  returned: by V(plan) and V(underlay)
found: {type: dict, returned: by V(underlay), description: "Routing that the switch reports."}
report: {type: dict, returned: by V(plan) and V(apply), description: "Ports, or null."}
before:
  description: The first reading of this run, in the form of RV(after); null in the first.
  type: dict
  returned: by V(counters)
after:
  description:
    - C(ports) with the counters by port, null if unreported, C(reason) why there are none, and
      C(read_s), the time on the controller.
  type: dict
  returned: by V(counters)
batches: {type: list, elements: list, returned: by V(batches), description: Names by batch.}
turns: {type: dict, returned: by V(batches), description: "By switch, the number of its batch."}
"""
