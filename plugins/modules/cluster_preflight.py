#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_preflight
short_description: Finds what would stop the first run on a host, and changes nothing
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.cluster_preflight]
description:
  - Reads one host and evaluates what the layers would plan there. Findings are checks, and
    nothing fails yet.
  - With O(read), on the controller, shows the findings of all hosts, and fails if one of them
    would stop a run.
"""

EXAMPLES = r"""
- name: Show what would stop the first run
  baremetal.mpi_roce.cluster_preflight:
    read: preflight_read
  run_once: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: V(preflight).}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import as_dicts
from ..module_utils.core.engine import Layer
from ..module_utils.preflight.node import Preflight

LAYER = Layer("preflight", command_s=60.0)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "software": {"type": "dict", "default": {}},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "read": {"type": "str"},
    "management": {"type": "dict", "default": {}},
    "clock": {"type": "float"},
    "hardware_root": {"type": "path", "default": "/"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    checks = Preflight(module.params, LAYER.node(check_mode=True)).checks()
    module.exit_json(changed=False, layer=LAYER.tag, checks=as_dicts(checks))


if __name__ == "__main__":
    main()
