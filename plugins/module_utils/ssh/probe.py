# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The proof: log in as the MPI user, as mpirun will, and say plainly why it did not work."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ..core.dataclass import dataclass
from .account import Account

TIMEOUT = "no answer in time"
RERUN = "run --tags ssh on that host"
REASONS: tuple[tuple[str, str, str], ...] = (
    (
        r"Certificate invalid: name is not a listed principal",
        "host certificate is for other names",
        f"its name or addresses changed: {RERUN}",
    ),
    (
        r"Certificate invalid: (expired|not yet valid)",
        "host certificate expired or not valid yet",
        "compare the clocks of both hosts, then run --tags ssh on that host",
    ),
    (
        r"REVOKED|[Rr]evoked host|revoked by file",
        "revoked host key",
        "it left the inventory once; --tags ssh on it gives it new certificates",
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "host key is not the one known",
        f"{RERUN}, so that its present key becomes known",
    ),
    (
        r"No .* host key is known|Host key verification failed",
        "unknown host key",
        f"{RERUN}: it presents no certificate of this cluster",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "permission denied",
        f"{RERUN}; its sshd's log says which rule refused",
    ),
    (r"timed out", TIMEOUT, "is the host up, and the path to it (firewall, VLAN, cable)?"),
    (r"Connection refused", "connection refused", "sshd does not run there, or not on this port"),
    (
        r"No route to host|Network is unreachable",
        "no route",
        "routing or ARP: see the layer rails for rail names",
    ),
    (
        r"Could not resolve hostname|Name or service not known",
        "name does not resolve",
        "run --tags names on this host",
    ),
    (
        r"Connection (closed|reset)|kex_exchange_identification",
        "connection closed",
        "sshd there closed it at once: its log says why (MaxStartups, tcp wrappers)",
    ),
)
"""What ssh prints, what it means and what to do about it; the most telling first."""
ADVICE = {meaning: advice for _pattern, meaning, advice in REASONS}

GRACE_S = 20.0
"""Seconds for a login beyond those for the connection: authentication, a shell's start."""


@dataclass(frozen=True)
class Target:
    """Whom to reach: the host it belongs to, and the name or address to reach it by."""

    host: str
    target: str


@dataclass(frozen=True)
class Attempt:
    """How one login went. `why` is empty when it went well; `told` is ssh's own telling line."""

    target: Target
    why: str
    told: str
    seconds: float


def reason(stderr: str, status: int) -> tuple[str, str]:
    """Why ssh did not get through, from what it printed, and the line that says so."""
    lines = [line.strip()[:300] for line in stderr.splitlines() if line.strip()]
    for pattern, meaning, _advice in REASONS:
        for line in lines:
            if re.search(pattern, line):
                return meaning, line
    return f"ssh ended with status {status}", lines[-1] if lines else ""


def argv(target: str, timeout_s: int) -> list[str]:
    """As mpirun starts its daemons, and never waiting for a person.

    Host keys are checked by the settings of the node, which is what is to be proved.
    """
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}"]
    return ["ssh", "-n", *options, "--", target, "true"]


def attempt(target: Target, account: Account, timeout_s: int) -> Attempt:
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
            argv(target.target, timeout_s),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            # A login that hangs after the connection is no login either.
            timeout=timeout_s + GRACE_S,
            env=environment,
            cwd="/",
            check=False,
            **identity,
        )
    except subprocess.TimeoutExpired:
        return Attempt(target, TIMEOUT, "ssh was ended", time.monotonic() - began)
    except FileNotFoundError:
        return Attempt(target, "ssh is not installed here", "", 0.0)
    why, told = ("", "") if done.returncode == 0 else reason(done.stderr, done.returncode)
    return Attempt(target, why, told, time.monotonic() - began)


def probe(
    targets: Sequence[Target],
    account: Account,
    *,
    timeout_s: int,
    parallel: int,
    attempt_one: Callable[[Target, Account, int], Attempt] = attempt,
) -> list[Attempt]:
    """Every target, so many at a time, in the order given."""
    if not targets:
        return []
    with ThreadPoolExecutor(max_workers=min(parallel, len(targets))) as pool:
        return list(pool.map(lambda each: attempt_one(each, account, timeout_s), targets))


def checks(
    attempts: Iterable[Attempt],
    lost: Collection[str],
    unlaid: Collection[str] = (),
    *,
    here: str,
    check_mode: bool,
) -> list[Check]:
    """A verdict for each pair.

    Hosts in `lost` already failed in this run, under their own name. Those in `unlaid` were never
    in a run: there is nothing yet that could hold.
    """
    found = []
    for each in attempts:
        pair = f"{here} -> {each.target.target}"
        if not each.why:
            found.append(Check("ssh_login", "reached", "reached", OK, pair))
        elif each.target.host in lost:
            told = f"{each.target.host} dropped out of this run earlier ({each.why})"
            found.append(Check("ssh_login", "reached", each.why, NOT_APPLICABLE, pair, told))
        elif each.target.host in unlaid:
            told = f"trust not laid there yet (run --tags ssh on it); {each.why}"
            found.append(Check("ssh_login", "reached", each.why, NOT_APPLICABLE, pair, told))
        else:
            advice = ADVICE.get(each.why, "try it by hand as the MPI user, with ssh -v")
            told = f"{advice}; ssh: {each.told}" if each.told else advice
            status = PENDING if check_mode else FAILED
            found.append(Check("ssh_login", "reached", each.why, status, pair, told))
    return found


def not_laid(targets: Iterable[Target], why: str, *, here: str) -> list[Check]:
    """Check mode on a host where the trust is yet to be laid: nothing to prove so far."""
    return [
        Check("ssh_login", "reached", None, PENDING, f"{here} -> {each.target}", why)
        for each in targets
    ]
