#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_stack
short_description: Installs and verifies the RDMA drivers and tools of a node
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.rdma_stack]
description:
  - Brings the RDMA drivers and tools of one node to the software set in one call (DOCA-OFED, or
    those of the distribution), loads the kernel modules that no device loads, configures the
    IOMMU and PCIe ACS, and reads everything back together with the RDMA device and the firmware
    of every rail.
  - Validates and plans everything before it changes anything. Another run repairs an interrupted
    one.
  - Refuses to change drivers while RDMA is in use, unless O(change_in_use).
  - Never reboots. Changes that need a reboot are recorded in
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/rdma.json) and returned in RV(reboot_reasons).
  - In a container, settings of the host's kernel are C(not_applicable), with the reason.
"""

EXAMPLES = r"""
- name: Install the RDMA stack of the software set
  baremetal.mpi_roce.rdma_stack:
    software: "{{ cluster_software }}"
    keys: "{{ lookup('baremetal.mpi_roce.repository_keys', 'rdma', software=cluster_software,
      directory=inventory_dir) }}"
    rails: "{{ cluster_rails }}"
    gpus: "{{ cluster_gpus }}"
    firmware_minimum: 40.47.1026
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
simulated: {type: list, elements: str, returned: always, description: Simulated inputs.}
source:
  description: Configured source of the RDMA stack, C(doca), C(inbox) or C(none).
  type: str
  returned: success
container: {type: str, returned: success, description: "Container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Why.}
"""

import base64
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.distribution import read_distribution
from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node, Part
from ..module_utils.hardware import SurveyError
from ..module_utils.os_baseline.kernel_cmdline import KernelArguments
from ..module_utils.packages.installer import manager_of
from ..module_utils.packages.package import Manager, PackageSet
from ..module_utils.rdma import THIS, Hardware, pcie
from ..module_utils.rdma.devices import Devices, Tools
from ..module_utils.rdma.drivers import BootModules, Drivers, KernelRelease, SecureBoot
from ..module_utils.rdma.packages import RdmaPackages
from ..module_utils.software.catalog import rdma_packages
from ..module_utils.software.software_set import NO_RDMA, SoftwareSet

LAYER = Layer(
    "rdma",
    command_s=600.0,  # update-grub probes every disk; openibd waits for every device
    refusals=(SurveyError,),
)


def converge(given: Mapping[str, Any], node: Node) -> Settled:
    root = Path(given["hardware_root"])
    hardware = Hardware(root, simulated=root != THIS)
    if hardware.simulated:
        hardware.notes.append(f"hardware is read below {root}: it is not this machine's")
    software = SoftwareSet.of(given["software"])
    found = read_distribution()
    release = software.kernel or hardware.release(node)
    keys = {name: base64.b64decode(text) for name, text in given["keys"].items()}
    wanted = rdma_packages(software, found, keys, release, own_kernel=node.container is None)
    manager = manager_of(found, wanted, LAYER.tag)
    outcome = settle(stack(given, node, software, wanted, manager, hardware), node)
    return Settled(outcome, hardware.notes, returned={"source": software.rdma.source})


def stack(
    given: Mapping[str, Any],
    node: Node,
    software: SoftwareSet,
    wanted: PackageSet,
    manager: Manager,
    hardware: Hardware,
) -> list[Part]:
    """Return the resources in order. Without RDMA, the collection's files are removed."""
    source = software.rdma.source
    nothing = source == NO_RDMA
    downgrade, in_use = given["allow_downgrade"], given["change_in_use"]
    modules = [*given["modules"], *(["rpcrdma"] if software.rdma.nfs else [])]
    parts: list[Part] = [
        SecureBoot(hardware, source),
        RdmaPackages(hardware, software.rdma, wanted, manager, downgrade, in_use),
        BootModules(hardware, [] if nothing else modules),
        KernelArguments([] if nothing else pcie.arguments(given["iommu"], node.root)),
        pcie.Acs(hardware, pcie.KEEP if nothing else given["acs"]),
    ]
    if nothing:
        return parts
    return [
        *parts[:2],
        KernelRelease(hardware, software.kernel),
        Drivers(hardware, source, given["restart_driver"], software.rdma.version),
        *parts[2:],
        pcie.IommuGroups(hardware, given["iommu"], given["rails"], given["gpus"]),
        Devices(hardware, given["rails"], given["firmware_minimum"], software.accepted),
        Tools(hardware, source),
    ]


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "software": {"type": "dict", "default": {}},
    "keys": {"type": "dict", "no_log": False, "default": {}},
    "allow_downgrade": {"type": "bool", "default": False},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "change_in_use": {"type": "bool", "default": False},
    "restart_driver": {"type": "bool", "default": False},
    "modules": {"type": "list", "elements": "str", "default": ["mlx5_ib", "ib_umad", "rdma_ucm"]},
    "iommu": {"type": "str", "choices": ["pt", "on", "off", ""], "default": "pt"},
    "acs": {"type": "str", "choices": ["disable", "verify", "keep"], "default": "disable"},
    "firmware_minimum": {"type": "str", "default": ""},
    "hardware_root": {"type": "path", "default": "/"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
