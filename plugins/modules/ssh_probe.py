#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Prove that the MPI user gets from this host to others."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_probe
short_description: Verifies that the MPI user reaches other hosts from this host over SSH
extends_documentation_fragment: [baremetal.mpi_roce.module.reads]
description:
  - Logs in to every target as the MPI user, without a terminal or prompts, as V(mpirun) does,
    several at a time. Reports each pair that fails and the cause, or that another host responded.
    Changes nothing. Shells that a login file leaves behind after the connection are terminated.
  - Logs in to this host itself, inspects the session (limits, variables, parameters, programs,
    free space), and names the file that sets a foreign value.
  - Reads from C(ssh -G), as the MPI user, whether ssh checks host keys by the cluster's
    authority, connects to the right address and port, and offers the cluster's certificate.
  - Names the host that is at fault, which for a refused login is the host that refuses.
options: # generated from layers/ssh.yml by tools/generate_layers.py
  targets:
    type: list
    elements: dict
    required: true
    description: Hosts to reach.
    suboptions:
      host: {type: str, required: true, description: Name in the inventory.}
      target: {type: str, required: true, description: Name or address to connect to.}
      rail:
        type: str
        description: Interface over which to send packets as large as its MTU, instead of logging
          in.
      port: {type: int, default: 22, description: Port of its sshd.}
      witness:
        type: str
        default: ''
        description: Name of a third node on that rail, used to decide at which end packets are
          lost.
  addresses:
    type: dict
    default: {}
    description: Addresses of this host by network, C(management) or a rail's interface. The hosts
      to which it logs in connect back to them on a free port, as the launcher daemons of MPI do.
  here: {type: str, required: true, description: Name of this host in the checks.}
  user:
    type: str
    default: mpi
    description: MPI user. Defaults to the inventory's C(cluster_mpi_user), or V(mpi).
  lost:
    type: list
    elements: str
    default: []
    description: Hosts that failed earlier in this run. They are tried, and may fail to respond.
  incomplete:
    type: list
    elements: str
    default: []
    description: Hosts outside this run to which the role was never applied. They may fail to
      respond.
  timeout_s: {type: int, default: 10, description: Seconds to wait for each connection.}
  parallel: {type: int, default: 32, description: Number of simultaneous logins from one host.}
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
import pwd
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core import resolve
from ..module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    Check,
    as_dicts,
    end,
)
from ..module_utils.core.commands import CommandError, NoAnswerError, run
from ..module_utils.core.text import one_line, shortened
from ..module_utils.os_baseline import filters
from ..module_utils.ssh import account, paths, session
from ..module_utils.ssh.keys import DROP_IN, KNOWN_HOSTS, REVOKED, USER_CERTIFICATE, USER_KEY
from ..module_utils.ssh.refusals import EITHER, HERE, LOG, TARGET, Refusal, blamed, refusal
from ..module_utils.ssh.sshd import CERTIFICATE_TYPE, Sshd

LAYER = "ssh"
ANSWERED = " answered"
NOTHING = "nothing"
UNKNOWN = re.compile("Could not resolve hostname|[Nn]ame or service not known|name resolution")
MOST_VALUE = 8000
"""Characters of a setting: lists of algorithms are long."""
SHOWN = 200
MOST_CLIENTS = 4
"""Targets of failed logins whose settings ssh is asked for, besides the first one's."""
MOST_CONFIG = 1 << 18
"""Characters of a configuration file of ssh."""
GRACE_S = 20.0
"""Seconds for a login beyond those for the connection: authentication, a shell's start."""


