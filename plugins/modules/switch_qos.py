#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: switch_qos
short_description: Keeps the QoS contract on a leaf or spine with SONiC, NVUE or EOS
version_added: "0.1.0"
author: Baremetal MPI RoCE founders (@baremetal)
description:
  - Compares what a switch is set to with what the cluster model and the QoS contract ask of it,
    says what a change would cost, and changes it so that it is undone unless it was read back.
  - Everything happens on the controller. SONiC is spoken to by its own commands over Ansible's
    connection, NVUE and EOS over HTTPS, and nothing is copied to a switch.
  - Reads the variables C(cluster_system), C(cluster_asic), C(cluster_asics), C(cluster_ports),
    C(cluster_role) and C(roce_qos) of the host, and for HTTPS C(switch_qos_user),
    C(switch_qos_password), C(switch_qos_token), C(switch_qos_ca_file), C(switch_qos_port) and
    C(switch_qos_timeout_s). Secrets are no options, because Ansible prints options.
  - Objects that belong to the collection are called C(BAREMETAL_MPI_ROCE) or begin with it. Those
    and the ports of the model are all it changes.
options:
  step:
    description:
      - V(plan) reads and compares. It fails only where Ansible itself does; what is in the way is
        in C(problem).
      - V(verdict) fails a host whose plan, registered as C(switch_qos_state), has a problem.
      - V(batches) says in which order the switches of the play are changed, and fails when one of
        them has dropped out.
      - V(apply) changes this switch, reads it again and keeps the change, or undoes it and fails.
    type: str
    required: true
    choices: [plan, verdict, batches, apply]
  allowed_impact:
    description:
      - What a change may cost at most. V(none), V(loss) of packets for a moment, or V(bounce) of
        links.
    type: str
    choices: [none, loss, bounce]
    default: bounce
  confirm_s:
    description:
      - Seconds after which the switch undoes by itself what was not kept, from 10 to 86400.
    type: int
    default: 300
  settle_s:
    description:
      - For V(plan), how many seconds to wait until ports are up that were up when the switch was
        read last, as C(switch_qos_state) says.
    type: int
    default: 0
  at_once:
    description:
      - For V(batches), how many leaves are changed at once. Spines take turns, and leaves that
        serve the same node in the same rail do.
    type: int
    default: 1
  order: {type: dict, description: "For V(apply), what V(batches) returned."}
attributes:
  check_mode:
    description: V(plan) is all there is in check mode; nothing is changed.
    support: full
  diff_mode:
    description: Shows what changes in the switch's own words.
    support: full
  action:
    description: Has an action plugin, which does all of it on the controller.
    support: full
requirements:
  - httpx (on the controller, for NVUE and EOS)
  - pyavd (on the controller, for EOS)
seealso:
  - module: baremetal.mpi_roce.roce_rails
"""

EXAMPLES = r"""
- name: Compare every switch with the contract
  baremetal.mpi_roce.switch_qos:
    step: plan
  register: switch_qos_state

- name: Put the switches in order
  baremetal.mpi_roce.switch_qos:
    step: batches
    at_once: 4
  run_once: true
  register: order

- name: Change those of the first batch
  baremetal.mpi_roce.switch_qos:
    step: apply
    order: "{{ order }}"
    confirm_s: 300
  when: inventory_hostname in order.batches[0]
"""

RETURN = r"""
layer:
  description: Tag of the layer.
  type: str
  returned: for V(plan) and V(apply)
  sample: fabric
checks:
  description:
    - Each promise once for all ports that are alike, with what was wanted and found.
    - Empty for V(plan) where the switch is going to be changed by V(apply).
  type: list
  elements: dict
  returned: for V(plan) and V(apply)
  sample:
    - name: port_pfc
      subject: Ethernet0-Ethernet504 (64 ports)
      wanted: PFC on 3
      found: PFC on 3
      status: ok
      reason: ""
differs:
  description: Whether something has to be changed.
  type: bool
  returned: for V(plan) and V(apply)
  sample: true
impact:
  description: What the change costs; C(level) is V(none), V(loss) or V(bounce).
  type: dict
  returned: for V(plan) and V(apply)
  sample: {level: bounce, ports_down: [Ethernet0, Ethernet8], losses: []}
problem:
  description: Why the switch cannot have what it shall; empty when it can.
  type: str
  returned: for V(plan)
  sample: ""
report:
  description:
    - The switch in the terms of the contract, port by port; null where it could not be read, and
      not returned by an V(apply) that failed.
  type: dict
  returned: for V(plan) and V(apply)
  sample: {switch: leaf01, system: sonic, version: SONiC.202411, lldp: true, ports: []}
batches:
  description: Names of switches, one list after another; empty in check mode.
  type: list
  elements: list
  returned: for V(batches)
  sample: [[spine01], [leaf01], [leaf02]]
turns:
  description: By switch, the number of its batch.
  type: dict
  returned: for V(batches)
  sample: {spine01: 0, leaf01: 1, leaf02: 2}
"""
