# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""munge, by which Slurm's daemons recognise each other: the cluster's key, and the daemon.

The controller holds the key. It reaches a host as an argument that is not logged, and only outside
check mode; comparisons use its digest.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import pwd
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Optional

from ..core import systemd
from ..core.checks import FAILED, OK, Check, compare, differs
from ..core.commands import CommandError
from ..core.files import FilePlan, plan_file
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..core.text import one_line, shortened

UNIT = "munge.service"
KEY = "/etc/munge/munge.key"
OWNER = "munge"
MODE = 0o400
LEAST_BYTES, MOST_BYTES, NEW_BYTES = 32, 1024, 1024
"""Limits of munge (MUNGE_KEY_LEN_MIN_BYTES and ..._MAX_BYTES), and the size of a new key."""
RUNNING = "enabled, active"
_DIGEST = b"baremetal.mpi_roce munge key"
_STATUS = re.compile(r"^STATUS:\s*(\S.*?)\s*$", re.MULTILINE)


def digest(key: bytes) -> str:
    """A name of the key, from which the key cannot be found: it has at least 256 random bits."""
    return hmac.new(_DIGEST, key, hashlib.sha256).hexdigest()[:16]


@dataclass(frozen=True)
class Munge:
    """The daemon with the cluster's key; without `wanted`, with whatever key the site installed.

    `key` is in base64 and empty in check mode.
    """

    wanted: str = ""
    key: str = ""

    def plan(self, node: Node) -> Plan:
        if not self.wanted:
            return Plan()
        if systemd.installed(node, [UNIT]) is None:
            if node.check_mode:  # a real run installs the package first
                return Plan([], [Step("munge", "not installed", RUNNING, lambda: None)])
            raise PlanError("munge is not installed; slurm_packages: distribution installs it")
        if node.path(KEY).is_symlink():
            raise PlanError(f"{KEY} is a symbolic link, which munged refuses: remove the link")
        files, steps = [], []
        found = _digest(node)
        planned = self._file(node)
        differs_now = found != self.wanted or not _private(node)
        if planned is not None:
            files.append(planned)
        elif differs_now:
            steps.append(Step(KEY, found or "absent", self.wanted, lambda: None))
        state = systemd.state(node, UNIT)
        stale = differs_now or _older_than_key(node)
        if state != RUNNING or stale:
            before = f"{state}, older than its key" if stale else state
            steps.append(Step(UNIT, before, RUNNING, partial(_start, node, stale), essential=True))
        return Plan(files, steps)

    def _file(self, node: Node) -> Optional[FilePlan]:
        """The key's file; None where the key is not known: in check mode, if it differs."""
        try:
            key = base64.b64decode(self.key, validate=True) if self.key else _content(node)
        except binascii.Error as error:
            raise PlanError(f"munge: the key is not base64: {error}") from error
        if key is None or digest(key) != self.wanted or not (self.key or _private(node)):
            if not self.key:
                return None
            raise PlanError("munge: the key is not the one with this digest")
        uid, gid = _owner(node)
        text = key.decode("utf-8", "surrogateescape")
        return plan_file(node.path(KEY), text, mode=MODE, uid=uid, gid=gid, secret=True)

    def verify(self, node: Node) -> Verdict:
        if not self.wanted and systemd.installed(node, [UNIT]) is None:
            return Verdict()  # the site has another AuthType, or slurmctld rejects this host
        state = systemd.state(node, UNIT)
        checks = [compare("munge_service", RUNNING, state, check_mode=self._repairs(node))]
        found = _digest(node)
        if self.wanted:
            reason = "" if found == self.wanted else "another key: Slurm's daemons refuse this host"
            key = compare(
                "munge_key", self.wanted, found, check_mode=node.check_mode, reason=reason
            )
            checks.append(key)
        private = "mode 0400, owner munge"
        good = found is not None and _private(node)
        status = OK if good else differs(self._repairs(node))
        checks.append(Check("munge_key_mode", private, private if good else "different", status))
        if state.endswith(", active"):
            checks.append(_works(node))
        return Verdict(checks)

    def _repairs(self, node: Node) -> bool:
        """Whether a run outside check mode removes the difference."""
        return node.check_mode and bool(self.wanted)


def _start(node: Node, stale: bool) -> None:
    systemd.control(node, "enable", UNIT)
    systemd.control(node, "restart" if stale else "start", UNIT)


def _content(node: Node) -> Optional[bytes]:
    try:
        with node.path(KEY).open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _digest(node: Node) -> Optional[str]:
    content = _content(node)
    return None if content is None else digest(content)


def _owner(node: Node) -> tuple[int, int]:
    if node.uid:  # in a test's directory
        return node.uid, node.gid
    try:
        account = pwd.getpwnam(OWNER)
    except KeyError as error:
        raise PlanError(f"munge: no account {OWNER}; the package munge creates it") from error
    return account.pw_uid, account.pw_gid


def _private(node: Node) -> bool:
    """munged refuses a symbolic link (0.5.15), wherever it leads."""
    try:
        status = node.path(KEY).lstat()
    except OSError:
        return False
    mode = status.st_mode
    return stat.S_ISREG(mode) and (stat.S_IMODE(mode), status.st_uid, status.st_gid) == (
        MODE,
        *_owner(node),
    )


def _older_than_key(node: Node) -> bool:
    """Whether munged started before its key was written, as after an interrupted run."""
    started = systemd.since(node, UNIT)
    try:
        written = int(node.path(KEY).stat().st_mtime)
    except OSError:
        return False
    return started is not None and started < written <= time.time()  # daemons.py, Daemon._late


def _works(node: Node) -> Check:
    """Whether munged makes and reads credentials of this host."""
    wanted = "Success"
    try:
        credential = node.look(["munge", "-n"]).stdout
        read = node.look(["unmunge"], check=False, stdin=credential)
    except CommandError as error:
        return Check("munge", wanted, None, FAILED, reason=shortened(one_line(str(error)), 300))
    found = _STATUS.search(read.stdout)
    said = found[1].partition(" (")[0] if found else one_line(read.stderr)[:300]
    return compare("munge", wanted, said)


def arguments(given: Mapping[str, str]) -> Munge:
    """From the module's argument `munge`."""
    return Munge(str(given.get("digest", "")), str(given.get("key", "")))
