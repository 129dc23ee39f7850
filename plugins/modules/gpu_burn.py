#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_burn
short_description: Loads every GPU of a node, and compares the GPUs of all nodes
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.gpu_burn]
description:
  - Runs C(dcgmi diag), nvbandwidth, products of matrices of small integers, and NCCL within the
    node. The result of a product is exact, so every difference is corruption. Changes nothing.
  - cuBLAS of the software set multiplies, called from Python; PyTorch is not needed.
  - Refuses a node on which a process uses the GPUs.
attributes:
  check_mode:
    description: Reports processes that use the GPUs; measures nothing.
    support: full
"""

EXAMPLES = r"""
- name: Load the GPUs for ten minutes per precision
  baremetal.mpi_roce.gpu_burn: {step: burn, gpus: "{{ cluster_gpus }}", duration_s: 600}
  register: burned

- name: Compare the GPUs of all nodes
  baremetal.mpi_roce.gpu_burn: {step: compare, burned: burned, report_directory: reports}
  run_once: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
figures:
  description: >-
    C(gpus) has for each GPU C(index), C(pci), C(uuid), C(serial), C(product), C(precisions) with
    C(products), C(wrong_products), C(tflops) (10^12 operations per second) and C(sha256) of the
    last product, C(copies) in 10^9 bytes per second, and C(load) with median C(sm_mhz) and
    C(watts) and the highest C(celsius). C(nccl) has bus bandwidths in 10^9 bytes per second.
  type: dict
  returned: for V(burn)
by_host: {type: dict, returned: for V(compare), description: "Checks, by host."}
report: {type: str, returned: for V(compare), description: File on the controller.}
"""

import math
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import commands
from ..module_utils.core.checks import FAILED, OK, Check, end, not_applicable
from ..module_utils.core.machine import IN_CONTAINER, container
from ..module_utils.gpu import burn, products
from ..module_utils.gpu.shared import listed, users

LAYER = "burn"
REMEDY = "Run again for this node only: playbooks/burn.yml --limit HOST"


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {"type": "str", "choices": ["burn", "compare", "verdict"], "required": True},
    "gpus": {"type": "list", "elements": "dict"},
    "duration_s": {"type": "float", "default": 60},
    "order": {"type": "int", "default": 8192},
    "precisions": {
        "type": "list",
        "elements": "str",
        "choices": ["fp32", "bf16", "fp8"],
        "default": ["fp32", "bf16", "fp8"],
    },
    "diag_level": {"type": "int", "choices": [0, 1, 2, 3, 4], "default": 3},
    "nvbandwidth": {"type": "str", "default": "nvbandwidth"},
    "nccl_tests": {"type": "str", "default": "all_reduce_perf"},
    "libraries": {"type": "str", "default": ""},
    "cpu": {"type": "bool", "default": False},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "limit_s": {"type": "float", "default": 0},
    "run": {"type": "dict", "default": {}},
    "burned": {"type": "str", "default": ""},
    "compared": {"type": "str", "default": ""},
    "report_directory": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given, root = module.params, Path("/")
    if not 16 <= given["order"] <= products.MOST_ORDER:
        text = f"order is {given['order']}: give 16 to {products.MOST_ORDER}"
        module.fail_json(msg=f"{LAYER}: {text}", layer=LAYER, checks=[])
    options = burn.Options(
        seconds=given["duration_s"],
        order=given["order"],
        precisions=tuple(given["precisions"]),
        diag_level=given["diag_level"],
        nvbandwidth=given["nvbandwidth"],
        nccl_tests=given["nccl_tests"],
        python=given["python"],
        libraries=given["libraries"],
        limit_s=given["limit_s"] or math.inf,
    )
    if not given["gpus"] or not burn.present(root):
        engine = container(root)
        if given["gpus"] and not given["cpu"] and engine is None:
            reason = "no NVIDIA GPU on this node: /dev/nvidiactl is missing (--tags gpu)"
            checks = [Check("burn_products", "exact", "no GPU", FAILED, "", reason)]
            end(module, LAYER, checks, REMEDY, figures={})
        if not given["cpu"] or module.check_mode:
            reason = "the model has no GPUs on this node"
            if given["gpus"]:
                reason = f"{IN_CONTAINER} ({engine}) without GPUs"
            end(module, LAYER, [not_applicable("burn_products", "exact", reason)], "", figures={})
        checks, figures = burn.on_cpu(options)
        end(module, LAYER, checks, REMEDY, figures=figures)
    jobs = users(root)
    if jobs:
        busy = Check("burn_idle", "no process uses the GPUs", len(jobs), FAILED, "", listed(jobs))
        end(module, LAYER, [busy], "Nothing was started.", figures={})
    idle = Check("burn_idle", "no process uses the GPUs", 0, OK)
    if module.check_mode:
        end(module, LAYER, [idle], "", figures={})
    try:
        checks, figures = burn.measure(options, commands.run, root)
    except commands.CommandError as error:
        module.fail_json(msg=f"{LAYER}: {error}; run --tags gpu", layer=LAYER, checks=[])
    checks += burn.absent(len(given["gpus"]), len(figures["gpus"]))
    end(module, LAYER, [idle, *checks], REMEDY, figures=figures)


if __name__ == "__main__":
    main()
