#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configure host-verified SSH between all nodes for the MPI user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_trust
short_description: Configures host-verified, passwordless SSH between all nodes for the MPI user
extends_documentation_fragment: [baremetal.mpi_roce.module, baremetal.mpi_roce.options.ssh_trust]
description:
  - Creates the MPI user's account and key pair if they are missing, makes sshd and ssh trust the
    cluster's certificate authority, and installs this node's user and host certificates.
  - The action plugin on the controller holds the authority and signs; the module creates keys and
    writes files. Private keys never leave the host on which they were created.
  - All settings apply to the MPI user only and, for ssh, to the hosts of the cluster. sshd's
    configuration is tested before sshd reads it, and restored if it is invalid.
attributes:
  diff_mode:
    description: Shows every changed file; of keys only public halves, modes and owners.
    support: full
"""

EXAMPLES = r"""
- name: Configure SSH trust
  baremetal.mpi_roce.ssh_trust:
    authority: "{{ trust.authority }}"
    host: "{{ trust.hosts[inventory_hostname] }}"
    user: mpi
    uid: 6000
    state_directory: "{{ trust.state_directory }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
public_keys: {type: dict, returned: success, description: Keys of MPI user and node.}
sign: {type: dict, returned: success, description: "Renewed certificates, and why."}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, carry_out
from ..module_utils.core.locks import HeldError
from ..module_utils.ssh.keys import DAY
from ..module_utils.ssh.trust import TrustRequest, converge

STRICT = {"auto": None, "true": True, "false": False}
OF_RUN = ("authority", "host", "signed")
LAYER = Layer("ssh", command_s=60.0, refusals=(HeldError,), simulates=False, of_run=OF_RUN)


# Generated from layers/ by tools/generate_layers.py.
ARGUMENTS = {
    "authority": {"type": "dict", "required": True},
    "host": {"type": "dict", "required": True},
    "user": {"type": "str", "default": "mpi"},
    "uid": {"type": "int"},
    "shell": {"type": "str", "default": "/bin/bash"},
    "state_directory": {"type": "str"},
    "validity_days": {"type": "float", "default": 90},
    "renew_days": {"type": "float", "default": 45},
    "strict": {"type": "str", "choices": ["auto", "true", "false"], "default": "auto"},
    "authorized_keys": {"type": "list", "elements": "str", "no_log": False, "default": []},
    "replace_authority": {"type": "bool", "default": False},
    "signed": {"type": "dict", "default": {}},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    # Modes of new files are as written, whatever the connection's umask.
    os.umask(0o022)
    given = module.params
    own = ("host", "state_directory", "validity_days", "renew_days", "strict", "signed")
    request = TrustRequest(
        renew_before_s=int(given["renew_days"] * DAY),
        port=int(given["host"]["port"]),
        strict=STRICT[given["strict"]],
        login=os.environ.get("SUDO_USER", ""),
        **{name: value for name, value in given.items() if name not in own},
        **given["signed"],
        **{name: given["host"][name] for name in ("names", "principal", "admits", "sources")},
    )
    carry_out(module, LAYER, lambda node: converge(request, node))


if __name__ == "__main__":
    main()
