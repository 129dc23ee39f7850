# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run ssh as the MPI user, and check its effective settings for a target.

A file that ssh reads before the collection's can set a value first and thereby disable host key
verification or redirect a login.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.checks import OK, Check, differs
from ..core.commands import CommandError, NoAnswerError, run
from ..core.text import one_line, shortened
from . import session
from .keys import DROP_IN, KNOWN_HOSTS, REVOKED, USER_CERTIFICATE, USER_KEY
from .refusals import Refusal, refusal
from .sshd import CERTIFICATE_TYPE

MAX_VALUE = 8000
"""Maximum length of a setting: lists of algorithms are long."""
MAX_SHOWN = 200
MAX_TARGETS = 4
"""Number of failed targets whose settings are checked, in addition to the first target."""
GRACE_S = 20.0
"""Seconds for authentication and the start of a shell, after the connection."""


def argv(target: str, timeout_s: int, options: Sequence[str] = ()) -> list[str]:
    """ssh as mpirun calls it. Host key verification is left to the host's settings, in order to
    prove them.
    """
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={timeout_s}", *options]
    return ["ssh", "-n", *options, "--", target, "uname", "-n"]


def ask(
    command: Sequence[str], user: pwd.struct_passwd, timeout_s: float
) -> tuple[str, str, Refusal]:
    """Run a command as the MPI user; returns stdout, stderr and the reason for a failure."""
    try:
        done = run(command, check=False, timeout_s=timeout_s + GRACE_S, popen=session.as_user(user))
    except NoAnswerError:
        return "", "", refusal("ssh: timed out after the connection", 0)
    except CommandError as error:
        return "", "", Refusal(one_line(str(error)))
    return done.stdout, done.stderr, refusal(done.stderr, done.rc) if done.rc else Refusal("")


def checks(
    target: Mapping[str, Any], user: pwd.struct_passwd, timeout_s: float, check_mode: bool
) -> list[Check]:
    """Compare the settings that `ssh -G` reports for a target with those of the collection."""
    name = target["target"]
    printed, log, failure = ask(["ssh", "-G", "-v", "--", name], user, timeout_s)
    compared = []
    for keyword, (desired, actual) in _settings(printed, target, user).items():
        if desired == actual or (keyword == "hostname" and actual.startswith(f"{name}.")):
            compared.append(Check("ssh_client", desired, actual, OK, keyword))
            continue
        place = place_of(log, keyword, desired, actual, user, timeout_s)
        step = failure.line or (f"remove {keyword} from {place}" if place else "")
        reason = step or f"{DROP_IN} must come first (ssh -Gv {name} prints the order of files)"
        status = differs(check_mode)
        compared.append(Check("ssh_client", desired, actual, status, keyword, reason, by_hand=step))
    return compared


def place_of(
    log: str,
    keyword: str,
    desired: str,
    actual: str,
    user: pwd.struct_passwd,
    timeout_s: float,
) -> str:
    """`file:line` of a setting in the files that `ssh -v` read; empty for the drop-in, which the
    role repairs. They are read as the user, who chooses them; -D skips pipes."""
    files = re.findall(r"^debug1: Reading configuration data (/\S+)$", log, re.MULTILINE)
    grep = ["grep", "-aHinsDskip", rf"^\s*{keyword}\b", "--", "/dev/null", *files]
    lines = ask(grep, user, timeout_s)[0].split("\n")
    places: dict[bool, str] = {}
    for file, number, line in (line.split(":", 2) for line in lines if line):
        value = re.split(r'[\s="]+', line.strip())[1:2]
        if value != desired.split()[:1]:
            # Lines for other hosts have other values, and ssh rewrites some, such as %h.
            exact = value == actual.split()[:1]
            places.setdefault(exact, "" if file.endswith(DROP_IN) else f"{file}:{number}")
    return one_line(places.get(True, places.get(False, "")))


def _settings(
    printed: str, target: Mapping[str, Any], user: pwd.struct_passwd
) -> dict[str, tuple[str, str]]:
    """Keyword to desired and actual value."""
    settings: dict[str, list[str]] = {}
    for line in printed.splitlines():
        keyword, _blank, rest = line.partition(" ")
        settings.setdefault(keyword, []).append(shortened(one_line(rest), MAX_VALUE))
    actual = {keyword: " ".join(values) for keyword, values in settings.items()}
    exact = {
        "stricthostkeychecking": "yes",
        "revokedhostkeys": REVOKED,
        "user": user.pw_name,
        "hostname": target["target"],
        "port": str(target.get("port", 22)),
        "identitiesonly": "yes",
        "proxycommand": "none",
        "proxyjump": "none",
    }
    listed = {
        "globalknownhostsfile": KNOWN_HOSTS,
        "identityfile": USER_KEY,
        "certificatefile": USER_CERTIFICATE,
        "hostkeyalgorithms": CERTIFICATE_TYPE,
        "pubkeyacceptedalgorithms": CERTIFICATE_TYPE,
    }
    compared = {}
    for keyword, desired in exact.items():
        found = actual.get(keyword, "none" if desired == "none" else "")
        compared[keyword] = desired, {"true": "yes", "false": "no"}.get(found, found)
    for keyword, desired in listed.items():
        found = actual.get(keyword, "")
        present = desired in re.split("[ ,]", found)
        compared[keyword] = desired, desired if present else shortened(found, MAX_SHOWN)
    return compared


def to_check(attempts: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The first target, and failed logins, which settings may have caused."""
    logins = [attempt for attempt in attempts if not attempt.get("rail")]
    yield from (logins or attempts)[:1]
    yield from [attempt for attempt in logins[1:] if attempt["why"]][:MAX_TARGETS]


def without_repeats(by_target: Mapping[str, Sequence[Check]]) -> Iterator[Check]:
    """All checks of the first target; of further targets, only failures not reported yet."""
    reported: set[tuple[str, str]] = set()
    for index, (target, compared) in enumerate(by_target.items()):
        new = [
            check
            for check in compared
            if check.status != OK and (check.subject, check.by_hand) not in reported
        ]
        reported.update((check.subject, check.by_hand) for check in new)
        if index == 0:
            yield from compared
        else:
            yield from (replace(check, subject=f"{check.subject} of {target}") for check in new)
