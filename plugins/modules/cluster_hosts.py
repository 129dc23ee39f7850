#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Set a host's name, and write the names of the whole cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_hosts
short_description: Sets a host's name, and writes the names of the whole cluster
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.cluster_hosts]
description:
  - Sets the host name in C(/etc/hostname) and in the running kernel.
  - Maintains one block in C(/etc/hosts) with the management address of every host and the address
    of every rail (C(node01-rail0)), and adds missing lines for C(localhost).
  - If the site's resolver has the names, the block contains only those of O(table) and O(own).
  - Refuses another line that gives one of these names another address. This host's name on a
    loopback address, as written by installers, is removed (RV(removed)).
  - Configures cloud-init, if it is installed, to leave both files unchanged at boot.
"""

EXAMPLES = r"""
- name: Set the host's name, and every name of the cluster in /etc/hosts
  baremetal.mpi_roce.cluster_hosts:
    name: "{{ inventory_hostname }}"
    table: "{{ cluster.names.table }}"
    own: "{{ cluster.names.own[inventory_hostname] }}"

- name: Only what a compute node needs without the site's resolver
  baremetal.mpi_roce.cluster_hosts:
    name: "{{ inventory_hostname }}"
    table: "{{ cluster.names.essential }}"
    own: "{{ cluster.names.own[inventory_hostname] }}"
    asked: "{{ cluster.names.own[cluster.names.next[inventory_hostname]] }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
names: {type: int, returned: success, description: Number of names in the managed block.}
removed: {type: list, elements: str, returned: success, description: Removed lines.}
ansible_facts:
  description: >-
    Ansible's facts C(distribution), C(distribution_version), C(distribution_major_version),
    C(os_family) and C(pkg_mgr), so that later layers of the run do not need C(setup).
  type: dict
  returned: on Debian, Ubuntu, RHEL, Rocky and AlmaLinux
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.sys_info import get_distribution, get_distribution_version

from ..module_utils.core.distribution import distribution_of
from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node, PlanError
from ..module_utils.names import Names

LAYER = Layer("names", command_s=60.0, simulates=False)


def distribution_facts() -> dict[str, str]:
    """Facts as `setup` reports them; empty for an unsupported distribution, for which `setup`
    runs.
    """
    try:
        distribution = distribution_of(get_distribution(), get_distribution_version())
    except PlanError:
        return {}
    facts = {**distribution.facts, "distribution_version": get_distribution_version()}
    return {f"ansible_{name}": value for name, value in facts.items()}


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "table": {"type": "str", "required": True},
    "own": {"type": "dict", "required": True},
    "asked": {"type": "dict", "default": {}},
    "zone": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    table = [tuple(line.split()) for line in module.params["table"].splitlines()]

    def converge(node: Node) -> Settled:
        given = (module.params[key] for key in ("own", "asked", "zone"))
        names = Names(module.params["name"], table, *given)
        outcome = settle([names], node)
        returned = {
            "names": sum(len(item) - 1 for item in names.table),
            "removed": names.removed,
            "ansible_facts": distribution_facts(),
            # Ansible would send the whole table back as part of the arguments.
            "invocation": {"module_args": {**module.params, "table": f"{len(table)} lines"}},
        }
        return Settled(outcome, returned=returned)

    carry_out(module, LAYER, converge)


if __name__ == "__main__":
    main()
