#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give every rail of a host its name, address, MTU, routes and QoS settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_rails
short_description: Gives every rail of a host its name, address, MTU, routes and QoS settings
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.health]
description:
  - Configures all rails of a host in one call, for the next boot in the files of the system's own
    network service (NetworkManager or systemd-networkd), and in the running kernel.
  - Names each interface by its PCI address with a systemd C(.link) file. An idle interface is
    renamed at once; one in use gets its name at the next boot, which is recorded in
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails.json).
  - Sets up only the rails that differ, and removes what does not belong on a rail. A rail that a
    file of the operator claims is refused.
  - Compares the NICs with the model, and sets each rail's RoCE NIC to what the QoS contract needs,
    all settings of a rail or none.
  - Reads everything back within a bounded time. A rail that does not come up gets its former
    configuration back. A run that was killed is repaired by the next.
options:
  rails:
    description: The rails of this host, as the host variable C(cluster_rails) has them.
    type: list
    elements: dict
    required: true
  management:
    description:
      - Address, prefix and interface of the management network, as C(cluster_management) has them.
      - An interface by which the host is reached is never made a rail. It carries an address of
        the management network, the address of this run's SSH connection, or the default route, or
        is a port or lower interface of one that does.
    type: dict
    default: {}
  backend:
    description:
      - The network service that configures the rails.
      - V(auto) takes V(networkd) where C(/etc/netplan) has files, because netplan generates files
        of networkd; else V(networkmanager) where it runs; else V(networkd).
    type: str
    choices: [auto, networkmanager, networkd]
    default: auto
  routing:
    description:
      - V(source) gives each rail a routing table and a rule that looks it up by the rail's address.
      - V(arp) has no tables, for rails that share one flat network without gateways.
    type: str
    choices: [source, arp]
    default: source
  table_base:
    description: Number of the routing table of rail 0. Rail R, plane P has C(table_base + 10R + P).
    type: int
    default: 1000
  priority_base:
    description: Priority of the rule of rail 0, counted as in O(table_base).
    type: int
    default: 10000
  networks:
    description:
      - Networks behind the rails' gateways, in CIDR notation, with a route in the main table for
        traffic that is not bound to a rail's address. Needed with links of two addresses (/31).
    type: list
    elements: str
    default: []
  arp:
    description: Values of C(net.ipv4.conf.INTERFACE) for every rail.
    type: dict
    default: {arp_ignore: 1, arp_announce: 2, rp_filter: 2}
  check_path:
    description:
      - Whether to send unfragmented packets of full size from each rail to its gateway. They prove
        cable, address, route and the MTU of the leaf's port, and by an answer in one piece that of
        the interface that has the gateway's address. Paths to other leaves are proven by C(ssh).
    type: bool
    default: true
  wait:
    description: Longest time to wait for the rails to come up after a change, in seconds.
    type: float
    default: 30
  qos:
    description: What the QoS contract asks of NICs, as the model compiles it to C(cluster_qos).
    type: dict
    required: true
  nic:
    description: Options of the NICs beyond the contract. What is null is left as the NIC has it.
    type: dict
    default: {}
    suboptions:
      max_read_request_bytes:
        description: Largest PCIe read request in bytes, V(128) to V(4096), or null.
        type: raw
        default: 4096
      rings: {type: dict, description: "Entries of the rings of the Ethernet side, C(rx), C(tx)."}
      adaptive_routing:
        description: Whether RoCE packets may be routed adaptively (C(mlxreg) or C(mstreg)).
        type: bool
      accelerations: {type: dict, description: "Fields of the register C(ROCE_ACCL), as numbers."}
      congestion_control:
        description: >-
          Parameters of DCQCN, C(roce_np) and C(roce_rp), each a dictionary of name and number, by
          the names of DOCA-OFED's files under C(/sys/class/net/RAIL/ecn).
        type: dict
  gpus:
    description: The GPUs of this host, as C(cluster_gpus) has them; each has its rail beside it.
    type: list
    elements: dict
    default: []
  firmware:
    description:
      - Whether the firmware of NICs with the driver C(mlx5_core) is set with C(mlxconfig) or
        C(mstconfig), to Ethernet, without virtual functions, CNPs as in the contract, and
        O(firmware_parameters).
      - A value is set for the next reset of the NIC, which is recorded as needed in
        C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails-firmware.json) and not done.
      - Parameters of Spectrum-X and of planes are compared with the model, and never set.
    type: bool
    default: true
  firmware_parameters:
    description:
      - Further parameters, by the names and with the numbers that C(mlxconfig) has, those of ports
        as port 1 has them, elements of arrays with an index (C(PCI_DOWNSTREAM_PORT_OWNER[4]),
        C(MODULE_SPLIT_M0[0..3])). Null leaves one as it is. A NIC without one of them has failed,
        and its firmware stays as it was; its running settings are set all the same. One that the
        reset of another may bring into view is C(pending), and the others are set.
      - C(ATS_ENABLED) is 0 where a NIC has it.
    type: dict
    default: {}
  remove_vfs_in_use:
    description:
      - Whether virtual functions of a rail are removed although something uses them.
      - One that a process holds open through VFIO, or that the host is reached by, is never
        removed. Idle ones always are.
    type: bool
    default: false
  boot:
    description: Whether C(baremetal-mpi-roce-rails.service) sets again at boot what it forgets.
    type: bool
    default: true
  boot_wait:
    description: Longest time at boot for the rails' devices to appear and to hold, in seconds.
    type: int
    default: 60
  boot_before:
    description: Units that start jobs; at boot they wait until the rails are set up or have failed.
    type: list
    elements: str
    default: []
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
backend: {type: str, returned: success, description: The network service.}
reconfigured:
  {type: list, elements: str, returned: success, description: Interfaces that it set up.}
