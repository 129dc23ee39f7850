# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that admit the MPI user without a certificate: whether the home is shared, and which keys.

Root on any node can write the key files in a shared home, by which all hosts, launchers included,
admit the user. They are read with the user's rights, as sshd does, and only fingerprints of the
contents are shown.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..core import bounded, mounts
from ..core.bounded import Report
from ..core.checks import FAILED, OK, Check
from ..core.part import PlanError
from ..core.text import some
from . import account
from .keys import digest, public_key

LOCAL = frozenset(
    [
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay"),
        *("ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "xfs", "zfs"),
    ]
)
"""File systems of a single host. All others, unknown ones included, count as shared."""
MAX_BYTES = 256 * 1024
"""Size limit of a key file; sshd has none."""
MAX_LISTED = 10
_LINKS = 40
"""Maximum number of symbolic links followed, as in the kernel."""


def shared(home: str, table: Sequence[mounts.Mount], root: Path = Path("/")) -> bool:
    """Whether a home is on a file system that other hosts may mount as well.

    Links are followed up to the first such file system, which is not accessed: its server may be
    dead.
    """
    path = os.path.normpath(home)
    for _link in range(_LINKS):
        names = path.strip("/").split("/")
        for count in range(len(names) + 1):
            prefix = "/" + "/".join(names[:count])
            mount = mounts.holding(table, prefix)
            if mount is None or mount.kind not in LOCAL or mounts.trap(table, prefix):
                return True
            link = root / prefix.lstrip("/")
            if count and link.is_symlink():
                path = os.path.normpath(
                    Path(prefix).parent.joinpath(link.readlink(), *names[count:])
                )
                break
        else:
            return False
    return True


def keys_of(line: str) -> list[str]:
    """`type base64` of each key in a line of authorized_keys, with or without options.

    As sshd parses it: a NUL ends the line, blanks and tabs separate words, and other white space
    within base64 is ignored.
    """
    text = line.partition("\0")[0].strip(" \t")
    if text.startswith("#"):
        return []
    words = re.split(r"[ \t]+", text)
    pairs = ((kind, re.sub(r"\s", "", blob)) for kind, blob in zip(words, words[1:]))
    keys = (public_key(f"{kind} {blob}") for kind, blob in pairs if blob.startswith("AAAA"))
    return [key for key in keys if key]


def declarable(lines: Iterable[str]) -> None:
    """Check that each line of ssh_trust_authorized_keys is one public key. Raises PlanError."""
    for line in lines:
        if len(keys_of(line)) != 1 or "\n" in line:
            raise PlanError(
                f"ssh_trust_authorized_keys: {line[:80]!r}: wanted one public key, as a line of"
                " authorized_keys"
            )


def lists(user: pwd.struct_passwd, patterns: Iterable[str]) -> list[str]:
    """Expand sshd's AuthorizedKeysFile for this user, in order."""
    tokens = {"%%": "%", "%h": user.pw_dir, "%u": user.pw_name, "%U": str(user.pw_uid)}
    paths = []
    for pattern in " ".join(patterns).split():
        path = re.sub(r"%[%huU]", lambda token: tokens[token.group()], pattern)
        if path != "none":
            paths.append(os.path.normpath(Path(user.pw_dir) / path))
    return list(dict.fromkeys(paths))


def checks(
    user: pwd.struct_passwd,
    patterns: Iterable[str],
    declared: Iterable[str],
    root: Path = Path("/"),
) -> list[Check]:
    """Failed checks for files that have undeclared keys or are no lists; otherwise one check."""
    known = {digest(key) for line in declared for key in keys_of(line)}
    failed = []
    for path in lists(user, patterns):

        def read(report: Report, path: str = path) -> None:
            report(_contents(root / path.lstrip("/")))

        answer = bounded.within(account.ANSWER_S, read, become=account.rights_of(user))
        if not answer.answered:
            reason, step = account.unanswered(path, root)
            failed.append(_failed(path, reason, f"{step}; or set ssh_trust_strict to true"))
        elif "text" not in answer.found:
            step = f"check {path}: set ssh_trust_strict to true, or make it a small file"
            failed.append(_failed(path, answer.found.get("why", "nothing was read"), step))
        undeclared = [
            (number, digest(key))
            for number, line in enumerate(answer.found.get("text", "").split("\n"), 1)
            for key in keys_of(line)
            if digest(key) not in known
        ]
        if undeclared:
            lines = [f"line {number} {fingerprint}" for number, fingerprint in undeclared]
            numbers = list(dict.fromkeys(str(number) for number, _fingerprint in undeclared))
            step = (
                f"remove from {path} line {some(numbers, MAX_LISTED)}; or declare it in"
                " ssh_trust_authorized_keys"
            )
            failed.append(_failed(path, some(lines, MAX_LISTED), step))
    return failed or [Check("undeclared_keys", "none", "none", OK, user.pw_name)]


def _failed(path: str, actual: str, step: str) -> Check:
    reason = "it admits the MPI user without a certificate, and no option declares it"
    return Check("undeclared_keys", "none", actual, FAILED, path, reason, by_hand=step)


def _contents(path: Path) -> dict[str, str]:
    """The text of a key file; empty for one that sshd cannot open either, `why` for another one."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return {"text": ""}
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return {"why": "not a regular file"}
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return {"why": f"longer than {MAX_BYTES // 1024} KiB"}
    return {"text": data.decode("latin-1")}
