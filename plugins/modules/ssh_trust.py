#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Lay host-verified SSH between all nodes for the MPI user."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_trust
short_description: Lays host-verified, passwordless SSH between all nodes for the MPI user
version_added: "0.1.0"
author:
  - Baremetal MPI RoCE founders (@baremetal)
description:
  - Makes the MPI user's account and its key pair where they are missing, has sshd and ssh believe
    the cluster's certificate authority, and installs this node's user and host certificate.
    Alternatively lays the classic files, authorized_keys and known_hosts of all nodes.
  - Works in two parts. The action on the controller holds the authority and signs; the module on
    the node makes keys and writes files. A node whose certificates serve takes one execution, one
    that needs a signature takes two. Private keys never leave the host they were made on.
  - All settings are limited to the MPI user, and for ssh also to the hosts of the cluster. Lines
    of the operator are left as they are. sshd's configuration is tested before sshd reads it, and
    is put back when it does not hold.
  - What is to be believed comes from M(baremetal.mpi_roce.ssh_authority), called once for all
    nodes.
options:
  authority:
    description:
      - What the whole cluster believes, as RV(baremetal.mpi_roce.ssh_authority#module:authority)
        says.
    type: dict
    required: true
  names:
    description:
      - Everything this node is called by, names and addresses. They become the principals of its
        host certificate.
    type: list
    elements: str
    default: []
  user: {type: str, default: mpi, description: The MPI user.}
  uid:
    description:
      - The number of the MPI user, the same on every node. Only used to make the account, and to
        refuse one that has another number. Without it the system chooses.
    type: int
  shell:
    description: Login shell of an account that has to be made.
    type: str
    default: /bin/bash
  state_dir:
    description:
      - The directory of the authority on the controller. Used by the action, not on the node.
    type: str
  known:
    description:
      - What the journal says of this node, RV(baremetal.mpi_roce.ssh_authority#module:hosts). Used
        by the action, not on the node.
    type: dict
    default: {}
  validity_days:
    description: How long a certificate holds. Used by the action, not on the node.
    type: int
    default: 365
  renew_days:
    description: A certificate with fewer days left than this is signed anew.
    type: int
    default: 90
  issued:
    description: Digests of the certificates the journal says this node has. Set by the action.
    type: dict
    default: {}
    suboptions:
      user: {type: str, description: Digest of the user certificate.}
      host: {type: str, description: Digest of the host certificate.}
  certificates:
    description: Certificates that were just signed. Set by the action.
    type: dict
    default: {}
    suboptions:
      user: {type: str, description: "The user certificate, a line."}
      host: {type: str, description: "The host certificate, a line."}
  now:
    description:
      - The controller's time in seconds since 1970, by which expiry is judged. Set by the action.
    type: int
attributes:
  check_mode:
    description: Computes the same plan. Certificates that would be signed are told, and none is.
    support: full
  diff_mode:
    description: Shows every file that changes. Of keys it shows public halves, modes and owners.
    support: full
"""

EXAMPLES = r"""
- name: Look the whole cluster up in the inventory
  baremetal.mpi_roce.cluster_directory:
  register: cluster
  run_once: true

- name: Prepare the authority on the controller
  baremetal.mpi_roce.ssh_authority:
    directory: "{{ cluster.directory }}"
    cluster_name: "{{ cluster_name }}"
  register: trust
  run_once: true

- name: Lay the trust
  baremetal.mpi_roce.ssh_trust:
    authority: "{{ trust.authority }}"
    names: "{{ trust.hosts[inventory_hostname].names }}"
    user: mpi
    uid: 6000
    state_dir: "{{ trust.state_dir }}"
    known: "{{ trust.hosts[inventory_hostname].known }}"
"""

RETURN = r"""
layer: {type: str, returned: always, sample: ssh, description: The layer that speaks.}
public_keys:
  description: Public keys of the MPI user on this node and of the node.
  type: dict
  returned: success
  sample:
    user: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB2x
    host: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHk4
sign:
  description: Certificates that had to be, or in check mode would be, signed, and why.
  type: dict
  returned: success
  sample: {user: expires in 12 days}
days_left:
  description: Days until each certificate expires.
  type: dict
  returned: success
  sample: {user: 364, host: 364}
checks:
  description: What was read back, one entry for each promise.
  type: list
  elements: dict
  returned: always
  sample:
    - name: user_certificate
      subject: ""
      wanted: valid for 90 days or more
      found: 364 days left, serial 1795182001, by SHA256:ttJmvu4tm7Etxx/3E6tsR5TeEYG2eIwsgNiDugz2yJU
      status: ok
      reason: ""
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import end
from ..module_utils.core.commands import CommandError
from ..module_utils.ssh.account import AccountError
from ..module_utils.ssh.certificates import DAY
from ..module_utils.ssh.node import Node, Request, TrustError

LAYER = "ssh"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "authority": {"type": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str", "default": "mpi"},
            "uid": {"type": "int"},
            "shell": {"type": "str", "default": "/bin/bash"},
            "state_dir": {"type": "str"},
            "known": {"type": "dict", "default": {}},
            "validity_days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 90},
            "issued": {
                "type": "dict",
                "default": {},
                "options": {"user": {"type": "str"}, "host": {"type": "str"}},
            },
            "certificates": {
                "type": "dict",
                "default": {},
                "options": {"user": {"type": "str"}, "host": {"type": "str"}},
            },
            "now": {"type": "int"},
        },
        supports_check_mode=True,
    )
    # What is made is as readable as its mode says, whatever umask the connection came with.
    os.umask(0o022)
    try:
        outcome = Node(request_of(module.params), check_mode=module.check_mode).ensure()
    except (AccountError, TrustError, CommandError) as error:
        module.fail_json(msg=f"ssh: {error}", layer=LAYER, checks=[])
    except OSError as error:
        what = error.filename or "this node"
        module.fail_json(msg=f"ssh: {what}: {error.strerror or error}", layer=LAYER, checks=[])
    end(
        module,
        LAYER,
        outcome.checks,
        "Each line says what stands in the way.",
        changed=outcome.changed,
        diff=outcome.diff,
        public_keys=outcome.public_keys,
        sign=outcome.sign,
        days_left=outcome.days_left,
    )


def request_of(arguments: dict[str, Any]) -> Request:
    return Request(
        told=arguments["authority"],
        user=arguments["user"],
        uid=arguments["uid"],
        shell=arguments["shell"],
        names=arguments["names"],
        issued={kind: digest for kind, digest in arguments["issued"].items() if digest},
        certificates={kind: text for kind, text in arguments["certificates"].items() if text},
        renew_before_s=arguments["renew_days"] * DAY,
        now=arguments["now"],
    )


if __name__ == "__main__":
    main()
