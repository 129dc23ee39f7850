#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Give every rail of a host its name, address, MTU, routes and QoS settings."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roce_rails
short_description: Gives every rail of a host its name, address, MTU, routes and QoS settings
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Configures all rails of a host in one call, for the next boot in the files of the system's own
    network service (netplan, NetworkManager or systemd-networkd), and in the running kernel.
  - Names each interface by its PCI address with a systemd C(.link) file. An idle interface is
    renamed at once; one in use gets its name at the next boot, which is recorded in
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails.json). A name at another PCI address is
    refused, and so is a rail that a file of the operator claims.
  - Sets up only the rails that differ, and removes what does not belong on a rail, that is other
    addresses, default routes in the main table, and rules and routes in its own table.
  - Compares the NICs that are there with the model, and sets each rail's RoCE NIC to what the QoS
    contract needs, all settings of a rail or none.
  - Reads everything back within a bounded time. A rail that does not come up gets its former
    configuration back, and the module fails with its name after the others are done.
  - A run that was killed is repaired by the next. One run at a time works on a host.
options:
  rails:
    description: The rails of this host, as the host variable C(cluster_rails) has them.
    type: list
    elements: dict
    required: true
    suboptions:
      rail: {type: int, required: true, description: "Number of the rail, from 0."}
      plane: {type: int, default: 0, description: "Number of the plane in it, from 0."}
      interface: {type: str, required: true, description: Name of the interface.}
      pci:
        description:
          - PCI address of its device, such as C(0000:5d:00.0).
          - Without one the interface has to have its name already.
        type: str
      address: {type: str, required: true, description: IPv4 address.}
      prefix: {type: int, required: true, description: Prefix length of its network.}
      network: {type: str, description: Its network; not used here.}
      gateway: {type: str, description: Address on the leaf.}
      mtu: {type: int, required: true, description: "Largest IP packet, in bytes."}
      speed_gbps: {type: float, description: Line rate in Gb/s; not used here.}
      leaf: {type: str, description: The leaf it plugs into; not used here.}
      leaf_port: {type: str, description: The port of that leaf; not used here.}
      gpu: {type: int, description: The GPU beside it; not used here.}
      numa: {type: int, description: Its NUMA node; not used here.}
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
      - V(auto) takes V(netplan) where C(/etc/netplan) has files; else V(networkmanager) where it
        runs; else V(netplan) or V(networkd), whichever is installed.
    type: str
    choices: [auto, netplan, networkmanager, networkd]
    default: auto
  routing:
    description:
      - V(source) gives each rail a routing table and a rule that looks it up by the rail's address.
      - V(arp) has no tables. It suits rails that share one flat network without gateways.
      - The O(arp) settings are set in both cases.
    type: str
    choices: [source, arp]
    default: source
  table_base:
    description: Number of the routing table of rail 0. Rail R, plane P has C(table_base + 10R + P).
    type: int
    default: 1000
  priority_base:
    description: Priority of the rule of rail 0. Rail R, plane P has C(priority_base + 10R + P).
    type: int
    default: 10000
  networks:
    description:
      - Networks behind the rails' gateways, in CIDR notation. Each rail gets a route to them in the
        main table, so that traffic which is not bound to a rail's address finds them as well.
      - Needed with links of two addresses (/31), where no rail has its peers in its own network.
    type: list
    elements: str
    default: []
  arp:
    description: Values of C(net.ipv4.conf.INTERFACE) for every rail.
    type: dict
    default: {arp_ignore: 1, arp_announce: 2, rp_filter: 2}
    suboptions:
      arp_ignore:
        description: V(1) answers only for addresses of the interface that was asked.
        type: int
        default: 1
      arp_announce:
        description: V(2) asks with an address of the interface that asks.
        type: int
        default: 2
      rp_filter:
        description: V(2) checks loosely that a source is reachable at all.
        type: int
        default: 2
  check_path:
    description:
      - Whether to send one full packet, that may not be fragmented, from each rail to its gateway.
    type: bool
    default: true
  wait:
    description: Longest time to wait for the rails to come up after a change, in seconds.
    type: float
    default: 30
  qos:
    description:
      - What the QoS contract asks of NICs, as the model compiles it to the variable C(cluster_qos).
    type: dict
    required: true
  nic:
    description: Options of the NICs beyond the contract. What is null is left as the NIC has it.
    type: dict
    default: {}
    suboptions:
      max_read_request_bytes:
        description: Largest PCIe read request, a power of two from V(128) to V(4096).
        type: int
        default: 4096
      rings:
        description:
          - Entries of the rings of the Ethernet side, C(rx) and C(tx). RoCE does not pass through
            them, and each entry takes memory on every channel.
        type: dict
      adaptive_routing:
        description:
          - Whether RoCE packets may be routed adaptively, each by another way. The fabric has to do
            that as well. Needs C(mlxreg) or C(mstreg).
        type: bool
      accelerations:
        description: Further fields of the register C(ROCE_ACCL), name and number.
        type: dict
      congestion_control:
        description:
          - Parameters of DCQCN, C(roce_np) and C(roce_rp), each a dictionary of name and number.
          - Names are those of DOCA-OFED's files under C(/sys/class/net/RAIL/ecn), such as
            C(rpg_ai_rate). The in-tree driver's own names are found by them.
        type: dict
  gpus:
    description: The GPUs of this host, as C(cluster_gpus) has them; each has its rail beside it.
    type: list
    elements: dict
    default: []
  firmware:
    description:
      - Whether the firmware of the rails' NICs is set with C(mlxconfig) or C(mstconfig), on NICs
        that have such firmware (driver C(mlx5_core)). It is Ethernet, without virtual functions,
        with CNPs marked as in the contract, and O(firmware_parameters).
      - A value is set for the next reset of the NIC. No reset is done; that one is needed is
        recorded in C(/var/lib/baremetal-mpi-roce/reboot-required.d/rails-firmware.json).
    type: bool
    default: true
  firmware_parameters:
    description:
      - Further parameters, by the names and with the numbers that C(mlxconfig) has, those of ports
        as port 1 has them. Null leaves one as it is.
      - What the contract gives is refused here, except C(ROCE_CC_PRIO_MASK_P1).
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
    description:
      - Whether a systemd unit, C(baremetal-mpi-roce-rails.service), sets again at boot what a
        reboot forgets. Without it, or where there is nothing to set, it is removed.
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

