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
    does, several at a time, and names each pair that fails and why, or where another host answers.
    Changes nothing.
  - Reads from C(ssh -G), as the MPI user, whether ssh checks host keys by the cluster's authority.
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

import json
import os
import pwd
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    Check,
    as_dicts,
    compare,
    end,
)
from ..module_utils.core.commands import CommandError, NoAnswerError, run
from ..module_utils.os_baseline import firewall
from ..module_utils.ssh import account, paths
from ..module_utils.ssh.keys import KNOWN_HOSTS, REVOKED

LAYER = "ssh"
ANSWERED = " answered"
GRACE_S = 20.0
"""Seconds for a login beyond those for the connection: authentication, a shell's start."""


def argv(target: str, timeout_s: int) -> list[str]:
    """As mpirun starts its daemons. The node's settings check host keys: that is the proof."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}"]
    return ["ssh", "-n", *options, "--", target, "uname", "-n"]


def ask(words: Sequence[str], user: pwd.struct_passwd, timeout_s: float) -> tuple[str, str]:
    """What a program printed as the MPI user, and why it failed."""
    names = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    names.update(PATH="/usr/local/bin:/usr/bin:/bin", LC_ALL="C")
    as_user: dict[str, Any] = {"env": names, "cwd": "/"}
    if os.geteuid() == 0:  # else the process is the MPI user already
        as_user.update(user=user.pw_uid, group=user.pw_gid, extra_groups=[])
    try:
        done = run(words, check=False, timeout_s=timeout_s + GRACE_S, popen=as_user)
    except NoAnswerError:
        return "", "ssh: timed out after the connection"
    except CommandError as error:
        return "", str(error)
    return done.stdout, reason(done.stderr, done.rc) if done.rc else ""


def attempt(
    each: Mapping[str, Any],
    user: pwd.struct_passwd,
    timeout_s: int,
    root: Path = Path("/"),
    back: Optional[paths.Listener] = None,
    networks: Sequence[str] = (),
) -> dict[str, Any]:
    """One login as the MPI user by one of the host's names, or packets by one of its rails.

    `why` is empty when it worked. The host that was logged in to calls `back` by `networks`.
    """
    began, target = time.monotonic(), each["target"]
    if each.get("rail"):
        way = paths.carried(run, each["rail"], target, each.get("witness", ""), root)
        why, each = way.why, {**each, "side": way.side, "lossy": way.lossy}
    else:
        words = argv(target, timeout_s)
        words += [back.call(networks)] if back else []
        answer, why = ask(words, user, timeout_s)
        if back and not why:
            each = {**each, "back": back.heard(answer, networks)}
        # The last line: a shell's start may print others.
        name, host = (answer.split() or ["nothing"])[-1], f"{each['host']}."
        # With or without the domain (cluster_hosts_name).
        if not why and not (f"{name}.".startswith(host) or host.startswith(f"{name}.")):
            why = f"{name}{ANSWERED}"
    return {**each, "why": why, "seconds": round(time.monotonic() - began, 3)}


def client(target: str, user: pwd.struct_passwd, timeout_s: float, check_mode: bool) -> list[Check]:
    """ssh's settings on this host for a login to a node: a file may set one before ours does."""
    answer, why = ask(["ssh", "-G", "--", target], user, timeout_s)
    lines = (line.partition(" ") for line in answer.splitlines())
    settings = {keyword: value for keyword, _blank, value in lines}
    reason = why or (
        f"{user.pw_dir}/.ssh/config or a file that /etc/ssh/ssh_config includes earlier sets it:"
        " remove it there (ssh -Gv has the order)"
    )
    strict = settings.get("stricthostkeychecking", "").replace("true", "yes")
    files = settings.get("globalknownhostsfile", "")
    files = KNOWN_HOSTS if KNOWN_HOSTS in files.split() else files
    found = {
        "stricthostkeychecking": ("yes", strict),
        "globalknownhostsfile": (KNOWN_HOSTS, files),
        "revokedhostkeys": (REVOKED, settings.get("revokedhostkeys", "")),
        "user": (user.pw_name, settings.get("user", "")),
    }
    return [
        compare("ssh_client", *pair, subject=keyword, check_mode=check_mode, reason=reason)
        for keyword, pair in found.items()
    ]


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
        rail = each.get("rail", "")
        text = (
            f"run --tags names,ssh on {here} and {host}, which look at names, keys, account and"
            " sshd; then ssh -v as the MPI user here, and journalctl -t sshd there"
        )
        at = by_hand = ""
        if rail:
            text = f"run --tags rails,links on {here} and {host}: neighbour entries, cable, MTU"
        if each.get("lossy"):
            at = host if each["side"] == paths.TARGET else ""
            text = by_hand = paths.ends(each["side"], rail, here, host)
        if not why:
            status = OK
        elif why.endswith(ANSWERED):  # true whatever the other host has
            text = (
                f"look for Host, HostName or ProxyCommand in ssh's files on {here} (ssh -G"
                f" {each['target']}), or run --tags names on both"
            )
        elif host in lost:
            status, text = NOT_APPLICABLE, f"{host} dropped out of this run earlier ({why})"
        elif host in incomplete:
            status = NOT_APPLICABLE
            text = f"the role was never applied there (run --tags ssh on it); {why}"
        name, pair = "rail_peer" if rail else "ssh_login", f"{here} -> {each['target']}"
        if status in (OK, NOT_APPLICABLE):
            at = by_hand = ""
        reason = text if why else ""
        found.append(
            Check(name, "reached", why or "reached", status, pair, reason, at=at, by_hand=by_hand)
        )
    return found


