#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring
short_description: Runs node_exporter, and perhaps Prometheus, on the management address of a host
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.monitoring]
description:
  - Gives the services of the distribution's packages our arguments by a drop-in of systemd, and
    reads back that they answer. A node_exporter that the site runs is not changed.
  - The host makes its private key. The action plugin signs the certificate on the controller, and
    installs missing packages, whose services do not start before they are configured.
  - Without O(enabled), removes what it wrote, and disables the services that had its arguments.
    Packages, the data of Prometheus and a service of the site stay.
"""

EXAMPLES = r"""
- name: Monitor a host
  baremetal.mpi_roce.monitoring:
    host: "{{ inventory_hostname }}"
    address: "{{ cluster_management.address }}"
    rails: "{{ cluster_rails | default([]) }}"
    state_directory: ~/.local/state/baremetal.mpi_roce/b300/monitoring
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
site: {type: bool, returned: success, description: Whether the node_exporter is the site's.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out
from ..module_utils.core.part import Node
from ..module_utils.monitoring import USER
from ..module_utils.monitoring.host import Monitored, remove
from ..module_utils.monitoring.host import converge as of_host
from ..module_utils.monitoring.tls import Web

LAYER = Layer("monitoring", command_s=120.0, look_s=30.0, simulates=False, bonds=True)


def wanted_of(options: Mapping[str, Any]) -> Monitored:
    web = None
    if options["tls"]:
        given = options["password_hash"], options["authority"], options["certificate"]
        web = Web(USER, *given)
    rails = [port for rail in options["rails"] for port in rail.get("members") or [rail]]
    return Monitored(
        options["host"],
        options["address"],
        options["textfile_directory"],
        [str(port["interface"]) for port in rails],
        web,
        options["files"],
        options["password"],
        options["retention_days"],
    )


def converge(options: Mapping[str, Any], node: Node) -> Settled:
    return of_host(wanted_of(options), node) if options["enabled"] else remove(node)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "host": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "enabled": {"type": "bool", "default": True},
    "tls": {"type": "bool", "default": True},
    "textfile_directory": {"type": "path", "default": "/var/lib/prometheus/node-exporter"},
    "server": {"type": "bool", "default": False},
    "scrape_interval_s": {"type": "int", "default": 15},
    "retention_days": {"type": "int", "default": 30},
    "alertmanagers": {"type": "list", "elements": "str", "default": []},
    "thresholds": {
        "type": "dict",
        "default": {},
        "options": {
            "link_downs_per_hour": {"type": "float"},
            "unanswered_marks": {"type": "float"},
            "certificate_days": {"type": "float"},
            "drift_hours": {"type": "float"},
            "silent_intervals": {"type": "float"},
            "fault_minutes": {"type": "float"},
            "exporter_minutes": {"type": "float"},
        },
    },
    "files_directory": {"type": "path", "default": ""},
    "state_directory": {"type": "path", "default": ""},
    "interval_s": {"type": "int", "default": 300},
    "authority": {"type": "str", "default": ""},
    "certificate": {"type": "str", "default": ""},
    "password_hash": {"type": "str", "no_log": True, "default": ""},
    "password": {"type": "str", "no_log": True, "default": ""},
    "files": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
