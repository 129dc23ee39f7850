# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller knows for a host: who mounts what it serves, and the key of Lustre."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ...module_utils.storage.file_system import LUSTRE, NFS, FileSystem
from ..model.key_files import MOST, KeyFileError

ADDRESSES = "shared_storage_client_addresses"
"""Variable of a host: addresses beside those of the model that its requests may come from."""
_KEY = "shared_storage_lustre.packages.repository.key"


def clients_of(
    host: str,
    filesystems: Sequence[FileSystem],
    directory: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Collection[str]],
    further: Callable[[str], Sequence[str]] = lambda host: (),
) -> dict[str, list[dict[str, Any]]]:
    """By name of a file system that `host` serves: every other host that mounts it, by address.

    Of the whole inventory, whatever the play is limited to: an export follows from the model.
    """
    mine = [
        fs
        for fs in filesystems
        if fs.type == NFS and fs.serve is not None and fs.serve.host == host
    ]
    if not mine:
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    for fs in mine:
        members = set().union(*(groups.get(group, ()) for group in fs.hosts))
        found[fs.name] = [
            {
                "name": entry["name"],
                "addresses": [
                    address
                    for address in (
                        entry["management_address"],
                        *(rail["address"] for rail in entry["rails"]),
                        *further(entry["name"]),
                    )
                    if address
                ],
            }
            for entry in directory
            if entry["name"] in members and entry["name"] != host
        ]
    return found


def servers_of(
    host: str,
    filesystems: Sequence[FileSystem],
    groups: Collection[str],
    variables: Callable[[str], Mapping[str, Any]],
    unknown: tuple[type[Exception], ...] = (),
) -> dict[str, list[str]]:
    """By name of a host that serves what `host`, which is in `groups`, mounts: its addresses.

    `variables` of a host are merged anew each time that they are asked for: once for each server.
    What one of them may raise in templating is in `unknown`: a server that the play is not for has
    no facts. Then nothing is known of it, rather than some of its addresses for all.
    """
    names = {
        fs.serve.host
        for fs in filesystems
        if fs.type == NFS
        and fs.serve is not None
        and fs.serve.host != host
        and set(fs.hosts) & set(groups)
    }
    found = {}
    for name in sorted(names):
        try:
            found[name] = _addresses(variables(name))
        except unknown:
            found[name] = []
    return found


def _addresses(of_host: Mapping[str, Any]) -> list[str]:
    management = of_host.get("cluster_management") or {}
    rails = of_host.get("cluster_rails") or []
    more = of_host.get(ADDRESSES) or []
    addresses = [
        management.get("address"),
        *(rail.get("address") for rail in rails),
        *([more] if isinstance(more, str) else more),
    ]
    return [str(each) for each in addresses if each]


def lustre_key(
    settings: Optional[Mapping[str, Any]],
    filesystems: Sequence[FileSystem],
    groups: Collection[str],
    directory: Path,
) -> bytes:
    """The public key of the repository of Lustre; empty where this host needs none.

    Raises KeyFileError. What else is wrong with the settings the module says.
    """
    if not any(fs.type == LUSTRE and set(fs.hosts) & set(groups) for fs in filesystems):
        return b""
    packages = (settings or {}).get("packages") or {}
    repository = packages.get("repository") if isinstance(packages, Mapping) else None
    if not isinstance(repository, Mapping) or not repository.get("key"):
        return b""
    path = directory / str(repository["key"])
    try:
        with path.open("rb") as file:
            content = file.read(MOST + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}. Put it there") from error
    if len(content) > MOST or b"PRIVATE KEY" in content:
        raise _refused(path, "is no public key. Put the public one there")
    digest, wanted = hashlib.sha256(content).hexdigest(), str(repository.get("key_sha256", ""))
    if digest != wanted:
        raise _refused(
            path,
            f"has the SHA-256 {digest}, and key_sha256 says {wanted or 'nothing'}. Compare its "
            "fingerprint (gpg --show-keys FILE) with the one that its owner publishes, then write "
            "what sha256sum prints",
        )
    return content


def _refused(path: Path, problem: str) -> KeyFileError:
    return KeyFileError([f"{_KEY}: {path} {problem}"])
