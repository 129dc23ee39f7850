# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whose the state is: one cluster's, known by its hosts, whatever inventory names it.

Two inventories of one `name:` have the same state directory by default, and a copy of a directory
has the same keys; the second would revoke all hosts of the first. An inventory is edited all the
time, moved, shared and checked out twice, so neither its path nor its digest tells a cluster from
another: its hosts do. Where the two share fewer than half of their hosts, of those that are fewer,
by name and management address, it is another cluster until the operator says otherwise, for that
one change. Who only removes hosts meets `ssh_trust_max_removed`.
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
from .authority import AuthorityError
from .journal import Journal, Member, operator

NAME = "identity.json"
HISTORY = 50
"""Changes of the hosts that are kept, the last ones."""
WORD = 12
"""Characters of the word by which an operator hands the state over."""


@dataclass(frozen=True)
class Identity:
    """Made once with the directory. `members` are the hosts of the last run, by name."""

    id: str = ""
    """Of a state that no run has claimed yet, empty."""
    members: Mapping[str, str] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    """For each change of the members: time, operator, host of the controller, digest, count."""


def read(journal: Journal) -> Identity:
    """An empty one where there is none."""
    path = journal.directory / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        members = {str(name): str(address) for name, address in found["members"].items()}
        history = [{**each, "time": int(each["time"])} for each in found["history"]]
        return Identity(str(uuid.UUID(found["id"])), members, history)
    except FileNotFoundError:
        return Identity()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuthorityError(
            f"{path}: damaged ({error}): restore it from a copy, or remove it: the journal next to"
            " it has the hosts"
        ) from error


def claim(journal: Journal, members: Mapping[str, str], cluster: str, word: str) -> bool:
    """Whether the operator handed the state over, by `word`, to these hosts of an inventory.

    `members` have their management addresses. Raises AuthorityError where the state is another
    cluster's.
    """
    identity = read(journal)
    there = {name: each for name, each in journal.read().items() if each.complete or each.issued}
    known = {name: _addresses(name, each, identity) for name, each in there.items()}
    kept = [
        name
        for name, addresses in known.items()
        if name in members and (not addresses or members[name] in addresses)
    ]
    if 2 * len(kept) < min(len(known), len(members)):
        wanted = _digest([identity.id, {name: sorted(each) for name, each in known.items()}])
        if word != wanted[:WORD]:
            raise AuthorityError(
                _other(journal, identity, members, cluster, known, len(kept), wanted[:WORD])
            )
        return True
    return False


def record(journal: Journal, members: Mapping[str, str]) -> None:
    """From now on the state is that of these hosts."""
    identity = read(journal)
    if not identity.id or members != identity.members:
        made = {"time": int(time.time()), "operator": operator(), "host": socket.gethostname()}
        made.update(digest=_digest(dict(members)), count=len(members))
        history = [*identity.history, made][-HISTORY:]
        own = identity.id or str(uuid.uuid4())
        now = {"id": own, "members": dict(members), "history": history}
        journal.write(NAME, json.dumps(now, indent=1, sort_keys=True) + "\n")


def _addresses(name: str, member: Member, identity: Identity) -> set[str]:
    """Management address as of the last run; of a state without one, what its certificate has."""
    if name in identity.members:
        return {identity.members[name]}
    host = member.latest().get(HOST)
    return {each for each in (host.principals if host else ()) if _is_address(each)}


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
    kept: int,
    word: str,
) -> str:
    hosts = [" ".join([name, *sorted(addresses)[:1]]) for name, addresses in sorted(known.items())]
    gone = sorted(name for name in known if name not in members)
    last = identity.id or "not made yet"
    if identity.history:
        each = identity.history[-1]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(each["time"]))
        last += f", last changed {when} by {each.get('operator')} on {each.get('host')}"
    return (
        f"{journal.directory} is the state of another cluster (id {last}), with"
        f" {some(hosts, 10)}. Of its {len(known)} hosts the inventory of {cluster!r} has {kept} by"
        " name and management address. Nothing was signed or revoked. A second cluster needs"
        " another name: in its cluster.yml. If this is the same cluster, whose hosts were renamed"
        " or got other addresses, or the one that replaces it, hand the state over for one run:"
        f" -e ssh_trust_take_over={word}; this revokes {some(gone, 20)}"
    )
