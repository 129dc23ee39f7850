# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate authorities on the controller: made once, rotated with overlap, revoking.

An authority is two key pairs: one signs users, the other hosts. Rotation goes in steps, one for
each run, and the ledger says when the next one is due:

1. the new authority is made, and every node is told to believe both (the old one still signs);
2. when every node believes it, it signs, and every node gets new certificates;
3. when every node has them, the old one is dropped and its private keys are deleted.

So at no time do two nodes meet that do not believe each other, however long a node is away.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from ...module_utils.core.commands import Runner, run
from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.files import write_atomically
from ...module_utils.ssh.certificates import (
    DAY,
    KINDS,
    PublicKey,
    parse_public_key,
    public_key_or_none,
)
from .journal import Journal, Node, make_private_directory

MAX_REMOVED = 8
"""So many nodes may leave the inventory between two runs, unless told otherwise."""
KRL_DATE = slice(20, 28)
"""When a revocation list was made, in its header (OpenSSH's PROTOCOL.krl). Nothing reads it."""


class AuthorityError(Exception):
    """What is wrong with an authority, where, and what to do."""


@dataclass(frozen=True)
class Authority:
    """One authority: its name, its public keys, and where its private keys lie."""

    id: str
    user: PublicKey
    host: PublicKey
    user_path: Path
    host_path: Path


@dataclass(frozen=True)
class Supplied:
    """Private keys of the operator's own authority, used where they lie."""

    user: Path
    host: Path


@dataclass(frozen=True)
class State:
    """Names of the authority that signs, and of the one to come or the one to go, if any."""

    current: str = ""
    next: str = ""
    previous: str = ""

    @property
    def believed(self) -> list[str]:
        """Those that every node has to believe, the signing one first."""
        return [name for name in (self.current, self.next, self.previous) if name]


@dataclass
class Outcome:
    """What preparing came to."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """Every node of the inventory, as the journal has it."""
    removed: list[str] = field(default_factory=list)
    """Nodes found to have left the inventory, now."""
    revoked: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Serials, by authority and kind, of certificates of nodes that have left, not yet expired."""
    authorities: list[Authority] = field(default_factory=list)
    """Those to be believed; the first one signs. Empty where none was made yet (check mode)."""
    krl: bytes = b""
    made: bool = False
    """Whether the authorities changed: made, taken into use, or dropped."""
    steps: list[str] = field(default_factory=list)
    """What was done, waits, or in check mode would be done, for the operator."""


def remove_leavers(
    journal: Journal, members: Sequence[str], *, most: int, now: int, write: bool
) -> Outcome:
    """The nodes as they stand, those removed that the inventory does not have any more.

    So many at once may be a slip in the model, and revoking cannot be undone.
    """
    known = journal.read()
    outcome = Outcome({name: known.get(name, Node()) for name in members})
    outcome.removed = sorted(
        name
        for name, node in known.items()
        if name not in outcome.nodes and (node.laid or node.issued)
    )
    if len(outcome.removed) > most:
        count = len(outcome.removed)
        raise AuthorityError(
            f"{count} nodes have left the inventory and would be refused by all others:"
            f" {_few(outcome.removed, 100)}. Nothing was revoked. At most {most} may leave at once:"
            f" repair the model, or allow it for one run with -e ssh_trust_max_removed={count}"
        )
    for name in outcome.removed:
        known[name].leave()
        if write:
            journal.left(name)
    for node in known.values():
        for each in node.revoked:
            if each.valid_before > now:
                outcome.revoked.setdefault((each.authority, each.kind), []).append(each.serial)
    return outcome


