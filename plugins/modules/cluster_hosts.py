#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Set a host's name, and write the names of the whole cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_hosts
short_description: Sets a host's name, and writes the names of the whole cluster
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Sets the host's name, in C(/etc/hostname) and in the running kernel. No systemd is needed.
  - Writes one managed block in C(/etc/hosts) with the management address of every host and the
    address of every rail (C(node01-rail0)). Other lines are the operator's and stay.
  - A line outside of the block that gives one of these names another address is refused. This
    host's own name on a loopback address, as installers write it, is removed (RV(removed)).
  - Adds lines for C(localhost) where there are none; Open MPI asks DNS for it otherwise.
  - Configures cloud-init, where it is installed, not to change both files at the next boot.
options:
  name: {type: str, required: true, description: "Name of this host, as the inventory has it."}
  table: {type: str, required: true, description: "Lines of a hosts file, for the whole cluster."}
  own: {type: dict, required: true, description: "This host's names, with their addresses."}
"""

EXAMPLES = r"""
- name: Set the host's name, and every name of the cluster in /etc/hosts
  baremetal.mpi_roce.cluster_hosts:
    name: "{{ inventory_hostname }}"
    table: "{{ cluster.names.table }}"
    own: "{{ cluster.names.own[inventory_hostname] }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
names: {type: int, returned: success, description: Number of names in the managed block.}
removed: {type: list, elements: str, returned: success, description: Lines that were removed.}
ansible_facts:
  description: >-
    Of Ansible's own facts C(distribution), C(distribution_version), C(distribution_major_version),
    C(os_family) and C(pkg_mgr), so that later layers of the run need no C(setup) for them.
  type: dict
  returned: on Debian, Ubuntu, RHEL, Rocky and AlmaLinux
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.sys_info import get_distribution, get_distribution_version

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.names import Names

LAYER = Layer("names", command_s=60.0, simulates=False)
DISTRIBUTIONS = {
    "Debian": ("Debian", "Debian", "apt"),
    "Ubuntu": ("Ubuntu", "Debian", "apt"),
    "Redhat": ("RedHat", "RedHat", "dnf"),
    "Rocky": ("Rocky", "RedHat", "dnf"),
    "Almalinux": ("AlmaLinux", "RedHat", "dnf"),
}
"""Those that os_baseline supports, by their name in the library of modules: the facts distribution,
os_family and pkg_mgr."""


def distribution_facts() -> dict[str, str]:
    """Facts as `setup` has them; empty for another distribution, which `setup` then reads."""
    found = DISTRIBUTIONS.get(get_distribution())
    if found is None:
        return {}
    version = get_distribution_version()
    return {
        "ansible_distribution": found[0],
        "ansible_distribution_version": version,
        "ansible_distribution_major_version": version.split(".")[0],
        "ansible_os_family": found[1],
        "ansible_pkg_mgr": found[2],
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "table": {"type": "str", "required": True},
            "own": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    table = [tuple(line.split()) for line in module.params["table"].splitlines()]

    def converge(node: Node) -> Settled:
        names = Names(module.params["name"], table, module.params["own"])
        outcome = settle([names], node)
        returned = {
            "names": sum(len(item) - 1 for item in table),
            "removed": names.removed,
            "ansible_facts": distribution_facts(),
            # Ansible would send the whole table back as part of the arguments.
            "invocation": {"module_args": {**module.params, "table": f"{len(table)} lines"}},
        }
        return Settled(outcome, returned=returned)

    carry_out(module, LAYER, converge)


if __name__ == "__main__":
    main()
