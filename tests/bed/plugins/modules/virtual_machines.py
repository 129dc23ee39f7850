#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
---
module: virtual_machines
short_description: Virtual nodes as QEMU machines with a kernel of their own
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.bed.virtual.nodes]
description:
  - Makes, starts and removes all virtual machines of a cluster in one call, and waits until systemd
    is C(running) and SSH answers on every one of them.
  - Their network cards end on the taps that M(baremetal.bed.virtual_network) made.
  - A machine is made again when its disk image or any of its settings changed; one that is off, or
    whose cable was cut, is started again.
  - Runs on QEMU with the igb card (8 or later). Where the system's is older, that of Debian's
    backports is fetched and unpacked beside it. Without one, the system's runs machines that have
    no O(sriov_rails).
  - Runs on the machine that carries the virtual nodes, as root.
options:
  rails:
    description: The C(cluster_rails) variable of every machine that has rails, by host name.
    type: dict
    default: {}
  memory_mib:
    description: Memory of each machine, by host name; 1024 for those it leaves out.
    type: dict
    default: {}
  processors:
    description: Number of processors of each machine, by host name; 1 for those it leaves out.
    type: dict
    default: {}
  sriov_rails:
    description: The rails whose card has SR-IOV, a list by host name.
    type: dict
    default: {}
  disk:
    description: The disk image, as M(baremetal.bed.virtual_image) returns it.
    type: path
    default: ""
  accelerator:
    description:
      - V(kvm) runs instructions on the processor, V(tcg) translates them.
      - V(auto) takes KVM where a kernel runs on it.
    type: str
    choices: [auto, kvm, tcg]
    default: auto
  timeout_s:
    description: Seconds within which every machine has to be up.
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
  description: A line for C(known_hosts) per machine, its key read from the machine itself.
  type: str
  returned: when O(state=present), not in check mode
ssh_config:
  description: An SSH client configuration that reaches the machines by name.
  type: str
  returned: when O(state=present), not in check mode
actions:
  description: What was done, or would be in check mode, one line per machine.
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