def argv(target: str, timeout_s: int, further: Sequence[str] = ()) -> list[str]:
    """As mpirun starts its daemons. The node's settings check host keys: that is the proof."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}", *further]
    return ["ssh", "-n", *options, "--", target, "uname", "-n"]


def ask(
    words: Sequence[str], user: pwd.struct_passwd, timeout_s: float
) -> tuple[str, str, Refusal]:
    """What a program printed as the MPI user, on both its outputs, and why it failed."""
    try:
        done = run(words, check=False, timeout_s=timeout_s + GRACE_S, popen=session.as_user(user))
    except NoAnswerError:
        return "", "", refusal("ssh: timed out after the connection", 0)
    except CommandError as error:
        return "", "", Refusal(one_line(str(error)))
    return done.stdout, done.stderr, refusal(done.stderr, done.rc) if done.rc else Refusal("")


def attempt(
    each: Mapping[str, Any],
    user: pwd.struct_passwd,
    timeout_s: int,
    root: Path = Path("/"),
    back: Optional[paths.Listener] = None,
    networks: Sequence[str] = (),
) -> dict[str, Any]:
    """One login as the MPI user by one of the host's names, or packets by one of its rails.

    `why` is empty when it worked; then `side`, `remedy` and `by_hand` are as in Refusal. The host
    that was logged in to calls `back` by `networks`.
    """
    began, target = time.monotonic(), each["target"]
    if each.get("rail"):
        way = paths.carried(run, each["rail"], target, each.get("witness", ""), root)
        no, each = Refusal(way.why, way.side), {**each, "lossy": way.lossy}
    else:
        # The algorithms are proved by the host's own name.
        words = argv(target, timeout_s, session.QUICKLY if target != each["host"] else ())
        words += [back.call(networks)] if back else []
        answer, _errors, no = ask(words, user, timeout_s)
        if back and not no.line:
            each = {**each, "back": back.heard(answer, networks)}
        # The last line: a shell's start may print others.
        name, host = (answer.split() or [NOTHING])[-1], f"{each['host']}."
        # With or without the domain (cluster_hosts_name).
        if not no.line and not (f"{name}.".startswith(host) or host.startswith(f"{name}.")):
            # Another host of the cluster: the way there is wrong. Else the target itself has
            # another name, or what its shell starts keeps the command from running.
            side = HERE if name in hosts_of(root) else TARGET
            no = Refusal(f"{one_line(name)[:64]}{ANSWERED}", side)
    found = {"why" if key == "line" else key: value for key, value in asdict(no).items()}
    return {**each, **found, "seconds": round(time.monotonic() - began, 3)}


def hosts_of(root: Path) -> list[str]:
    try:
        return (root / "etc/hosts").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []


def client(
    each: Mapping[str, Any], user: pwd.struct_passwd, timeout_s: float, check_mode: bool
) -> list[Check]:
    """ssh's settings on this host for a login to a node: a file may set one before ours does."""
    target = each["target"]
    answer, read, no = ask(["ssh", "-G", "-v", "--", target], user, timeout_s)
    settings: dict[str, list[str]] = {}
    for line in answer.splitlines():
        keyword, _blank, rest = line.partition(" ")
        settings.setdefault(keyword, []).append(shortened(one_line(rest), MOST_VALUE))

    def value(keyword: str) -> str:
        return " ".join(settings.get(keyword, []))

    def has(keyword: str, wanted: str) -> str:
        """As wanted where it is one of several."""
        there = value(keyword)
        return wanted if wanted in re.split("[ ,]", there) else shortened(there, SHOWN)

    strict = value("stricthostkeychecking").replace("true", "yes")
    found = {
        "stricthostkeychecking": ("yes", strict),
        "globalknownhostsfile": (KNOWN_HOSTS, has("globalknownhostsfile", KNOWN_HOSTS)),
        "revokedhostkeys": (REVOKED, value("revokedhostkeys")),
        "user": (user.pw_name, value("user")),
        "hostname": (target, value("hostname")),
        "port": (str(each.get("port", 22)), value("port")),
        "identitiesonly": ("yes", value("identitiesonly")),
        "identityfile": (USER_KEY, has("identityfile", USER_KEY)),
        "certificatefile": (USER_CERTIFICATE, has("certificatefile", USER_CERTIFICATE)),
        "hostkeyalgorithms": (CERTIFICATE_TYPE, has("hostkeyalgorithms", CERTIFICATE_TYPE)),
        "pubkeyacceptedalgorithms": (
            CERTIFICATE_TYPE,
            has("pubkeyacceptedalgorithms", CERTIFICATE_TYPE),
        ),
        "proxycommand": ("", value("proxycommand").replace("none", "")),
        "proxyjump": ("", value("proxyjump").replace("none", "")),
    }
    checks = []
    for keyword, (wanted, has_now) in found.items():
        if wanted == has_now or (keyword == "hostname" and has_now.startswith(f"{target}.")):
            checks.append(Check("ssh_client", wanted, has_now, OK, keyword))
            continue
        where = placed(read, keyword, has_now)
        reason, step = no.line, ""
        if where:
            step = f"remove {keyword} from {where}"
        elif not reason:
            reason = (
                f"{user.pw_dir}/.ssh/config or a file that /etc/ssh/ssh_config includes earlier"
                " sets it: remove it there (ssh -Gv has the order)"
            )
        status = PENDING if check_mode else FAILED
        reason = reason or step
        checks.append(Check("ssh_client", wanted, has_now, status, keyword, reason, by_hand=step))
    return checks


