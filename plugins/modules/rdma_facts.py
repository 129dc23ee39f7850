#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Return the NICs, RDMA devices and GPUs of a machine, and the GPU of each NIC."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_facts
short_description: Returns the NICs, RDMA devices and GPUs of a machine
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.rdma_facts]
description:
  - Reads NICs, RDMA devices and GPUs, their PCI addresses, NUMA nodes, links, firmware, virtual
    functions and GIDs from sysfs. It changes nothing, and starts no program unless O(host) is
    set.
  - Distinguishes rails from bridges to the NVSwitches (by vital product data, which only root may
    read), Data Direct functions and BlueField DPUs (by device ID) and storage NICs (no GPU behind
    the same switch), never by name.
"""

EXAMPLES = r"""
- name: Read the NICs and GPUs of this machine
  become: true
  baremetal.mpi_roce.rdma_facts:

- name: Show the keys of a cluster model of such machines
  ansible.builtin.debug:
    var: ansible_facts.rdma_hardware.model
"""

RETURN = r"""
ansible_facts:
  description: Facts that are added to this host.
  type: dict
  returned: success
  contains:
    rdma_hardware:
      description: RDMA hardware of this machine.
      type: dict
      contains:
        nics:
          description: >-
            Every RDMA port and every network function, ordered by PCI address. C(kind) is V(rail),
            an Ethernet function next to a GPU; V(nvswitch_bridge); V(data_direct); V(bluefield);
            V(virtual), a virtual function, sub-function or representor; V(software), such as
            Soft-RoCE; or V(other), such as storage and management. The others are C(device),
            C(port), C(interface), C(up), C(pci), C(numa), C(vendor), C(device_id), C(driver),
            C(firmware), C(board_id), C(state), C(link_layer), C(speed_gbps), C(pcie) (its link, now
            and at best), C(gpus) (behind the nearest switch that it shares with one), C(gids),
            C(physfn), C(sriov_totalvfs) and C(sriov_numvfs).
            Missing values are null or empty.
          type: list
          elements: dict
        gpus:
          description: NVIDIA GPUs in the order of their PCI addresses.
          type: list
          elements: dict
          sample:
            - {index: 3, pci: "0000:60:00.0", numa: 0, device_id: "3182", driver: nvidia, pcie: {}}
        modules: {type: list, elements: str, description: Kernel modules for RDMA that are loaded.}
        slots: {type: dict, description: Names of physical slots by PCI address without function.}
        model:
          description: >-
            Keys C(gpus) and C(rails) of a cluster model for such machines. Empty if NICs and GPUs
            do not pair.
          type: dict
    rdma_host:
      description: >-
        Operating system: C(name), C(distribution), C(kernel), C(packages) (versions of RDMA
        packages), C(gpu_driver) (version of the loaded NVIDIA module), C(cpu), C(interfaces),
        C(default_interface), C(login) (the address where the SSH connection arrives), C(network)
        (files of network services) and C(neighbours) (by interface; null without lldpd).
      type: dict
      returned: when O(host) is set
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.commands import CommandError, run
from ..module_utils.hardware import Machine, SurveyError, survey
from ..module_utils.hardware.host import read_host
from ..module_utils.hardware.inventory import RAIL

MODULES = (
    *("ib_core", "ib_umad", "ib_uverbs", "mlx5_core", "mlx5_ib"),
    *("nvidia", "nvidia_peermem", "rdma_cm", "rdma_rxe"),
)
"""Modules that determine the RDMA features of a node."""
KEYS = {"name": "device", "netdev": "interface", "port_state": "state", "link": "pcie"}
"""Fields of which the facts have the same names."""


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
    """Return the keys `gpus` and `rails` of a model for a cluster of such machines.

    Rails are in the order of their GPUs. The result is empty if NICs and GPUs cannot be paired, or
    if GPUs have different numbers of NICs.
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


ARGUMENTS = {
    "root": {"type": "path", "default": "/sys"},
    "host": {"type": "bool", "default": False},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        supports_check_mode=True,
    )
    try:
        facts = {"rdma_hardware": as_facts(survey(Path(module.params["root"])))}
        if module.params["host"]:
            facts["rdma_host"] = read_host(run)
    except (SurveyError, CommandError) as error:
        module.fail_json(msg=f"rdma_facts: {error}")
    module.exit_json(changed=False, ansible_facts=facts)


if __name__ == "__main__":
    main()
