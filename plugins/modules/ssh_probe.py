#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that the MPI user can log in from this host to others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_probe
short_description: Verifies that the MPI user reaches other hosts from this host over SSH
extends_documentation_fragment:
  [baremetal.mpi_roce.module.reads, baremetal.mpi_roce.options.ssh_probe]
description:
  - Logs in to every target as the MPI user, without a terminal or prompts, as V(mpirun) does,
    several at a time. Reports each pair that fails and the cause, or that another host responded.
    Changes nothing.
  - Logs in to this host itself, inspects the session (limits, variables, parameters, programs,
    free space), and names the file that sets a foreign value.
  - Reads from C(ssh -G), as the MPI user, whether ssh checks host keys by the cluster's
    authority, connects to the right address and port, and offers the cluster's certificate.
  - Names the host that is at fault, which for a refused login is the host that refuses.
attributes:
  check_mode:
    description: The same, but checks are pending if the trust is not configured yet.
    support: full
"""

EXAMPLES = r"""
- name: Verify that the launcher reaches two nodes
  baremetal.mpi_roce.ssh_probe:
    here: launcher
    targets:
      - {host: node01, target: node01}
      - {host: node02, target: node02-rail0}
      - {host: node02, target: node02-rail3, rail: rail3}
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
attempts: {type: list, elements: dict, returned: success, description: Logins and causes.}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import Strictness, as_dicts, end
from ..module_utils.ssh import account
from ..module_utils.ssh.probe import Verdicts, probe

LAYER = "ssh"


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "targets": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "host": {"type": "str", "required": True},
            "target": {"type": "str", "required": True},
            "rail": {"type": "str"},
            "port": {"type": "int", "default": 22},
            "witness": {"type": "str"},
        },
    },
    "addresses": {"type": "dict", "default": {}},
    "here": {"type": "str", "required": True},
    "user": {"type": "str", "default": "mpi"},
    "lost": {"type": "list", "elements": "str", "default": []},
    "incomplete": {"type": "list", "elements": "str", "default": []},
    "timeout_s": {"type": "int", "default": 10},
    "parallel": {"type": "int", "default": 32},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    given: dict[str, Any] = module.params
    here, user = given["here"], account.find(given["user"])
    if user is None and module.check_mode:
        reason = "SSH trust is not configured here yet"
        untried = [{**target, "why": reason} for target in given["targets"]]
        pending = Verdicts(here, check_mode=True).checks(untried)
        pending = Strictness.of(os.environ).of_checks(pending)
        module.exit_json(changed=False, layer=LAYER, attempts=[], checks=as_dicts(pending))
    if user is None:
        module.fail_json(
            msg=f"ssh: user {given['user']} does not exist on {here}: run --tags ssh on it",
            layer=LAYER,
            checks=[],
        )
        return
    attempts, checks = probe(given, user, module.check_mode)
    tried = f"{len(attempts)} paths to other hosts were tried from {here}."
    end(module, LAYER, checks, tried, attempts=attempts)


if __name__ == "__main__":
    main()
