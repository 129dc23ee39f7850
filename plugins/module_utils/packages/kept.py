# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files as they were before a change, so that they can be put back on a full disk too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..files import FilePlan, plan_file


class Kept:
    """A second name of each file that changes: files are replaced and never written in place, so
    the old one stays under it, with mode and owner. Renaming it back needs no space.

    The name begins with a dot and has an end of its own: neither apt nor dnf reads it.
    """

    def __init__(self, files: Sequence[FilePlan]) -> None:
        self._files = [planned for planned in files if planned.changed]
        for planned in self._files:
            if planned.before is not None:
                name = _second(planned.path)
                name.unlink(missing_ok=True)  # of a run that was killed
                with suppress(OSError):  # a file system without links: written again then
                    os.link(planned.path.resolve(), name)

    def put_back(self) -> list[str]:
        """Each file, whatever happens to another; returns those that could not be, with why.

        First those go that were not there, which may be what makes room.
        """
        left = []
        for planned in sorted(self._files, key=lambda each: each.before is not None):
            try:
                self._put_back(planned)
            except OSError as error:
                left.append(f"{planned.path}: {error.strerror or error}")
        return left

    def _put_back(self, planned: FilePlan) -> None:
        second = _second(planned.path)
        if second.exists():
            second.replace(planned.path.resolve())
            return
        mode = planned.mode if planned.mode_before is None else planned.mode_before
        uid, gid = planned.owner_before or (planned.uid, planned.gid)
        plan_file(planned.path, planned.before, mode=mode, uid=uid, gid=gid).apply()

    def forget(self) -> None:
        """The files stay as they are now."""
        for planned in self._files:
            with suppress(OSError):
                _second(planned.path).unlink()


def _second(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f".{target.name}.baremetal-mpi-roce-before")
