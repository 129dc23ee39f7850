#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give every rail of a host its name, address, MTU, routes and QoS settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_rails
short_description: Gives every rail of a host its name, address, MTU, routes and QoS settings
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Configures all rails of a host in one call, in the running kernel and, for later boots, in the
    files of NetworkManager or systemd-networkd.
  - Names each interface by its PCI address. One in use is renamed at the next boot, which is
    recorded in C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails.json).
  - Compares the NICs with the model, and applies the QoS contract to the RoCE NIC of each rail,
    either all settings of a rail or none.
  - Sets up only the rails that differ. One that does not come up gets its former configuration
    back; one that a file of the operator claims is refused.
options: # generated from layers/rails.yml by tools/generate_layers.py
  rails:
    type: list
    elements: dict
    required: true
    description: Rails of this host, from the cluster model (docs/architecture.md).
  management:
    type: dict
    default: {}
    description:
      - Management address, prefix and interface of this host, from the cluster model.
      - An interface through which the host is reached is never made a rail.
  backend:
    type: str
    choices: [auto, networkmanager, networkd]
    default: auto
    description:
      - Network service that configures the rails.
      - V(auto) selects V(networkd) if C(/etc/netplan) has files; otherwise V(networkmanager) if it
        is running; otherwise V(networkd).
  routing:
    type: str
    choices: [source, arp]
    default: source
    description:
      - V(source) gives each rail a routing table, and a rule that selects it by the rail's address.
      - V(arp) uses only the ARP settings, for rails that share one flat network without gateways.
  table_base:
    type: int
    default: 1000
    description: Routing table of rail 0. Rail R, plane P has table C(table_base + 10R + P).
  priority_base:
    type: int
    default: 10000
    description: Priority of the rule of rail 0. The others are numbered as with O(table_base).
  networks:
    type: list
    elements: str
    default: []
    description:
      - Networks behind the rails' gateways, in CIDR notation. They get a route in the main table,
        for traffic that is not bound to a rail's address.
  arp:
    type: dict
    default: {arp_ignore: 1, arp_announce: 2, rp_filter: 2}
    description: Values under C(net.ipv4.conf) of every rail.
  check_path:
    type: bool
    default: true
    description: Whether to send unfragmented full-size packets from each rail to its gateway. A
      reply in one piece verifies the MTU of the leaf port and of the gateway's interface.
  wait_s:
    type: float
    default: 30
    description: Maximum time for the rails to come up after a change, in seconds.
  qos:
    type: dict
    required: true
    description: NIC and MPI settings of the QoS contract, compiled by the cluster model.
  nic:
    type: dict
    default: {}
    description: NIC settings beyond the contract. A setting that is null is left unchanged.
    suboptions:
      max_read_request_bytes:
        type: raw
        default: 4096
        description: Maximum PCIe read request size in bytes, V(128) to V(4096), or null.
      rings:
        type: dict
        description: >-
          Ring sizes of the Ethernet side, for example C({rx: 8192, tx: 8192}). RoCE does not use
          them.
      adaptive_routing:
        type: bool
        description: Whether RoCE packets may be routed adaptively (C(mlxreg) or C(mstreg)). The
          fabric must support it too.
      accelerations:
        type: dict
        description: >-
          Fields of the register C(ROCE_ACCL) as numbers, for example C({roce_adp_retrans_en: 1}).
      congestion_control:
        type: dict
        description: >-
          DCQCN parameters by C(roce_rp) and C(roce_np), for example C({roce_rp: {rpg_ai_rate: 5}}),
          named as the files of DOCA-OFED under C(/sys/class/net/RAIL/ecn).
  health:
    type: dict
    default: {}
    description: Limits of the check C(rail_health), for the errors that a rail's port counts during
      a run and for the readings of its module. A value with a null limit is reported but not
      evaluated.
    suboptions:
      new_errors:
        type: int
        description: Link downs, symbol errors that FEC did not correct, lost packets of a lossless
          class, and pauses of the whole link, each kind counted separately. In the layer C(verbs)
          also the limit of C(rail_losses).
      raw_ber: {type: float, description: 'Bits corrected by FEC, as a share of all bits.'}
      effective_ber:
        type: float
        description: Symbol errors that FEC did not correct, as a share of all bits.
      module_celsius:
        type: float
        description: Temperature of the module. Defaults to its own limit (hwmon, C(mlxlink -m)).
      power_margin_db:
        type: float
        description: Accepted excess of optical power beyond the module's own limits, in dB.
  gpus:
    type: list
    elements: dict
    default: []
    description: GPUs of this host, from the cluster model, each with its rail.
  firmware:
    type: bool
    default: true
    description:
      - >-
        Whether to configure the firmware of NICs with the driver C(mlx5_core) (C(mlxconfig) or
        C(mstconfig)): Ethernet, no virtual functions, CNPs as in the contract, and
        O(firmware_parameters).
      - A value takes effect at the next reset of the NIC, which is recorded as needed in
        C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails-firmware.json) but not performed.
      - Parameters of Spectrum-X and of planes are compared with the model and never set.
  firmware_parameters:
    type: dict
    default: {}
    description:
      - Additional parameters of C(mlxconfig) with numeric values. Parameters of ports are named as
        for port 1, elements of arrays with an index (C(PCI_DOWNSTREAM_PORT_OWNER[4]),
        C(MODULE_SPLIT_M0[0..3])). Null leaves a parameter unchanged.
      - On a NIC that lacks one of them, the check fails and the firmware is not changed. A
        parameter that may appear after a reset for another one is C(pending), and the others are
        set.
      - C(ATS_ENABLED) is set to 0 on NICs that have it, unless it is listed here.
  remove_vfs_in_use:
    type: bool
    default: false
    description: Whether to remove virtual functions of a rail that are in use. Idle ones are always
      removed. One that a process holds open through VFIO, or through which the host is reached, is
      never removed.
  boot:
    type: bool
    default: true
    description: Whether C(baremetal-mpi-roce-rails.service) restores, at boot, the settings that a
      reboot clears.
  boot_wait_s:
    type: int
    default: 60
    description: Maximum time at boot for the rails' devices to appear and accept their settings, in
      seconds.
  boot_before:
    type: list
    elements: str
    default: []
    description: Units that start jobs. At boot they wait until the rails are set up or have failed.
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
)


def converged(given: dict[str, Any], node: Node) -> Settled:
    """Settle the rails under this host's lock, then the boot unit, which also takes that lock."""
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
