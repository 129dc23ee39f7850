# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof: log in as the MPI user, as mpirun will, and return why it failed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ..core.dataclass import dataclass
from .account import Account

RERUN = "run --tags ssh on that host"
ADVICE = (
    (r"Certificate invalid: name", f"its name or addresses changed: {RERUN}"),
    (r"Certificate invalid", f"compare the clocks of both hosts, then {RERUN}"),
    (r"REVOKED|[Rr]evoked host|revoked by file", f"it left the inventory once: {RERUN}"),
    (r"IDENTIFICATION HAS CHANGED|host key is known|verification failed", RERUN),
    (r"Permission denied|Too many auth", f"{RERUN}; its sshd's log has the rule that refused"),
    (r"timed out", "check the host and the path to it (firewall, VLAN, cable)"),
    (r"Connection refused", "sshd does not run there, or not on this port"),
    (r"No route|unreachable", "see the layer rails for rail names"),
    (r"Could not resolve|not known", "run --tags names on this host"),
    (r"Connection (closed|reset)|kex_exchange", "see its sshd's log (MaxStartups)"),
)
"""What ssh prints and what to do about it; the most specific first."""

GRACE_S = 20.0
"""Seconds for a login beyond those for the connection: authentication, a shell's start."""


@dataclass(frozen=True)
class Attempt:
    """One login to a host, by one of its names. `why` is ssh's own line; empty when it worked."""

    host: str
    target: str
    why: str = ""
    advice: str = ""
    seconds: float = 0.0


def reason(stderr: str, status: int) -> tuple[str, str]:
    """The line of ssh's output that has the reason, and what to do about it."""
    lines = [line.strip()[:300] for line in stderr.splitlines() if line.strip()]
    for pattern, advice in ADVICE:
        for line in lines:
            if re.search(pattern, line):
                return line, advice
    last = lines[-1] if lines else f"ssh: exit status {status}"
    return last, "try it as the MPI user, with ssh -v"


def argv(target: str, timeout_s: int) -> list[str]:
    """As mpirun starts its daemons. The node's settings check host keys: that is the proof."""
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}"]
    return ["ssh", "-n", *options, "--", target, "true"]


def attempt(host: str, target: str, account: Account, timeout_s: int) -> Attempt:
    """One login as the MPI user."""
    began = time.monotonic()
    environment = {
        "HOME": str(account.home),
        "USER": account.name,
        "LOGNAME": account.name,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C",
    }
    # A process without root is the MPI user already.
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": account.uid, "group": account.gid, "extra_groups": []}
    try:
        done = subprocess.run(
            argv(target, timeout_s),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s + GRACE_S,
            env=environment,
            cwd="/",
            check=False,
            **identity,
        )
        status, stderr = done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        status, stderr = 1, "ssh: timed out after the connection"
    except FileNotFoundError:
        status, stderr = 1, "ssh: not installed here"
    why, advice = reason(stderr, status) if status else ("", "")
    return Attempt(host, target, why, advice, round(time.monotonic() - began, 3))


def probe(
    targets: Sequence[Mapping[str, str]], account: Account, *, timeout_s: int, parallel: int
) -> list[Attempt]:
    """Every target, so many at a time, in the order given."""

    def one(each: Mapping[str, str]) -> Attempt:
        return attempt(each["host"], each["target"], account, timeout_s)

    with ThreadPoolExecutor(max_workers=parallel) as pool:
        return list(pool.map(one, targets))


def checks(
    attempts: Iterable[Attempt],
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
        why = f"{each.advice}; ssh: {each.why}"
        status = PENDING if check_mode else FAILED
        if not each.why:
            status, why = OK, ""
        elif each.host in lost:
            status = NOT_APPLICABLE
            why = f"{each.host} dropped out of this run earlier ({each.why})"
        elif each.host in incomplete:
            status = NOT_APPLICABLE
            why = f"the role was never applied there (run --tags ssh on it); {each.why}"
        pair = f"{here} -> {each.target}"
        found.append(Check("ssh_login", "reached", each.why or "reached", status, pair, why))
    return found
