# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Key pairs on the node: made there, never read by anything but OpenSSH's own tools."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner, run
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs, plan_file
from .certificates import PublicKey, parse_public_key, public_key_or_none

PRIVATE, SHARED, PUBLIC = 0o600, 0o640, 0o644


def public_path(path: Path) -> Path:
    return path.with_name(path.name + ".pub")


@dataclass(frozen=True)
class KeyPlan:
    """A key pair as it is and as it is wanted."""

    path: Path
    uid: int
    gid: int
    comment: str
    before: Optional[str]
    """How the private half stands; `after` is how it is to stand."""
    after: str
    private: tuple[int, int]
    """Mode and group of the private half."""
    public: Optional[PublicKey]
    """None: there is no usable private key, and a pair is to be made."""
    public_file: FilePlan

    @property
    def changed(self) -> bool:
        return self.public is None or self.public_file.changed or self.before != self.after

    def diffs(self) -> list[dict[str, Any]]:
        """Ansible's diff form: public parts, modes and owners, and nothing else."""
        found: list[dict[str, Any]] = diffs([self.public_file] if self.public else [])
        before, after = self.before, self.after
        if self.public is None:
            before = f"damaged, or with a passphrase; {before}" if before else "absent"
            after = f"a new ed25519 key pair; {after}"
        if before != after:
            path = str(self.path)
            texts = {"before": f"{before}\n", "after": f"{after}\n"}
            found.append({"before_header": path, "after_header": path, **texts})
        return found


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
    private = (PRIVATE, gid)
    text = plan_file(public_path(path), None).before or ""
    if path.exists():
        if readers is not None:
            private = _as_distributed(path, readers)
        tried = runner(["ssh-keygen", "-y", "-P", "", "-f", str(path)], check=False)
        public = public_key_or_none(tried.stdout) if tried.rc == 0 else None
        if public is None and path.stat().st_mode & 0o077:
            # ssh-keygen refuses a key that others can read; the mode is what is wrong with it.
            public = public_key_or_none(text)
        if public is not None and public_key_or_none(text) != public:
            text = f"{public.text} {comment}\n"
    wanted = f"mode {private[0]:04o} owner {uid}:{private[1]}"
    public_file = plan_file(public_path(path), text, mode=PUBLIC, uid=uid, gid=gid)
    return KeyPlan(path, uid, gid, comment, standing(path), wanted, private, public, public_file)


def _as_distributed(path: Path, readers: Collection[int]) -> tuple[int, int]:
    """Mode and group of a private half: as they are where sshd takes it, else for root alone."""
    status = path.stat()
    mode, most = status.st_mode & 0o7777, SHARED if status.st_gid in readers else PRIVATE
    return most if mode & ~most else mode, status.st_gid


def standing(path: Path) -> Optional[str]:
    """Mode and owner of a file or directory, in words; None when it is missing."""
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
    if plan.public is not None:
        plan.public_file.apply()
        mode, gid = plan.private
        os.chown(plan.path, plan.uid, gid)
        plan.path.chmod(mode)
        return plan.public
    plan.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=plan.path.parent, prefix=".new-") as scratch:
        made = Path(scratch) / plan.path.name
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", plan.comment]
        runner([*argv, "-f", str(made)])
        key = parse_public_key(public_path(made).read_text(encoding="ascii"))
        for file, mode in ((public_path(made), PUBLIC), (made, PRIVATE)):
            os.chown(file, plan.uid, plan.gid)
            file.chmod(mode)
            file.replace(plan.path.parent / file.name)
    return key