rolled_back:
  description: Rails that have their former configuration or NIC settings again.
  type: list
  elements: str
  returned: success
removed: {type: list, elements: str, returned: success, description: Former rails.}
rails:
  description: Per rail that is there, what the kernel has at the end.
  type: dict
  returned: success
settings:
  description: >-
    Per rail and setting of its NIC, what was wanted and found, with the C(status) of its check.
    C(persistence) is V(runtime), which a reboot forgets, or V(firmware).
  type: dict
  returned: success
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Its reasons.}
container: {type: str, returned: success, description: "The container engine, or null."}
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
from ..module_utils.nic.mlx5.health import LIMITS
from ..module_utils.nic.nics import MAX_READ_REQUEST_BYTES, QUICK_S, Nics
from ..module_utils.rails import LOCK
from ..module_utils.rails.arp import ARP_DEFAULTS
from ..module_utils.rails.backends import AUTO, BACKENDS, backend_of
from ..module_utils.rails.boot_unit import BootUnit
from ..module_utils.rails.converge import Rails
from ..module_utils.rails.management import ManagementNetwork
from ..module_utils.rails.plan import ROUTINGS, SOURCE, plan_rails
from ..module_utils.rails.survey import RailsRequest

FIRMWARE_RECORD = "rails-firmware"
LAYER = Layer(
    "rails",
    command_s=60.0,
    refusals=(locks.HeldError, SurveyError),
    simulates=False,
)
NIC = {
    # An int with a default takes no null.
    "max_read_request_bytes": {"type": "raw", "default": MAX_READ_REQUEST_BYTES},
    "rings": {"type": "dict"},
    "adaptive_routing": {"type": "bool"},
    "accelerations": {"type": "dict"},
    "congestion_control": {"type": "dict"},
}


def converged(given: dict[str, Any], node: Node) -> Settled:
    """Settle the rails under the lock of this host, then the boot unit, which takes it too."""
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
    request = RailsRequest(plan, arp, given["check_path"], given["wait"], management)
    with locks.alone(node.path(LOCK)):
        rails = Rails(request, backend_of(given["backend"], node), nics)
        outcome = settle([rails], node)

    interfaces = tuple(rail.interface for rail in plan)
    wait_s, before = given["boot_wait"], tuple(given["boot_before"])
    unit = BootUnit(interfaces, nics, outcome.checks, wait_s, before, given["boot"])
    # Its record lists what waits for a reset of the NICs.
    of_unit = replace(
        node,
        layer=FIRMWARE_RECORD,
        run=partial(run, timeout_s=unit.longest_s),
        rebooted_for=tuple(reboots.recorded(FIRMWARE_RECORD, node.root)),
    )
    try:
        boot = settle([unit], of_unit)
    except PlanError as error:  # the result of the rails is returned nevertheless
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
            "backend": rails.backend.name,
            "reconfigured": rails.reconfigured,
            "rolled_back": sorted({*rails.rolled_back, *nics.rolled_back}),
            "removed": rails.survey.removed,
            "rails": rails.running(),
            "settings": nics.settings(check_mode=node.check_mode),
        },
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "rails": {"type": "list", "elements": "dict", "required": True},
            "management": {"type": "dict", "default": {}},
            "backend": {"type": "str", "choices": [AUTO, *BACKENDS], "default": AUTO},
            "routing": {"type": "str", "choices": list(ROUTINGS), "default": SOURCE},
            "table_base": {"type": "int", "default": 1000},
            "priority_base": {"type": "int", "default": 10000},
            "networks": {"type": "list", "elements": "str", "default": []},
            "arp": {"type": "dict", "default": dict(ARP_DEFAULTS)},
            "check_path": {"type": "bool", "default": True},
            "wait": {"type": "float", "default": 30},
            "qos": {"type": "dict", "required": True},
            "nic": {"type": "dict", "default": {}, "options": NIC},
            "health": {"type": "dict", "default": {}, "options": LIMITS},
            "gpus": {"type": "list", "elements": "dict", "default": []},
            "firmware": {"type": "bool", "default": True},
            "firmware_parameters": {"type": "dict", "default": {}},
            "remove_vfs_in_use": {"type": "bool", "default": False},
            "boot": {"type": "bool", "default": True},
            "boot_wait": {"type": "int", "default": 60},
            "boot_before": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    carry_out(module, LAYER, partial(converged, module.params))


if __name__ == "__main__":
    main()
