# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Determine whether the state belongs to this inventory's cluster.

Two inventories with the same `name:` share a state directory by default, and the second would
revoke all hosts of the first. Where inventory and state share fewer than half of the hosts of the
smaller of the two, by name and management address, the state is another cluster's.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ...module_utils.core.text import some
from .journal import Journal, operator
from .rotation import AuthorityError

NAME = "identity.json"
HISTORY = 50
"""Number of recorded changes of the hosts; older ones are dropped."""
TOKEN_LENGTH = 12
"""Length of the token with which an operator hands the state over."""


def read(journal: Journal) -> dict[str, Any]:
    """The id of the state, the hosts of the last run (name to address), and a history of their
    digests; a new state has none. Raises AuthorityError.
    """
    path = journal.directory / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        members = {str(name): str(address) for name, address in content["members"].items()}
        own = str(uuid.UUID(content["id"]))
        return {"id": own, "members": members, "history": list(content["history"])}
    except FileNotFoundError:
        return {"id": "", "members": {}, "history": []}
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
    last = read(journal)["members"]
    known = [name for name, node in journal.read().items() if node.admitted]
    addresses = {name: last.get(name, "") for name in known}
    common = [name for name in known if name in members and addresses[name] in ("", members[name])]
    if 2 * len(common) >= min(len(known), len(members)):
        return False
    wanted = _digest(addresses)[:TOKEN_LENGTH]
    if word != wanted:
        hosts = [f"{name} {address}".strip() for name, address in sorted(addresses.items())]
        gone = sorted(name for name in known if name not in members)
        raise AuthorityError(
            f"{journal.directory} is the state of another cluster (id {read(journal)['id']}),"
            f" with {some(hosts, 10)}. The inventory of {cluster!r} has {len(common)} of its"
            f" {len(known)} hosts, by name and management address. Nothing was signed or revoked."
            " A second cluster needs another `name:` in its cluster.yml. If this is the same"
            " cluster with new names or addresses, or its replacement, hand the state over for one"
            f" run: -e ssh_trust_take_over={wanted}; this revokes {some(gone, 20)}"
        )
    return True


def record(journal: Journal, members: Mapping[str, str]) -> None:
    """Record these hosts as those of the state, whose id is made once."""
    before = read(journal)
    if members != before["members"]:
        made = {"time": int(time.time()), "operator": operator(), "digest": _digest(members)}
        history = [*before["history"], made][-HISTORY:]
        own = before["id"] or str(uuid.uuid4())
        content = {"id": own, "members": dict(members), "history": history}
        journal.write(NAME, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _digest(hosts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(hosts), sort_keys=True).encode()).hexdigest()
