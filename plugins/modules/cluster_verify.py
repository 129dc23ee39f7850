#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_verify
short_description: First and last step of playbooks/verify.yml
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Runs on the controller and changes nothing.
options:
  step:
    description:
      - V(reach) runs a command on a node, the launcher or a storage server by SSH and sudo. A host
        on which it fails is unreachable, with the cause in the message, and Ansible leaves it out
        of later plays. Other hosts are skipped.
      - V(verdict) fails if, in the plays of this run with E(BAREMETAL_MPI_ROCE_VERIFY) in their
        environment, a task failed or would change something, or a host was not verified. It needs
        the callback P(baremetal.mpi_roce.summary#callback), which counts them.
    type: str
    required: true
    choices: [reach, verdict]
  timeout_s:
    description: Seconds for V(reach), unless C(ansible_timeout) is shorter.
    type: int
    default: 45
"""

EXAMPLES = r"""
- name: Fail if anything failed, would change or was not verified
  baremetal.mpi_roce.cluster_verify:
    step: verdict
  run_once: true
"""

RETURN = r"""
verdict:
  description: Hosts that failed or were not verified, by layer.
  type: dict
  returned: by V(verdict)
"""
