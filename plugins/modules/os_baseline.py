#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The operating system of an MPI node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: os_baseline
short_description: Prepares the operating system of a node for MPI over RoCE
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.os_baseline]
description:
  - Sets kernel parameters, resource limits, hugepages, CPU governor, swap, time and kernel
    command line of one node in one call, now and for every later boot, and reads them back.
  - Never reboots. Changes that need a reboot are recorded in
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/os.json) and returned in RV(reboot_reasons).
  - In a container, settings of the host's kernel are C(not_applicable), with the reason.
"""

EXAMPLES = r"""
- name: Prepare a node for MPI over RoCE
  baremetal.mpi_roce.os_baseline:
    sysctls:
      kernel.numa_balancing: 0
      net.ipv4.tcp_mtu_probing: 1
    limits:
      memlock: unlimited
      nofile: 1048576
    service_limits: [memlock]
    governor: performance
    swap: 'off'
    hugepages:
      - {size: 2M, count: 4096, node: 0}
    kernel_arguments: [iommu=pt]
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
container: {type: str, returned: success, description: "Container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Why.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Part
from ..module_utils.os_baseline import limits
from ..module_utils.os_baseline.firewall import Admitted
from ..module_utils.os_baseline.kernel_cmdline import KernelArguments
from ..module_utils.os_baseline.kernel_values import (
    KEEP,
    Sysctls,
    SysfsValues,
    boot_arguments,
)
from ..module_utils.os_baseline.services import ChronyClock, Dpkg, Irqbalance, SwapOff
from ..module_utils.packages.installed import Installed

# swapoff reads all swapped pages back into memory; update-grub probes every disk.
LAYER = Layer("os", command_s=600.0, simulates=False)


def parts(options: dict[str, Any]) -> list[Part]:
    """Return the resources in order. Raises PlanError."""
    wanted = limits.from_options(options["limits"])
    of_services = limits.chosen(wanted, options["service_limits"])
    pages, transparent = options["hugepages"], options["transparent_hugepages"]
    found: list[Part] = [
        Dpkg(),
        Installed(options["packages"]),
        Sysctls(options["sysctls"], options["optional_sysctls"]),
        limits.SessionLimits(wanted, options["limits_user"]),
        limits.ServiceLimits(of_services),
        SysfsValues(pages, transparent, options["governor"]),
    ]
    if options["swap"] != KEEP:
        found.append(SwapOff())
    if options["irqbalance"] != KEEP:
        found.append(Irqbalance(options["irqbalance"] == "on"))
    if options["time"]:
        bound, wait_s = options["time_max_offset_s"], options["time_wait_s"]
        found.append(ChronyClock(options["time_servers"], bound, wait_s, options["rivals"]))
    found.append(Admitted(options["admitted_networks"]))
    return [*found, KernelArguments([*options["kernel_arguments"], *boot_arguments(pages)])]


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "rivals": {"type": "list", "elements": "str", "default": []},
    "sysctls": {"type": "dict", "default": {}},
    "optional_sysctls": {"type": "list", "elements": "str", "default": []},
    "limits": {"type": "dict", "default": {}},
    "service_limits": {"type": "list", "elements": "str", "default": []},
    "limits_user": {"type": "str", "default": "nobody"},
    "hugepages": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "size": {"type": "str", "choices": ["2M", "1G"], "required": True},
            "count": {"type": "int", "required": True},
            "node": {"type": "int"},
        },
    },
    "transparent_hugepages": {
        "type": "str",
        "choices": ["keep", "always", "madvise", "never"],
        "default": "keep",
    },
    "governor": {"type": "str", "default": "keep"},
    "swap": {"type": "str", "choices": ["off", "keep"], "default": "keep"},
    "irqbalance": {"type": "str", "choices": ["on", "off", "keep"], "default": "keep"},
    "time": {"type": "bool", "default": True},
    "time_servers": {"type": "list", "elements": "str", "default": []},
    "time_max_offset_s": {"type": "float", "default": 0.1},
    "time_wait_s": {"type": "int", "default": 30},
    "admitted_networks": {"type": "list", "elements": "str", "default": []},
    "kernel_arguments": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    carry_out(module, LAYER, lambda node: Settled(settle(parts(module.params), node)))


if __name__ == "__main__":
    main()
