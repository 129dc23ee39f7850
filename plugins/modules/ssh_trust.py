#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configure host-verified SSH between all nodes for the MPI user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_trust
short_description: Configures host-verified, passwordless SSH between all nodes for the MPI user
extends_documentation_fragment: [baremetal.mpi_roce.module]
description:
  - Makes the MPI user's account and key pair where they are missing, makes sshd and ssh trust the
    cluster's certificate authority, and installs this node's user and host certificate.
  - The action on the controller holds the authority and signs; the module makes keys and writes
    files. Private keys never leave the host they were made on.
  - All settings apply to the MPI user, and for ssh to the hosts of the cluster. sshd's
    configuration is tested before sshd reads it, and is restored when it is invalid.
options:
  authority:
    description: RV(baremetal.mpi_roce.ssh_authority#module:authority), the same on every node.
    type: dict
    required: true
  host:
    description:
      - RV(baremetal.mpi_roce.ssh_authority#module:hosts) of this node. C(names) are the principals
        of its host certificate, C(principal) that of its user certificate, valid from the addresses
        C(sources); C(admits) are the principals that may log in here; C(port) is that of its sshd.
    type: dict
    required: true
  user: {type: str, default: mpi, description: The MPI user.}
  uid:
    description: Number of the MPI user, the same on every node. Without it the system chooses.
    type: int
  shell: {type: str, default: /bin/bash, description: MpiLogin shell of an account that is made.}
  state_dir: {type: str, description: Directory of the authority on the controller.}
  validity_days: {type: float, default: 90, description: Days for which a certificate is valid.}
  renew_days: {type: float, default: 45, description: Days left below which it is signed anew.}
  strict:
    description:
      - Admit the MPI user by certificate, and by O(authorized_keys), whatever the lists of keys in
        his home have. V(auto) does so where the home is on a file system that hosts may share.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  authorized_keys:
    description:
      - Public keys that may admit the MPI user without a certificate, as lines of
        C(authorized_keys). With O(strict) they are installed; without, others in his home are
        reported.
    type: list
    elements: str
    default: []
  replace_authority:
    description: Replace an authority of which the controller has no record.
    type: bool
    default: false
  issued: {type: dict, default: {}, description: The journal's records; set by the action.}
  certificates: {type: dict, default: {}, description: Just signed; set by the action.}
  now: {type: int, default: 0, description: The controller's time; set by the action.}
  refused_keys:
    description: Public keys of this node that were revoked; set by the action.
    type: list
    elements: str
    default: []
attributes:
  diff_mode:
    description: Shows every file that changes. Of keys it shows public halves, modes and owners.
    support: full
"""

EXAMPLES = r"""
- name: Configure SSH trust
  baremetal.mpi_roce.ssh_trust:
    authority: "{{ trust.authority }}"
    host: "{{ trust.hosts[inventory_hostname] }}"
    user: mpi
    uid: 6000
    state_dir: "{{ trust.state_dir }}"
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
public_keys: {type: dict, returned: success, description: Of the MPI user here and of the node.}
sign: {type: dict, returned: success, description: "Certificates that were signed anew, and why."}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.engine import Layer, carry_out
from ..module_utils.core.locks import HeldError
from ..module_utils.ssh.keys import DAY
from ..module_utils.ssh.trust import TrustRequest, converge

STRICT = {"auto": None, "true": True, "false": False}
LAYER = Layer("ssh", command_s=60.0, refusals=(HeldError,), simulates=False)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "authority": {"type": "dict", "required": True},
            "host": {"type": "dict", "required": True},
            "user": {"type": "str", "default": "mpi"},
            "uid": {"type": "int"},
            "shell": {"type": "str", "default": "/bin/bash"},
            "state_dir": {"type": "str"},
            "validity_days": {"type": "float", "default": 90},
            "renew_days": {"type": "float", "default": 45},
            "strict": {"type": "str", "choices": list(STRICT), "default": "auto"},
            "authorized_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "replace_authority": {"type": "bool", "default": False},
            "issued": {"type": "dict", "default": {}},
            "certificates": {"type": "dict", "default": {}},
            "now": {"type": "int", "default": 0},
            "refused_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
        },
        supports_check_mode=True,
    )
    # Modes of new files are as written, whatever the connection's umask.
    os.umask(0o022)
    given = module.params
    own = ("host", "state_dir", "validity_days", "renew_days", "strict")
    request = TrustRequest(
        renew_before_s=int(given["renew_days"] * DAY),
        port=int(given["host"]["port"]),
        strict=STRICT[given["strict"]],
        login=os.environ.get("SUDO_USER", ""),
        **{name: value for name, value in given.items() if name not in own},
        **{name: given["host"][name] for name in ("names", "principal", "admits", "sources")},
    )
    carry_out(module, LAYER, lambda node: converge(request, node))


if __name__ == "__main__":
    main()
