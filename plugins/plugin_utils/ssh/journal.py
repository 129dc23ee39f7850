# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller remembers: each certificate it signed, what each node trusts, which left.

One file that only grows, in the order it happened; the state of each node is derived from it, once
for all nodes. A certificate is in it before it leaves the controller, so that all that were ever
issued can be revoked. Each line has its time and operator, and goes to syslog as well. Nothing in
here is secret.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import syslog
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.files import make_directories, write_atomically
from ...module_utils.core.locks import PATIENCE_S, acquire, alone


@dataclass(frozen=True)
class Issued:
    """One certificate that was signed. Times are in seconds since 1970.

    Records of the first versions lack the fields with defaults: those certificates are signed anew.
    """

    kind: str
    serial: int
    authority: str
    valid_before: int
    digest: str = ""
    valid_after: int = 0
    key: str = ""
    principals: Sequence[str] = ()
    sources: Sequence[str] = ()
    signer: str = ""
    """Digest of the authority's public key: one that is made again has the same name."""


@dataclass
class Member:
    """One node: what it trusts and refuses as of its last complete run, and its certificates."""

    trusts: list[str] = field(default_factory=list)
    krl: str = ""
    """Digest of the revocation list that it has."""
    issued: list[Issued] = field(default_factory=list)
    revoked: list[Issued] = field(default_factory=list)
    """Those from before it left or was revoked, and those with a successor on the node."""
    refused_keys: list[str] = field(default_factory=list)
    """Public keys from before it was revoked."""
    revoked_at: int = 0
    """When the last of these was revoked, in seconds since 1970."""

    @property
    def complete(self) -> bool:
        """Whether a run ever ended well on it."""
        return bool(self.trusts)

    def latest(self) -> dict[str, Issued]:
        """By kind, the certificate that the node must have: the last one issued."""
        return {each.kind: each for each in self.issued}

    @property
    def launcher(self) -> bool:
        """Whether it was admitted as a launcher."""
        user = self.latest().get("user")
        return bool(user and any(each.endswith("/launcher") for each in user.principals))

    @property
    def keys(self) -> list[str]:
        """Public keys that were signed and are not refused."""
        ever = dict.fromkeys(each.key for each in [*self.revoked, *self.issued])
        return [key for key in ever if key and key not in self.refused_keys]

    def known(self) -> dict[str, Any]:
        """What the action for the node needs of it, as JSON."""
        issued = {kind: asdict(each) for kind, each in self.latest().items() if each.key}
        return {
            "issued": issued,
            "trusts": self.trusts,
            "krl": self.krl,
            "refused_keys": self.refused_keys,
            "recorded": bool(self.issued or self.revoked),
            "pending": len(self.issued) > len(self.latest()),
        }

    def leave(self, now: int, with_keys: bool = False) -> None:
        """A node that left may come back with its keys, one that was revoked may not."""
        if with_keys:
            self.refused_keys += self.keys
        self.revoked += self.issued
        self.revoked_at = now
        self.issued, self.trusts, self.krl = [], [], ""

    def take(self, record: dict[str, Any]) -> None:
        """One line of the journal."""
        at = record.pop("time", 0)
        for name in ("operator", "reason"):
            record.pop(name, None)
        if "serial" in record:
            self.issued.append(Issued(**record))
        elif record.get("left") or record.get("revoked"):
            self.leave(at, with_keys="revoked" in record)
        else:
            self.trusts, self.krl = record["trusts"], record.get("krl", "")
            self._superseded(record.get("serials", []), at)

    def _superseded(self, serials: Sequence[int], now: int) -> None:
        """The node has these certificates: what was issued before them, by kind, is revoked."""
        for last in [each for each in self.issued if each.serial in serials]:
            same = [each for each in self.issued if each.kind == last.kind]
            for old in same[: same.index(last)]:
                self.issued.remove(old)
                self.revoked.append(old)
                self.revoked_at = now


class SerialError(Exception):
    """Another certificate has this number. By it a certificate is revoked."""


