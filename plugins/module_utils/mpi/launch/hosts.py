# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Commands on all nodes in parallel, over ssh as the MPI user."""

from __future__ import annotations

import base64
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional, Union

from ...core.checks import FAILED, OK, Check
from ...core.commands import CommandError, NoAnswerError, Result, Runner
from ...core.text import counted, some
from .node import LaunchNode
from .scripts import SWEEP
from .unit import as_user

ALIVE = ("-oServerAliveInterval=5", "-oServerAliveCountMax=3")
SSH = ("ssh", "-oBatchMode=yes", "-oConnectTimeout=10", *ALIVE)
MAX_CONNECTIONS = 64
"""Maximum number of simultaneous connections; the sshd of a small launcher rejects more."""
MAX_REASON = 500
"""Maximum length of a reason, which comes from a host."""
TERMINAL = "-tt"
"""Option of ssh: the remote side gets SIGHUP when ssh ends, even in a login file that hangs."""
MARK = "mpi-ready "
"""Starts each line of a script's answer."""
MAX_ITEMS = 5
"""Maximum number of hosts in a reason; the rest are counted."""


def remote(script: str, arguments: Sequence[str] = ()) -> str:
    """A command line that runs a POSIX script with arguments under any login shell of the user.

    csh allows no line break inside quotes, and fish quotes differently; no shell gives a meaning to
    base64. Standard input stays free, because login files may read it.
    """
    text = f"set -- {shlex.join(arguments)}\n{{\n{script}\n}} </dev/null\n"
    coded = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode("ascii")
    return f"echo {coded} | /usr/bin/base64 -d | /bin/sh"


def report(text: str) -> dict[str, list[str]]:
    """The lines that a script printed, by their first word, without those of login files."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        word, _space, rest = line[len(MARK) :].partition(" ")
        if line.startswith(MARK):
            found[word].append(rest)
    return found


def ask_all(
    run: Runner,
    user: str,
    commands: Mapping[str, Union[Sequence[str], Callable[[], Sequence[str]]]],
    options: Sequence[str] = (),
) -> dict[str, tuple[Optional[Result], str]]:
    """Run a command on each host, or the one that a function returns when it is the host's turn.
    Returns by host its result, or None and the reason."""

    def ask(host: str) -> tuple[Optional[Result], str]:
        given = commands[host]
        try:
            argv = as_user(user, [*SSH, *options, host, *(given() if callable(given) else given)])
            result = run(argv, check=False)
        except NoAnswerError as error:
            return None, f"no answer within {error.timeout_s:g} s"
        except CommandError as error:
            return None, str(error)
        if result.rc != 0:
            # With a terminal, both outputs are one, and ssh adds "Connection closed".
            printed = re.sub(r"(?m)^(Shared c|C)onnection to \S+ closed.*$", "", result.stderr)
            printed = printed.strip() or result.stdout.strip() or f"exit status {result.rc}"
            return None, printed.splitlines()[-1].strip()[:MAX_REASON]
        return result, ""

    if not commands:
        return {}
    with ThreadPoolExecutor(max_workers=min(MAX_CONNECTIONS, len(commands))) as pool:
        return dict(zip(commands, pool.map(ask, commands)))


def lost(run: Runner, user: str, nodes: Sequence[LaunchNode]) -> dict[str, str]:
    """Hosts that failed to respond twice in succession, with the reason."""
    failed = {node.host: "" for node in nodes}
    for _attempt in range(2):
        answers = ask_all(run, user, dict.fromkeys(failed, ("true",)))
        failed = {host: reason for host, (result, reason) in answers.items() if result is None}
    return failed


def sweep(run: Runner, user: str, hosts: Sequence[str], run_id: str) -> Check:
    """Kill the remaining processes of a run everywhere, and check that none is left."""
    script = remote(SWEEP, [run_id])
    answers = ask_all(run, user, dict.fromkeys(hosts, (script,)))
    try:
        local = run(as_user(user, ["/bin/sh", "-c", script]), check=False)
        answers["the launcher"] = (local, local.stderr.strip())
    except CommandError as error:
        answers["the launcher"] = (None, str(error))
    killed: dict[str, int] = {}
    left: dict[str, int] = {}
    unknown: dict[str, str] = {}
    for host, (result, reason) in answers.items():
        text = result.stdout if result is not None else ""
        counts = re.findall(rf"(?m)^{MARK}killed ([0-9]{{1,9}}) left ([0-9]{{1,9}})$", text)
        if len(counts) != 1:
            unknown[host] = reason or "unexpected answer"
            continue
        for by_host, count in zip((killed, left), map(int, counts[0])):
            if count:
                by_host[host] = count
    if left or unknown:
        wrong = [f"{host}: {count} left" for host, count in left.items()]
        wrong += [f"{host}: unknown ({reason})" for host, reason in unknown.items()]
        found = sum(left.values()) or f"unknown on {counted(len(unknown), 'node')}"
        return Check("no_orphans", 0, found, FAILED, "", some(wrong, MAX_ITEMS))
    listed = some([f"{host} {count}" for host, count in killed.items()])
    reason = f"{sum(killed.values())} killed: {listed}" if killed else ""
    return Check("no_orphans", 0, 0, OK, "", reason)
