#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signed snapshots of a node's own variables."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pull_snapshot
short_description: Publishes, installs and reads signed snapshots of a node's own variables
extends_documentation_fragment:
  [baremetal.mpi_roce.module, baremetal.mpi_roce.options.pull_snapshot]
attributes:
  diff_mode:
    description: Shows the files of the step V(install). Snapshots and certificates are not shown.
    support: partial
description:
  - The steps V(publish), V(read) and V(renew) run in the action plugin, on the machine that runs
    Ansible. V(install) runs on each node.
"""

EXAMPLES = r"""
- name: Verify the snapshot of this node
  baremetal.mpi_roce.pull_snapshot:
    step: read
  register: pull
"""

RETURN = r"""
published:
  description: Nodes with a new snapshot.
  type: list
  elements: str
  returned: for V(publish)
removed:
  description: Nodes whose snapshot was removed.
  type: list
  elements: str
  returned: for V(publish)
allowed_signers: {type: str, returned: for V(publish), description: Line of the signing key.}
node: {type: str, returned: for V(read), description: Name of this node.}
serial: {type: int, returned: for V(read), description: Serial of the snapshot.}
expires: {type: int, returned: for V(read), description: "When it expires, in seconds since 1970."}
certificates: {type: dict, returned: for V(read), description: Published SSH certificates.}
renewed: {type: list, elements: str, returned: for V(renew), description: Installed kinds.}
checks: {type: list, elements: dict, returned: for V(install), description: See docs/checks.md.}
"""

import json
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, Settled, carry_out, settle
from ..module_utils.core.part import Node, Plan, Verdict

OWN = "/etc/baremetal-mpi-roce/pull"
ALLOWED = "/etc/baremetal-mpi-roce/pull/allowed_signers"
SETTINGS = "/etc/baremetal-mpi-roce/pull/settings.json"
LAYER = Layer("pull", command_s=60.0, simulates=False)


@dataclass(frozen=True)
class Installed:
    """Which snapshot the node reads, where, and who may sign it."""

    settings: str
    allowed_signers: str

    def plan(self, node: Node) -> Plan:
        texts = {SETTINGS: self.settings, ALLOWED: self.allowed_signers}
        return Plan([node.record(name, text) for name, text in texts.items()])

    def verify(self, node: Node) -> Verdict:
        return Verdict([])


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "step": {"type": "str", "choices": ["publish", "install", "read", "renew"], "required": True},
    "cluster": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "key": {"type": "path", "no_log": False, "default": ""},
    "validity_days": {"type": "float", "default": 7},
    "from": {"type": "str", "default": ""},
    "ca": {"type": "str", "default": ""},
    "state_directory": {"type": "path"},
    "trust": {"type": "dict", "default": {}},
    "user": {"type": "str", "default": ""},
    "certificate_days": {"type": "float", "default": 90},
    "renew_days": {"type": "float", "default": 45},
    "allowed_signers": {"type": "str", "default": ""},
    "certificates": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given = module.params
    settings = {
        "node": given["hosts"][0],
        "cluster": given["cluster"],
        "place": given["from"],
        "ca": given["ca"],
    }
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    part = Installed(text, given["allowed_signers"])
    carry_out(module, LAYER, lambda node: Settled(settle([part], node)))


if __name__ == "__main__":
    main()
