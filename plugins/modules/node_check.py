#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The health check of a node: installed or removed, and its verdict."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_check
short_description: Installs the health check of a node, or removes it
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.node_check]
description:
  - Writes the program C(/usr/local/libexec/baremetal-mpi-roce/node-check), its settings, a systemd
    timer, and the links C(slurm-prolog), C(slurm-epilog) and C(slurm-health-check) next to it, or
    removes all of them.
  - Reads back that the program gives a verdict. A fault that another layer reads back as well is
    left to that layer.
  - While a configuration of Slurm on the node names the links, they are not removed.
"""

EXAMPLES = r"""
- name: Install the health check
  baremetal.mpi_roce.node_check:
    host: "{{ inventory_hostname }}"
    rails: "{{ cluster_rails }}"
    management: "{{ cluster_management }}"
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
container: {type: str, returned: success, description: "Container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Why.}
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node, PlanError
from ..module_utils.node_check.install import NodeCheck
from ..module_utils.node_check.settings import Settings, SettingsError

LAYER = Layer("node_check", command_s=60.0, look_s=90.0, simulates=False, bonds=True)
OF_PROGRAM = (
    *("host", "rails", "gpus", "management", "gpu_driver", "gpudirect", "mounts", "warnings"),
    *("interval_s", "drain", "max_drained_share", "textfile"),
)


def converge(options: Mapping[str, Any], node: Node) -> Settled:
    """Raise PlanError for a setting that cannot be used, before anything is changed."""
    settings = None
    if options["enabled"]:
        given = {name: options[name] for name in ("thresholds", "rails_options", "gpu_health")}
        known: dict[str, Any] = {
            name: {key: value for key, value in values.items() if value not in (None, {})}
            for name, values in given.items()
        }
        try:
            known.update((name, options[name]) for name in OF_PROGRAM)
            settings = Settings(**known)
        except SettingsError as error:
            raise PlanError(f"node_check_{error}") from error
    return Settled(settle([NodeCheck(settings)], node))


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "host": {"type": "str", "required": True},
    "enabled": {"type": "bool", "default": True},
    "interval_s": {"type": "int", "default": 300},
    "drain": {"type": "bool", "default": False},
    "max_drained_share": {"type": "float", "default": 0.1},
    "mounts": {"type": "list", "elements": "str", "default": []},
    "thresholds": {
        "type": "dict",
        "default": {},
        "options": {
            "link_downs_per_hour": {"type": "float"},
            "link_downs_per_day": {"type": "float"},
            "symbol_errors_per_hour": {"type": "float"},
            "free_percent": {"type": "float"},
            "gpu_memory_mib": {"type": "float"},
            "shm_mib": {"type": "float"},
        },
    },
    "warnings": {"type": "list", "elements": "str", "default": []},
    "textfile": {"type": "str", "default": ""},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "rails_options": {"type": "dict", "default": {}},
    "management": {"type": "dict", "default": {}},
    "gpu_driver": {"type": "dict", "default": {}},
    "gpu_health": {"type": "dict", "default": {}},
    "gpudirect": {"type": "str", "default": "auto"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