- name: Configure one rail by hand
  baremetal.mpi_roce.roce_rails:
    rails:
      - rail: 3
        interface: rail3
        pci: "0000:5d:00.0"
        address: 10.100.3.11
        prefix: 24
        gateway: 10.100.3.1
        mtu: 9000
    qos: "{{ cluster_qos }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
backend: {type: str, returned: success, description: The network service.}
reconfigured:
  description: Interfaces that the network service set up. No other was touched.
  type: list
  elements: str
  returned: success
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
    Per rail and setting of its NIC, what was wanted and found, and the result. C(status) is V(ok),
    V(set), V(pending) (in check mode), V(needs_reset), V(not_supported) or V(failed);
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
from ..module_utils.hardware import SurveyError
from ..module_utils.nic.boot_unit import BootOptions, BootUnit
from ..module_utils.nic.engine import Nics
from ..module_utils.nic.request import MAX_READ_REQUEST_BYTES, QUICK_S
from ..module_utils.nic.request import Host as NicHost
from ..module_utils.nic.request import Request as NicRequest
from ..module_utils.rails import LOCK, survey
from ..module_utils.rails.backend import BACKENDS
from ..module_utils.rails.converge import Rails
from ..module_utils.rails.management import Management, login_address
from ..module_utils.rails.plan import ROUTINGS, SOURCE, plan_rails
from ..module_utils.rails.state import ARP_DEFAULTS

