# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""sshd of this node: validity, effective settings, presented certificate, refusals of the MPI user.

The operator's decisions (users, algorithms, PAM) are reported with file and line and not changed:
a role that overrode them would open up a locked-down system.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

from ..core.checks import FAILED, OK, Check
from ..core.commands import CommandError, Result, Runner, find_program
from ..core.text import one_line, shortened
from .keys import DROP_IN, KEY_TYPE, PORT

CERTIFICATE_TYPE = f"{KEY_TYPE}-cert-v01@openssh.com"
UNITS = ("ssh.service", "sshd.service")
"""The unit's name on Debian, and on other systems."""

STARTING = 4
"""Concurrent logins to a node: the launcher's, two from a neighbour, one by Ansible. Above the
first number of MaxStartups, sshd drops some connections that are not authenticated yet.
"""
NOLOGIN = ("/etc/nologin", "/run/nologin")
MAX_SHOWN = 200
POLICIES = "/etc/crypto-policies/"
"""Files of RHEL that sshd includes and update-crypto-policies regenerates: edits are lost."""
_SET = re.compile(r"^debug3: (/\S+?)(?::| line )(\d+):? setting (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class SshdSettings:
    """sshd's effective settings for one user, by keyword, as `sshd -T` prints them."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """`file:line` of each keyword that is not at its default."""

    def first(self, keyword: str) -> str:
        return (self.values.get(keyword) or [""])[0]

    def words(self, keyword: str) -> list[str]:
        return " ".join(self.values.get(keyword, [])).replace(",", " ").split()

    def foreign(self, keyword: str) -> str:
        """`file:line` if a foreign file sets it; empty for the collection's drop-in."""
        place = self.places.get(keyword, "")
        return "" if f"/{DROP_IN}:" in place else place


def places_of(log: str) -> dict[str, str]:
    """`file:line` of each keyword, from the log of `sshd -ddd -T -C ...`."""
    places: dict[str, str] = {}
    # Then sshd reads matching blocks, whose settings take precedence. The first one counts.
    for part in log.split("config reprocess"):
        for file, line, keyword in reversed(_SET.findall(part)):
            # Files may use old names of keywords; `sshd -T` prints the new ones.
            places[keyword.lower().replace("keytypes", "algorithms")] = f"{file}:{line}"
    return places


@dataclass(frozen=True)
class Sshd:
    """The sshd of this node."""

    config: Path
    run: Runner

    def _ask(self, *words: str) -> Result:
        """Run sshd. Debian's needs a directory, which its unit creates at each start."""
        # sshd must be called by its absolute path.
        argv = [find_program("sshd") or "sshd", *words, "-f", str(self.config)]
        answer = self.run(argv, check=False)
        missing = re.search(r"Missing privilege separation directory: (/run/\S+)", answer.stderr)
        if missing:
            Path(missing[1]).mkdir(mode=0o755, exist_ok=True)
            answer = self.run(argv, check=False)
        return answer

    def fault(self) -> str:
        """The errors of `sshd -t`; empty if the configuration is valid."""
        tried = self._ask("-t")
        return "" if tried.rc == 0 else (tried.stderr.strip() or f"exit status {tried.rc}")

    def settings(self, user: str, address: str = "127.0.0.1", port: int = PORT) -> SshdSettings:
        """Effective settings for a login of this user from a host like this one."""
        host = "localhost" if address == "127.0.0.1" else address
        connection = f"user={user},host={host},addr={address},laddr={address},lport={port}"
        answer = self._ask("-ddd", "-T", "-C", connection)
        if answer.rc != 0:
            errors = [line for line in answer.stderr.splitlines() if not line.startswith("debug")]
            raise CommandError(f"sshd -T: {' '.join(errors) or f'exit status {answer.rc}'}")
        values: dict[str, list[str]] = {}
        for line in answer.stdout.splitlines():
            keyword, _separator, value = line.partition(" ")
            values.setdefault(keyword.lower(), []).append(value.strip())
        return SshdSettings(values, places_of(answer.stderr))

    def running_unit(self) -> str:
        """The unit of the running sshd; empty if none is running (until a socket starts one)."""
        active = ["systemctl", "is-active", "--quiet"]
        running = (unit for unit in UNITS if self.run([*active, unit], check=False).rc == 0)
        return next(running, "")

    def reload(self) -> None:
        """Have the running sshd reload its files. Open sessions are not affected."""
        unit = self.running_unit()
        if unit:
            self.run(["systemctl", "reload", unit])

    def presented(self, settings: SshdSettings) -> Optional[str]:
        """The host certificate that the running sshd presents, as a line; None without one."""
        listens = settings.first("listenaddress") or f"0.0.0.0:{PORT}"
        host, _separator, port = listens.rpartition(":")
        host = host.strip("[]")
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        argv = ["ssh-keyscan", "-c", "-t", "ed25519", "-T", "5", "-p", port, address]
        for line in self.run(argv, check=False).stdout.splitlines():
            words = line.split()
            if CERTIFICATE_TYPE in words:
                return " ".join(words[words.index(CERTIFICATE_TYPE) :][:2])
        return None


def login_checks(
    settings: SshdSettings,
    root: Path,
    user: str,
    groups: Sequence[str],
    signed_by: str,
) -> list[Check]:
    """Check the operator's settings for anything that refuses a login of the MPI user by
    certificate, with the remedy. `signed_by`: type of the key that signs user certificates.
    """
    return [
        *_lists(settings, user, groups),
        *_values(settings, user, signed_by),
        _nologin(settings, root),
    ]


def _check(
    settings: SshdSettings, keyword: str, wanted: str, actual: str, right: bool, step: str
) -> Check:
    name, actual = f"sshd_{keyword}", shortened(one_line(actual), MAX_SHOWN)
    if right:
        return Check(name, wanted, actual, OK)
    place = settings.places.get(keyword, "/etc/ssh/sshd_config")
    where = f"in {place}"
    if place.startswith(POLICIES):
        where = f"with update-crypto-policies --set, which writes {place}"
    by_hand = f"{step} {where}, then systemctl reload {' or '.join(unit[:-8] for unit in UNITS)}"
    return Check(name, wanted, actual, FAILED, "", by_hand, by_hand=by_hand)


def _lists(settings: SshdSettings, user: str, groups: Sequence[str]) -> Iterator[Check]:
    """User and group lists, as in allowed_user of OpenSSH's auth.c.

    `user@hosts` may admit or refuse some hosts only, and is not taken for a fault.
    """

    def matches(pattern: str, names: Sequence[str]) -> bool:
        # As in sshd, only * and ? are special.
        return any(fnmatchcase(name, pattern.replace("[", "[[]")) for name in names)

    def is_user(pattern: str, allows: bool) -> bool:
        name, at, _hosts = pattern.partition("@")
        return matches(name, [user]) and (allows or not at)

    def has_group(pattern: str, _allows: bool) -> bool:
        return matches(pattern, groups)

    lists: dict[str, tuple[bool, Callable[[str, bool], bool], str]] = {
        "denyusers": (False, is_user, user),
        "allowusers": (True, is_user, user),
        "denygroups": (False, has_group, f"a group of {user}"),
        "allowgroups": (True, has_group, f"a group of {user}"),
    }
    for keyword, (allows, of, entry) in lists.items():
        # One per line, as group names may contain blanks, and lists of hosts commas.
        patterns = settings.values.get(keyword, [])
        right = not patterns or any(of(pattern, allows) for pattern in patterns) is allows
        step = f"add {entry} to {keyword}" if allows else f"remove {entry} from {keyword}"
        actual = ", ".join(patterns) or "none"
        yield _check(settings, keyword, f"{user} admitted", actual, right, step)


def _values(settings: SshdSettings, user: str, signed_by: str) -> Iterator[Check]:
    def has(keyword: str, algorithms: Sequence[str]) -> Check:
        actual = settings.words(keyword)
        # Versions without this keyword print nothing.
        right = not actual or any(algorithm in actual for algorithm in algorithms)
        desired = " or ".join(algorithms)
        shown = desired if right else ",".join(actual)
        step = f"add {algorithms[0]} to {keyword}"
        return _check(settings, keyword, desired, shown, right, step)

    signs = ["rsa-sha2-512", "rsa-sha2-256"] if signed_by == "ssh-rsa" else [signed_by or KEY_TYPE]
    yield has("pubkeyacceptedalgorithms", [CERTIFICATE_TYPE])
    yield has("casignaturealgorithms", signs)
    yield has("hostkeyalgorithms", [CERTIFICATE_TYPE])
    keywords = {"usepam": "yes", "forcecommand": "none", "chrootdirectory": "none"}
    for keyword, wanted in keywords.items():
        actual = settings.first(keyword) or wanted
        step = f"set {keyword} to {wanted} for {user}"
        yield _check(settings, keyword, wanted, actual, actual == wanted, step)
    # `start:rate:full`; `start` is the number above which connections are dropped.
    value = settings.first("maxstartups")
    begin = value.partition(":")[0]
    right = not begin.isdigit() or int(begin) >= STARTING
    step = f"raise maxstartups to {STARTING} or more"
    yield _check(settings, "maxstartups", f"{STARTING} or more", value or "none", right, step)


def _nologin(settings: SshdSettings, root: Path) -> Check:
    """Files by which PAM (pam_nologin) refuses everyone except root; without PAM, sshd itself."""
    present = {}
    for name in NOLOGIN[: 1 if settings.first("usepam") == "no" else None]:
        with suppress(OSError), open(root / name.lstrip("/"), errors="replace") as file:
            present[name] = shortened(one_line(file.read(1 << 16)), MAX_SHOWN)
    if not present:
        return Check("nologin", "no file", "no file", OK)
    actual = "; ".join(f"{name}: {text}" for name, text in present.items())
    step = f"rm {' '.join(present)} after the announced event"
    return Check("nologin", "no file", actual, FAILED, "", step, by_hand=step)
