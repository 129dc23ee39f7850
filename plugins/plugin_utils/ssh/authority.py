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
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.commands import Runner, run
from ...module_utils.dataclass import dataclass
from ...module_utils.ssh_trust.certificates import KINDS
from ...module_utils.ssh_trust.wire import PublicKey, parse_public_key, public_key_or_none
from .ledger import Ledger, Node, make_private_directory, save

MAX_REMOVED = 8
"""So many nodes may leave the inventory between two runs, unless told otherwise."""


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

    def path(self, kind: str) -> Path:
        return self.user_path if kind == "user" else self.host_path


@dataclass(frozen=True)
class Supplied:
    """Private keys of the operator's own authority, used where they lie."""

    user_path: Path
    host_path: Path


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
    """What preparing the authorities came to."""

    authorities: list[Authority] = field(default_factory=list)
    """Those to be believed; the first one signs. Empty where none was made yet (check mode)."""
    krl: bytes = b""
    removed: list[str] = field(default_factory=list)
    """Nodes found to have left the inventory, now."""
    made: bool = False
    """Whether the authorities changed: made, taken into use, or dropped."""
    steps: list[str] = field(default_factory=list)
    """What was done, waits, or in check mode would be done, for the operator."""


def leaving(ledger: Ledger, members: Collection[str], most: int) -> list[str]:
    """The nodes that the ledger knows and the inventory does not have any more.

    So many at once may be a slip in the model, and revoking cannot be undone.
    """
    present = set(members)
    found = [name for name in ledger.known() if name not in present]
    if len(found) > most:
        raise AuthorityError(
            f"{len(found)} nodes have left the inventory and would be refused by all others:"
            f" {_few(found, 100)}. Nothing was revoked. At most {most} may leave at once: repair"
            f" the model, or allow it for one run with -e ssh_trust_max_removed={len(found)}"
        )
    return found


