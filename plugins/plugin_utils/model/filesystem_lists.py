# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems as every host of an inventory has them: ones that can be, the same where it matters.

A model gives one list to group `all`. Written by hand, or overridden for a group, it was checked by
nobody. Hosts may have different lists; a file system is the same on all that mount or serve it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import some
from ...module_utils.mpi.hostfile import rail_name
from ...module_utils.storage.file_system import FileSystem
from ..schema.findings import Findings
from ..schema.kinds import check
from .storage import Site, finish
from .storage_keys import FILE_SYSTEMS, VARIABLE


@dataclass(frozen=True)
class Holder:
    """A host and its `cluster_filesystems` (None where it has none)."""

    name: str
    value: Any
    groups: Collection[str]
    """All groups that it is in."""


@dataclass
class _Version:
    """One list, and who has it."""

    value: Any
    by_name: dict[str, FileSystem]
    readable: bool
    holders: list[Holder] = field(default_factory=list)


def site_of(entries: Sequence[Mapping[str, Any]], domain: str, groups: Iterable[str]) -> Site:
    """What the directory's entries say of the cluster around its file systems."""
    by_name = {str(entry["name"]): entry for entry in entries}

    def names(host: str) -> frozenset[str]:
        entry = by_name[host]
        found = {host, str(entry["management_address"])} - {""}
        if domain:
            found.add(f"{host}.{domain}")
        for rail in entry["rails"]:
            found |= {rail_name(host, str(rail["interface"])), str(rail["address"])}
        return frozenset(found)

    return Site(
        groups=tuple(groups),
        hosts=by_name.keys(),
        names=names,
        more=frozenset(name for name, entry in by_name.items() if entry["role"] == "storage"),
    )


def check_lists(holders: Iterable[Holder], site: Site, findings: Findings) -> None:
    """Findings for lists that cannot be, and for hosts that mount something else than others.

    Ten thousand hosts with the same mistake have it once.
    """
    versions: list[_Version] = []
    for holder in holders:
        version = next((known for known in versions if known.value == holder.value), None)
        if version is None:
            version = _read(holder, site, findings)
            versions.append(version)
        version.holders.append(holder)
    readable = [version for version in versions if version.readable]
    for name in dict.fromkeys(name for version in readable for name in version.by_name):
        _check_same(name, readable, findings)


def _read(holder: Holder, site: Site, findings: Findings) -> _Version:
    path = (holder.name, VARIABLE)
    value = [] if holder.value is None else holder.value
    # Its own findings: what is wrong with the host besides hides nothing that is wrong here.
    own = Findings()
    found = finish(check(FILE_SYSTEMS, value, own, path), own, path, site)
    findings.found.extend(own.found)
    return _Version(holder.value, {entry.name: entry for entry in found or ()}, found is not None)


def _check_same(name: str, versions: list[_Version], findings: Findings) -> None:
    """Everybody who mounts or serves it, by anybody's list, has the same in its own."""
    said = {version.by_name[name] for version in versions if name in version.by_name}
    alike: dict[Optional[FileSystem], list[str]] = {}
    for version in versions:
        for holder in version.holders:
            if any(_takes_part(holder, entry) for entry in said):
                alike.setdefault(version.by_name.get(name), []).append(holder.name)
    usual = max(
        (entry for entry in alike if entry is not None),
        key=lambda entry: len(alike[entry]),
        default=None,
    )
    if usual is None:
        return
    for entry, hosts in alike.items():
        if entry == usual:
            continue
        also = f" (also on {some(hosts[1:], 3)})" if hosts[1:] else ""
        findings.add(
            "storage.hosts_differ",
            (hosts[0], VARIABLE),
            f"{_difference(name, entry, usual)}{also} on {some(alike[usual], 3)}: a job finds the "
            "same files on all its nodes",
            f"Set {VARIABLE} once, for group all",
            value=(name, *_keys(entry, usual)),
        )


def _takes_part(holder: Holder, entry: FileSystem) -> bool:
    serves = entry.serve is not None and entry.serve.host == holder.name
    return serves or any(group in holder.groups for group in entry.hosts)


def _keys(entry: Optional[FileSystem], usual: FileSystem) -> tuple[str, ...]:
    """In which two of one name differ."""
    if entry is None:
        return ()
    found, wanted = entry.as_variable(), usual.as_variable()
    return tuple(key for key in {**wanted, **found} if found.get(key) != wanted.get(key))


def _difference(name: str, entry: Optional[FileSystem], usual: FileSystem) -> str:
    if entry is None:
        return f"{name!r} is not in it, but"
    found, wanted = entry.as_variable(), usual.as_variable()
    told = [
        f"{key} {json.dumps(found.get(key))}, but {json.dumps(wanted.get(key))}"
        for key in _keys(entry, usual)
    ]
    return f"{name!r} has " + "; ".join(told)
