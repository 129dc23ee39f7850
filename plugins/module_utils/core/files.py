# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files the collection writes: planned first, shown as a diff, then replaced atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

HEADER = "Managed by Ansible (baremetal.mpi_roce). Edits here are overwritten."
"""First line of every file managed by the collection, after the comment sign."""


@dataclass(frozen=True)
class FilePlan:
    """A file before and after a change; a content of None means that it is absent."""

    path: Path
    before: Optional[str]
    after: Optional[str]
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mode_before: Optional[int] = None
    owner_before: Optional[tuple[int, int]] = None
    secret: bool = False

    @property
    def changed(self) -> bool:
        if self.after is None:
            return self.before is not None
        return (
            self.before != self.after
            or self.mode_before != self.mode
            or self.owner_before != (self.uid, self.gid)
        )

    def diff(self) -> dict[str, str]:
        """Return a diff in Ansible's format; for a secret file, only the fact that it changes."""
        shown = (lambda text: "(not shown)\n" if text is not None else "") if self.secret else str
        before = "" if self.before is None else shown(self.before)
        after = "" if self.after is None else shown(self.after)
        if self.before == self.after and self.after is not None:
            before = f"mode {_octal(self.mode_before)} owner {self.owner_before}\n"
            after = f"mode {_octal(self.mode)} owner {(self.uid, self.gid)}\n"
        return diff(str(self.path), before, after)

    def apply(self) -> None:
        """Make the change atomically: after an interruption, the file is the old or the new one."""
        if not self.changed:
            return
        if self.after is None:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            return
        write_atomically(self.path, self.after, self.mode, self.uid, self.gid)

    def undo(self) -> None:
        """Restore content, mode and owner as they were when the change was planned."""
        mode = self.mode if self.mode_before is None else self.mode_before
        uid, gid = self.owner_before or (self.uid, self.gid)
        plan_file(self.path, self.before, mode=mode, uid=uid, gid=gid).apply()


def diff(header: str, before: str, after: str) -> dict[str, str]:
    """Return an entry of Ansible's diff; `header` is a path or another subject."""
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def _octal(mode: Optional[int]) -> str:
    return "absent" if mode is None else f"{mode:04o}"


def plan_file(
    path: Path,
    after: Optional[str],
    *,
    mode: int = 0o644,
    uid: int = 0,
    gid: int = 0,
    secret: bool = False,
) -> FilePlan:
    """Read a file and plan its content, mode and owner."""
    before: Optional[str] = None
    mode_before: Optional[int] = None
    owner_before: Optional[tuple[int, int]] = None
    with contextlib.suppress(FileNotFoundError):
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            before = stream.read()
        status = path.stat()
        mode_before = status.st_mode & 0o7777
        owner_before = (status.st_uid, status.st_gid)
    return FilePlan(path, before, after, mode, uid, gid, mode_before, owner_before, secret)


def write_atomically(
    path: Path, text: Union[str, Iterable[str]], mode: int, uid: int, gid: int
) -> None:
    """Write a temporary file next to it, flush it, then rename it. Creates missing directories.

    `text` may be given in parts.
    """
    target = path.resolve() if path.is_symlink() else path
    make_directories(target.parent)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            os.fchmod(stream.fileno(), mode)
            os.fchown(stream.fileno(), uid, gid)
            stream.writelines([text] if isinstance(text, str) else text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        # The error for a full disk does not name the file.
        raise OSError(error.errno, error.strerror, str(target)) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def directory_of_trust(path: Path, *, make: bool = True) -> int:
    """Open an absolute directory, made if it is missing, for a file that root writes: a user who
    may write to a directory above it could lead root elsewhere by a link, and to one that every
    user may write to, could replace the file. Returns a descriptor. Raises OSError."""
    handle = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, name in enumerate(path.parts[1:], 2):
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(name, 0o755, dir_fd=handle)
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
            linked, below = stat.S_ISLNK(status.st_mode), Path(*path.parts[:number])
            if linked and status.st_uid not in (0, os.getuid()):
                why = f"a link that belongs to user {status.st_uid}: replace it by a directory"
                raise PermissionError(errno.ELOOP, why, str(below))
            flags = os.O_RDONLY | os.O_DIRECTORY | (0 if linked else os.O_NOFOLLOW)
            above, handle = handle, os.open(name, flags, dir_fd=handle)
            os.close(above)
        mode = os.fstat(handle).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            why = "every user can replace files there: chmod o-w, or use another directory"
            raise PermissionError(errno.EPERM, why, str(path))
    except OSError:
        os.close(handle)
        raise
    return handle


def write_beside(directory: int, name: str, text: str, mode: int = 0o644) -> None:
    """Write a file atomically to an open directory; a link with its name is replaced. Raises
    OSError."""
    new = f".{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(new, flags, 0o600, dir_fd=directory), "w", encoding="utf-8") as stream:
        try:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=directory)
            raise


def make_directories(path: Path, mode: int = 0o755) -> None:
    """Make a directory and its parents with this mode, whatever the umask. Existing directories are
    not changed."""
    umask = os.umask(0o777 & ~mode)  # chmod would leave a wrong mode if killed in between
    try:
        for directory in reversed([path, *path.parents]):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode)
    finally:
        os.umask(umask)


def with_header(body: str) -> str:
    return f"# {HEADER}\n{body}"


def replace_block(text: str, lines: Sequence[str], name: str, *, first: bool = False) -> str:
    """Return `text` with exactly `lines` between the markers of the block `name`; without `lines`,
    without markers. A missing block is appended, or inserted at the start with `first`."""
    begin = f"# BEGIN baremetal.mpi_roce {name}"
    end = f"# END baremetal.mpi_roce {name}"
    # Not splitlines(): a carriage return in an operator's line must not change.
    old = text.removesuffix("\n").split("\n") if text else []
    block = [begin, *lines, end] if lines else []
    if begin in old:
        start = old.index(begin)
        if end not in old[start:]:
            raise ValueError(f"line {start + 1}: {begin!r} has no line {end!r} after it")
        stop = old.index(end, start)
        new = old[:start] + block + old[stop + 1 :]
    else:
        new = block + old if first else old + block
    return "\n".join(new) + "\n" if new else ""


def diffs(plans: Sequence[FilePlan]) -> list[dict[str, Any]]:
    return [plan.diff() for plan in plans if plan.changed]
