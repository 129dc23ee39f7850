#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that the MPI user gets from this host to others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_probe
short_description: Proves that the MPI user gets from this host to others over SSH
version_added: "0.1.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Logs in to every target as the MPI user, without a terminal and without asking, as V(mpirun)
    does, several at a time, and names each pair that fails and why.
  - Changes nothing.
options:
  targets:
    description: Whom to reach.
    type: list
    elements: dict
    required: true
    suboptions:
      host: {type: str, required: true, description: "The host, by its name in the inventory."}
      target: {type: str, required: true, description: The name or address to reach it by.}
  here:
    description: What this host is called in the checks. By default its own host name.
    type: str
    default: ""
  user: {type: str, default: mpi, description: The MPI user.}
  lost:
    description:
      - Hosts that dropped out of this run already. They are tried and named, and one that does not
        answer is not held against this host.
    type: list
    elements: str
    default: []
  unlaid:
    description:
      - Hosts that are not in this run and never were in one. They are tried and named, and one that
        does not answer is no failure, because the trust is not laid there yet.
    type: list
    elements: str
    default: []
  timeout: {type: int, default: 10, description: Seconds to wait for a connection.}
  parallel: {type: int, default: 32, description: So many logins at a time.}
attributes:
  check_mode:
    description: The same, but where the trust is yet to be laid, the proof is pending.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Prove that the launcher reaches two nodes
  baremetal.mpi_roce.ssh_probe:
    targets:
      - {host: node01, target: node01}
      - {host: node02, target: node02-rail0}
"""

RETURN = r"""
layer: {type: str, returned: always, sample: ssh, description: The layer that speaks.}
attempts:
  description: How each login went. RV(attempts[].why) is empty when it went well.
  type: list
  elements: dict
  returned: success
  contains:
    host: {type: str, sample: node02, description: The host.}
    target: {type: str, sample: node02-rail0, description: The name or address it was reached by.}
    why: {type: str, sample: permission denied, description: Why it failed.}
    told:
      description: The line of ssh's output that says so.
      type: str
      sample: "mpi@node02: Permission denied (publickey)."
    seconds: {type: float, sample: 0.21, description: "Time taken, in seconds."}
checks:
  description: What was proved, one entry for each pair.
  type: list
  elements: dict
  returned: always
  sample:
    - name: ssh_login
      subject: node01 -> node02
      wanted: reached
      found: reached
      status: ok
      reason: ""
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import as_dicts, end
from ..module_utils.ssh import account, probe
from ..module_utils.ssh.configs import Places

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
            "here": {"type": "str", "default": ""},
            "user": {"type": "str", "default": "mpi"},
            "lost": {"type": "list", "elements": "str", "default": []},
            "unlaid": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 10},
            "parallel": {"type": "int", "default": 32},
        },
        supports_check_mode=True,
    )
    arguments = module.params
    here = arguments["here"] or socket.gethostname()
    targets = [probe.Target(each["host"], each["target"]) for each in arguments["targets"]]
    user = account.find(arguments["user"])
    if module.check_mode and (user is None or not Places().user_key.exists()):
        pending = probe.not_laid(targets, "the trust is yet to be laid here", here=here)
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
        arguments["unlaid"],
        here=here,
        check_mode=module.check_mode,
    )
    end(
        module,
        LAYER,
        checks,
        f"{len(attempts)} logins were tried from {here}.",
        attempts=[
            {
                "host": each.target.host,
                "target": each.target.target,
                "why": each.why,
                "told": each.told,
                "seconds": round(each.seconds, 3),
            }
            for each in attempts
        ],
    )


if __name__ == "__main__":
    main()
