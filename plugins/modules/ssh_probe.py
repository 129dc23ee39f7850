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
"""

RETURN = r"""
layer: {type: str, returned: always, description: Tag of the layer.}
attempts: {type: list, elements: dict, returned: success, description: "Logins, and C(why) not."}
checks: {type: list, elements: dict, returned: always, description: See docs/checks.md.}
"""

import os
import pwd
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check, as_dicts, end
from ..module_utils.ssh import account

LAYER = "ssh"
GRACE_S = 20.0
"""Seconds for a login beyond those for the connection: authentication, a shell's start."""


def argv(target: str, timeout_s: int) -> list[str]:
    """As mpirun starts its daemons. The node's settings check host keys: that is the proof."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}"]
    return ["ssh", "-n", *options, "--", target, "true"]


def attempt(host: str, target: str, user: pwd.struct_passwd, timeout_s: int) -> dict[str, Any]:
    """One login as the MPI user, by one of the host's names. `why` is empty when it worked."""
    began, why = time.monotonic(), ""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    # A process without root is the MPI user already.
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    try:
        done = subprocess.run(
            argv(target, timeout_s),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s + GRACE_S,
            env={**names, "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"},
            cwd="/",
            check=False,
            **identity,
        )
        if done.returncode:
            why = reason(done.stderr, done.returncode)
    except subprocess.TimeoutExpired:
        why = "ssh: timed out after the connection"
    except FileNotFoundError:
        why = "ssh: not installed here"
    return {
        "host": host,
        "target": target,
        "why": why,
        "seconds": round(time.monotonic() - began, 3),
    }


def reason(stderr: str, status: int) -> str:
    """What ssh printed of its own, without a banner and what strict checking adds."""
    lines = [line.strip()[:300] for line in stderr.splitlines() if line.strip()]
    causes = ("Certificate invalid", "revoked by file", "Permission denied", "IDENTIFICATION HAS")
    named = [line for line in lines if any(cause in line for cause in causes)]
    return (named[:1] or lines[-1:] or [f"ssh: exit status {status}"])[0]


def checks(
    attempts: Sequence[Mapping[str, Any]],
    lost: Collection[str],
    incomplete: Collection[str],
    *,
    here: str,
    check_mode: bool,
) -> list[Check]:
    """A verdict for each pair.

    Hosts in `lost` already failed in this run, under their own name. Those in `incomplete` never
    had a complete run.
    """
    found = []
    for each in attempts:
        host, why = each["host"], each["why"]
        status = PENDING if check_mode else FAILED
        text = f"run --tags ssh on {host}, or try it as the MPI user with ssh -v" if why else ""
        if not why:
            status = OK
        elif host in lost:
            status, text = NOT_APPLICABLE, f"{host} dropped out of this run earlier ({why})"
        elif host in incomplete:
            status = NOT_APPLICABLE
            text = f"the role was never applied there (run --tags ssh on it); {why}"
        pair = f"{here} -> {each['target']}"
        found.append(Check("ssh_login", "reached", why or "reached", status, pair, text))
    return found


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
    with ThreadPoolExecutor(max_workers=arguments["parallel"]) as pool:
        attempts = list(
            pool.map(
                lambda each: attempt(each["host"], each["target"], user, arguments["timeout"]),
                targets,
            )
        )
    found = checks(
        attempts,
        arguments["lost"],
        arguments["incomplete"],
        here=here,
        check_mode=module.check_mode,
    )
    end(module, LAYER, found, f"{len(attempts)} logins were tried from {here}.", attempts=attempts)


if __name__ == "__main__":
    main()
