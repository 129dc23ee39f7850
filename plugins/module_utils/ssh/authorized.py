# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that admit the MPI user without a certificate: whether a home may hold any, and which do.

Of a shared home root of any node writes the list of keys by which all hosts admit the user, the
launcher among them. The lists are the user's own files: no link of his is followed, and of their
contents only fingerprints are shown.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ..core import mounts
from ..core.checks import FAILED, OK, Check
from ..core.part import PlanError
from ..core.text import some
from ..storage import bounded
from ..storage.probe import Report
from . import account
from .keys import digest, public_key

LOCAL = frozenset(
    {
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"),
        *("overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "xfs", "zfs"),
    }
)
"""File systems of one host. Any other counts as shared, also one that is not known here."""
MOST_BYTES = 256 * 1024
"""Of a list; sshd reads one of any size."""
MOST_SHOWN = 10
DENIED = os.strerror(errno.EACCES)
_LINKS = 40
"""The kernel follows as many."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""On the way to a file, which a directory need not let anyone list."""


def shared(home: str, table: Sequence[mounts.Mount], root: Path = Path("/")) -> bool:
    """Whether a home lies on a file system that other hosts may have as well.

    Links are followed up to the first such file system, which itself is not asked: its server may
    be dead.
    """
    path = os.path.normpath(home)
    for _link in range(_LINKS):
        names = path.strip("/").split("/")
        for count in range(len(names) + 1):
            place = "/" + "/".join(names[:count])
            mount = mounts.holding(table, place)
            if mount is None or mount.kind not in LOCAL or mounts.trap(table, place):
                return True
            here = root / place.lstrip("/")
            if count and here.is_symlink():
                path = os.path.normpath(
                    Path(place).parent.joinpath(here.readlink(), *names[count:])
                )
                break
        else:
            return False
    return True


def keys_of(line: str) -> list[str]:
    """`type base64` of each key in a line of authorized_keys, as sshd reads it, options or not.

    To sshd a line ends at a NUL, words end at a blank or tab, and other white space within a key's
    base64 is nothing.
    """
    text = line.partition("\0")[0].strip(" \t")
    if text.startswith("#"):
        return []
    words = re.split(r"[ \t]+", text)
    pairs = ((kind, re.sub(r"\s", "", blob)) for kind, blob in zip(words, words[1:]))
    found = (public_key(f"{kind} {blob}") for kind, blob in pairs if blob.startswith("AAAA"))
    return [key for key in found if key]


def declarable(lines: Iterable[str]) -> None:
    """Raises PlanError for a line of ssh_trust_authorized_keys that is not one public key."""
    for each in lines:
        if len(keys_of(each)) != 1 or "\n" in each:
            raise PlanError(
                f"ssh_trust_authorized_keys: {each[:80]!r}: wanted one public key, as a line of"
                " authorized_keys"
            )


def lists(user: pwd.struct_passwd, patterns: Iterable[str]) -> list[str]:
    """The files of sshd's AuthorizedKeysFile for this user, in order."""
    tokens = {"%%": "%", "%h": user.pw_dir, "%u": user.pw_name, "%U": str(user.pw_uid)}
    found = []
    for pattern in " ".join(patterns).split():
        path = re.sub(r"%[%huU]", lambda each: tokens[each.group()], pattern)
        if path != "none":
            found.append(os.path.normpath(Path(user.pw_dir) / path))
    return list(dict.fromkeys(found))


def checks(
    user: pwd.struct_passwd,
    patterns: Iterable[str],
    declared: Iterable[str],
    root: Path = Path("/"),
) -> list[Check]:
    """One for each list with an undeclared key, or that cannot be read; else one."""
    known = {digest(key) for line in declared for key in keys_of(line)}
    found = []
    for path in lists(user, patterns):
        work = _reading(user.pw_dir, path, root)
        # As sshd reads it. Root may not where NFS squashes it, and else may what the user may not.
        for become in (account.rights_of(user), None):
            answer = bounded.within(account.ANSWER_S, work, become=become)
            if answer.found.get("why") != DENIED:
                break
        if not answer.answered:
            what, step = account.unanswered(path, root)
            found.append(_failed(path, what, f"{step}; or set ssh_trust_strict to true"))
            continue
        text, why = answer.found.get("text"), answer.found.get("why", "nothing was read")
        if text is None and why:
            step = "set ssh_trust_strict to true, or make it a file that its user can read"
            found.append(_failed(path, why, f"look at {path}: {step}"))
        there = list(_undeclared((text or "").split("\n"), known))
        if there:
            places = [f"line {number} {fingerprint}" for number, fingerprint in there]
            numbers = some(list(dict.fromkeys(str(number) for number, _each in there)), MOST_SHOWN)
            step = f"remove from {path} line {numbers}; or declare it in ssh_trust_authorized_keys"
            found.append(_failed(path, some(places, MOST_SHOWN), step))
    return found or [Check("undeclared_keys", "none", "none", OK, user.pw_name)]


def _failed(path: str, what: str, step: str) -> Check:
    why = "it admits the MPI user without a certificate, and no option declares it"
    return Check("undeclared_keys", "none", what, FAILED, path, why, by_hand=step)


def _undeclared(lines: Iterable[str], known: set[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        for key in keys_of(line):
            if digest(key) not in known:
                yield number, digest(key)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a link, which sshd follows and root does not"
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
    """A list of keys. Within the home, which is the user's, no link is followed."""
    inside = mounts.within(path, home)
    base = home if inside else str(Path(path).parent)
    names = os.path.relpath(path, base).split("/")
    handle = os.open(root / base.lstrip("/"), _DIRECTORY)
    try:
        for number, name in enumerate(names):
            flags = _READ
            if number < len(names) - 1:
                # Without O_DIRECTORY, by which a link would be reported as no directory.
                if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                flags = _DIRECTORY
            deeper = os.open(name, flags | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = deeper
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a file", path)
        data = b""
        while len(data) <= MOST_BYTES and (more := os.read(handle, MOST_BYTES + 1)):
            data += more
    finally:
        os.close(handle)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"longer than {MOST_BYTES // 1024} KiB", path)
    return data.decode("latin-1")
