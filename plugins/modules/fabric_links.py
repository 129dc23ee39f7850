#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Judge every link end to end. All of it is in the action plugin of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_links
short_description: Judges every link end to end, from what both its ends say
version_added: "0.1.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Compares, for each link of the cluster model, the QoS contract with what the NIC and the switch
    at its two ends have said in this run, and what LLDP has heard with the model.
  - Each mismatch is one line. It says the link, both values, which end is wrong, and the command
    that repairs it.
  - Runs on the controller and touches no host. It reads the variables C(switch_qos_state) and
    C(roce_rails_state), which the roles switch_qos and roce_rails register.
options:
  step:
    description:
      - V(judge) looks at all links once, shows a table, saves a report, and keeps what concerns
        each host. It never fails because of what it found. Run it once.
      - V(verdict) returns to each host its part, and fails the host whose end of a link is wrong.
    type: str
    required: true
    choices: [judge, verdict]
  qos:
    description:
      - The QoS contract, as the variable C(roce_qos) has it. What is left out has its default.
    type: dict
    default: {}
  asics:
    description: What the inventory says of switch chips, as the variable C(cluster_asics) has it.
    type: dict
    default: {}
  judged:
    description: Name of the variable in which the result of V(judge) was registered.
    type: str
  strict:
    description: Whether in check mode what another layer would set right fails all the same.
    type: bool
    default: false
  report_directory:
    description: Directory on the controller for the report; none is saved without.
    type: path
attributes:
  check_mode:
    description:
      - Changes nothing in either mode. In check mode a mismatch that the layers rails and fabric
        would set right is pending, since they have not.
    support: full
  diff_mode:
    description: Changes nothing, so there is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: Judge every link
  baremetal.mpi_roce.fabric_links:
    step: judge
    qos: "{{ roce_qos }}"
    report_directory: reports
  register: judged
  run_once: true

- name: Tell each host what is wrong at its end
  baremetal.mpi_roce.fabric_links:
    step: verdict
    judged: judged
"""

RETURN = r"""
layer: {type: str, returned: by V(verdict), sample: links, description: The layer that speaks.}
told: {type: dict, returned: by V(judge), description: "By host, the checks that concern it."}
report:
  description: Path of the report on the controller.
  type: str
  returned: by V(judge), when one was asked for
  sample: reports/b300/links-20260101T120000Z.json
checks:
  description: The links of this host that agree, by the kind of their other end, and each mismatch.
  type: list
  elements: dict
  returned: by V(verdict)
  sample:
    - name: link_pfc
      subject: leaf01 Ethernet8 - node02 rail0
      wanted: PFC on 5
      found: "leaf01 Ethernet8: PFC on 4 and 5; node02 rail0: PFC on 5"
      status: failed
      reason: >-
        leaf01 is wrong: a pause has to mean the same priority at both ends, and no other. Repair:
        ansible-playbook site.yml --tags fabric --limit leaf01
"""
