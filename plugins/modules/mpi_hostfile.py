#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: mpi_hostfile
short_description: Writes the MPI hostfile of the whole cluster, and optionally the rank placement
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.mpi_hostfile]
description:
  - Writes the hostfile for V(mpirun) from the whole inventory, regardless of the hosts of a run;
    optionally also a rankfile, and a table of the GPU and rails of each rank.
  - Resolves every name of the hostfile on this host, and compares the addresses with the
    inventory's.
"""

EXAMPLES = r"""
- name: Look the whole cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
  register: cluster
  run_once: true

- name: Write the hostfile of the whole cluster
  baremetal.mpi_roce.mpi_hostfile:
    directory: "{{ cluster.directory }}"
    rankfile: true
    numa_cores: {0: 0-55, 1: 56-111}
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
hostfile: {type: str, returned: success, description: Path of the hostfile.}
hosts: {type: list, elements: str, returned: success, description: "Names in the file, in order."}
slots: {type: int, returned: success, description: Number of ranks.}
drained: {type: list, elements: str, returned: success, description: Nodes that were left out.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import clustershell, names
from ..module_utils.core import resolve
from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.files import HEADER, FilePlan
from ..module_utils.core.part import Node, Plan, PlanError, Verdict
from ..module_utils.mpi import hostfile

LAYER = Layer("hostfile", command_s=60.0, simulates=False)


class Hostfile:
    """Hostfile, rankfile and rankmap; every name must resolve to its address on this host."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.membership = hostfile.compile_membership(
            arguments["directory"], order=arguments["order"], names=arguments["names"]
        )

    def plan(self, node: Node) -> Plan:
        arguments, members = self.arguments, self.membership
        form = arguments["format"]
        text = hostfile.render(members, form, capped=arguments["max_slots"])
        ranks = places = None
        if arguments["rankfile"]:
            if form != "openmpi":
                raise PlanError(f"a rankfile requires the format openmpi, but the format is {form}")
            divided = arguments["rankfile_cores"] == "divided"
            bindings = hostfile.bind(members, arguments["numa_cores"], divided=divided)
            ranks = hostfile.render_rankfile(bindings)
        if arguments["rankmap"]:
            places = hostfile.render_rankmap(hostfile.place(members))
        files = [node.record(arguments["path"], text)]
        files += self._optional(node, arguments["rankfile_path"], ranks)
        return Plan(files + self._optional(node, arguments["rankmap_path"], places))

    def _optional(self, node: Node, path: str, text: str | None) -> list[FilePlan]:
        """Remove a file that is no longer configured, if it has the collection's header."""
        ours = (node.read(path) or "").startswith(f"# {HEADER}")
        return [node.record(path, text)] if text is not None or ours else []

    def verify(self, node: Node) -> Verdict:
        wanted = self.membership.addresses()
        source = resolve.source_check(node.root)
        if source.by_hand:  # a name server that does not respond may delay each lookup
            return Verdict([source])
        table = names.addresses(node.read(names.HOSTS) or "")
        found = resolve.find_addresses(list(wanted), table)
        return Verdict(resolve.name_checks(wanted, found, check_mode=node.check_mode))


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "directory": {"type": "list", "elements": "dict", "required": True},
    "path": {"type": "path", "default": "/etc/baremetal-mpi-roce/hostfile"},
    "format": {
        "type": "str",
        "choices": ["openmpi", "intelmpi", "mpich", "plain"],
        "default": "openmpi",
    },
    "order": {"type": "str", "choices": ["model", "rack", "rail_group"], "default": "model"},
    "names": {"type": "str", "default": "management"},
    "max_slots": {"type": "bool", "default": True},
    "rankfile": {"type": "bool", "default": False},
    "rankfile_path": {"type": "path", "default": "/etc/baremetal-mpi-roce/rankfile"},
    "numa_cores": {"type": "dict", "default": {}},
    "rankfile_cores": {"type": "str", "choices": ["divided", "all"], "default": "divided"},
    "rankmap": {"type": "bool", "default": False},
    "rankmap_path": {"type": "path", "default": "/etc/baremetal-mpi-roce/rankmap"},
    "clush": {"type": "bool"},
    "groups": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    arguments: dict[str, Any] = module.params

    def converge(node: Node) -> Settled:
        part = Hostfile(arguments)
        members = part.membership
        # Ansible would return the whole table of hosts as part of the arguments.
        shown = {**arguments, "directory": f"{len(arguments['directory'])} hosts", "groups": {}}
        found = clustershell.members(arguments["directory"], arguments["groups"])
        groups = clustershell.Groups(found, arguments["clush"])
        returned = {
            "hostfile": arguments["path"],
            "hosts": [member.host for member in members.members],
            "slots": members.slots,
            "drained": list(members.drained),
            "invocation": {"module_args": shown},
        }
        return Settled(settle([part, groups], node), returned=returned)

    carry_out(module, LAYER, converge)


if __name__ == "__main__":
    main()