def placed(read: str, keyword: str, value: str) -> str:
    """`file:line` of a setting among the files that `ssh -v` says it read, but for ours."""
    for name in re.findall(r"^debug1: Reading configuration data (/\S+)$", read, re.MULTILINE):
        try:
            # The MPI user chooses what is read here: a pipe would never end.
            handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            with open(handle, encoding="utf-8", errors="replace") as file:
                regular = stat.S_ISREG(os.fstat(handle).st_mode)
                lines = file.read(MOST_CONFIG).splitlines() if regular else []
        except OSError:
            continue
        for number, line in enumerate(lines, start=1):
            word, *rest = re.split(r"[\s=]+", line.strip(), maxsplit=1)
            if (
                word.lower() == keyword
                and value
                and "".join(rest).strip('" ').split()[:1] == [value.split()[0]]
            ):
                return "" if name.endswith(f"/{DROP_IN}") else f"{one_line(name)}:{number}"
    return ""


def without_pam() -> str:
    """Where sshd's sessions get no limits of PAM, as it says; empty where they do."""
    try:
        values = Sshd(Path("/etc/ssh/sshd_config"), run).settings("root")
    except CommandError as error:
        return str(error)
    return "sshd has UsePAM no" if values.first("usepam") == "no" else ""


def checks(
    attempts: Sequence[Mapping[str, Any]],
    lost: Collection[str],
    incomplete: Collection[str],
    *,
    here: str,
    check_mode: bool,
    misled: Mapping[str, str] = MappingProxyType({}),
    source: str = "",
) -> list[Check]:
    """A verdict for each pair.

    Hosts in `lost` already failed in this run, under their own name. Those in `incomplete` never
    had a complete run. Settings of this host mislead to the targets in `misled`, each with the step
    that corrects them; `source` is the one that has names come from /etc/hosts.
    """
    found = []
    logins = [each for each in attempts if not each.get("rail")]
    counted = [each for each in logins if each["host"] not in {*lost, *incomplete}]
    everyone = {each["host"] for each in counted}
    failed = {each["host"]: each.get("side", "") for each in counted if each["why"]}
    silent = {
        each["host"]
        for each in logins
        if each["target"] == each["host"] and each["why"] and each["target"] not in misled
    }
    for each in attempts:
        host, why = each["host"], each["why"]
        status = PENDING if check_mode else FAILED
        rail = each.get("rail", "")
        side = HERE if each["target"] in misled else each.get("side", HERE)
        at = "" if rail or not why else blamed(side, host, failed, everyone)
        if side == EITHER and each["target"] != host and host not in silent:
            at = ""  # its sshd answers by its own name, or cannot be asked: the rail between them
        text = (
            f"run --tags names,ssh on {at or here}, which looks at names, keys, account and sshd;"
            f" then ssh -v as the MPI user on {here}, and {LOG} on {host}"
        )
        by_hand = ""
        if source and UNKNOWN.search(why):
            text = by_hand = source
        elif each.get("remedy"):
            text = each["remedy"]
            by_hand = text if each["by_hand"] else ""
        if rail and not by_hand:
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
            if why == f"{NOTHING}{ANSWERED}":
                text = f"a login file of the MPI user on {host} ends or replaces the shell"
                by_hand = f"{text}: .bashrc, .profile, /etc/profile.d"
        elif host in lost:
            status, text = NOT_APPLICABLE, f"{host} dropped out of this run earlier ({why})"
        elif host in incomplete:
            status = NOT_APPLICABLE
            text = f"the role was never applied there (run --tags ssh on it); {why}"
        name, pair = "rail_peer" if rail else "ssh_login", f"{here} -> {each['target']}"
        if each["target"] in misled and not rail and why:
            text = by_hand = misled[each["target"]]
        if status in (OK, NOT_APPLICABLE):
            at = by_hand = ""
        reason = text if why else ""
        found.append(
            Check(name, "reached", why or "reached", status, pair, reason, at=at, by_hand=by_hand)
        )
    return found


