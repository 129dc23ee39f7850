#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that the MPI user can log in from this host to others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_probe
short_description: Proves that the MPI user gets from this host to others over SSH
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Logs in to every target as the MPI user, without a terminal and without questions, as V(mpirun)
    does, several at a time, and names each pair that fails and why, or where another host answers.
    Changes nothing. Shells of such logins that a login file keeps here after their connection are
    ended.
  - Logs in to this host itself, looks at what the session has (limits, variables, parameters,
    programs, room), and names the file that gives what is not the collection's.
  - Reads from C(ssh -G), as the MPI user, whether ssh checks host keys by the cluster's authority,
    goes to the right address and port, and offers the cluster's certificate.
  - Names the host that differs. A host that refuses is not the one that was refused.
options:
  targets:
    description: The hosts to reach.
    type: list
    elements: dict
    required: true
    suboptions:
      host: {type: str, required: true, description: Its name in the inventory.}
      target: {type: str, required: true, description: The name or address to reach it by.}
      rail:
        description: Interface by which to reach it with packets as large as its MTU, and no login.
        type: str
      port: {type: int, default: 22, description: Port of its sshd.}
      witness:
        description: A third node's name on that rail, which tells at which end packets are lost.
        type: str
        default: ""
  addresses:
    description:
      - This host's own addresses by network, C(management) or a rail's interface. The hosts that it
        logs in to connect to them, to any free port, as the launcher daemons of MPI do.
    type: dict
    default: {}
  here: {type: str, required: true, description: This host's name in the checks.}
  user: {type: str, default: mpi, description: The MPI user.}
  lost:
    description: Hosts that failed earlier in this run. They are tried; no answer is accepted.
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
      - {host: node02, target: node02-rail3, rail: rail3}
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
attempts: {type: list, elements: dict, returned: success, description: "Logins, and C(why) not."}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import as_dicts, end
from ..module_utils.ssh import account
from ..module_utils.ssh.probe import Verdicts, probe

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
                    "rail": {"type": "str"},
                    "port": {"type": "int", "default": 22},
                    "witness": {"type": "str", "default": ""},
                },
            },
            "addresses": {"type": "dict", "default": {}},
            "here": {"type": "str", "required": True},
            "user": {"type": "str", "default": "mpi"},
            "lost": {"type": "list", "elements": "str", "default": []},
            "incomplete": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 10},
            "parallel": {"type": "int", "default": 32},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    here, user = given["here"], account.find(given["user"])
    if user is None and module.check_mode:
        reason = "SSH trust is not configured here yet"
        untried = [{**target, "why": reason} for target in given["targets"]]
        pending = Verdicts(here, check_mode=True).checks(untried)
        module.exit_json(changed=False, layer=LAYER, attempts=[], checks=as_dicts(pending))
    if user is None:
        module.fail_json(
            msg=f"ssh: user {given['user']} does not exist on {here}: run --tags ssh on it",
            layer=LAYER,
            checks=[],
        )
        return
    attempts, checks = probe(
        here,
        user,
        given["targets"],
        addresses=given["addresses"],
        lost=given["lost"],
        incomplete=given["incomplete"],
        timeout_s=given["timeout"],
        parallel=given["parallel"],
        check_mode=module.check_mode,
    )
    tried = f"{len(attempts)} paths to other hosts were tried from {here}."
    end(module, LAYER, checks, tried, attempts=attempts)


if __name__ == "__main__":
    main()
