#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_audit
short_description: Runs ClusterMAX's auditor, and shows its verdicts next to this collection's
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_audit]
description:
  - Runs C(cmax audit) from wheels that are unpacked for this run only. Installs nothing.
  - Verdicts of the auditor never fail the host.
attributes:
  check_mode:
    description: Runs nothing.
    support: full
"""

EXAMPLES = r"""
- name: Audit the node
  baremetal.mpi_roce.cluster_audit: {step: audit, wheels_directory: wheels, user: root}
  register: audited

- name: Read what explains verdicts about the node
  baremetal.mpi_roce.cluster_audit: {step: node}
  register: node_read

- name: Show the verdicts of all nodes
  baremetal.mpi_roce.cluster_audit:
    step: report
    audited: audited
    node: node_read
    report_directory: reports
  run_once: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
audit:
  description: >-
    C(target) is C(slurm), C(standalone) or C(container); C(verdicts) has C(key), C(verdict) and
    C(observed) of each check of the auditor.
  type: dict
  returned: for V(audit)
node:
  description: C(container) as a boolean, and the number of C(gpus) and C(rdma_nics).
  type: dict
  returned: for V(node)
report: {type: str, returned: for V(report), description: File on the controller.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.audit import cmax
from ..module_utils.core.checks import FAILED, OK, Check, end, not_applicable
from ..module_utils.hardware import SurveyError

LAYER = "audit"
NAME = "audit_ran"
NODE = "audit_node"
REMEDY = "Run again for this host only: playbooks/audit.yml --limit HOST"


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {"type": "str", "choices": ["audit", "node", "report"], "required": True},
    "wheels": {"type": "dict", "no_log": True, "default": {}},
    "wheels_directory": {"type": "path", "default": "wheels"},
    "slurm": {"type": "bool", "default": False},
    "user": {"type": "str", "default": "root"},
    "time_limit_s": {"type": "float", "default": 900},
    "internet": {"type": "bool", "default": False},
    "audited": {"type": "str", "default": ""},
    "node": {"type": "str", "default": ""},
    "report_directory": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    if given["step"] == "node":
        try:
            end(module, LAYER, [], "", node=cmax.node())
        except SurveyError as error:
            end(module, LAYER, [Check(NODE, "sysfs", None, FAILED, reason=str(error))], REMEDY)
    options = cmax.Options(
        wheels=given["wheels"],
        slurm=given["slurm"],
        user=given["user"],
        time_limit_s=given["time_limit_s"],
        internet=given["internet"],
    )
    # The wheels would be returned as part of the arguments.
    shown = {"module_args": {**given, "wheels": f"{len(options.wheels)} wheels"}}
    if module.check_mode:
        skipped = not_applicable(NAME, "verdicts", "in check mode, the auditor is not started")
        end(module, LAYER, [skipped], "", audit={}, invocation=shown)
    found, why = cmax.tried(options)
    status = OK if found else FAILED
    count = len(found["verdicts"]) if found else 0
    check = Check(NAME, "verdicts", f"{count} verdicts", status, reason=why)
    end(module, LAYER, [check], REMEDY, audit=found or {}, invocation=shown)


if __name__ == "__main__":
    main()
