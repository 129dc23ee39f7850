# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's sshd: whether its configuration is valid, its settings, what it presents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Result, Runner, find_program
from .keys import KEY_TYPE

CERTIFICATE_TYPE = f"{KEY_TYPE}-cert-v01@openssh.com"
UNITS = ("ssh.service", "sshd.service")
"""Debian's name for it, and that of all others."""

Settings = Mapping[str, Sequence[str]]
"""sshd's effective settings for one user, by keyword, as `sshd -T` prints them."""


def first(settings: Settings, keyword: str) -> str:
    return (settings.get(keyword) or [""])[0]


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

    def settings(self, user: str) -> dict[str, list[str]]:
        """The settings that hold for a login of this user."""
        connection = f"user={user},host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport=22"
        answer = self._ask("-T", "-C", connection)
        if answer.rc != 0:
            raise CommandError(f"sshd -T: {answer.stderr.strip() or f'exit status {answer.rc}'}")
        values: dict[str, list[str]] = {}
        for line in answer.stdout.splitlines():
            keyword, _separator, value = line.partition(" ")
            values.setdefault(keyword.lower(), []).append(value.strip())
        return values

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

    def presented(self, settings: Settings) -> Optional[str]:
        """The host certificate that the running sshd presents, as a line, or None."""
        host, _separator, port = (first(settings, "listenaddress") or "0.0.0.0:22").rpartition(":")
        host = host.strip("[]")
        address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        argv = ["ssh-keyscan", "-c", "-t", "ed25519", "-T", "5", "-p", port, address]
        for line in self.run(argv, check=False).stdout.splitlines():
            words = line.split()
            if CERTIFICATE_TYPE in words:
                return " ".join(words[words.index(CERTIFICATE_TYPE) :][:2])
        return None
