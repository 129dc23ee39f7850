#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver stack of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu
short_description: Installs NVIDIA's driver stack on a node and verifies every GPU
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.nvidia_gpu]
description:
  - Brings driver, fabric manager, CUDA, DCGM, GDRCopy and NCCL of one node to the software set,
    disables nouveau, loads the driver, starts the services, and reads everything back together
    with the state of every GPU.
  - Plans everything before it changes anything, and refuses a machine on which this driver must not
    be installed. Another run repairs an interrupted one.
  - Never changes the driver while a process uses the GPUs, unless O(change_under_jobs).
  - Never reboots. Changes that need a reboot are recorded, and returned in RV(reboot_reasons).
  - Only verifies a driver that is managed elsewhere (C(software.driver.manage) is V(false)).
  - Without a driver in the software set, without GPUs in the model, and in a container, the layer
    is C(not_applicable), with the reason.
"""

EXAMPLES = r"""
- name: Install the GPU stack of the software set
  baremetal.mpi_roce.nvidia_gpu:
    software: "{{ cluster_software }}"
    keys: "{{ lookup('baremetal.mpi_roce.repository_keys', 'gpu', software=cluster_software,
      directory=inventory_dir) }}"
    gpus: "{{ cluster_gpus }}"
    rails: "{{ cluster_rails }}"
    nvml_bindings: "{{ lookup('baremetal.mpi_roce.nvml_bindings') }}"
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
simulated: {type: list, elements: str, returned: always, description: Simulated inputs.}
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
from ..module_utils.core.part import Node
from ..module_utils.gpu import stack
from ..module_utils.gpu.shared import GpuKernel
from ..module_utils.packages.installer import Installer, manager_of
from ..module_utils.software.catalog import gpu_packages
from ..module_utils.software.software_set import SoftwareSet

LAYER = Layer(
    "gpu",
    command_s=1800.0,  # DKMS compiles the modules; the fabric manager trains every NVLink
    look_s=60.0,  # so that a hung driver is reported soon
    public=("nvml_bindings",),
)


def converge(options: Mapping[str, Any], node: Node) -> Settled:
    """Raise PlanError before anything is changed."""
    software = SoftwareSet.of(options["software"])
    excuse = stack.excuse(options, software, node)
    if excuse:
        return Settled(settle([stack.Excused(excuse)], node))
    if not stack.installs(options, software, node):
        return stack.converge(options, software, node, None)
    found = read_distribution()
    release = GpuKernel(Path(options["hardware_root"])).release
    keys = {name: base64.b64decode(text) for name, text in options["keys"].items()}
    packages = gpu_packages(software, found, release, keys)
    manager = manager_of(found, packages, LAYER.tag)
    installer = Installer(packages, manager, LAYER.tag, options["allow_downgrade"])
    return stack.converge(options, software, node, installer)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "software": {"type": "dict", "default": {}},
    "keys": {"type": "dict", "no_log": False, "default": {}},
    "allow_downgrade": {"type": "bool", "default": False},
    "rails": {"type": "list", "elements": "dict", "default": []},
    "gpus": {"type": "list", "elements": "dict", "default": []},
    "change_under_jobs": {"type": "bool", "default": False},
    "reload_driver": {"type": "bool", "default": False},
    "gpudirect": {
        "type": "str",
        "choices": ["auto", "dmabuf", "peermem", "none"],
        "default": "auto",
    },
    "fabric_wait_s": {"type": "int", "default": 300},
    "health": {
        "type": "dict",
        "default": {},
        "options": {
            "product": {"type": "str"},
            "vbios": {"type": "str"},
            "fabric": {"type": "bool"},
            "nvlinks": {"type": "int"},
            "mig": {"type": "bool"},
            "persistence": {"type": "bool"},
            "ecc": {"type": "bool"},
            "volatile_uncorrectable": {"type": "int"},
            "remapped_rows": {"type": "int"},
            "pcie_width": {"type": "int"},
            "pcie_gts": {"type": "float"},
            "xids": {"type": "list", "elements": "int"},
            "xids_ignored": {"type": "list", "elements": "int"},
        },
    },
    "hardware_root": {"type": "path", "default": "/"},
    "nvml_bindings": {"type": "str", "no_log": True, "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
