# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's sshd: whether its configuration is valid, its settings, what it presents, and which
of its settings would refuse the MPI user.

What a site decides (who may log in, by which algorithms, through PAM) is named with its file and
line and left: a role that overrode it would open what somebody closed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""Debian's name for it, and that of all others."""

STARTING = 4
"""Logins that begin together on a node: of the launcher, two of its neighbour, one of Ansible.
sshd drops some of those that have not ended yet from the first number of MaxStartups on."""
OF_ONE_SOURCE = 2
NOLOGIN = ("/etc/nologin", "/run/nologin")
PAM = "/etc/pam.d/sshd"
SHOWN = 200
POLICIES = "/etc/crypto-policies/"
"""Files of RHEL that sshd includes and that its tool makes anew: an edit there is lost."""
OTHER_NAMES = {"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms"}
"""Of keywords, in files; `sshd -T` prints the new one."""
_SET = re.compile(r"^debug3: (/\S+?)(?::| line )(\d+):? setting (\w+)")
_AGAIN = "config reprocess"
"""From here on sshd reads the blocks that match; what they set holds before all else."""


@dataclass(frozen=True)
class SshdSettings:
    """sshd's effective settings for one user, by keyword, as `sshd -T` prints them."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    """Where a keyword was set, as `file:line`; without those that have their default."""

    def first(self, keyword: str) -> str:
        return (self.values.get(keyword) or [""])[0]

    def words(self, keyword: str) -> list[str]:
        return " ".join(self.values.get(keyword, [])).replace(",", " ").split()

    def foreign(self, keyword: str) -> str:
        """Where another file than ours has set it; empty where ours has, or none."""
        place = self.places.get(keyword, "")
        return "" if f"/{DROP_IN}:" in place else place


def places_of(log: str) -> dict[str, str]:
    """Where each keyword got its value, of what `sshd -ddd -T -C ...` prints of its reading."""
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    again = 0
    for line in log.splitlines():
        if _AGAIN in line:
            again = 1
        at = _SET.match(line)
        if at:
            keyword = at[3].lower()
            found[again].setdefault(OTHER_NAMES.get(keyword, keyword), f"{at[1]}:{at[2]}")
    return {**found[0], **found[1]}


class Sshd:
    """The daemon of this node."""

    def __init__(self, config: Path, runner: Runner) -> None:
        self.config = config
        self.run = runner

    def _ask(self, *words: str) -> Result:
        """What sshd answers. Debian's needs a directory, which its unit makes at each start."""
        # By its full name: without, it refuses to start.
        argv = [find_program("sshd") or "sshd", *words, "-f", str(self.config)]
        answer = self.run(argv, check=False)
        missing = re.search(r"Missing privilege separation directory: (/run/\S+)", answer.stderr)
        if missing:
            Path(missing[1]).mkdir(mode=0o755, exist_ok=True)
            answer = self.run(argv, check=False)
        return answer

    def fault(self) -> str:
        """What `sshd -t` finds wrong with the configuration; empty when it is valid."""
        tried = self._ask("-t")
        return "" if tried.rc == 0 else (tried.stderr.strip() or f"exit status {tried.rc}")

    def settings(self, user: str, address: str = "127.0.0.1", port: int = PORT) -> SshdSettings:
        """The settings that hold for a login of this user from a host such as this one."""
        host = "localhost" if address == "127.0.0.1" else address
        connection = f"user={user},host={host},addr={address},laddr={address},lport={port}"
        answer = self._ask("-ddd", "-T", "-C", connection)
        if answer.rc != 0:
            told = [line for line in answer.stderr.splitlines() if not line.startswith("debug")]
            raise CommandError(f"sshd -T: {' '.join(told) or f'exit status {answer.rc}'}")
        values: dict[str, list[str]] = {}
        for line in answer.stdout.splitlines():
            keyword, _separator, value = line.partition(" ")
            values.setdefault(keyword.lower(), []).append(value.strip())
        return SshdSettings(values, places_of(answer.stderr))

    def running_unit(self) -> str:
        """The unit of the sshd that runs; empty when none does (until a socket starts one)."""
        for unit in UNITS:
            if self.run(["systemctl", "is-active", "--quiet", unit], check=False).rc == 0:
                return unit
        return ""

    def reload(self) -> None:
        """Have the running sshd read its files again. Open sessions stay open."""
        unit = self.running_unit()
        if unit:
            self.run(["systemctl", "reload", unit])

    def presented(self, settings: SshdSettings) -> Optional[str]:
        """The host certificate that the running sshd presents, as a line, or None."""
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


