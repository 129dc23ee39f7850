#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver stack of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu
short_description: Installs NVIDIA's driver stack on a node and verifies every GPU
extends_documentation_fragment: [baremetal.mpi_roce.module]
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
options: # generated from layers/gpu.yml by tools/generate_layers.py
  software:
    type: dict
    default: {}
    description: Software set of the cluster, from the variable C(cluster_software).
  keys:
    {type: dict, default: {}, description: 'Public keys of the repositories, by name, in base64.'}
  allow_downgrade:
    type: bool
    default: false
    description: Whether to replace a package that is newer than the software set's with the older
      version.
  rails:
    type: list
    elements: dict
    default: []
    description: Rails of this host, from the variable C(cluster_rails).
  gpus:
    type: list
    elements: dict
    default: []
    description: GPUs of this host, from the variable C(cluster_gpus).
  change_under_jobs:
    type: bool
    default: false
    description: Whether to change the driver while processes use the GPUs. Those processes may
      fail.
  reload_driver:
    type: bool
    default: false
    description: Whether to reload a changed driver immediately if nothing uses it, instead of
      waiting for the recorded reboot.
  gpudirect:
    type: str
    choices: [auto, dmabuf, peermem, none]
    default: auto
    description: How NICs access GPU memory. V(auto) requires dma-buf, or C(nvidia_peermem) if the
      kernel does not support dma-buf. V(none) disables the check.
  fabric_wait_s:
    type: int
    default: 300
    description: Seconds to wait for the NVLink fabric after the services have started, even in
      check mode.
  health:
    type: dict
    default: {}
    description: Thresholds for the state of every GPU. Unset values default to published ones
      (docs/gpu.md).
    suboptions:
      product:
        type: str
        description: Required product name. If unset, all GPUs of a node must have the same one.
      vbios:
        type: str
        description: Required VBIOS version. If unset, all GPUs of a node must have the same one.
      fabric: {type: bool, description: Whether NVSwitches connect the GPUs.}
      nvlinks: {type: int, description: Number of active NVLinks of each GPU.}
      mig: {type: bool, description: Whether GPUs may be in MIG mode.}
      persistence: {type: bool, description: Whether persistence mode is enabled.}
      ecc: {type: bool, description: Whether ECC is enabled.}
      volatile_uncorrectable:
        type: int
        description: Maximum number of uncorrectable memory errors since the driver was loaded.
      remapped_rows: {type: int, description: Maximum number of remapped memory rows.}
      pcie_width: {type: int, description: Number of lanes of each GPU's PCIe link.}
      pcie_gts:
        type: float
        description: Speed of the PCIe link in GT/s; V(0) for the highest that both ends support.
      xids:
        type: list
        elements: int
        description: Xids and SXids after which a GPU must not be used, in place of those from
          NVIDIA's catalogue.
      xids_ignored: {type: list, elements: int, description: Xids and SXids to ignore.}
  hardware_root:
    type: path
    default: /
    description: Directory under which C(sys) and C(proc) are read. Anything other than C(/) is a
      simulation and is reported as one.
  nvml_bindings:
    type: str
    default: ''
    description: C(pynvml.py), packed by the lookup P(baremetal.mpi_roce.nvml_bindings#lookup), to
      install as C(/usr/local/libexec/baremetal-mpi-roce/pynvml.py). If empty, an installed file
      remains. The value is left out of results because of its size.
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
