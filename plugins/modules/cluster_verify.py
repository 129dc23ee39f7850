#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_verify
short_description: Steps around the layers of playbooks/verify.yml and playbooks/drift.yml
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_verify]
description:
  - Runs on the controller and changes nothing.
"""

EXAMPLES = r"""
- name: Require the callback that evaluates the run
  baremetal.mpi_roce.cluster_verify:
    step: verdict
  run_once: true
"""

RETURN = r""" # """
