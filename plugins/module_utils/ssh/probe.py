# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Log in from this host to others as the MPI user, and explain every failure.

Each pair of hosts gets a check that names the host at fault, which for a refused login may be the
other one.
"""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core import resolve
from ..core.checks import NOT_APPLICABLE, OK, Check, differs
from ..core.commands import CommandError, run
from ..core.text import one_line
from ..os_baseline import filters
from . import client, paths, session
from .refusals import EITHER, HERE, LOG, RUN, TARGET, Refusal, blamed
from .sshd import Sshd

Attempt = Mapping[str, Any]
"""A target with the result of its login or its packets. `why` is empty on success; `side` and
`remedy` are those of Refusal."""
ANSWERED = " answered"
NOTHING = "nothing"
HOSTS = Path("/etc/hosts")
UNKNOWN = re.compile("Could not resolve hostname|[Nn]ame or service not known|name resolution")


def attempt(
    target: Mapping[str, Any],
    user: pwd.struct_passwd,
    timeout_s: int,
    back: Optional[paths.Listener] = None,
    networks: Sequence[str] = (),
) -> dict[str, Any]:
    """Log in as the MPI user by one of the host's names, or send packets over one of its rails.

    During a login the host connects to `back` over `networks`.
    """
    began = time.monotonic()
    result = dict(target)
    if target.get("rail"):
        why, end = paths.carried(run, target["rail"], target["target"], target.get("witness", ""))
        result["lossy"] = bool(end)
        failure = Refusal(why, end or EITHER)
    else:
        failure = _login(result, user, timeout_s, back, networks)
    reported = asdict(failure)
    result["why"] = reported.pop("line")
    return {**result, **reported, "seconds": round(time.monotonic() - began, 3)}


def _login(
    result: dict[str, Any],
    user: pwd.struct_passwd,
    timeout_s: int,
    back: Optional[paths.Listener],
    networks: Sequence[str],
) -> Refusal:
    host, target = result["host"], result["target"]
    # A login by the host's own name proves the key exchange; further names may use a quick one.
    command = client.argv(target, timeout_s, session.QUICKLY if target != host else ())
    called = [back.call(networks)] if back else []
    printed, _errors, failure = client.ask([*command, *called], user, timeout_s)
    if failure.line:
        return failure
    if back:
        result["back"] = back.heard(printed, networks)
    # Only the last word counts, as login files may print others before it.
    name = (printed.split() or [NOTHING])[-1]
    # With or without the domain (cluster_hosts_name).
    if f"{name}.".startswith(f"{host}.") or f"{host}.".startswith(f"{name}."):
        return failure
    # Another host of the cluster answered if /etc/hosts lists it: this host takes a wrong path.
    # Otherwise the target has a different name, or a login file prevented the command.
    side = HERE if name in HOSTS.read_text("utf-8", "replace").split() else TARGET
    return Refusal(f"{one_line(name)[:64]}{ANSWERED}", side)


@dataclass(frozen=True)
class Verdicts:
    """Evaluates the attempts made from one host."""

    here: str
    lost: Collection[str] = ()
    """Hosts that failed earlier in this run; this is reported elsewhere."""
    incomplete: Collection[str] = ()
    """Hosts on which the role never succeeded."""
    misled: Mapping[str, str] = field(default_factory=dict)
    """Targets for which ssh's settings on this host are wrong, and the step that corrects them."""
    resolver_step: str = ""
    """Step that makes the resolver use /etc/hosts; empty if it does."""
    check_mode: bool = False

    def checks(self, attempts: Sequence[Attempt]) -> list[Check]:
        """One check per attempt."""
        logins = [attempt for attempt in attempts if not attempt.get("rail")]
        counted = [login for login in logins if login["host"] not in {*self.lost, *self.incomplete}]
        everyone = {login["host"] for login in counted}
        failed = {login["host"]: login.get("side", "") for login in counted if login["why"]}
        silent = {
            login["host"]
            for login in logins
            if login["target"] == login["host"]
            and login["why"]
            and login["target"] not in self.misled
        }

        def at(attempt: Attempt) -> str:
            """The host at fault; empty for this one."""
            host, side = attempt["host"], attempt.get("side", HERE)
            if attempt.get("rail"):
                return host if attempt.get("lossy") and side == TARGET else ""
            if attempt["target"] in self.misled:
                return ""
            if side == EITHER and attempt["target"] != host and host not in silent:
                return ""  # its sshd answers under its own name: the rail between them is at fault
            return blamed(side, host, failed, everyone)

        return [self._check(attempt, at(attempt)) for attempt in attempts]

    def _check(self, attempt: Attempt, at: str) -> Check:
        host, reason = attempt["host"], attempt["why"]
        name = "rail_peer" if attempt.get("rail") else "ssh_login"
        pair = f"{self.here} -> {attempt['target']}"
        if not reason:
            return Check(name, "reached", "reached", OK, pair)
        skipped = ""
        if host in self.lost:
            skipped = f"{host} dropped out of this run earlier ({reason})"
        elif host in self.incomplete:
            skipped = f"the role was never applied there (run --tags ssh on it); {reason}"
        if skipped and not reason.endswith(ANSWERED):
            return Check(name, "reached", reason, NOT_APPLICABLE, pair, skipped)
        remedy, status = self._remedy(attempt, at), differs(self.check_mode)
        step = "" if remedy.startswith(RUN) else remedy
        return Check(name, "reached", reason, status, pair, remedy, at=at, by_hand=step)

    def _remedy(self, attempt: Attempt, at: str) -> str:
        here, host, target = self.here, attempt["host"], attempt["target"]
        reason, rail = attempt["why"], attempt.get("rail", "")
        if target in self.misled and not rail:
            return self.misled[target]
        if reason == f"{NOTHING}{ANSWERED}":
            return (
                f"a login file of the MPI user on {host} ends or replaces the shell: .bashrc,"
                " .profile, /etc/profile.d"
            )
        if reason.endswith(ANSWERED):
            return f"{RUN} names on {here} and {host}, or look for HostName in ssh -G {target}"
        if attempt.get("lossy"):
            return paths.ends(attempt["side"], rail, here, host)
        if self.resolver_step and UNKNOWN.search(reason):
            return self.resolver_step
        if rail:
            return f"{RUN} rails,links on {here} and {host}: neighbour entries, cable, MTU"
        return attempt.get("remedy") or (
            f"{RUN} names,ssh on {at or here}, which checks names, keys, account and sshd; then"
            f" ssh -v as the MPI user on {here}, and {LOG} on {host}"
        )