class AuthorityStore:
    """The authorities of one cluster, in the directory of its ledger."""

    def __init__(self, ledger: Ledger, runner: Runner = run) -> None:
        self.ledger = ledger
        self.directory = ledger.directory / "authorities"
        self.run = runner

    # What is there.

    def state(self) -> State:
        path = self.ledger.directory / "state.json"
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
        folder = self.directory / name
        try:
            places = json.loads((folder / "places.json").read_text(encoding="utf-8"))
            keys = {
                kind: parse_public_key((folder / f"{kind}_ca.pub").read_text(encoding="utf-8"))
                for kind in KINDS
            }
        except (OSError, ValueError) as error:
            raise AuthorityError(
                f"{folder}: the authority's files are missing or damaged ({error}): restore them"
                f" from a copy, or move {self.ledger.directory} away to begin with a new authority"
            ) from error
        return Authority(
            name,
            keys["user"],
            keys["host"],
            Path(places.get("user") or folder / "user_ca"),
            Path(places.get("host") or folder / "host_ca"),
        )

    # What is wanted.

    def wanted_name(self, generation: int, supplied: Optional[Supplied]) -> str:
        if supplied is None:
            return f"generation-{generation}"
        keys = [self._supplied_key(path) for path in (supplied.user_path, supplied.host_path)]
        return "supplied-" + "-".join(key.blob[-6:].hex() for key in keys)

    def _supplied_key(self, path: Path) -> PublicKey:
        public = path.with_name(path.name + ".pub")
        if not path.is_file():
            raise AuthorityError(f"{path}: no such file: name the private key of your authority")
        key = public_key_or_none(public.read_text(encoding="utf-8")) if public.is_file() else None
        if key is None:
            raise AuthorityError(
                f"{public}: missing or not a public key: make it with ssh-keygen -y -f {path}"
            )
        return key

    def make(self, name: str, comment: str, supplied: Optional[Supplied]) -> None:
        """Make an authority's directory, whole or not at all."""
        make_private_directory(self.directory)
        if (self.directory / name).is_dir():
            return
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".new-") as scratch:
            folder = Path(scratch) / name
            folder.mkdir(mode=0o700)
            places = {}
            for kind in KINDS:
                if supplied is None:
                    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
                    argv += ["-C", f"{comment} {kind} {name}", "-f", str(folder / f"{kind}_ca")]
                    self.run(argv)
                else:
                    path = supplied.user_path if kind == "user" else supplied.host_path
                    places[kind] = str(path.absolute())
                    save(folder / f"{kind}_ca.pub", self._supplied_key(path).text + "\n")
            save(folder / "places.json", json.dumps(places) + "\n")
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
        """Bring authorities, ledger and revocation list to where the inventory wants them.

        `members` are the names of all nodes of the inventory; what the ledger knows besides has
        left it, which is refused of more than `max_removed` at once. With `write` false nothing is
        written and the outcome tells what would be done.
        """
        outcome = Outcome(removed=leaving(self.ledger, members, max_removed))
        if write:
            make_private_directory(self.ledger.directory)
        if write:
            for name in outcome.removed:
                self.ledger.remove(name)
        nodes = [node for name in members if (node := self.ledger.read(name)) is not None]
        if write:
            self.ledger.complete_journal(nodes)
        wanted = self.wanted_name(generation, supplied)
        before = self.state()
        after = self._advance(before, wanted, nodes, overlap, outcome.steps)
        outcome.made = after != before
        if write:
            if wanted not in before.believed:
                self.make(wanted, comment, supplied)
            if after != before:
                save(self.ledger.directory / "state.json", json.dumps(vars(after)) + "\n")
            self._forget_dropped(after)
        outcome.authorities = [
            self.load(name) for name in after.believed if write or name in before.believed
        ]
        if outcome.authorities:
            outcome.krl = self._revocation_list(outcome, now, write=write)
        return outcome

    def _advance(
        self, state: State, wanted: str, nodes: Iterable[Node], overlap: bool, steps: list[str]
    ) -> State:
        """The steps of a rotation that are due; each one is told in `steps`."""
        nodes = list(nodes)
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
            waiting = [node.name for node in nodes if not _signed_by(node, state.current)]
            if waiting:
                steps.append(f"authority {state.previous} stays until replaced on {_few(waiting)}")
            else:
                steps.append(f"authority {state.previous} is no longer believed")
                state = State(state.current, next=state.next)
        if state.next and not state.previous:
            waiting = [node.name for node in nodes if state.next not in node.trusts]
            if waiting and overlap:
                steps.append(f"authority {state.next} signs once believed by {_few(waiting)} too")
            else:
                steps.append(f"authority {state.next} signs from now on")
                state = State(state.next, previous=state.current if overlap else "")
        return state

    def _forget_dropped(self, state: State) -> None:
        """Delete the directories, private keys included, of authorities nobody believes."""
        if self.directory.is_dir():
            for folder in self.directory.iterdir():
                if folder.name not in state.believed:
                    shutil.rmtree(folder)

    # Revocation.

    def _revocation_list(self, outcome: Outcome, now: int, *, write: bool) -> bytes:
        """The KRL with every certificate, not yet expired, of nodes that have left.

        It is made anew only when what it lists changes: it holds the time it was made at.
        """
        listed: dict[tuple[str, str], set[int]] = {}
        for each in self.ledger.revoked(() if write else outcome.removed):
            if each.valid_before > now:
                listed.setdefault((each.authority, each.kind), set()).add(each.serial)
        scopes = [
            (authority.id, kind, key.text, sorted(listed.get((authority.id, kind), [])))
            for authority in outcome.authorities
            for kind, key in (("user", authority.user), ("host", authority.host))
        ]
        wanted = json.dumps([scope for scope in scopes if scope[3]]) + "\n"
        listing = self.ledger.directory / "revoked.json"
        krl = self.ledger.directory / "revoked.krl"
        fresh = krl.exists() and listing.exists() and listing.read_text("utf-8") == wanted
        if fresh:
            return krl.read_bytes()
        made = self._make_krl(scopes)
        if write:
            save(krl, made.decode("utf-8", "surrogateescape"))
            save(listing, wanted)
        return made

    def _make_krl(self, scopes: Iterable[tuple[str, str, str, list[int]]]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="ssh-krl-") as scratch:
            made = Path(scratch) / "revoked.krl"
            self.run(["ssh-keygen", "-q", "-k", "-f", str(made)])
            for _name, _kind, key, serials in scopes:
                if serials:
                    authority, listing = Path(scratch) / "ca.pub", Path(scratch) / "serials"
                    authority.write_text(key + "\n", encoding="ascii")
                    listing.write_text(
                        "".join(f"serial: {serial}\n" for serial in serials), encoding="ascii"
                    )
                    argv = ["ssh-keygen", "-q", "-k", "-u", "-f", str(made)]
                    self.run([*argv, "-s", str(authority), str(listing)])
            return made.read_bytes()


def _generation(name: str) -> int:
    """The number of an authority made here; 0 for one supplied by the operator."""
    prefix, _separator, number = name.partition("-")
    return int(number) if prefix == "generation" and number.isdigit() else 0


def _signed_by(node: Node, authority: str) -> bool:
    latest = [node.latest(kind) for kind in KINDS]
    return all(each is not None and each.authority == authority for each in latest)


def _few(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def days_left(nodes: Mapping[str, Node], now: int) -> dict[str, int]:
    """For each node, the days until the first of its certificates in use expires."""
    found = {}
    for name, node in nodes.items():
        ends = [each.valid_before for kind in KINDS if (each := node.latest(kind)) is not None]
        if ends:
            found[name] = (min(ends) - now) // 86400
    return found


def public_lines(authorities: Sequence[Authority], kind: str) -> list[str]:
    """The public keys to be believed, the signing one first."""
    return [(each.user if kind == "user" else each.host).text for each in authorities]


def described(authority: Authority) -> dict[str, Any]:
    """For the operator: which authority it is. Nothing secret."""
    return {
        "id": authority.id,
        "user_fingerprint": authority.user.fingerprint,
        "host_fingerprint": authority.host.fingerprint,
    }