# What would refuse the MPI user.


@dataclass(frozen=True)
class MpiLogin:
    """Who logs in: the MPI user, from a host of the cluster's networks, by certificate."""

    user: str
    groups: Sequence[str]
    shell: str
    address: str
    """Of this node, for that of another in its network."""
    signed_by: str
    """Type of the key that signs users' certificates."""


def login_checks(
    settings: SshdSettings, login: MpiLogin, root: Path, *, strict: bool
) -> list[Check]:
    """What refuses this login though our own settings hold, with its place and the remedy."""
    return [
        *_lists(settings, login),
        *_values(settings, login, strict),
        *_files(settings, login, root),
    ]


def _check(
    settings: SshdSettings, keyword: str, wanted: str, found: str, right: bool, step: str
) -> Check:
    name, found = f"sshd_{keyword}", shortened(one_line(found), SHOWN)
    if right:
        return Check(name, wanted, found, OK)
    place = settings.places.get(keyword)
    where = f"in {place}" if place else "in sshd's configuration, which leaves the default"
    if place and place.startswith(POLICIES):
        where = f"with update-crypto-policies --set, which writes {place}"
    by_hand = f"{step} {where}, then systemctl reload {' or '.join(each[:-8] for each in UNITS)}"
    return Check(name, wanted, found, FAILED, "", by_hand, by_hand=by_hand)


def _lists(settings: SshdSettings, login: MpiLogin) -> Iterator[Check]:
    """As allowed_user of OpenSSH's auth.c: a list of those allowed is complete."""

    def user_in(patterns: Iterable[str], unknown: bool) -> bool:
        return any(_is_user(pattern, login, unknown) for pattern in patterns)

    def group_in(patterns: Iterable[str]) -> bool:
        return any(_matches(each, pattern) for pattern in patterns for each in login.groups)

    for keyword, allows, of in (
        ("denyusers", False, lambda patterns: user_in(patterns, False)),
        ("allowusers", True, lambda patterns: user_in(patterns, True)),
        ("denygroups", False, group_in),
        ("allowgroups", True, group_in),
    ):
        # One a line, of which a group's name may have blanks, and a list of hosts commas.
        patterns = settings.values.get(keyword, [])
        right = not patterns or of(patterns) is allows
        what = login.user if keyword.endswith("users") else f"a group of {login.user}"
        step = f"add {what} to {keyword}" if allows else f"leave {what} out of {keyword}"
        found = ", ".join(patterns) or "none"
        yield _check(settings, keyword, f"{login.user} admitted", found, right, step)


