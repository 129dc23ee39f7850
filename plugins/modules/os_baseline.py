#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The operating system of an MPI node, in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: os_baseline
short_description: Prepares the operating system of a node for MPI over RoCE
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Sets kernel parameters, resource limits, hugepages, the CPU governor, swap, time and the kernel
    command line of one node in one call, for now and for every boot to come, and reads it all back.
  - Never reboots. What only a reboot can bring into effect is recorded under
    C(/var/lib/baremetal-mpi-roce/reboot-required.d/os.json) and returned in RV(reboot_reasons).
  - In a container, what belongs to the host's kernel is C(not_applicable), with the reason.
options:
  sysctls: {type: dict, default: {}, description: "Kernel parameters, with values of C(/proc/sys)."}
  optional_sysctls:
    description: Those of O(sysctls) that the kernel may be without.
    type: list
    elements: str
    default: []
  limits:
    description:
      - Limits of every session, soft and hard, as in limits.conf (memory in KiB, or V(unlimited)).
      - Known are C(memlock), C(stack), C(core), C(nofile) and C(nproc).
    type: dict
    default: {}
  service_limits:
    description: Those of O(limits) that services started by systemd get as well.
    type: list
    elements: str
    default: []
  limits_user: {type: str, default: nobody, description: Account whose session proves them.}
  hugepages:
    description: Pools of hugepages. Without any, hugepages are left as they are.
    type: list
    elements: dict
    default: []
    suboptions:
      size:
        description: Size of a page. Pages of 1 GiB are asked for on the kernel command line too.
        type: str
        required: true
        choices: [2M, 1G]
      count: {type: int, required: true, description: Number of pages.}
      node: {type: int, description: NUMA node; by default all of them together.}
  transparent_hugepages:
    description: When programs get them; V(keep) leaves the distribution's choice.
    type: str
    choices: [keep, always, madvise, never]
    default: keep
  governor: {type: str, default: keep, description: "CPU frequency governor, or V(keep)."}
  swap:
    description: V(off) ends swapping now and at every boot; lines of C(/etc/fstab) are set aside.
    type: str
    choices: ["off", keep]
    default: keep
  irqbalance:
    description: Whether irqbalance runs; V(keep) leaves it as it is.
    type: str
    choices: ["on", "off", keep]
    default: keep
  time: {type: bool, default: true, description: Whether chrony has to synchronise the clock.}
  time_servers:
    description: NTP servers, instead of those of the distribution.
    type: list
    elements: str
    default: []
  time_max_offset: {type: float, default: 0.1, description: Seconds the clock may be off.}
  time_wait: {type: int, default: 30, description: Seconds to wait for a first synchronisation.}
  admitted_networks:
    description:
      - Networks from which firewalld or ufw, where one runs, admits everything. Those that this
        module admitted, and that are no longer listed, are taken back.
    type: list
    elements: str
    default: []
  kernel_arguments:
    description:
      - Arguments of the kernel command line, one per entry.
      - Only arguments that this module added are removed when they are no longer listed.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: A node for MPI over RoCE
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
container: {type: str, returned: success, description: "The container engine, or null."}
reboot_required: {type: bool, returned: success, description: Whether a reboot is needed.}
reboot_reasons: {type: list, elements: dict, returned: success, description: Its reasons.}
"""

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

# swapoff reads everything back into memory; update-grub probes every disk.
LAYER = Layer("os", command_s=600.0, simulates=False)


def parts(options: dict) -> list[Part]:
    """Return the resources in order. Raises PlanError."""
    wanted = limits.from_options(options["limits"])
    of_services = limits.chosen(wanted, options["service_limits"])
    pages, transparent = options["hugepages"], options["transparent_hugepages"]
    found: list[Part] = [
        Dpkg(),
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
        bound, wait_s = options["time_max_offset"], options["time_wait"]
        found.append(ChronyClock(options["time_servers"], bound, wait_s))
    found.append(Admitted(options["admitted_networks"]))
    return [*found, KernelArguments([*options["kernel_arguments"], *boot_arguments(pages)])]


def main() -> None:
    keep_or = {"type": "str", "default": "keep"}
    module = AnsibleModule(
        argument_spec={
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
                **keep_or,
                "choices": ["keep", "always", "madvise", "never"],
            },
            "governor": keep_or,
            "swap": {**keep_or, "choices": ["off", "keep"]},
            "irqbalance": {**keep_or, "choices": ["on", "off", "keep"]},
            "time": {"type": "bool", "default": True},
            "time_servers": {"type": "list", "elements": "str", "default": []},
            "time_max_offset": {"type": "float", "default": 0.1},
            "time_wait": {"type": "int", "default": 30},
            "admitted_networks": {"type": "list", "elements": "str", "default": []},
            "kernel_arguments": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    carry_out(module, LAYER, lambda node: Settled(settle(parts(module.params), node)))


if __name__ == "__main__":
    main()
