#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver stack of a node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_gpu
short_description: Installs NVIDIA's driver stack on a node and verifies every GPU
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.driver_stack]
description:
  - Brings driver, fabric manager, CUDA, DCGM, GDRCopy and NCCL of one node to the cluster's set in
    one call, keeps nouveau away, loads what has to be loaded, starts the services, and reads all of
    it back, with the state of every GPU.
  - Everything is validated and planned before anything is changed. Run again, it repairs what an
    interrupted run left.
  - A machine on which this driver must not be installed is refused untouched, with what to do; for
    instance with Secure Boot on and no key enrolled, or with a driver from another source.
  - The driver is not changed while a process uses the GPUs, unless O(change_under_jobs).
  - Never reboots. What only a reboot can bring into effect is recorded under
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/gpu.json) and returned in RV(reboot_reasons).
  - A driver that others installed (C(manage) of C(software.driver) is V(false)) is verified only.
  - Without a driver in the set, without GPUs in the model and in a container the layer is
    C(not_applicable), with the reason.
options:
  change_under_jobs:
    description: Whether the driver is changed although processes use the GPUs. They may fail.
    type: bool
    default: false
  reload_driver:
    description:
      - Whether a changed driver replaces the running kernel module at once, where nothing uses it.
      - Otherwise it waits for the reboot that is recorded.
    type: bool
    default: false
  gpudirect:
    description:
      - How NICs reach GPU memory. V(auto) is dma-buf, and C(nvidia_peermem) where the kernel has
        none. V(none) does not look.
    type: str
    choices: [auto, dmabuf, peermem, none]
    default: auto
  fabric_wait:
    description:
      - Seconds that the fabric of NVSwitches has to come up, after the services started. In check
        mode as well, as for a node that has just booted.
    type: int
    default: 300
  health:
    description: Thresholds of the verification of every GPU. What is not given is as published.
    type: dict
    default: {}
    suboptions:
      product:
        description: Product name that every GPU has. Without it, any, as long as all are alike.
        type: str
      vbios:
        description: VBIOS version that every GPU has. Without it, any, as long as all are alike.
        type: str
      fabric: {type: bool, description: Whether the GPUs are connected by NVSwitches.}
      nvlinks: {type: int, description: Active NVLinks of each GPU.}
      mig:
        description: Whether GPUs may be split by MIG. Otherwise one that is split is a finding.
        type: bool
      persistence: {type: bool, description: Whether persistence is on.}
      ecc: {type: bool, description: Whether ECC is on.}
      volatile_uncorrectable:
        description: Most uncorrectable memory errors since the driver was loaded.
        type: int
      remapped_rows: {type: int, description: Most remapped rows of memory.}
      pcie_width: {type: int, description: Lanes of each GPU's PCIe link.}
      pcie_gts: {type: float, description: GT/s of a lane; V(0) for the most that both ends can.}
      xids:
        description:
          - Numbers of the Xids and SXids after which a GPU is not to be used, and no others.
          - Without it, NVIDIA's catalogue has what each asks for.
        type: list
        elements: int
      xids_ignored:
        description: Numbers of Xids and SXids that are no finding.
        type: list
        elements: int
  hardware_root:
    description:
      - Directory below which C(sys) and C(proc) are read. Another one than C(/) is a simulation,
        and is marked as one in the result.
    type: path
    default: /
  nvml_bindings:
    description:
      - C(pynvml.py) as the lookup P(baremetal.mpi_roce.nvml_bindings#lookup) packs it, installed as
        C(/usr/local/libexec/baremetal-mpi-roce/pynvml.py).
      - Without it, the file that is there stays. It is left out of results for its size.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: The GPU stack of the cluster's set
  baremetal.mpi_roce.nvidia_gpu:
    software: "{{ cluster_software }}"
    keys: "{{ lookup('baremetal.mpi_roce.repository_keys', 'gpu', software=cluster_software,
      directory=inventory_dir) }}"
    gpus: "{{ cluster_gpus }}"
    rails: "{{ cluster_rails }}"
    nvml_bindings: "{{ lookup('baremetal.mpi_roce.nvml_bindings') }}"
  become: true

- name: With thresholds of one's own
  baremetal.mpi_roce.nvidia_gpu:
    software: "{{ cluster_software }}"
    gpus: "{{ cluster_gpus }}"
    rails: "{{ cluster_rails }}"
    health:
      product: NVIDIA B300 SXM6 AC
      remapped_rows: 64
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
simulated: {type: list, elements: str, returned: always, description: "What was simulated."}
container: {type: str, returned: success, description: "The container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Its reasons.}
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
from ..module_utils.software.software_set import DRIVER_STACK, SoftwareSet

LAYER = Layer(
    "gpu",
    command_s=1800.0,  # DKMS compiles the modules; the fabric manager trains every NVLink
    look_s=60.0,  # a hung driver is reported soon
)
HEALTH = {
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
}


def converge(options: Mapping[str, Any], node: Node) -> Settled:
    """Raise PlanError before anything is changed."""
    software = SoftwareSet.of(options["software"])
    excuse = stack.excuse(options, software, node)
    if excuse:
        return Settled(settle([stack.Excused(excuse)], node))
    if not stack.installs(options, software, node):
        return stack.verify(options, software, node)
    found = read_distribution()
    release = GpuKernel(Path(options["hardware_root"])).release
    keys = {name: base64.b64decode(text) for name, text in options["keys"].items()}
    packages = gpu_packages(software, found, release, keys)
    manager = manager_of(found, packages, LAYER.tag)
    installer = Installer(packages, manager, LAYER.tag, options["allow_downgrade"])
    return stack.converge(options, software, node, installer)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **DRIVER_STACK,
            "change_under_jobs": {"type": "bool", "default": False},
            "reload_driver": {"type": "bool", "default": False},
            "gpudirect": {
                "type": "str",
                "choices": ["auto", "dmabuf", "peermem", "none"],
                "default": "auto",
            },
            "fabric_wait": {"type": "int", "default": 300},
            "health": {"type": "dict", "default": {}, "options": HEALTH},
            "hardware_root": {"type": "path", "default": "/"},
            # Not secret, but 70 kB, which every result would contain.
            "nvml_bindings": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    carry_out(module, LAYER, partial(converge, module.params))


if __name__ == "__main__":
    main()