def _matches(text: str, pattern: str) -> bool:
    """To sshd only * and ? are special."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _is_user(pattern: str, login: MpiLogin, unknown: bool) -> bool:
    """`user` or `user@hosts`. Of a list of single hosts it is `unknown` whether it has them all."""
    name, _at, hosts = pattern.partition("@")
    if not _matches(login.user, name):
        return False
    if not hosts:
        return True
    found = {host: _is_host(host.lstrip("!"), login) for host in hosts.split(",")}
    if any(is_one for host, is_one in found.items() if host.startswith("!")):
        return False
    return any(
        unknown if is_one is None else is_one
        for host, is_one in found.items()
        if not host.startswith("!")
    )


def _is_host(pattern: str, login: MpiLogin) -> Optional[bool]:
    """Whether hosts of the cluster match; None where the pattern may be one of them."""
    if "/" in pattern:
        try:
            network = ipaddress.ip_network(pattern, strict=False)
        except ValueError:
            return None
        return ipaddress.ip_address(login.address) in network
    if re.fullmatch(r"[\d.*?]+", pattern) and re.search(r"[*?]", pattern):
        return _matches(login.address, pattern)
    return True if login.address == pattern else None


def _values(settings: SshdSettings, login: MpiLogin, strict: bool) -> Iterator[Check]:
    def has(keyword: str, algorithms: Sequence[str]) -> Check:
        there = settings.words(keyword)
        # A version that has no such keyword prints none.
        right = not there or any(each in there for each in algorithms)
        wanted = " or ".join(algorithms)
        found = wanted if right else ",".join(there)
        return _check(settings, keyword, wanted, found, right, f"add {algorithms[0]} to {keyword}")

    signs = [login.signed_by] if login.signed_by else [KEY_TYPE]
    if signs == ["ssh-rsa"]:
        signs = ["rsa-sha2-512", "rsa-sha2-256"]
    yield has("pubkeyacceptedalgorithms", [CERTIFICATE_TYPE])
    yield has("casignaturealgorithms", signs)
    yield has("hostkeyalgorithms", [CERTIFICATE_TYPE])
    keywords = {"usepam": "yes", "forcecommand": "none", "chrootdirectory": "none"}
    for keyword, wanted in keywords.items():
        found = settings.first(keyword) or wanted
        step = f"set {keyword} to {wanted} for {login.user}"
        yield _check(settings, keyword, wanted, found, found == wanted, step)
    if not strict:  # else ours sets it
        methods = settings.first("authenticationmethods") or "any"
        right = bool({"any", "publickey"}.intersection(methods.split()))
        step = f"add publickey to authenticationmethods for {login.user}"
        yield _check(settings, "authenticationmethods", "publickey", methods, right, step)
    least = {
        "maxstartups": STARTING,
        "persourcemaxstartups": OF_ONE_SOURCE,
        "maxsessions": 1,
        "maxauthtries": 1,
    }
    for keyword, number in least.items():
        value = settings.first(keyword)
        begin = value.partition(":")[0]
        right = not begin.isdigit() or int(begin) >= number
        step = f"raise {keyword} to {number} or more"
        yield _check(settings, keyword, f"{number} or more", value or "none", right, step)


def _files(settings: SshdSettings, login: MpiLogin, root: Path) -> Iterator[Check]:
    def read(name: str) -> Optional[str]:
        try:
            with open(root / name.lstrip("/"), encoding="utf-8", errors="replace") as file:
                return file.read(1 << 16)
        except OSError:
            return None

    pam = settings.first("usepam") != "no"
    lines = [line.strip() for line in (read(PAM) or "").splitlines()]
    modules = " ".join(line for line in lines if not line.startswith("#"))
    there = {name: text for name in NOLOGIN if (text := read(name)) is not None}
    if pam and lines and "pam_nologin" not in modules:
        there = {}
    if not pam:  # sshd looks for the first one itself
        there = {name: text for name, text in there.items() if name == NOLOGIN[0]}
    status, step = (
        (FAILED, f"rm {' '.join(there)} when what it announces is over") if there else (OK, "")
    )
    said = "; ".join(f"{name}: {shortened(one_line(text), SHOWN)}" for name, text in there.items())
    yield Check("nologin", "no file", said or "no file", status, "", step, by_hand=step)
    shells = (read("/etc/shells") or "").split()
    if pam and "pam_shells" in modules and login.shell not in shells:
        step = f"add {login.shell} to /etc/shells, which pam_shells of {PAM} asks"
        yield Check(
            "shell_listed", login.shell, "not in /etc/shells", FAILED, "", step, by_hand=step
        )
