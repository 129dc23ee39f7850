#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_verify
short_description: First and last step of playbooks/verify.yml
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Runs on the controller and changes nothing.
options: # generated from layers/any.yml by tools/generate_layers.py
  step:
    type: str
    choices: [reach, verdict]
    required: true
    description:
      - V(reach) runs a command by SSH and sudo on compute nodes, launcher and storage hosts. If it
        fails, the host is unreachable for the reason in the message, and later plays skip it.
      - V(verdict) fails unless the callback P(baremetal.mpi_roce.summary#callback) is enabled. It
        evaluates the run, and ends it with exit status 2 if a task of a play with
        E(BAREMETAL_MPI_ROCE_VERIFY) failed or would change something, or a host was not verified.
  timeout_s:
    type: int
    default: 45
    description: Seconds for V(reach), unless C(ansible_timeout) is shorter.
"""

EXAMPLES = r"""
- name: Require the callback that evaluates the run
  baremetal.mpi_roce.cluster_verify:
    step: verdict
  run_once: true
"""

RETURN = r""" # """
