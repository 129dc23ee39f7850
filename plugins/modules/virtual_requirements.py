#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_requirements
short_description: Check that this machine can carry virtual nodes
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Checks root, programs, namespaces, podman, taps, limits, memory and disk, and fails with one
    line for everything that is missing, each with what to do.
  - Changes nothing.
options:
  nodes:
    description: Number of virtual nodes that are containers, without switches.
    type: int
    default: 5
  switches:
    description: Number of virtual switches.
    type: int
    default: 0
  machines:
    description: Memory in MiB of each virtual node that is a machine, by host name.
    type: dict
    default: {}
  cluster:
    description: Name of the cluster. When it is up already its nodes need nothing more.
    type: str
    default: ""
  bootstraps:
    description: Whether an image is to be built from Debian packages here.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Say what this machine lacks
  baremetal.mpi_roce.virtual_requirements:
    nodes: 5
"""

RETURN = r"""
checks:
  description: Every requirement, what was found, and what to do.
  type: list
  elements: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import as_dicts
from ..module_utils.core.commands import run
from ..module_utils.virtual.host_network import Journal
from ..module_utils.virtual.requirements import Requirements, missing


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "int", "default": 5},
            "switches": {"type": "int", "default": 0},
            "machines": {"type": "dict", "default": {}},
            "cluster": {"type": "str", "default": ""},
            "bootstraps": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    cluster = module.params["cluster"]
    is_up = bool(cluster) and Journal(cluster).exists
    wanted = module.params
    requirements = Requirements(run)
    checks = requirements.all(
        wanted["nodes"],
        wanted["machines"],
        switches=wanted["switches"],
        bootstraps=wanted["bootstraps"],
        is_up=is_up,
    )
    lacking = missing(checks)
    if lacking:
        module.fail_json(
            msg=f"This machine cannot carry virtual nodes yet:\n{lacking}", checks=as_dicts(checks)
        )
    module.exit_json(changed=False, checks=as_dicts(checks))


if __name__ == "__main__":
    main()