def called_by(each: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The networks by which a host is to call back: management and the rails that both have, once
    for each host."""
    if each["target"] != each["host"]:
        return []
    return [paths.MANAGEMENT, *(to["rail"] for to in targets if same_rail(each, to))]


def same_rail(each: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(other.get("rail")) and other["host"] == each["host"]


def called(
    attempts: Sequence[Mapping[str, Any]],
    addresses: Mapping[str, str],
    here: str,
    check_mode: bool,
) -> Iterator[Check]:
    """Whether hosts could connect back. A rail that carries no packet is named by `rail_peer`."""
    said: dict[str, tuple[str, str]] = {}

    def filters(network: str) -> tuple[str, str]:
        if network not in said:
            at = f"{addresses[network]} and its network"
            said[network] = firewall.filters(run, interface_of(addresses[network]), at)
        return said[network]

    for each in attempts:
        broken = {to["rail"] for to in attempts if same_rail(each, to) and to["why"]}
        heard = {name: code for name, code in each.get("back", {}).items() if name not in broken}
        yield from paths.back(here, each["host"], heard, filters, check_mode)


def interface_of(address: str) -> str:
    """The interface of this host that has the address."""
    try:
        answer = json.loads(run(["ip", "-j", "address", "show", "to", address]).stdout)
        return str(next(link["ifname"] for link in answer if link))
    except (CommandError, ValueError, StopIteration, KeyError):
        return address


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
    arguments = module.params
    here, targets = arguments["here"], arguments["targets"]
    user = account.find(arguments["user"])
    if user is None and module.check_mode:
        why = "SSH trust is not configured here yet"
        without = [{**each, "why": why} for each in targets]
        pending = checks(without, [], [], here=here, check_mode=True)
        module.exit_json(changed=False, layer=LAYER, attempts=[], checks=as_dicts(pending))
    if user is None:
        module.fail_json(
            msg=f"ssh: user {arguments['user']} does not exist on {here}: run --tags ssh on it",
            layer=LAYER,
            checks=[],
        )
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=arguments["parallel"]))
        back = stack.enter_context(paths.Listener(arguments["addresses"]))
        attempts = list(
            pool.map(
                lambda each: attempt(
                    *(each, user, arguments["timeout"], Path("/"), back), called_by(each, targets)
                ),
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
    found += called(attempts, arguments["addresses"], here, module.check_mode)
    for each in targets[:1]:
        found += client(each["target"], user, arguments["timeout"], module.check_mode)
    tried = f"{len(attempts)} ways to other hosts were tried from {here}."
    end(module, LAYER, found, tried, attempts=attempts)


if __name__ == "__main__":
    main()
