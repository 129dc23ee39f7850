#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that the MPI user gets from this host to others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_probe
short_description: Proves that the MPI user gets from this host to others over SSH
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Logs in to every target as the MPI user, without a terminal and without questions, as V(mpirun)
    does, several at a time, and names each pair that fails and why. Changes nothing.
options:
  targets:
    description: The hosts to reach.
    type: list
    elements: dict
    required: true
    suboptions:
      host: {type: str, required: true, description: Its name in the inventory.}
      target: {type: str, required: true, description: The name or address to reach it by.}
  here: {type: str, required: true, description: This host's name in the checks.}
  user: {type: str, default: mpi, description: The MPI user.}
  lost:
    description: Hosts that failed earlier in this run. They are tried; no answer is no failure.
    type: list
    elements: str
    default: []
  incomplete:
    description: Hosts outside this run where the role was never applied. As O(lost).
    type: list
    elements: str
    default: []
  timeout: {type: int, default: 10, description: Seconds to wait for a connection.}
  parallel: {type: int, default: 32, description: Logins at a time.}
attributes:
  check_mode:
    description: The same, but where the trust is not configured yet, the proof is pending.
    support: full
"""

EXAMPLES = r"""
- name: Prove that the launcher reaches two nodes
  baremetal.mpi_roce.ssh_probe:
    here: launcher
    targets:
      - {host: node01, target: node01}
      - {host: node02, target: node02-rail0}
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
attempts:
  description: Each login. C(why) is ssh's own line, empty when it worked.
  type: list
  elements: dict
  returned: success
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import PENDING, Check, as_dicts, end
from ..module_utils.ssh import account, probe

LAYER = "ssh"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "targets": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "host": {"type": "str", "required": True},
                    "target": {"type": "str", "required": True},
                },
            },
            "here": {"type": "str", "required": True},
            "user": {"type": "str", "default": "mpi"},
            "lost": {"type": "list", "elements": "str", "default": []},
            "incomplete": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 10},
            "parallel": {"type": "int", "default": 32},
        },
        supports_check_mode=True,
    )
    arguments = module.params
    here, targets = arguments["here"], arguments["targets"]
    user = account.find(arguments["user"])
    if user is None and module.check_mode:
        why = "SSH trust is not configured here yet"
        pairs = [f"{here} -> {each['target']}" for each in targets]
        pending = [Check("ssh_login", "reached", None, PENDING, pair, why) for pair in pairs]
        module.exit_json(changed=False, layer=LAYER, attempts=[], checks=as_dicts(pending))
    if user is None:
        module.fail_json(
            msg=f"ssh: user {arguments['user']} does not exist on {here}: run --tags ssh on it",
            layer=LAYER,
            checks=[],
        )
    attempts = probe.probe(
        targets, user, timeout_s=arguments["timeout"], parallel=arguments["parallel"]
    )
    checks = probe.checks(
        attempts,
        arguments["lost"],
        arguments["incomplete"],
        here=here,
        check_mode=module.check_mode,
    )
    remedy = f"{len(attempts)} logins were tried from {here}."
    end(module, LAYER, checks, remedy, attempts=[asdict(each) for each in attempts])


if __name__ == "__main__":
    main()
