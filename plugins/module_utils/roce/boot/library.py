# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The library as root runs it: nobody else may write there, and nothing unknown lies in it."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import FilePlan

_MODE = 0o755
_CACHE = "__pycache__"


class Guard:
    """What is wrong with the directories of one version, besides the files that it consists of."""

    def __init__(
        self, library: Path, program: str, files: Sequence[FilePlan], uid: int, gid: int
    ) -> None:
        self._library, self._version = library, library / program
        self._files = {plan.path for plan in files}
        self._owner = (uid, gid)
        self.open: list[Path] = []
        self.strays: list[Path] = []
        if self._files:
            self.open = [each for each in self._directories() if self._wrong(each)]
            link = self._version.is_symlink()
            self.strays = [self._version] if link else list(self._unknown(self._version))

    @property
    def faults(self) -> bool:
        return bool(self.open or self.strays)

    def text(self) -> str:
        """One line for each, for a diff."""
        lines = [f"unknown  {path}" for path in self.strays]
        for path in self.open:
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            lines.append(f"mode {mode:04o} owner {(status.st_uid, status.st_gid)}  {path}")
        return "".join(f"{line}\n" for line in lines)

    def remove_strays(self) -> None:
        for path in self.strays:
            remove(path)

    def close_directories(self) -> None:
        """Also new ones: below a directory with a group of its own they would inherit that."""
        for path in self._directories():
            if self._wrong(path):
                os.chown(path, *self._owner)
                path.chmod(_MODE)

    def _wrong(self, path: Path) -> bool:
        status = path.stat()
        found = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        return found != (_MODE, *self._owner)

    def _foreign(self, cache: Path) -> bool:
        status = cache.stat()
        return status.st_uid != self._owner[0] or bool(status.st_mode & 0o022)

    def _directories(self) -> Iterator[Path]:
        """Ours, from the collection's own down; where nothing is installed yet there is none."""
        inner = {
            parent
            for path in self._files
            for parent in path.parents
            if self._version in (parent, *parent.parents)
        }
        ours = (self._library.parent, self._library, *sorted(inner))
        return (path for path in ours if path.is_dir() and not path.is_symlink())

    def _unknown(self, directory: Path) -> Iterator[Path]:
        """What Python compiled of known files is known, unless others could write it."""
        if not directory.is_dir():
            return
        for path in sorted(directory.iterdir()):
            if path.is_symlink():
                yield path
            elif path.is_dir() and path.name == _CACHE:
                if self._foreign(path) or directory in self.open or not self._compiled(path):
                    yield path
            elif path.is_dir():
                if any(path in known.parents for known in self._files):
                    yield from self._unknown(path)
                else:
                    yield path
            elif path not in self._files:
                yield path

    def _compiled(self, cache: Path) -> bool:
        names = {path.stem for path in self._files if path.parent == cache.parent}
        return all(
            path.suffix == ".pyc" and path.name.partition(".")[0] in names
            for path in cache.iterdir()
        )


def remove(path: Path) -> None:
    """Whatever it is; a link, and not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
