# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Key pairs on the node: made there, never read by anything but OpenSSH's own tools."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Optional

from ..commands import Runner, run
from ..dataclass import dataclass
from .wire import PublicKey, public_key_or_none

PRIVATE, SHARED, PUBLIC = 0o600, 0o640, 0o644


def public_path(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


@dataclass(frozen=True)
class KeyPlan:
    """A key pair as it is: what is wrong with it, and so what has to be done."""

    path: Path
    uid: int
    gid: int
    comment: str
    public: Optional[PublicKey]
    """None: there is no usable private key, and a pair is to be made."""
    why: str
    """Why it is to be made, for the operator."""
    public_text_wrong: bool
    modes: dict[str, tuple[str, str]]
    """Files with a wrong mode or owner: as it is, as it is wanted."""
    private: tuple[int, int] = (PRIVATE, 0)
    """Mode and group that a private half which is there is to have."""

    @property
    def changed(self) -> bool:
        return self.public is None or self.public_text_wrong or bool(self.modes)

    def diff(self) -> dict[str, str]:
        """Ansible's diff form: public parts, modes and owners, and nothing else."""
        before, after = [], []
        if self.public is None:
            before, after = [self.why], ["a new ed25519 key pair"]
        elif self.public_text_wrong:
            before, after = ["public key missing or damaged"], [self.public.text]
        for name, (found, wanted) in self.modes.items():
            before.append(f"{name}: {found}")
            after.append(f"{name}: {wanted}")
        return {
            "before_header": str(self.path),
            "after_header": str(self.path),
            "before": "\n".join(before) + "\n",
            "after": "\n".join(after) + "\n",
        }


def plan_key(
    path: Path,
    uid: int,
    gid: int,
    comment: str,
    runner: Runner = run,
    readers: Optional[Collection[int]] = None,
) -> KeyPlan:
    """Look at a key pair. The private key is tried by ssh-keygen, which prints its public half.

    With `readers` the private half may be as the distribution made it: readable by its owner only,
    or by one of these groups besides (Enterprise Linux has ssh_keys, for ssh-keysign).
    """
    public: Optional[PublicKey] = None
    why, wrong = "there is none", False
    modes: dict[str, tuple[str, str]] = {}
    private = (PRIVATE, gid)
    if path.exists():
        if readers is not None:
            private = _as_distributed(path, gid, readers)
        tried = runner(["ssh-keygen", "-y", "-P", "", "-f", str(path)], check=False)
        public = public_key_or_none(tried.stdout) if tried.rc == 0 else None
        if public is None and _too_open(path):
            # ssh-keygen refuses a key that others can read; the mode is what is wrong with it.
            public = public_key_or_none(_read(public_path(path)))
        why = "the private key is damaged, or has a passphrase"
    if public is not None:
        wrong = public_key_or_none(_read(public_path(path))) != public
        for file, (mode, group) in ((path, private), (public_path(path), (PUBLIC, gid))):
            found, wanted = _standing(file), f"mode {mode:04o} owner {uid}:{group}"
            # A public half that is to be written anew gets its mode then.
            if found is not None and found != wanted and not (wrong and file != path):
                modes[file.name] = (found, wanted)
    return KeyPlan(path, uid, gid, comment, public, why, wrong, modes, private)


def _as_distributed(path: Path, gid: int, readers: Collection[int]) -> tuple[int, int]:
    """Mode and group of a private half: as they are where that serves, else the closest.

    A group other than these is not to read it, and sshd refuses a key that root's group can read.
    """
    status = path.stat()
    mode, group = status.st_mode & 0o7777, status.st_gid
    if group not in readers:
        return (mode if group == gid and not mode & ~PRIVATE else PRIVATE), gid
    return (mode if not mode & ~SHARED else SHARED), group


def _too_open(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o077)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _standing(path: Path) -> Optional[str]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return f"mode {status.st_mode & 0o7777:04o} owner {status.st_uid}:{status.st_gid}"


def apply_key(plan: KeyPlan, runner: Runner = run) -> PublicKey:
    """Make it so and return the public key.

    A new pair is made in a directory of its own and moved in whole, the private half last: one
    that is there is always complete.
    """
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    if plan.public is not None:
        public = public_path(plan.path)
        if plan.public_text_wrong:
            _write_public(plan, plan.public)
        for file, (mode, gid) in ((plan.path, plan.private), (public, (PUBLIC, plan.gid))):
            os.chown(file, plan.uid, gid)
            file.chmod(mode)
        return plan.public
    scratch = Path(tempfile.mkdtemp(dir=plan.path.parent, prefix=".new-"))
    try:
        made = scratch / plan.path.name
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", plan.comment]
        runner([*argv, "-f", str(made)])
        key = public_key_or_none(_read(public_path(made)))
        if key is None:
            raise OSError(f"{made}: ssh-keygen made no public key")
        for file, mode in ((public_path(made), PUBLIC), (made, PRIVATE)):
            os.chown(file, plan.uid, plan.gid)
            file.chmod(mode)
            file.replace(plan.path.parent / file.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return key


def _write_public(plan: KeyPlan, key: PublicKey) -> None:
    from ..files import write_atomically

    text = f"{key.text} {plan.comment}\n"
    write_atomically(public_path(plan.path), text, PUBLIC, plan.uid, plan.gid)
