# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every node is told, built once for the whole cluster."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from ...module_utils.ssh_trust import configs
from . import names
from .authority import Authority, public_lines
from .ledger import Ledger


def empty(
    mode: str,
    entries: Sequence[Mapping[str, Any]],
    principal: str,
    management_prefix: int = 24,
) -> dict[str, Any]:
    """What holds in either mode, with nothing yet to be believed."""
    return {
        "mode": mode,
        "principal": principal,
        "patterns": names.patterns_of(entries, management_prefix),
        "believed": [],
        "signs": "",
        "private_keys": {},
        "user_authorities": [],
        "host_authorities": [],
        "revoked": "",
        "authorized_keys": "",
        "known_hosts": "",
    }


def by_authority(told: dict[str, Any], authorities: Sequence[Authority], krl: bytes) -> None:
    """Certificates: a few lines, whatever the number of nodes."""
    if authorities:
        first = authorities[0]
        told["signs"] = first.id
        told["private_keys"] = {"user": str(first.user_path), "host": str(first.host_path)}
    told["believed"] = [authority.id for authority in authorities]
    told["user_authorities"] = public_lines(authorities, "user")
    told["host_authorities"] = public_lines(authorities, "host")
    told["revoked"] = base64.b64encode(krl).decode("ascii")


def by_lists(
    told: dict[str, Any],
    entries: Sequence[Mapping[str, Any]],
    ledger: Ledger,
    user: str,
    domain: str,
) -> list[str]:
    """The classic files: a line for each node, from the ledger. Returns those without a key yet."""
    called = {str(entry["name"]): names.names_of(entry, domain) for entry in entries}
    known = {name: ledger.read(name) for name in called}
    host_keys = {name: node.host_key for name, node in known.items() if node}
    user_keys = {name: node.user_key for name, node in known.items() if node}
    told["known_hosts"] = "\n".join(configs.known_hosts_lines(called, host_keys))
    told["authorized_keys"] = "\n".join(configs.authorized_keys_lines(user, called, user_keys))
    return [name for name in called if not host_keys.get(name) or not user_keys.get(name)]
