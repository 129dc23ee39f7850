#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_links
short_description: Compares both ends of every link with the contract and the model
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.fabric_links]
description:
  - Compares, for each link of the cluster model, the QoS contract with the settings of NIC and
    switch port, and the LLDP neighbours with the model. Each mismatch is reported in one line
    with the link, both values, the end that is wrong and the command that repairs it.
  - Runs on the controller without a connection. It reads the variables C(switch_qos_state) and
    C(roce_rails_state), which the roles switch_qos and roce_rails register.
"""

EXAMPLES = r"""
- name: Compare every link
  baremetal.mpi_roce.fabric_links: {step: judge, qos: "{{ roce_qos }}", report_directory: reports}
  register: compared
  run_once: true

- name: Return to each host the findings at its end
  baremetal.mpi_roce.fabric_links:
    step: verdict
    judged: compared
"""

RETURN = r"""
layer: {type: str, returned: by V(verdict), description: Tag of the layer.}
by_host: {type: dict, returned: by V(judge), description: "Checks, by host."}
report: {type: str, returned: by V(judge), description: Path of the report on the controller.}
checks: {type: list, elements: dict, returned: by V(verdict), description: Checks of this host.}
"""
