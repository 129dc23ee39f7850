#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_machines
short_description: Run virtual nodes as QEMU machines
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.bed.virtual.nodes]
description:
  - Creates, starts and removes all virtual machines of a cluster in one call. Waits until systemd
    is C(running) and SSH responds on every machine.
  - Their network cards use the taps created by M(baremetal.bed.virtual_network).
  - A machine is recreated if its disk image or any of its settings changed. A machine that is off,
    or whose cable was removed, is restarted.
  - Uses QEMU 8 or later, which has the igb card. If the system's is older, the one of Debian's
    backports is fetched and unpacked next to it. If that fails, the system's QEMU runs machines
    without O(sriov_rails).
  - Runs as root on the machine that hosts the virtual nodes.
options:
  rails:
    description: The C(cluster_rails) variable of every machine that has rails, by host name.
    type: dict
    default: {}
  memory_mib:
    description: Memory of each machine, by host name. The default is 1024.
    type: dict
    default: {}
  processors:
    description: Number of processors of each machine, by host name. The default is 1.
    type: dict
    default: {}
  sriov_rails:
    description: Lists of the rails whose card supports SR-IOV, by host name.
    type: dict
    default: {}
  disk:
    description: The disk image, as M(baremetal.bed.virtual_image) returns it.
    type: path
    default: ""
  accelerator:
    description:
      - V(kvm) executes instructions on the processor, V(tcg) translates them.
      - V(auto) uses KVM if a kernel boots on it.
    type: str
    choices: [auto, kvm, tcg]
    default: auto
  timeout_s:
    description: Seconds within which every machine must be up.
    type: int
    default: 240
"""

EXAMPLES = r"""
- name: Bring up a machine
  baremetal.bed.virtual_machines:
    cluster: virtual-rdma
    management:
      node01: {address: 10.99.0.11, prefix: 24, interface: mgmt0}
    rails:
      node01:
        - interface: rail0
          leaf: leaf1
          network: 10.10.0.0/24
          pci: "0000:00:10.0"
    disk: /var/lib/baremetal-mpi-roce/virtual/images/machine-1f0c2ab4d3e5.raw
    login_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample operator
"""

RETURN = r"""
known_hosts:
  description: Lines for C(known_hosts), one per machine, with the key read from the machine itself.
  type: str
  returned: when O(state=present), not in check mode
ssh_config:
  description: An SSH client configuration that reaches the machines by name.
  type: str
  returned: when O(state=present), not in check mode
actions:
  description: Actions that were taken, or would be in check mode, one per machine.
  type: list
  elements: str
  returned: always
seconds:
  description: Seconds from the first action until every machine was up.
  type: float
  returned: always
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run

from ..module_utils.inventory import parse_nodes
from ..module_utils.machines import plan_machine
from ..module_utils.nodes import ARGUMENTS, act, login_files, plan_work
from ..module_utils.qemu import Qemu, choose, newest_emulator


def present(module: AnsibleModule, qemu: Qemu) -> dict[str, Any]:
    wanted = module.params
    machines = {
        node.name: plan_machine(
            wanted["cluster"],
            node,
            image=wanted["disk"],
            login_key=wanted["login_key"].strip(),
            memory_mib=int(wanted["memory_mib"].get(node.name, 1024)),
            processors=int(wanted["processors"].get(node.name, 1)),
            sriov_rails=wanted["sriov_rails"].get(node.name, ()),
        )
        for node in parse_nodes(wanted["management"], wanted["rails"], wanted["management"])
    }
    specifications = {name: machine.specification for name, machine in machines.items()}
    work = plan_work(specifications, qemu.found())
    if module.check_mode:
        return {"actions": work.lines}
    if work.create or work.start:
        emulator = newest_emulator(run, sriov=any(wanted["sriov_rails"].values()))
        accelerator = choose(
            wanted["accelerator"], emulator, Path(wanted["disk"]).with_suffix(".kernel")
        )
        qemu.apply(work, machines, emulator=emulator, accelerator=accelerator)
    else:
        qemu.remove(work.remove)
    nodes = list(machines.values())
    keys = qemu.wait(nodes, wanted["timeout_s"])
    return {"actions": work.lines, **login_files(nodes, keys, wanted["directory"])}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "rails": {"type": "dict", "default": {}},
            "memory_mib": {"type": "dict", "default": {}},
            "processors": {"type": "dict", "default": {}},
            "sriov_rails": {"type": "dict", "default": {}},
            "disk": {"type": "path", "default": ""},
            "accelerator": {"type": "str", "choices": ["auto", "kvm", "tcg"], "default": "auto"},
            "timeout_s": {"type": "int", "default": 240},
        },
        supports_check_mode=True,
    )
    qemu = Qemu(module.params["cluster"], run)
    act(module, qemu, lambda: present(module, qemu))


if __name__ == "__main__":
    main()