def networks_of(target: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Networks over which a host connects back: management and shared rails, once per host."""
    if target["target"] != target["host"]:
        return []
    return [paths.MANAGEMENT, *(other["rail"] for other in targets if _same_rail(target, other))]


def _same_rail(target: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(other.get("rail")) and other["host"] == target["host"]


def connections(
    attempts: Sequence[Attempt], addresses: Mapping[str, str], here: str, check_mode: bool
) -> Iterator[Check]:
    """Checks of the connections back. A rail without any packets has its own check, `rail_peer`."""
    heard = []
    for attempt in attempts:
        broken = {to["rail"] for to in attempts if _same_rail(attempt, to) and to["why"]}
        codes = attempt.get("back", {})
        heard.append({name: code for name, code in codes.items() if name not in broken})
    refused = {name for codes in heard for name, code in codes.items() if paths.is_refused(code)}
    reasons: dict[str, str] = {}
    step = ""
    if refused:
        listed = [name for codes in heard for name in codes if name in refused]
        reasons, step = filters.filters(run, [addresses[name] for name in dict.fromkeys(listed)])
    for attempt, codes in zip(attempts, heard):
        named = {name: (reasons[addresses[name]], step) for name in refused}
        yield from paths.back(here, attempt["host"], codes, named, check_mode)


def without_pam() -> str:
    """Explain why sshd applies no PAM limits; empty if it does."""
    try:
        values = Sshd(Path("/etc/ssh/sshd_config"), run).settings("root")
    except CommandError as error:
        return str(error)
    return "sshd has UsePAM no" if values.first("usepam") == "no" else ""


def probe(
    given: Mapping[str, Any], user: pwd.struct_passwd, check_mode: bool
) -> tuple[list[dict[str, Any]], list[Check]]:
    """Try every target and this host's own session; returns the attempts and all checks.

    `given` are the arguments of the module.
    """
    here, targets, timeout_s = given["here"], given["targets"], given["timeout_s"]
    session.end_abandoned(user)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=given["parallel"] + 1))
        back = stack.enter_context(paths.Listener(given["addresses"]))
        own = pool.submit(
            session.look, here, user, timeout_s, check_mode=check_mode, use_pam=without_pam
        )

        def tried(target: Mapping[str, Any]) -> dict[str, Any]:
            return attempt(target, user, timeout_s, back, networks_of(target, targets))

        attempts = list(pool.map(tried, targets))
    settings = {
        target["target"]: client.checks(target, user, timeout_s, check_mode)
        for target in client.to_check(attempts)
    }
    wrong = {
        target: check.by_hand
        for target, compared in settings.items()
        for check in reversed(compared)
        if check.by_hand
    }
    verdicts = Verdicts(
        here,
        given["lost"],
        given["incomplete"],
        misled=wrong,
        resolver_step=resolve.source_check().by_hand,
        check_mode=check_mode,
    )
    return attempts, [
        *verdicts.checks(attempts),
        *client.without_repeats(settings),
        *connections(attempts, given["addresses"], here, check_mode),
        *own.result(),
    ]
