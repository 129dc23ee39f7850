# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Determine whether the state belongs to this inventory's cluster.

Two inventories with the same `name:` share a state directory by default, and a copied directory has
the same keys; the second inventory would then revoke all hosts of the first. The path or digest of
an inventory does not identify a cluster, because inventories are edited and moved. Its hosts do:
where inventory and state share fewer than half of the hosts of the smaller of the two, by name and
management address, the state is another cluster's until the operator hands it over for one run.
Removing hosts is limited by `ssh_trust_max_removed`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.core.text import some
from ...module_utils.ssh.keys import HOST
from .journal import Journal, Member, operator
from .rotation import AuthorityError

NAME = "identity.json"
HISTORY = 50
"""Number of recorded changes of the hosts; older ones are dropped."""
TOKEN_LENGTH = 12
"""Length of the token with which an operator hands the state over."""


@dataclass(frozen=True)
class Identity:
    """Identity of a state directory. `members` are the hosts of the last run: name to address."""

    id: str = ""
    """UUID; empty until a run claims the state."""
    members: Mapping[str, str] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    """Changes of the members: time, operator, controller, digest and count."""


def read(journal: Journal) -> Identity:
    """Read the identity; a new state has an empty one. Raises AuthorityError if it is damaged."""
    path = journal.directory / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        members = {str(name): str(address) for name, address in content["members"].items()}
        history = [{**change, "time": int(change["time"])} for change in content["history"]]
        return Identity(str(uuid.UUID(content["id"])), members, history)
    except FileNotFoundError:
        return Identity()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuthorityError(
            f"{path}: damaged ({error}): restore it from a copy, or remove it: the journal in the"
            " same directory lists the hosts"
        ) from error


def claim(journal: Journal, members: Mapping[str, str], cluster: str, word: str) -> bool:
    """Return whether the operator hands the state over to these hosts, by the token `word`.

    `members` maps names to management addresses. Raises AuthorityError if the state belongs to
    another cluster.
    """
    identity = read(journal)
    recorded = {name: node for name, node in journal.read().items() if node.complete or node.issued}
    known = {name: _addresses(name, node, identity) for name, node in recorded.items()}
    common = [
        name
        for name, addresses in known.items()
        if name in members and (not addresses or members[name] in addresses)
    ]
    if 2 * len(common) < min(len(known), len(members)):
        hosts = {name: sorted(addresses) for name, addresses in known.items()}
        wanted = _digest([identity.id, hosts])
        if word != wanted[:TOKEN_LENGTH]:
            raise AuthorityError(
                _other(
                    journal, identity, members, cluster, known, len(common), wanted[:TOKEN_LENGTH]
                )
            )
        return True
    return False


def record(journal: Journal, members: Mapping[str, str]) -> None:
    """Record these hosts as those of the state."""
    identity = read(journal)
    if not identity.id or members != identity.members:
        made = {"time": int(time.time()), "operator": operator(), "host": socket.gethostname()}
        made.update(digest=_digest(dict(members)), count=len(members))
        history = [*identity.history, made][-HISTORY:]
        own = identity.id or str(uuid.uuid4())
        now = {"id": own, "members": dict(members), "history": history}
        journal.write(NAME, json.dumps(now, indent=1, sort_keys=True) + "\n")


def _addresses(name: str, member: Member, identity: Identity) -> set[str]:
    """Management address at the last run, or the addresses in the host certificate."""
    if name in identity.members:
        return {identity.members[name]}
    host = member.latest().get(HOST)
    return set(filter(_is_address, host.principals if host else ()))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _other(
    journal: Journal,
    identity: Identity,
    members: Mapping[str, str],
    cluster: str,
    known: Mapping[str, set[str]],
    common: int,
    word: str,
) -> str:
    hosts = [" ".join([name, *sorted(addresses)[:1]]) for name, addresses in sorted(known.items())]
    gone = sorted(name for name in known if name not in members)
    last = identity.id or "none"
    if identity.history:
        change = identity.history[-1]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(change["time"]))
        last += f", last changed {when} by {change.get('operator')} on {change.get('host')}"
    return (
        f"{journal.directory} is the state of another cluster (id {last}), with"
        f" {some(hosts, 10)}. The inventory of {cluster!r} has {common} of its {len(known)} hosts,"
        " by name and management address. Nothing was signed or revoked. A second cluster needs"
        " another `name:` in its cluster.yml. If this is the same cluster with new names or"
        " addresses, or its replacement, hand the state over for one run:"
        f" -e ssh_trust_take_over={word}; this revokes {some(gone, 20)}"
    )
