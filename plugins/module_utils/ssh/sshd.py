# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's sshd: does its configuration hold, what does it come to, what does it present."""

from __future__ import annotations

import fnmatch
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Result, Runner, run
from ..core.dataclass import dataclass
from .certificates import CERTIFICATE_TYPE

PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin"
UNITS = ("ssh.service", "sshd.service")
"""Debian's name for it, and everybody else's."""


@dataclass(frozen=True)
class Settings:
    """sshd's effective settings for one user, as `sshd -T` tells them."""

    values: dict[str, list[str]]

    def first(self, keyword: str) -> str:
        return (self.values.get(keyword) or [""])[0]

    def patterns(self, keyword: str) -> list[str]:
        """The names of a list of users or groups, without the hosts they may come from."""
        words = " ".join(self.values.get(keyword, [])).split()
        return [word.split("@")[0] for word in words]


def refusal(settings: Settings, user: str, groups: Sequence[str]) -> str:
    """The rule of the operator by which sshd admits this user from nowhere; empty when none."""
    for keyword, names in (("Users", [user]), ("Groups", groups)):
        denied = settings.patterns(f"deny{keyword.lower()}")
        allowed = settings.patterns(f"allow{keyword.lower()}")
        if _any_matches(names, denied):
            return f"Deny{keyword} {' '.join(denied)}"
        if allowed and not _any_matches(names, allowed):
            return f"Allow{keyword} {' '.join(allowed)}"
    return ""


def _any_matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


class Sshd:
    """The daemon of this node."""

    def __init__(self, config: Path, runner: Runner = run) -> None:
        self.config = config
        self.run = runner

    def _program(self) -> str:
        found = shutil.which("sshd", path=PATH)
        if found is None:
            raise CommandError(
                "sshd: not installed (looked in /usr/sbin): install the package openssh-server"
            )
        return found

    def _ask(self, *words: str) -> Result:
        """What sshd answers. Debian's wants a directory, which its unit makes at each start."""
        argv = [self._program(), *words, "-f", str(self.config)]
        answer = self.run(argv, check=False)
        missing = re.search(r"Missing privilege separation directory: (/run/\S+)", answer.stderr)
        if missing:
            Path(missing[1]).mkdir(mode=0o755, exist_ok=True)
            answer = self.run(argv, check=False)
        return answer

    def fault(self) -> str:
        """What `sshd -t` finds wrong with the configuration; empty when it holds."""
        tried = self._ask("-t")
        return "" if tried.rc == 0 else (tried.stderr.strip() or f"exit status {tried.rc}")

    def settings(self, user: str) -> Settings:
        """What the configuration comes to for a login of this user."""
        connection = f"user={user},host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport=22"
        answer = self._ask("-T", "-C", connection)
        if answer.rc != 0:
            raise CommandError(f"sshd -T: {answer.stderr.strip() or f'exit status {answer.rc}'}")
        values: dict[str, list[str]] = {}
        for line in answer.stdout.splitlines():
            keyword, _separator, value = line.partition(" ")
            values.setdefault(keyword.lower(), []).append(value.strip())
        return Settings(values)

    def running_unit(self) -> str:
        """The unit of the sshd that runs; empty when none does (until a socket starts one)."""
        for unit in UNITS:
            if self.run(["systemctl", "is-active", "--quiet", unit], check=False).rc == 0:
                return unit
        return ""

    def reload(self) -> None:
        """Have the running sshd read its files again. Sessions that are open stay open.

        When none runs, the next one that starts reads the new files anyhow.
        """
        unit = self.running_unit()
        if unit:
            self.run(["systemctl", "reload", unit])

    def presented(self, settings: Settings) -> Optional[str]:
        """The host certificate that the running sshd presents, as a line, or None."""
        address, port = listening(settings)
        argv = ["ssh-keyscan", "-c", "-t", "ed25519", "-T", "5", "-p", str(port), address]
        for line in self.run(argv, check=False).stdout.splitlines():
            words = line.split()
            if CERTIFICATE_TYPE in words:
                return " ".join(words[words.index(CERTIFICATE_TYPE) :][:2])
        return None


def listening(settings: Settings) -> tuple[str, int]:
    """An address and port of this node where its sshd answers."""
    host, _separator, port = (settings.first("listenaddress") or "0.0.0.0:22").rpartition(":")
    host = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), int(port)
