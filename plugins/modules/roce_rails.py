#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give every rail of a host its name, address, MTU, routes and QoS settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_rails
short_description: Gives every rail of a host its name, address, MTU, routes and QoS settings
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.roce_rails]
description:
  - Configures all rails of a host in one call, in the running kernel and, for later boots, in the
    files of NetworkManager or systemd-networkd.
  - Names each interface by its PCI address. One in use is renamed at the next boot, which is
    recorded in C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails.json).
  - Compares the NICs with the model, and applies the QoS contract to the RoCE NIC of each rail,
    either all settings of a rail or none.
  - Sets up only the rails that differ. One that does not come up gets its former configuration
    back; one that a file of the operator claims is refused.
  - Rails that are bonds in the model are compared with it, and not changed.
"""

EXAMPLES = r"""
- name: Configure the rails
  baremetal.mpi_roce.roce_rails:
    rails: "{{ cluster_rails }}"
    management: "{{ cluster_management }}"
    qos: "{{ cluster_qos }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
rails:
  description: State of the kernel at the end, for each rail that is present.
  type: dict
  returned: success
settings:
  description: >-
    Desired and actual value of each NIC setting of each rail, with the C(status) of its check.
    C(persistence) is V(runtime), lost by a reboot, or V(firmware).
  type: dict
  returned: success
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Why.}
container: {type: str, returned: success, description: "Container engine, or null."}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from dataclasses import replace
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import locks, reboots
from ..module_utils.core.commands import run
from ..module_utils.core.engine import Layer, Outcome, Settled, carry_out, settle
from ..module_utils.core.part import Node, PlanError
from ..module_utils.core.processes import login_address
from ..module_utils.hardware import SurveyError
from ..module_utils.nic.nics import QUICK_S, Nics
from ..module_utils.rails import LOCK
from ..module_utils.rails.arp import ARP_DEFAULTS
from ..module_utils.rails.backends import backend_of
from ..module_utils.rails.bonds import Bonds, bonded
from ..module_utils.rails.boot_unit import BootUnit, longest_s
from ..module_utils.rails.converge import Rails
from ..module_utils.rails.management import ManagementNetwork
from ..module_utils.rails.plan import plan_rails
from ..module_utils.rails.survey import RailsRequest

FIRMWARE_RECORD = "rails-firmware"
LAYER = Layer(
    "rails",
    command_s=60.0,
    refusals=(locks.HeldError, SurveyError),
    simulates=False,
    bonds=True,
)


def converged(given: dict[str, Any], node: Node) -> Settled:
    """Settle the rails under this host's lock, then the boot unit, which also takes that lock."""
    bonds = bonded(given["rails"])
    if bonds:
        part = Bonds(bonds, list(backend_of(given["backend"], node).read()))
        outcome = settle([part], node)
        return Settled(outcome, returned={"rails": part.running(node), "settings": {}})
    plan = plan_rails(
        given["rails"],
        routing=given["routing"],
        table_base=given["table_base"],
        priority_base=given["priority_base"],
        networks=given["networks"],
    )
    quick = replace(node, looks=partial(run, timeout_s=QUICK_S))
    nics = Nics(given, quick, given["rails"], given["gpus"])
    management = ManagementNetwork.of(given["management"], login_address())
    arp = {name: int(value) for name, value in {**ARP_DEFAULTS, **given["arp"]}.items()}
    request = RailsRequest(plan, arp, given["check_path"], given["wait_s"], management)
    with locks.alone(node.path(LOCK)):
        rails = Rails(request, backend_of(given["backend"], node), nics)
        outcome = settle([rails], node)

    interfaces = tuple(rail.interface for rail in plan)
    wait_s, before = given["boot_wait_s"], tuple(given["boot_before"])
    unit = BootUnit(interfaces, nics, outcome.checks, wait_s, before, given["boot"])
    # Its record lists the settings that wait for a reset of the NICs.
    of_unit = replace(
        node,
        layer=FIRMWARE_RECORD,
        run=partial(run, timeout_s=longest_s(wait_s)),
        rebooted_for=tuple(reboots.recorded(FIRMWARE_RECORD, node.root)),
    )
    try:
        boot = settle([unit], of_unit)
    except PlanError as error:  # the result of the rails is returned all the same
        boot = Outcome(errors=[f"boot unit: {error}"])
    return Settled(
        Outcome(
            outcome.changed or boot.changed,
            [*outcome.diff, *boot.diff],
            [*outcome.checks, *boot.checks],
            [*outcome.reasons, *boot.reasons],
            [*outcome.errors, *boot.errors],
        ),
        returned={
            "rails": rails.running(),
            "settings": nics.settings(check_mode=node.check_mode),
        },
    )


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "rails": {"type": "list", "elements": "dict", "required": True},
    "management": {"type": "dict", "default": {}},
    "backend": {
        "type": "str",
        "choices": ["auto", "networkmanager", "networkd"],
        "default": "auto",
    },
    "routing": {"type": "str", "choices": ["source", "arp"], "default": "source"},
    "table_base": {"type": "int", "default": 1000},
    "priority_base": {"type": "int", "default": 10000},
    "networks": {"type": "list", "elements": "str", "default": []},
    "arp": {"type": "dict", "default": {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 2}},
    "check_path": {"type": "bool", "default": True},
    "wait_s": {"type": "float", "default": 30},
    "qos": {"type": "dict", "required": True},
    "nic": {
        "type": "dict",
        "default": {},
        "options": {
            "max_read_request_bytes": {"type": "raw", "default": 4096},
            "rings": {"type": "dict"},
            "adaptive_routing": {"type": "bool"},
            "accelerations": {"type": "dict"},
            "congestion_control": {"type": "dict"},
        },
    },
    "health": {
        "type": "dict",
        "default": {},
        "options": {
            "new_errors": {"type": "int"},
            "raw_ber": {"type": "float"},
            "effective_ber": {"type": "float"},
            "module_celsius": {"type": "float"},
            "power_margin_db": {"type": "float"},
        },
    },
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "firmware": {"type": "bool", "default": True},
    "firmware_parameters": {"type": "dict", "default": {}},
    "remove_vfs_in_use": {"type": "bool", "default": False},
    "boot": {"type": "bool", "default": True},
    "boot_wait_s": {"type": "int", "default": 60},
    "boot_before": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converged, module.params))


if __name__ == "__main__":
    main()
