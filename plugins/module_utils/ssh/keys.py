# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Key pairs of a node, created there. Only OpenSSH's tools read private keys."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core.checks import Check, compare
from ..core.files import FilePlan, diff, diffs, make_directories, plan_file
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..core.text import one_line, shortened

DAY = 86400
# Keys and lists of the collection, outside of home directories, which nodes may share.
OWN = "/etc/baremetal-mpi-roce/ssh"
REVOKED = f"{OWN}/revoked.krl"
KNOWN_HOSTS = f"{OWN}/known_hosts"
USER_KEY = f"{OWN}/id_ed25519"
USER_CERTIFICATE = f"{OWN}/id_ed25519-cert.pub"
DROP_IN = "10-baremetal-mpi-roce.conf"
"""Sorts before files of distributions and installers (50-...): the first value takes effect."""
USER, HOST = "user", "host"
KINDS = (USER, HOST)
KEY_TYPE = "ssh-ed25519"
PORT = 22
"""sshd's default port (ansible_port)."""
FIPS = "/proc/sys/crypto/fips_enabled"
PRIVATE, PUBLIC = 0o600, 0o644


def key_of(text: Optional[str]) -> str:
    """`ssh-ed25519 AAAA...` of the first line of a .pub file; empty for other content."""
    line = public_key(text)
    return line if line.startswith(f"{KEY_TYPE} ") and len(_blob(line)) == 51 else ""


def public_key(text: Optional[str]) -> str:
    """`type base64` of the first line of a .pub file; empty for other content."""
    line = (text or "").split("\n")[0]
    blob = _blob(line)
    kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", "replace")
    words = line.split()[:2]
    return " ".join(words) if blob and kind == words[0] else ""


def digest(line: str) -> str:
    """The fingerprint (SHA256:...) of a key or certificate line; empty for other text."""
    blob = _blob(line)
    hashed = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
    return f"SHA256:{hashed.rstrip('=')}" if blob else ""


def _blob(line: str) -> bytes:
    with suppress(IndexError, ValueError):
        return base64.b64decode(line.split()[1], validate=True)
    return b""


def public_path(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


def standing(path: Path) -> Optional[str]:
    """Mode and owner of a file or directory as text; None if it is missing."""
    with suppress(FileNotFoundError):
        status = path.stat()
        return f"mode {status.st_mode & 0o7777:04o} owner {status.st_uid}:{status.st_gid}"
    return None


def refused_by_fips(node: Node) -> str:
    """Explain why this node cannot have ed25519 keys in FIPS mode; empty if it can.

    Red Hat's OpenSSH refuses them; builds with a FIPS 186-5 module may not, so one is created.
    """
    if (node.read(FIPS) or "").strip() != "1":
        return ""
    with tempfile.TemporaryDirectory() as scratch:
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{scratch}/key"]
        tried = node.run(argv, check=False)
    if tried.rc == 0:
        return ""
    said = shortened(one_line(tried.stderr or tried.stdout), 200) or f"exit status {tried.rc}"
    return (
        f"in FIPS mode its OpenSSH creates no ed25519 keys ({said}), which the layer ssh needs:"
        " switch FIPS mode off (fips-mode-setup --disable, and a reboot)"
    )


def sweep(directory: Path) -> None:
    """Remove leftovers of killed runs: all final files have visible names."""
    for leftover in directory.glob(".*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


@dataclass
class KeyPair:
    """An ed25519 key pair, created unless a usable one without passphrase exists."""

    kind: str
    path: Path
    comment: str
    owner: Callable[[], tuple[int, int]]
    refused: Sequence[str] = ()
    """Revoked keys, which are replaced."""
    revoked: bool = False
    public: str = ""
    """The public key as last read; empty without a usable private key."""

    def _wanted(self) -> tuple[int, int, int]:
        """Mode, owner and group of the private half."""
        uid, gid = self.owner()
        if self.kind == HOST and self.path.exists():
            status = self.path.stat()  # its group may be a dedicated one (Enterprise Linux)
            allowed = 0o700 if status.st_gid == gid else 0o740
            return status.st_mode & allowed, uid, status.st_gid
        return PRIVATE, uid, gid

    def _read(self, node: Node) -> str:
        """Desired text of the public file. ssh-keygen tests the private key."""
        text = plan_file(public_path(self.path), None).before or ""
        self.public = ""
        if self.path.exists():
            tried = node.run(["ssh-keygen", "-y", "-P", "", "-f", str(self.path)], check=False)
            self.public = key_of(tried.stdout) if tried.rc == 0 else ""
            if not self.public and self.path.stat().st_mode & 0o077:
                # ssh-keygen refuses a key that others can read; only the mode is wrong then.
                self.public = key_of(text)
            self.revoked = self.public in self.refused
            if self.revoked:
                self.public = ""
            if self.public and key_of(text) != self.public:
                text = f"{self.public} {self.comment}\n"
        return text

    def plan(self, node: Node) -> Plan:
        text = self._read(node)
        if self.kind == HOST and self.revoked:
            raise PlanError(
                f"{self.path} predates this node's revocation: an attacker may have it. Reinstall"
                f" the node; or on its console remove {self.path}, run ssh-keygen -A, and have the"
                " controller accept the new key"
            )
        mode, uid, gid = self._wanted()
        before, after = standing(self.path), f"mode {mode:04o} owner {uid}:{gid}"
        shown: list[dict[str, Any]] = []
        if self.public:
            shown = diffs([self._public_file(text)])
        else:
            before = f"damaged, revoked, or with a passphrase; {before}" if before else "absent"
            after = f"a new ed25519 key pair; {after}"
        if before != after:
            shown.append(diff(str(self.path), f"{before}\n", f"{after}\n"))

        def act() -> None:
            if not self.public:
                self._make(node)
                return
            self._public_file(text).apply()
            mode, uid, gid = self._wanted()
            os.chown(self.path, uid, gid)
            self.path.chmod(mode)

        step = Step(str(self.path), "", "", act, essential=True, shown=shown)
        return Plan(steps=[step] if shown else [])

    def _public_file(self, text: str) -> FilePlan:
        uid, gid = self.owner()
        return plan_file(public_path(self.path), text, mode=PUBLIC, uid=uid, gid=gid)

    def _make(self, node: Node) -> None:
        """Create a pair and move it into place, the private key last."""
        folder = self.path.parent
        uid, gid = self.owner()
        make_directories(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
            made = Path(scratch) / self.path.name
            argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.comment]
            node.run([*argv, "-f", str(made)])
            for file, mode in ((public_path(made), PUBLIC), (made, PRIVATE)):
                os.chown(file, uid, gid)
                file.chmod(mode)
                file.replace(folder / file.name)

    def verify(self, node: Node) -> Verdict:
        public = self._public_file(self._read(node))
        checks = [self._compared(node, self.path, *self._wanted(), bool(self.public))]
        if self.public:
            owner = public.mode, public.uid, public.gid
            right = public.before == public.after
            checks.append(self._compared(node, public.path, *owner, right))
        return Verdict(checks)

    def _compared(
        self, node: Node, path: Path, mode: int, uid: int, gid: int, usable: bool
    ) -> Check:
        desired = f"mode {mode:04o} owner {uid}:{gid}"
        actual = standing(path) if usable else "no usable key"
        name, pending = f"{self.kind}_key", node.check_mode
        return compare(name, desired, actual, subject=str(path), check_mode=pending)
