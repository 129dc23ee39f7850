# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that admit the MPI user without a certificate: whether the home is shared, and which keys.

Root on any node can write the key files in a shared home, by which all hosts, launchers included,
admit the user. The files belong to the user: links are not followed, and only fingerprints of the
contents are shown.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..core import bounded, mounts
from ..core.bounded import Report
from ..core.checks import FAILED, OK, Check
from ..core.part import PlanError
from ..core.text import some
from . import account
from .keys import digest, public_key

LOCAL = frozenset(
    {
        "bcachefs",
        "btrfs",
        "erofs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "nilfs2",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "xfs",
        "zfs",
    }
)
"""File systems of a single host. All others, unknown ones included, count as shared."""
MAX_BYTES = 256 * 1024
"""Size limit of a key file; sshd has none."""
MAX_LISTED = 10
DENIED = os.strerror(errno.EACCES)
_LINKS = 40
"""Maximum number of symbolic links followed, as in the kernel."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for parent directories, which need not be listable."""


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
    """Failed checks for files that have undeclared keys or are unreadable; otherwise one check."""
    known = {digest(key) for line in declared for key in keys_of(line)}
    failed = []
    for path in lists(user, patterns):
        work = _reading(user.pw_dir, path, root)
        # First as the user, like sshd, since NFS may squash root; then as root, which may read
        # more.
        for become in (account.rights_of(user), None):
            answer = bounded.within(account.ANSWER_S, work, become=become)
            if answer.found.get("why") != DENIED:
                break
        if not answer.answered:
            reason, step = account.unanswered(path, root)
            failed.append(_failed(path, reason, f"{step}; or set ssh_trust_strict to true"))
            continue
        text, reason = answer.found.get("text"), answer.found.get("why", "nothing was read")
        if text is None and reason:
            step = "set ssh_trust_strict to true, or make it a file that its user can read"
            failed.append(_failed(path, reason, f"check {path}: {step}"))
        undeclared = list(_undeclared((text or "").split("\n"), known))
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


def _undeclared(lines: Iterable[str], known: set[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        for key in keys_of(line):
            if digest(key) not in known:
                yield number, digest(key)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a symbolic link, which sshd follows and this check does not"
    return error.strerror or str(error)


def _reading(home: str, path: str, root: Path) -> Callable[[Report], None]:
    def work(report: Report) -> None:
        try:
            report({"text": _read(home, path, root)})
        except (FileNotFoundError, NotADirectoryError):
            report({"why": ""})
        except OSError as error:
            report({"why": _why(error)})

    return work


def _read(home: str, path: str, root: Path) -> str:
    """Read a key file. Within the home, which the user controls, no link is followed."""
    inside = mounts.within(path, home)
    base = home if inside else str(Path(path).parent)
    names = os.path.relpath(path, base).split("/")
    handle = os.open(root / base.lstrip("/"), _DIRECTORY)
    try:
        for number, name in enumerate(names):
            flags = _READ
            if number < len(names) - 1:
                # Without O_DIRECTORY, which would report a link as "not a directory".
                if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                flags = _DIRECTORY
            deeper = os.open(name, flags | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = deeper
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = b""
        while len(data) <= MAX_BYTES and (more := os.read(handle, MAX_BYTES + 1)):
            data += more
    finally:
        os.close(handle)
    if len(data) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"longer than {MAX_BYTES // 1024} KiB", path)
    return data.decode("latin-1")