def once(clients: Mapping[str, Sequence[Check]]) -> Iterator[Check]:
    """All of the first target's; of the others what differs, one fault of a file once."""
    named: set[tuple[str, str]] = set()
    for number, (target, of) in enumerate(clients.items()):
        for check in of:
            same = (check.subject, check.by_hand)
            if number == 0:
                yield check
            elif check.status != OK and same not in named:
                yield replace(check, subject=f"{check.subject} of {target}")
            if check.status != OK:
                named.add(same)


def asked(attempts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The first target, and those that were not reached by ssh, whose settings may be why."""
    logins = [each for each in attempts if not each.get("rail")]
    yield from (logins or attempts)[:1]
    yield from [each for each in logins[1:] if each["why"]][:MOST_CLIENTS]


def called_by(each: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """The networks by which a host calls back: management and the rails that both have, once
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
    heard = []
    for each in attempts:
        broken = {to["rail"] for to in attempts if same_rail(each, to) and to["why"]}
        back = each.get("back", {})
        heard.append({name: code for name, code in back.items() if name not in broken})
    refused = {name: 0 for back in heard for name, code in back.items() if paths.is_refused(code)}
    said: dict[str, str] = {}
    step = ""
    if refused:
        said, step = filters.filters(run, [addresses[name] for name in refused])
    for each, back in zip(attempts, heard):
        named = {name: (said[addresses[name]], step) for name in refused}
        yield from paths.back(here, each["host"], back, named, check_mode)


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
            "witness": {"type": "str", "default": ""},
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
    mode, seconds, began = module.check_mode, arguments["timeout_s"], time.monotonic()
    session.end_abandoned(user)  # of earlier runs
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=arguments["parallel"] + 1))
        back = stack.enter_context(paths.Listener(arguments["addresses"]))
        own = pool.submit(
            *(session.look, here, user, seconds), check_mode=mode, use_pam=without_pam
        )

        def tried_out(each: Mapping[str, Any]) -> dict[str, Any]:
            return attempt(each, user, seconds, Path("/"), back, called_by(each, targets))

        attempts = list(pool.map(tried_out, targets))
        itself = {"host": here, "back": back.itself()}
    if session.end_abandoned(user):
        # A login file here does not end: logins from other hosts hang as well, and give up later.
        time.sleep(max(0.0, began + seconds + GRACE_S + 1 - time.monotonic()))
        session.end_abandoned(user)
    clients = {
        each["target"]: client(each, user, arguments["timeout_s"], module.check_mode)
        for each in asked(attempts)
    }
    wrong = {
        target: next(check.by_hand for check in of if check.by_hand)
        for target, of in clients.items()
        if any(check.by_hand for check in of)
    }
    found = checks(
        attempts,
        arguments["lost"],
        arguments["incomplete"],
        here=here,
        check_mode=module.check_mode,
        misled=wrong,
        source=resolve.source_check().by_hand,
    )
    found += once(clients)
    addresses = {**arguments["addresses"], **paths.LOOPBACK}
    found += called([*attempts, itself], addresses, here, mode)
    found += own.result()
    tried = f"{len(attempts)} ways to other hosts were tried from {here}."
    end(module, LAYER, found, tried, attempts=attempts)


if __name__ == "__main__":
    main()
