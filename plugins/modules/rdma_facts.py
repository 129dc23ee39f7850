#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Return what NICs, RDMA devices and GPUs a machine has, and which NIC belongs to which GPU."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_facts
short_description: Returns what NICs, RDMA devices and GPUs a machine has
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Reads NICs, RDMA devices and GPUs, their PCI addresses, NUMA nodes, links, firmware, virtual
    functions and GIDs from sysfs. It starts no program and changes nothing.
  - Tells the rails from what looks like them. Bridges to the NVSwitches appear as RDMA devices as
    well and are known by their vital product data, which only root may read; Data Direct functions
    and BlueField DPUs are known by their device IDs; storage NICs by having no GPU behind the same
    switch. No name is relied on.
  - RV(ansible_facts.rdma_hardware.model) is what the cluster model would say of this machine.
options:
  root:
    description:
      - The directory that is read in place of C(/sys), as C(tools/record_hardware.py) builds it
        from the recording of another machine.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Look at the NICs and GPUs of this machine
  become: true
  baremetal.mpi_roce.rdma_facts:

- name: Show which interface is behind which RDMA device
  ansible.builtin.debug:
    msg: "{{ item.interface }} is {{ item.device }} at {{ item.pci }}, beside GPU {{ item.gpus }}"
  loop: "{{ rdma_hardware.nics | selectattr('kind', 'eq', 'rail') }}"
  loop_control:
    label: "{{ item.pci }}"

- name: Show what the cluster model would say of this machine
  ansible.builtin.debug:
    var: rdma_hardware.model
"""

RETURN = r"""
ansible_facts:
  description: Facts that are added to this host.
  type: dict
  returned: success
  contains:
    rdma_hardware:
      description: What this machine has for RDMA.
      type: dict
      contains:
        nics:
          description: >-
            Every RDMA port and every network function, ordered by PCI address; what has
            no function of its own comes last.
          type: list
          elements: dict
          contains:
            kind:
              description: >-
                V(rail), an Ethernet function beside a GPU; V(nvswitch_bridge); V(data_direct);
                V(bluefield); V(virtual), a virtual function, sub-function or representor;
                V(software), such as Soft-RoCE; V(other), such as storage and management.
              type: str
            device: {type: str, description: "RDMA device, empty where there is none."}
            port: {type: int, description: "Port of that device, from 1."}
            interface: {type: str, description: "Network interface, empty where there is none."}
            up: {type: bool, description: Whether the interface is set up; it may have no link.}
            pci: {type: str, description: "PCI address, null where it has no function of its own."}
            numa: {type: int, description: "NUMA node, null where the machine has none."}
            vendor: {type: str, description: "PCI vendor, hexadecimal."}
            device_id: {type: str, description: "PCI device ID, hexadecimal."}
            driver: {type: str, description: "Kernel driver, empty where none is bound."}
            firmware: {type: str, description: Firmware version.}
            board_id: {type: str, description: "Board ID (PSID), for which firmware files are."}
            state: {type: str, description: State of the RDMA port.}
            link_layer: {type: str, description: V(Ethernet) or V(InfiniBand).}
            speed_gbps: {type: float, description: "Gb/s of the port, null while its link is down."}
            pcie:
              description: PCIe link, now and at best; GT/s of a lane, and lanes.
              type: dict
            gpus:
              description: PCI addresses of the GPUs behind the nearest switch it shares with one.
              type: list
              elements: str
            sriov_totalvfs:
              description: Virtual functions that it could have, null where firmware has SR-IOV off.
              type: int
            sriov_numvfs: {type: int, description: Virtual functions that it has.}
            vfs:
              description: Its virtual functions; C(in_use) is why one should not be removed.
              type: list
              elements: dict
            physfn: {type: str, description: PCI address of the physical function of a virtual one.}
            gids: {type: list, elements: dict, description: The used entries of its GID table.}
        gpus:
          description: NVIDIA GPUs in the order of their PCI addresses.
          type: list
          elements: dict
          sample:
            - {index: 3, pci: "0000:60:00.0", numa: 0, device_id: "3182", driver: nvidia, pcie: {}}
        modules: {type: list, elements: str, description: Kernel modules for RDMA that are loaded.}
        slots:
          description: Names of physical slots by the PCI address, without function, of what is in.
          type: dict
        model:
          description: >-
            The keys C(gpus) and C(rails) that the model of a cluster of such machines has. Empty
            where the NICs and GPUs do not pair.
          type: dict
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.hardware import Machine, SurveyError, survey
from ..module_utils.hardware.inventory import RAIL

MODULES = (
    *("ib_core", "ib_umad", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem"),
    *("rdma_cm", "rdma_rxe"),
)
"""Those that decide what a node can do with RDMA."""
KEYS = {"name": "device", "netdev": "interface", "port_state": "state", "link": "pcie"}
"""Fields whose facts have the words that people use."""


def as_facts(machine: Machine) -> dict[str, Any]:
    return {
        "nics": [
            {KEYS.get(key, key): value for key, value in asdict(port).items()}
            for port in machine.ports
        ],
        "gpus": [
            {
                "index": index,
                "pci": function.pci,
                "numa": function.numa,
                "device_id": function.device_id,
                "driver": function.driver,
                "pcie": asdict(function.link),
            }
            for index, function in enumerate(machine.gpus)
        ],
        "modules": [module for module in MODULES if module in machine.modules],
        "slots": dict(machine.slots),
        "model": model(machine),
    }


def model(machine: Machine) -> dict[str, Any]:
    """What `gpus` and `rails` of a cluster model would say, were all nodes like this machine.

    Rails are ordered as their GPUs are. Empty where no NIC sits beside a GPU of its own, or GPUs
    have different numbers of functions beside them: there is nothing to read a model off then.
    """
    gpus = machine.gpus
    functions = [
        [port for port in machine.of_kind(RAIL) if port.gpu_pci == gpu.pci] for gpu in gpus
    ]
    planes = {len(ports) for ports in functions}
    if len(planes) != 1 or planes == {0}:
        return {}
    count = planes.pop()
    speeds = {port.speed_gbps for ports in functions for port in ports}
    addresses = [[port.pci for port in ports] for ports in functions]
    return {
        "gpus": {
            "count": len(gpus),
            "numa": [gpu.numa for gpu in gpus],
            "pci": [gpu.pci for gpu in gpus],
        },
        "rails": {
            "count": len(gpus),
            "planes": count,
            "speed_gbps": speeds.pop() if len(speeds) == 1 else None,
            "pci": addresses if count > 1 else [each[0] for each in addresses],
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "default": "/sys"}},
        supports_check_mode=True,
    )
    try:
        machine = survey(Path(module.params["root"]))
    except SurveyError as error:
        module.fail_json(msg=f"rdma_facts: {error}")
    module.exit_json(changed=False, ansible_facts={"rdma_hardware": as_facts(machine)})


if __name__ == "__main__":
    main()