class AuthorityStore:
    """The authorities of one cluster, in the directory of its journal."""

    def __init__(self, journal: Journal, runner: Runner = run) -> None:
        self.journal = journal
        self.directory = journal.directory / "authorities"
        self.run = runner

    # What is there.

    def state(self) -> State:
        path = self.journal.directory / "state.json"
        try:
            return State(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return State()
        except (ValueError, TypeError) as error:
            raise AuthorityError(
                f"{path}: damaged ({error}): restore it from a copy, or move {path.parent} away to"
                " begin with a new authority"
            ) from error

    def load(self, name: str) -> Authority:
        """An authority by its name. Raises AuthorityError when its files are missing."""
        paths = [self.directory / name / f"{kind}_ca" for kind in KINDS]
        try:
            user, host = (
                parse_public_key(path.with_suffix(".pub").read_text(encoding="utf-8"))
                for path in paths
            )
        except (OSError, ValueError) as error:
            raise AuthorityError(
                f"{self.directory / name}: the authority's files are missing or damaged ({error}):"
                f" restore them from a copy, or move {self.journal.directory} away to begin with a"
                " new authority"
            ) from error
        return Authority(name, user, host, *paths)

    # What is wanted.

    def wanted_name(self, generation: int, supplied: Optional[Supplied]) -> str:
        if supplied is None:
            return f"generation-{generation}"
        keys = [_supplied_key(path) for path in (supplied.user, supplied.host)]
        return "supplied-" + "-".join(key.blob[-6:].hex() for key in keys)

    def make(self, name: str, comment: str, supplied: Optional[Supplied]) -> None:
        """Make an authority's directory, whole or not at all."""
        make_private_directory(self.directory)
        if (self.directory / name).is_dir():
            return
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".new-") as scratch:
            folder = Path(scratch) / name
            folder.mkdir(mode=0o700)
            for kind in KINDS:
                made = folder / f"{kind}_ca"
                if supplied is None:
                    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
                    self.run([*argv, "-C", f"{comment} {kind} {name}", "-f", str(made)])
                else:
                    path = supplied.user if kind == "user" else supplied.host
                    made.symlink_to(path.absolute())
                    made.with_suffix(".pub").write_text(_supplied_key(path).text + "\n", "ascii")
            folder.rename(self.directory / name)

    def prepare(
        self,
        members: Sequence[str],
        *,
        comment: str,
        generation: int,
        overlap: bool,
        supplied: Optional[Supplied],
        now: int,
        write: bool,
        max_removed: int = MAX_REMOVED,
    ) -> Outcome:
        """Bring authorities, journal and revocation list to where the inventory wants them.

        `members` are the names of all nodes of the inventory. With `write` false nothing is
        written and the outcome says what would be done.
        """
        outcome = remove_leavers(self.journal, members, most=max_removed, now=now, write=write)
        seen = {name: node for name, node in outcome.nodes.items() if node.laid or node.issued}
        wanted = self.wanted_name(generation, supplied)
        before = self.state()
        after = self._advance(before, wanted, seen, overlap, outcome.steps)
        outcome.made = after != before
        if write:
            if supplied or wanted not in before.believed:
                self.make(wanted, comment, supplied)
            if outcome.made:
                path = self.journal.directory / "state.json"
                write_atomically(
                    path, json.dumps(vars(after)) + "\n", 0o600, os.getuid(), os.getgid()
                )
        outcome.authorities = [
            self.load(name) for name in after.believed if write or name in before.believed
        ]
        if write:
            self._forget_dropped(after)
        if outcome.authorities:
            outcome.krl = self._revocation_list(outcome)
        return outcome

    def _advance(
        self,
        state: State,
        wanted: str,
        nodes: Mapping[str, Node],
        overlap: bool,
        steps: list[str],
    ) -> State:
        """The steps of a rotation that are due; each one is told in `steps`."""
        if not state.current:
            steps.append(f"authority {wanted} is made")
            return State(current=wanted)
        if wanted == state.current and state.next:
            # It has signed nothing yet: wanting the old one again is enough to be rid of it.
            steps.append(f"authority {state.next} is given up, {wanted} goes on signing")
            state = State(state.current, previous=state.previous)
        elif wanted not in (state.current, state.next):
            in_use = max(_generation(name) for name in state.believed)
            if 0 < _generation(wanted) < in_use:
                raise AuthorityError(
                    f"authority {wanted} is wanted, but generation-{in_use} is in use:"
                    f" set ssh_trust_ca_generation to {in_use} or more"
                )
            if not overlap:
                steps.append(f"authority {wanted} replaces {state.current} at once")
                return State(current=wanted)
            steps.append(f"authority {wanted} is made, and every node is told to believe it")
            old = "" if state.previous == wanted else state.previous
            return State(state.current, next=wanted, previous=old)
        if state.previous:
            waiting = [name for name, node in nodes.items() if not _signed_by(node, state.current)]
            if waiting:
                steps.append(f"authority {state.previous} stays until replaced on {_few(waiting)}")
            else:
                steps.append(f"authority {state.previous} is no longer believed")
                state = State(state.current, next=state.next)
        if state.next and not state.previous:
            waiting = [name for name, node in nodes.items() if state.next not in node.trusts]
            if waiting and overlap:
                steps.append(f"authority {state.next} signs once believed by {_few(waiting)} too")
            else:
                steps.append(f"authority {state.next} signs from now on")
                state = State(state.next, previous=state.current if overlap else "")
        return state

    def _forget_dropped(self, state: State) -> None:
        """Delete the directories, private keys included, of authorities nobody believes."""
        for folder in self.directory.iterdir():
            if folder.name not in state.believed:
                shutil.rmtree(folder)

    def _revocation_list(self, outcome: Outcome) -> bytes:
        """The KRL, the same to the bit as long as it lists the same."""
        with tempfile.TemporaryDirectory(prefix="ssh-krl-") as scratch:
            made, key = Path(scratch) / "revoked.krl", Path(scratch) / "ca.pub"
            self.run(["ssh-keygen", "-q", "-k", "-f", str(made)])
            for authority in outcome.authorities:
                for kind, public in (("user", authority.user), ("host", authority.host)):
                    serials = outcome.revoked.get((authority.id, kind), [])
                    if serials:
                        key.write_text(public.text + "\n", encoding="ascii")
                        listing = "".join(f"serial: {serial}\n" for serial in serials)
                        argv = ["ssh-keygen", "-q", "-k", "-u", "-f", str(made), "-s", str(key)]
                        self.run([*argv, "-"], stdin=listing)
            krl = bytearray(made.read_bytes())
        krl[KRL_DATE] = bytes(8)
        return bytes(krl)


def _supplied_key(path: Path) -> PublicKey:
    public = path.with_name(path.name + ".pub")
    if not path.is_file():
        raise AuthorityError(f"{path}: no such file: name the private key of your authority")
    key = public_key_or_none(public.read_text(encoding="utf-8")) if public.is_file() else None
    if key is None:
        raise AuthorityError(
            f"{public}: missing or not a public key: make it with ssh-keygen -y -f {path}"
        )
    return key


def _generation(name: str) -> int:
    """The number of an authority made here; 0 for one supplied by the operator."""
    prefix, _separator, number = name.partition("-")
    return int(number) if prefix == "generation" else 0


def _signed_by(node: Node, authority: str) -> bool:
    latest = node.latest()
    return all(kind in latest and latest[kind].authority == authority for kind in KINDS)


def _few(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def expiring(nodes: Mapping[str, Node], now: int, warn_days: int) -> str:
    """The nodes a certificate of which expires within so many days, with the days they have."""
    ends = {
        name: min(each.valid_before for each in node.latest().values())
        for name, node in nodes.items()
        if node.issued
    }
    left = sorted(((end - now) // DAY, name) for name, end in ends.items())
    return _few([f"{name} ({days} days)" for days, name in left if days < warn_days])
