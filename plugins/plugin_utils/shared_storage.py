# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Arguments of shared_storage from the controller: client addresses, and the key of Lustre."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ..module_utils.storage.file_system import LUSTRE, FileSystem
from ..module_utils.storage.lustre import O2IB, kind, read_settings
from ..module_utils.storage.units import serves
from .model.key_files import KeyFileError, read_key
from .model.lustre import SETTINGS, VARIABLE
from .schema.findings import Findings, RefusedError

ADDRESSES = "shared_storage_client_addresses"
"""Host variable with further addresses from which the host's requests may come."""
_LUSTRE_KEY = "shared_storage_lustre.packages.repository.key"


class ClientError(ValueError):
    """A client has no usable address; the message states the reason."""


def clients_of(
    host: str,
    filesystems: Sequence[FileSystem],
    directory: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Collection[str]],
    further: Callable[[str], Sequence[str]] = lambda host: (),
) -> dict[str, list[str]]:
    """Maps file systems that `host` serves to the sorted addresses of all other hosts that mount
    them, whatever --limit is. Raises ClientError."""
    found: dict[str, list[str]] = {}
    for fs in filesystems:
        if not serves(fs, host):
            continue
        members = set().union(*(groups.get(group, ()) for group in fs.hosts)) - {host}
        addresses: set[str] = set()
        for entry in directory:
            if entry["name"] not in members:
                continue
            mine = [entry["management_address"], *(rail["address"] for rail in entry["rails"])]
            addresses.update(filter(None, mine))
            addresses.update(_address(entry["name"], text) for text in further(entry["name"]))
        found[fs.name] = sorted(addresses, key=_key)
    return found


def _address(host: str, text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
        if not (address.is_unspecified or address.is_multicast or address.is_loopback):
            return str(address)
    except ValueError:
        pass
    raise ClientError(
        f"{ADDRESSES} of {host}: {text!r} is not the address of one host, and exports are to "
        "single addresses only. Correct the inventory"
    )


def _key(text: str) -> tuple[int, int]:
    address = ipaddress.ip_address(text)
    return address.version, int(address)


class LustreError(RefusedError):
    what = f"{VARIABLE} cannot be used"


def lustre_settings(
    value: Optional[Mapping[str, Any]], filesystems: Sequence[FileSystem], groups: Collection[str]
) -> dict[str, Any]:
    """`shared_storage_lustre` with defaults; empty without Lustre. Raises LustreError."""
    if not any(fs.type == LUSTRE and set(fs.hosts) & set(groups) for fs in filesystems):
        return {}
    findings = Findings()
    found: dict[str, Any] = SETTINGS.check(dict(value or {}), findings, (VARIABLE,))
    if findings:
        raise LustreError(findings.found)
    return found


def o2ib(settings: Mapping[str, Any], filesystems: Sequence[FileSystem]) -> bool:
    networks = read_settings(settings, (), filesystems).networks
    return any(kind(each.net) == O2IB for each in networks)


def lustre_key(settings: Mapping[str, Any], directory: Path) -> bytes:
    """The public key of the Lustre repository, if this host needs one. Raises KeyFileError."""
    repository = (settings.get("packages") or {}).get("repository")
    if not repository:
        return b""
    path = directory / str(repository["key"])
    content, problem = read_key(path, str(repository.get("key_sha256", "")))
    if problem:
        raise KeyFileError(
            [
                f"{_LUSTRE_KEY}: {path}, {problem}. Compare its fingerprint (gpg --show-keys FILE) "
                "with the one that its owner publishes, then write what sha256sum prints"
            ]
        )
    return content