FIRMWARE_RECORD = "rails-firmware"
LAYER = Layer(
    "rails",
    command_s=60.0,
    refusals=(locks.HeldError, SurveyError),
    simulates=False,
)
PATIENCE_S = 120.0
"""Longer than a run takes that waits for a rail, puts it back and waits for the gateways."""
RAIL = {
    "rail": {"type": "int", "required": True},
    "plane": {"type": "int", "default": 0},
    "interface": {"type": "str", "required": True},
    "pci": {"type": "str"},
    "address": {"type": "str", "required": True},
    "prefix": {"type": "int", "required": True},
    "network": {"type": "str"},
    "gateway": {"type": "str"},
    "mtu": {"type": "int", "required": True},
    "speed_gbps": {"type": "float"},
    "leaf": {"type": "str"},
    "leaf_port": {"type": "str"},
    "gpu": {"type": "int"},
    "numa": {"type": "int"},
}
NIC = {
    "max_read_request_bytes": {"type": "int", "default": MAX_READ_REQUEST_BYTES},
    "rings": {"type": "dict"},
    "adaptive_routing": {"type": "bool"},
    "accelerations": {"type": "dict"},
    "congestion_control": {"type": "dict"},
}


def converged(given: dict[str, Any], node: Node) -> Settled:
    """The rails, alone on this host; then the boot unit, which takes that lock itself."""
    plan = plan_rails(
        given["rails"],
        routing=given["routing"],
        table_base=given["table_base"],
        priority_base=given["priority_base"],
        networks=given["networks"],
    )
    nic_host = NicHost(run, quick=partial(run, timeout_s=QUICK_S))
    nics = Nics(NicRequest.read(given), nic_host, given["rails"], given["gpus"])
    management = Management.of(given["management"], login_address())
    request = survey.Request(plan, given["arp"], given["check_path"], given["wait"], management)
    name = given["backend"]
    # In check mode too, as netplan generates into a scratch root.
    with locks.alone(node.path(LOCK), PATIENCE_S):
        backend = survey.backend_named(survey.detect(run) if name == survey.AUTO else name, run)
        rails = Rails(request, backend, nics)
        outcome = settle([rails], node)

    options = BootOptions(given["boot_wait"], tuple(given["boot_before"]))
    interfaces = tuple(rail.interface for rail in plan)
    unit = BootUnit(interfaces, nics, outcome.checks, options, given["boot"])
    try:
        boot = settle([unit], firmware_node(node, options.longest_s))
    except PlanError as error:  # it hides nothing of the rails
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
            "backend": backend.name,
            "reconfigured": rails.reconfigured,
            "rolled_back": sorted({*rails.rolled_back, *nics.rolled_back}),
            "removed": rails.survey.removed,
            "rails": rails.running(),
            "settings": nics.settings(check_mode=node.check_mode),
        },
    )


def firmware_node(node: Node, longest_s: float) -> Node:
    """The same for the boot unit, with the record of what waits for a reset of the NICs."""
    return replace(
        node,
        layer=FIRMWARE_RECORD,
        run=partial(run, timeout_s=longest_s),
        rebooted_for=tuple(reboots.recorded(FIRMWARE_RECORD, node.root)),
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "rails": {"type": "list", "elements": "dict", "required": True, "options": RAIL},
            "management": {"type": "dict", "default": {}},
            "backend": {
                "type": "str",
                "choices": [survey.AUTO, *sorted(BACKENDS)],
                "default": survey.AUTO,
            },
            "routing": {"type": "str", "choices": list(ROUTINGS), "default": SOURCE},
            "table_base": {"type": "int", "default": 1000},
            "priority_base": {"type": "int", "default": 10000},
            "networks": {"type": "list", "elements": "str", "default": []},
            "arp": {
                "type": "dict",
                "default": dict(ARP_DEFAULTS),
                "options": {
                    name: {"type": "int", "default": value} for name, value in ARP_DEFAULTS.items()
                },
            },
            "check_path": {"type": "bool", "default": True},
            "wait": {"type": "float", "default": 30},
            "qos": {"type": "dict", "required": True},
            "nic": {"type": "dict", "default": {}, "options": NIC},
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