class Journal:
    """The file of one cluster, one JSON object a line, in the directory of its authority."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "journal.jsonl"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        make_directories(self.directory, 0o700)
        self._no_links()
        with alone(self.directory / "lock"):
            try:
                self._append([])
                self._share()
                yield
            finally:
                self._share()

    def group(self) -> Optional[int]:
        """The group of operators that shares the directory: it may write there, others may not.

        The operator decides by the directory's mode (2770). Without such a group the directory is
        private to its owner.
        """
        with contextlib.suppress(FileNotFoundError):
            status = self.directory.stat()
            if status.st_mode & 0o2027 == stat.S_ISGID | stat.S_IWGRP:
                return status.st_gid
        return None

    def _no_links(self) -> None:
        """By one, a member of the group has the run of another write or delete what it cannot."""
        if self.group() is None:
            return
        for path in [*self.directory.iterdir(), *(self.directory / "authorities").glob("*")]:
            if path.is_symlink():
                raise OSError(errno.ELOOP, "a link in a shared directory: remove it", str(path))

    def _share(self) -> None:
        """Let the group use what this operator made, whatever made it; links lead elsewhere."""
        group = self.group()
        if group is None:
            return
        for path in [*self.directory.iterdir(), *(self.directory / "authorities").rglob("*")]:
            if path.name.startswith(".") or path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            os.chown(path, -1, group)
            path.chmod(0o2770 if path.is_dir() else 0o660)

    def write(self, name: str, text: str) -> None:
        """A file next to the journal."""
        group = self.group()
        mode, gid = (0o600, os.getgid()) if group is None else (0o660, group)
        write_atomically(self.directory / name, text, mode, os.getuid(), gid)

    def issued(
        self, name: str, certificates: Sequence[Issued], reasons: Mapping[str, str] = {}
    ) -> None:
        """Certificates for a node, and by kind why they are signed."""
        why = {kind: str(text)[:200] for kind, text in reasons.items()}
        self._append(
            [
                {"node": name, **asdict(each), "reason": why.get(each.kind, "")}
                for each in certificates
            ]
        )

    def trusts(
        self, name: str, authorities: Sequence[str], krl: str = "", serials: Sequence[int] = ()
    ) -> None:
        """What a node has after a complete run: authorities, revocation list, certificates."""
        record = {"trusts": list(authorities), "krl": krl, "serials": list(serials)}
        self._append([{"node": name, **record}])

    def left(self, name: str) -> None:
        self._append([{"node": name, "left": True}])

    def revoked(self, name: str) -> None:
        self._append([{"node": name, "revoked": True}])

    def read(self) -> dict[str, Member]:
        """The state of each node.

        A line that is not a record was torn by a kill or a full disk while it was written: its
        certificate had not left the controller yet.
        """
        found: dict[str, Member] = {}
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = self.path.read_text(encoding="utf-8", errors="replace")
        for line in text.split("\n"):
            try:
                record = json.loads(line)
                found.setdefault(record.pop("node"), Member()).take(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        """Add lines and flush them to disk. Each begins with its newline, which ends a torn one."""
        made = {"time": int(time.time()), "operator": operator()}
        lines = [json.dumps({**made, **each}, sort_keys=True) for each in records]
        data = "".join(f"\n{line}" for line in lines).encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            acquire(handle, self.path, PATIENCE_S)
            serials = [each["serial"] for each in records if "serial" in each]
            before = self.path.read_text("utf-8", "replace") if serials else ""
            for each in serials:
                if serials.count(each) > 1 or f'"serial": {each},' in before:
                    raise SerialError(f"serial {each}: another certificate has it")
            while data:
                data = data[os.write(handle, data) :]
            # Others can write while this is flushed.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.fsync(handle)
        finally:
            os.close(handle)
        for line in lines:
            syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_NOTICE, f"baremetal.mpi_roce ssh {line}")


def operator() -> str:
    """The account that runs Ansible; of sudo, the one that called it."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
