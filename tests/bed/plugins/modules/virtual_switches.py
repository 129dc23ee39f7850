#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_switches
short_description: Write the files of simulated switches
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Writes a folder per switch on the controller, which the container mounts as
    C(/etc/virtual-switch). It holds the description of the switch, the peers of its ports, its TLS
    certificate and its password.
  - Creates an authority for these certificates. A certificate is renewed if it is missing, belongs
    to another switch, or expires within 30 days.
  - Runs on the controller, as the user who runs playbooks. Needs openssl 3.
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  directory:
    description: The controller's folder of this cluster.
    type: path
    required: true
  management:
    description: The C(cluster_management) variable of every switch, by host name.
    type: dict
    required: true
  systems:
    description: The C(cluster_system) variable of every switch, V(sonic), V(nvue) or V(eos).
    type: dict
    required: true
  asics:
    description: The C(cluster_asic) variable of every switch.
    type: dict
    default: {}
  ports:
    description: The C(cluster_ports) variable of every switch.
    type: dict
    default: {}
  bgp:
    description: Whether traffic passes the switches, which then learn routes by BGP.
    type: bool
    default: false
  asns:
    description: With O(bgp), the C(cluster_asn) variable of every switch.
    type: dict
    default: {}
  rails:
    description: With O(bgp), the C(cluster_rails) variable of every node.
    type: dict
    default: {}
  rate_mbits:
    description:
      - With O(bgp), the rate that every port sends at, in Mbit/s; twice that between switches.
      - V(0) sets no limit.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Write the files of a switch
  baremetal.bed.virtual_switches:
    cluster: virtual
    directory: ~/.local/state/baremetal.mpi_roce/virtual
    management:
      leaf1: {address: 10.240.0.101, prefix: 24, interface: mgmt0}
    systems: {leaf1: sonic}
    asics: {leaf1: spectrum4}
    ports:
      leaf1:
        - kind: host
          peer_interface: rail0
          speed_gbps: 400
          peers: {Ethernet0: node01, Ethernet8: node02}
"""

RETURN = r"""
folders:
  description: The folder of each switch, and a digest of its content.
  type: dict
  returned: always
signed:
  description: C(authority) if it is new, and the switches with a new certificate.
  type: list
  elements: str
  returned: always
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    run,
)

from ..module_utils.inventory import VirtualError
from ..module_utils.nodes import diff as diff_of
from ..module_utils.switches import Folders, Routing, parse_switches


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "directory": {"type": "path", "required": True},
            "management": {"type": "dict", "required": True},
            "systems": {"type": "dict", "required": True},
            "asics": {"type": "dict", "default": {}},
            "ports": {"type": "dict", "default": {}},
            "bgp": {"type": "bool", "default": False},
            "asns": {"type": "dict", "default": {}},
            "rails": {"type": "dict", "default": {}},
            "rate_mbits": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    folders = Folders(Path(wanted["directory"]), wanted["cluster"], run)
    routing = Routing(wanted["asns"], wanted["rails"], wanted["rate_mbits"])
    try:
        switches = parse_switches(
            wanted["management"],
            wanted["systems"],
            wanted["asics"],
            wanted["ports"],
            routing if wanted["bgp"] else None,
        )
        signed, files = folders.plan(switches)
        diff = [plan.diff() for plan in files]
        if not module.check_mode:
            folders.make(switches, signed, files)
        found = {
            switch.name: {"path": str(folders.of(switch)), "digest": folders.digest(switch)}
            for switch in switches
        }
    except (CommandError, OSError, VirtualError) as error:
        module.fail_json(msg=f"virtual switches of {wanted['cluster']}: {error}")
    if signed:
        header = f"certificates of {wanted['cluster']}"
        diff.append(diff_of(header, [f"sign {name}" for name in signed]))
    module.exit_json(changed=bool(diff), diff=diff, signed=signed, folders=found)


if __name__ == "__main__":
    main()
