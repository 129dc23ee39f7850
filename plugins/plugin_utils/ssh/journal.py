# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Record on the controller which certificates were signed, and what each node trusts.

An append-only file without secrets, from which the state of each node is derived. A certificate is
recorded before it leaves the controller, so that every one can be revoked.
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
    """A signed certificate. Times are in seconds since 1970."""

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
    """Digest of the authority's public key, as a re-created authority has the same name."""


@dataclass
class Member:
    """A node's certificates, and what it trusts and refuses as of its last complete run."""

    trusts: list[str] = field(default_factory=list)
    krl: str = ""
    """Digest of its revocation list."""
    issued: list[Issued] = field(default_factory=list)
    revoked: list[Issued] = field(default_factory=list)
    """Certificates from before the node left or was revoked, and replaced ones."""
    refused_keys: list[str] = field(default_factory=list)
    """Its public keys at its revocation."""
    revoked_at: int = 0
    """Time of the last revocation, in seconds since 1970."""

    @property
    def complete(self) -> bool:
        """Whether any run has succeeded on it."""
        return bool(self.trusts)

    @property
    def admitted(self) -> bool:
        """Whether other nodes accept it, or a certificate may be on its way to it."""
        return self.complete or bool(self.issued)

    def latest(self) -> dict[str, Issued]:
        """The certificates that the node must have: the last one issued of each kind."""
        return {certificate.kind: certificate for certificate in self.issued}

    @property
    def launcher(self) -> bool:
        """Whether it was admitted as a launcher."""
        user = self.latest().get("user")
        return bool(user and any(principal.endswith("/launcher") for principal in user.principals))

    @property
    def keys(self) -> list[str]:
        """Public keys that were signed and are not refused."""
        ever = dict.fromkeys(certificate.key for certificate in [*self.revoked, *self.issued])
        return [key for key in ever if key and key not in self.refused_keys]

    def known(self) -> dict[str, Any]:
        """The data that the action ssh_trust needs."""
        return {
            "issued": {kind: asdict(certificate) for kind, certificate in self.latest().items()},
            "trusts": self.trusts,
            "krl": self.krl,
            "refused_keys": self.refused_keys,
            "recorded": bool(self.issued or self.revoked),
            "pending": len(self.issued) > len(self.latest()),
        }

    def leave(self, now: int, with_keys: bool = False) -> None:
        """Revoke its certificates, and with `with_keys` its keys."""
        if with_keys:
            self.refused_keys += self.keys
        self.revoked += self.issued
        self.revoked_at = now
        self.issued, self.trusts, self.krl = [], [], ""

    def take(self, record: dict[str, Any]) -> None:
        """Apply one line of the journal."""
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
        """The node has installed these certificates: older ones of the same kind are revoked."""
        for last in [certificate for certificate in self.issued if certificate.serial in serials]:
            same = [certificate for certificate in self.issued if certificate.kind == last.kind]
            for old in same[: same.index(last)]:
                self.issued.remove(old)
                self.revoked.append(old)
                self.revoked_at = now


class SerialError(Exception):
    """A serial is not unique, as revocation requires."""


class Journal:
    """A cluster's journal: one JSON object per line, in the directory of its authority."""

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
        """The group of operators that shares the directory, if its mode is 2770.

        Otherwise the directory is private to its owner.
        """
        with contextlib.suppress(FileNotFoundError):
            status = self.directory.stat()
            if status.st_mode & 0o2027 == stat.S_ISGID | stat.S_IWGRP:
                return status.st_gid
        return None

    def _no_links(self) -> None:
        """Refuse links: a member of the group could redirect the writes of another's run."""
        if self.group() is None:
            return
        for path in [*self.directory.iterdir(), *(self.directory / "authorities").glob("*")]:
            if path.is_symlink():
                raise OSError(
                    errno.ELOOP, "symbolic link in a shared directory: remove it", str(path)
                )

    def _share(self) -> None:
        """Give the group access to this operator's files. Links are not followed."""
        group = self.group()
        if group is None:
            return
        for path in [*self.directory.iterdir(), *(self.directory / "authorities").rglob("*")]:
            if path.name.startswith(".") or path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            os.chown(path, -1, group)
            path.chmod(0o2770 if path.is_dir() else 0o660)

    def write(self, name: str, text: str) -> None:
        """Write a file in the directory of the journal."""
        group = self.group()
        mode, gid = (0o600, os.getgid()) if group is None else (0o660, group)
        write_atomically(self.directory / name, text, mode, os.getuid(), gid)

    def issued(
        self, name: str, certificates: Sequence[Issued], reasons: Mapping[str, str] = {}
    ) -> None:
        """Record certificates for a node, with the reason for each kind."""
        records = [(asdict(each), str(reasons.get(each.kind, ""))[:200]) for each in certificates]
        self._append([{"node": name, **fields, "reason": reason} for fields, reason in records])

    def trusts(
        self, name: str, authorities: Sequence[str], krl: str = "", serials: Sequence[int] = ()
    ) -> None:
        """Record a node's authorities, revocation list and certificates after a successful run."""
        record = {"trusts": list(authorities), "krl": krl, "serials": list(serials)}
        self._append([{"node": name, **record}])

    def left(self, name: str) -> None:
        self._append([{"node": name, "left": True}])

    def revoked(self, name: str) -> None:
        self._append([{"node": name, "revoked": True}])

    def read(self) -> dict[str, Member]:
        """Return the state of each node.

        An invalid line was truncated by a kill or a full disk; its certificate had not left the
        controller yet.
        """
        nodes: dict[str, Member] = {}
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = self.path.read_text(encoding="utf-8", errors="replace")
        for line in text.split("\n"):
            try:
                record = json.loads(line)
                nodes.setdefault(record.pop("node"), Member()).take(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return nodes

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        """Append lines and flush them to disk. A leading newline terminates a truncated line."""
        origin = {"time": int(time.time()), "operator": operator()}
        lines = [json.dumps({**origin, **record}, sort_keys=True) for record in records]
        data = "".join(f"\n{line}" for line in lines).encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            acquire(handle, self.path, PATIENCE_S)
            serials = [record["serial"] for record in records if "serial" in record]
            before = self.path.read_text("utf-8", "replace") if serials else ""
            for serial in serials:
                if serials.count(serial) > 1 or f'"serial": {serial},' in before:
                    raise SerialError(f"serial {serial}: another certificate has it")
            while data:
                data = data[os.write(handle, data) :]
            # Other runs can write during the flush.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.fsync(handle)
        finally:
            os.close(handle)
        for line in lines:
            syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_NOTICE, f"baremetal.mpi_roce ssh {line}")


def operator() -> str:
    """The account that runs Ansible; with sudo, the account that called it."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"
