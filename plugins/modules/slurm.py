#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: slurm
short_description: Configures Slurm from the cluster model, and compares what slurmctld reports
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.slurm]
description:
  - Writes the files of Slurm that the cluster model determines, and includes them in
    C(slurm.conf), whose other lines are not changed. Restarts or reloads the daemon of this host
    when it is older than its files; jobs continue.
  - On slurmctld's host, drains the nodes that the model drains, and resumes those that were drained
    for that reason and no longer are. Nodes that others drained are not changed.
  - Reads back services, limits, programs and the clock of this host, and the nodes, generic
    resources, topology and settings of slurmctld.
  - With O(packages=distribution), installs the munge key that the action plugin passes. The key is
    in no output and no diff.
"""

EXAMPLES = r"""
- name: Look the cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
    directory: false
  register: cluster
  run_once: true

- name: Configure Slurm
  baremetal.mpi_roce.slurm:
    cluster: "{{ cluster.slurm }}"
    host: "{{ inventory_hostname }}"
    packages: existing
  become: true
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
version: {type: str, returned: success, description: Version of Slurm.}
out_of_service:
  description: What C(sinfo -R) lists, as C(nodes), C(since), C(by) and C(reason).
  type: list
  elements: dict
  returned: on slurmctld's host
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node
from ..module_utils.slurm.host import Host
from ..module_utils.slurm.state import SlurmError

LAYER = Layer("slurm", command_s=120.0, look_s=30.0, refusals=(SlurmError,), simulates=False)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "cluster": {"type": "str", "required": True},
    "host": {"type": "str", "required": True},
    "packages": {"type": "str", "choices": ["existing", "distribution"], "default": "existing"},
    "installed": {"type": "list", "elements": "str", "default": []},
    "config_directory": {"type": "path", "default": "/etc/slurm"},
    "restart": {"type": "bool", "default": True},
    "munge_key": {"type": "str", "no_log": True, "default": ""},
    "munge_digest": {"type": "str", "default": ""},
    "partition": {"type": "str", "default": "all"},
    "extra_settings": {"type": "dict", "default": {}},
    "node_check": {"type": "bool", "default": False},
    "health_check_interval_s": {"type": "int", "default": 300},
    "reboot_program": {"type": "path", "default": "/sbin/reboot"},
    "gpu_devices": {"type": "path", "default": "/dev/nvidia"},
    "config_overrides": {"type": "bool", "default": False},
    "cgroups": {"type": "bool", "default": True},
    "clock_max_offset_s": {"type": "float", "default": 60},
    "wait_s": {"type": "float", "default": 60},
    "reached": {"type": "list", "elements": "str", "default": []},
    "now": {"type": "float"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)

    def converge(node: Node) -> Settled:
        host = Host.of(module.params)
        outcome = settle(host.parts(node), node)
        return Settled(outcome, returned=host.returned())

    carry_out(module, LAYER, converge)


if __name__ == "__main__":
    main()
