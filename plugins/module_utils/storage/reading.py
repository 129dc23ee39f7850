# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the variable `cluster_filesystems` to file systems, or to every reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ..schema.findings import Findings, Path, RefusedError
from ..schema.kinds import check
from .file_system import Expectation, FileSystem, Lustre, Nfs, Serve
from .keys import FILE_SYSTEMS, PORTS, VARIABLE
from .rules import Site, check_one, check_together


class StorageError(RefusedError):
    what = f"{VARIABLE} cannot be mounted"


def read_filesystems(
    value: Optional[Sequence[Any]], site: Optional[Site] = None
) -> tuple[FileSystem, ...]:
    """The file systems of `value`; None and [] are none. Raises StorageError.

    `site`: the cluster around them, where it is known; without it, groups and servers are taken as
    they are written.
    """
    findings = Findings()
    entries = list(value or ()) if value is None or isinstance(value, tuple) else value
    checked = check(FILE_SYSTEMS, entries, findings, (VARIABLE,))
    found = finish(checked, findings, (VARIABLE,), site)
    if found is None:
        raise StorageError(findings.found)
    return found


def finish(
    checked: Any, findings: Findings, path: Path, site: Optional[Site] = None
) -> Optional[tuple[FileSystem, ...]]:
    """The file systems of a value that went through `check`; None where anything was found.

    Rules speak of what is left after the first look: one wrong type hides no contradiction
    elsewhere.
    """
    if checked is None:
        return None
    entries = [((*path, index), entry) for index, entry in enumerate(checked) if entry is not None]
    for at, entry in entries:
        check_one(entry, findings, at, site)
    check_together(entries, findings)
    if not findings.clean(path):
        return None
    return tuple(_file_system(entry) for _at, entry in entries)


def _file_system(entry: dict[str, Any]) -> FileSystem:
    nfs, serve = entry["nfs"], entry["serve"]
    if nfs:
        nfs = {**nfs, "port": nfs["port"] or PORTS[nfs["transport"]]}
    return FileSystem(
        **{
            **entry,
            "hosts": tuple(entry["hosts"]),
            "options": tuple(entry["options"]),
            "nfs": Nfs(**(nfs or {})),
            "lustre": Lustre(**(entry["lustre"] or {})),
            "serve": Serve(**serve) if serve else None,
            "expect": Expectation(**entry["expect"]),
        }
    )
