# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Decide which authorities sign and are trusted, and which nodes lose their certificates.

The functions here read and write no files. A rotation takes one step per run (docs/ssh-trust.md),
so that two nodes that communicate trust each other's authority, however long one was unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...module_utils.core.messages import message
from ...module_utils.core.text import counted, some
from ...module_utils.ssh.keys import DAY, KINDS, digest
from .journal import Member


class AuthorityError(Exception):
    """An authority or its state is unusable. The text names the file and the remedy."""


@dataclass(frozen=True)
class Rotation:
    """Name of the signing authority, and of its successor and predecessor during a rotation."""

    current: str = ""
    next: str = ""
    previous: str = ""

    @property
    def trusted(self) -> list[str]:
        """The authorities that every node must trust, the signing one first."""
        return [name for name in (self.current, self.next, self.previous) if name]


@dataclass
class Revocations:
    """Contents of the revocation list."""

    serials: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """By authority and kind, the certificates of departed nodes and replaced ones. Certificates
    that had expired at the last departure are omitted, so that the list only changes on events.
    """
    keys: list[str] = field(default_factory=list)
    """Public keys of revoked nodes."""
    notes: list[str] = field(default_factory=list)
    """Revoked keys that are not listed, with the reason."""


def departures(
    known: Mapping[str, Member], members: Iterable[str], max_removed: int, revoke: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Nodes that left the inventory, and nodes of `ssh_trust_revoke`, whose keys are revoked too.

    Raises AuthorityError for an unknown name, and when more than `max_removed` nodes left: that may
    be a mistake in the model, and revocation cannot be undone.
    """
    present = set(members)
    unknown = [name for name in revoke if name not in known and name not in present]
    if unknown:
        raise AuthorityError(
            message(
                "ssh_revoke_unknown",
                "ssh_trust_revoke: {names}: neither in the inventory nor in the journal",
                names=some(unknown, 5),
            )
        )
    left = [name for name, node in known.items() if name not in present and node.admitted]
    unnamed = sorted(name for name in left if name not in revoke)
    launchers = [name for name in unnamed if known[name].launcher]
    count = len(unnamed) + len(launchers)
    if count > max(0, max_removed):
        listed = [f"launcher {name}" if name in launchers else name for name in unnamed]
        raise AuthorityError(
            message(
                "ssh_many_left",
                "{nodes} left the inventory and would be refused by all others: {names}. Nothing"
                " was signed or revoked. ssh_trust_max_removed is {limit}, and a launcher counts as"
                " two: put them back into the model, or accept their removal for one run with"
                " -e ssh_trust_max_removed={count}",
                nodes=counted(len(unnamed), "node"),
                names=some(listed, 100),
                limit=max_removed,
                count=count,
            )
        )
    revoked = [name for name in revoke if name in known]
    return sorted(left), [name for name in revoked if known[name].keys or known[name].admitted]


def revocations(known: Mapping[str, Member]) -> Revocations:
    """List the serials and keys that every node must refuse."""
    listed = Revocations()
    # A clock that was ahead during one run must not terminate a revocation.
    last = min(max((node.revoked_at for node in known.values()), default=0), int(time.time()))
    # A machine cloned with its keys, or an attacker who presented another node's public key, must
    # not get that node refused as well.
    holders: dict[str, set[str]] = {}
    for name, node in known.items():
        for certificate in node.issued:
            holders.setdefault(certificate.key, set()).add(name)
    for name, node in known.items():
        for key in node.refused_keys:
            if others := holders.get(key, set()) - {name}:
                listed.notes.append(
                    message(
                        "ssh_key_shared",
                        "key {key} of {name} is not refused: {others} uses it as well",
                        key=digest(key),
                        name=name,
                        others=some(sorted(others), 5),
                    )
                )
            else:
                listed.keys.append(key)
        for certificate in node.revoked:
            if certificate.valid_before > last:
                serials = listed.serials.setdefault((certificate.authority, certificate.kind), [])
                serials.append(certificate.serial)
    return listed


def advance(
    rotation: Rotation, wanted: str, nodes: Mapping[str, Member], overlap: bool
) -> tuple[Rotation, list[str]]:
    """Take the steps of a rotation towards the authority `wanted` that are due.

    Returns the new rotation and its steps as messages. Raises AuthorityError for a return to an
    earlier generation.
    """
    if not rotation.current:
        step = message("ssh_authority_made", "authority {name} is created", name=wanted)
        return Rotation(current=wanted), [step]
    current, following, previous = rotation.current, rotation.next, rotation.previous
    if wanted not in (current, following):
        return _start(rotation, wanted, overlap)
    steps: list[str] = []
    if wanted == current and following:
        # The successor has signed nothing yet and can be dropped.
        steps.append(message("ssh_rotation_cancelled", "{old} is dropped again", old=following))
        following = ""
    if previous:
        away = [name for name, node in nodes.items() if not _signed_by(node, current)]
        if away:
            step = message(
                "ssh_authority_kept",
                "{old} remains trusted until its certificates on {nodes} are replaced",
                old=previous,
                nodes=some(away, 5),
            )
        else:
            step = message("ssh_authority_dropped", "{old} is no longer trusted", old=previous)
            previous = ""
        steps.append(step)
    if following and not previous:
        away = [name for name, node in nodes.items() if following not in node.trusts]
        if away and overlap:
            step = message(
                "ssh_authority_waits",
                "{name} will sign once {nodes} also trusts it",
                name=following,
                nodes=some(away, 5),
            )
        else:
            step = message("ssh_authority_signs", "{name} signs from now on", name=following)
            current, following, previous = following, "", current if overlap else ""
        steps.append(step)
    return Rotation(current, following, previous), steps


def _start(rotation: Rotation, wanted: str, overlap: bool) -> tuple[Rotation, list[str]]:
    in_use = max(_generation(name) for name in rotation.trusted)
    if 0 < _generation(wanted) < in_use:
        raise AuthorityError(
            message(
                "ssh_generation_back",
                "authority {name} is wanted, but generation-{used} is in use: set"
                " ssh_trust_ca_generation to {used} or more",
                name=wanted,
                used=in_use,
            )
        )
    if not overlap:
        step = message("ssh_authority_replaced", "{name} replaces all others", name=wanted)
        return Rotation(current=wanted), [step]
    step = message("ssh_rotation_begun", "every node will trust {name}", name=wanted)
    old = "" if rotation.previous == wanted else rotation.previous
    return Rotation(rotation.current, wanted, old), [step]


def _generation(name: str) -> int:
    """The number of an authority created here; 0 for one supplied by the operator."""
    prefix, _separator, number = name.partition("-")
    return int(number) if prefix == "generation" else 0


def _signed_by(node: Member, authority: str) -> bool:
    """Whether this authority issued all certificates that the node may still use."""
    return {(certificate.kind, certificate.authority) for certificate in node.issued} == {
        (kind, authority) for kind in KINDS
    }


def expiring(nodes: Mapping[str, Member], now: int, warn_days: float) -> str:
    """List nodes with a certificate that expires within `warn_days`, with the days left."""
    left = sorted(
        (min(certificate.valid_before for certificate in node.latest().values()) - now, name)
        for name, node in nodes.items()
        if node.issued
    )
    soon = [
        f"{name} ({seconds // DAY} days)" for seconds, name in left if seconds < warn_days * DAY
    ]
    return some(soon, 5) if soon else ""
