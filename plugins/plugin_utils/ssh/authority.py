# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The certificate authorities on the controller: made once, rotated with overlap, revoking.

An authority is two key pairs: one signs users, the other hosts. A rotation takes one step a run:

1. the new authority is made, and every node trusts both (the old one still signs);
2. when every node trusts it, it signs, and every node gets new certificates;
3. when every node has them, the old one is dropped and its private keys are deleted.

So at no time do two nodes meet that do not trust each other, however long a node is away.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.commands import Result, run
from ...module_utils.core.text import counted, some
from ...module_utils.ssh.keys import DAY, KINDS, digest, public_key
from .journal import Journal, Member

MAX_REMOVED = 1
"""Compute nodes that may leave the inventory between two runs, by default. A launcher counts as
two: without one no jobs start, so that its removal is never routine."""
ASKPASS = "#!/bin/sh\nIFS= read -r line && printf '%s\\n' \"$line\"\n"
KRL_DATE = slice(20, 28)
"""When a revocation list was made, in its header (OpenSSH's PROTOCOL.krl). Nothing reads it."""


class AuthorityError(Exception):
    """What is wrong with an authority, where, and what to do."""


@dataclass(frozen=True)
class Authority:
    """One authority: its name, its public keys (`type base64`), the paths of its private keys."""

    id: str
    public: Mapping[str, str]
    private: Mapping[str, Path]


@dataclass(frozen=True)
class State:
    """Names of the authority that signs, and of the one to come or the one to go, if any."""

    current: str = ""
    next: str = ""
    previous: str = ""

    @property
    def trusted(self) -> list[str]:
        """Those that every node has to trust, the signing one first."""
        return [name for name in (self.current, self.next, self.previous) if name]


@dataclass
class Outcome:
    nodes: dict[str, Member] = field(default_factory=dict)
    """Every node of the inventory, by the journal."""
    removed: list[str] = field(default_factory=list)
    """Nodes that left the inventory, or were revoked, since the last run."""
    revoked: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """Serials by authority and kind: of nodes that left or were revoked, and of certificates with a
    successor. One that had expired at the last of these events is left out, so that the list
    changes by events alone."""
    refused_keys: list[str] = field(default_factory=list)
    """Public keys of nodes that were revoked."""
    outdated: list[str] = field(default_factory=list)
    """Nodes with another revocation list than this one, as of their last complete run."""
    authorities: list[Authority] = field(default_factory=list)
    """Those to trust; the first one signs. Empty where none was made yet (check mode)."""
    krl: bytes = b""
    made: bool = False
    """Whether the authorities changed: made, taken into use, or dropped."""
    steps: list[str] = field(default_factory=list)
    """What was done, waits, or in check mode would be done, for the operator."""


class AuthorityStore:
    """The authorities of one cluster, in the directory of its journal."""

    def __init__(self, journal: Journal, passphrase: str = "") -> None:
        self.journal = journal
        self.directory = journal.directory / "authorities"
        self.passphrase = passphrase
        """Of the private keys that are made."""

    def state(self) -> State:
        path = self.journal.directory / "state.json"
        try:
            return State(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return State()
        except (ValueError, TypeError) as error:
            raise self._damaged(path, error) from error

    def load(self, name: str) -> Authority:
        """An authority by its name. Raises AuthorityError when its files are missing or damaged."""
        private = {kind: self.directory / name / f"{kind}_ca" for kind in KINDS}
        try:
            public = {
                kind: public_key(path.with_suffix(".pub").read_text(encoding="utf-8"))
                for kind, path in private.items()
            }
            if not all(public.values()):
                raise ValueError("a .pub file holds no public key")
        except (OSError, ValueError) as error:
            raise self._damaged(self.directory / name, error) from error
        return Authority(name, public, private)

    def _damaged(self, path: Path, error: Exception) -> AuthorityError:
        return AuthorityError(
            f"{path}: missing or damaged ({error}): restore it from a copy, or move"
            f" {self.journal.directory} away to begin with a new authority"
        )

    def _make(self, name: str, comment: str, supplied: Mapping[str, Path]) -> None:
        """Make an authority's directory, whole or not at all. What is supplied may have moved."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        final = self.directory / name
        links = {final / f"{kind}_ca": path.absolute() for kind, path in supplied.items()}
        if final.is_dir() and all(
            link.is_symlink() and link.readlink() == path for link, path in links.items()
        ):
            return
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".new-") as scratch:
            folder = Path(scratch) / name
            folder.mkdir(mode=0o700)
            for kind in KINDS:
                made = folder / f"{kind}_ca"
                if supplied:
                    made.symlink_to(supplied[kind].absolute())
                    public = _supplied_key(supplied[kind]) + "\n"
                    made.with_suffix(".pub").write_text(public, "ascii")
                else:
                    argv = ["-t", "ed25519", "-C", f"{comment} {kind} {name}", "-f", str(made)]
                    ssh_keygen(argv, Path(scratch), self.passphrase)
                    opened = run(["ssh-keygen", "-y", "-P", "", "-f", str(made)], check=False)
                    if self.passphrase and opened.rc == 0:
                        raise AuthorityError(
                            f"{self.directory}: ssh-keygen got no passphrase for the new key, which"
                            " was removed: is this file system mounted noexec?"
                        )
            if final.is_dir():
                final.rename(Path(scratch) / "moved")
            folder.rename(final)

    def prepare(
        self,
        members: Sequence[str],
        *,
        comment: str,
        now: int,
        write: bool,
        generation: int = 1,
        overlap: bool = True,
        supplied: Optional[Mapping[str, Path]] = None,
        max_removed: int = MAX_REMOVED,
        revoke: Sequence[str] = (),
    ) -> Outcome:
        """Bring authorities, journal and revocation list to what the inventory wants.

        `members` are the names of all nodes of the inventory; `supplied` are keys of the
        operator's own authority, used where they are: private ones, or the public ones (`.pub`) of
        an agent or signer; `revoke` are nodes to be refused though the inventory has them. With
        `write` false nothing is written and the outcome has what would be done.
        """
        outcome = self._without_leavers(members, max_removed, revoke, now, write)
        seen = {name: node for name, node in outcome.nodes.items() if node.complete or node.issued}
        wanted = f"generation-{generation}"
        if supplied:
            keys = [base64.b64decode(_supplied_key(supplied[kind]).split()[1]) for kind in KINDS]
            wanted = "-".join(["supplied", *(key[-6:].hex() for key in keys)])
        before = self.state()
        after = self._advance(before, wanted, seen, overlap, outcome.steps)
        outcome.made = after != before
        if write:
            if supplied or wanted not in before.trusted:
                self._make(wanted, comment, supplied or {})
            if outcome.made:
                self.journal.write("state.json", json.dumps(vars(after)) + "\n")
        outcome.authorities = [
            self.load(name) for name in after.trusted if write or name in before.trusted
        ]
        if write:
            # Private keys of dropped authorities go with their directories.
            for folder in self.directory.iterdir():
                if folder.name not in after.trusted:
                    # What a killed run of another operator left may be closed.
                    shutil.rmtree(folder, ignore_errors=folder.name.startswith("."))
            for folder in self.journal.directory.glob(".sign-*"):
                with contextlib.suppress(FileNotFoundError):  # of a run that ends just now
                    if time.time() - folder.stat().st_mtime > DAY:
                        shutil.rmtree(folder, ignore_errors=True)
        return self._listed(outcome)

    def after(self, members: Sequence[str]) -> Outcome:
        """What nodes get after a run: the certificates that it replaced are revoked."""
        known = self.journal.read()
        outcome = Outcome({name: known.get(name, Member()) for name in members})
        outcome.authorities = [self.load(name) for name in self.state().trusted]
        _revoked(outcome, known)
        return self._listed(outcome)

    def _listed(self, outcome: Outcome) -> Outcome:
        if outcome.authorities:
            outcome.krl = self._revocation_list(outcome)
        wanted = hashlib.sha256(outcome.krl).hexdigest()
        outcome.outdated = [
            name for name, node in outcome.nodes.items() if node.complete and node.krl != wanted
        ]
        return outcome

    def _without_leavers(
        self, members: Sequence[str], most: int, revoke: Sequence[str], now: int, write: bool
    ) -> Outcome:
        """The state of the nodes, without those to revoke.

        Many that leave at once may be a mistake in the model, and revoking cannot be undone.
        """
        known = self.journal.read()
        outcome = Outcome({name: known.setdefault(name, Member()) for name in members})
        unknown = [name for name in revoke if name not in known]
        if unknown:
            raise AuthorityError(
                f"ssh_trust_revoke: {some(unknown, 5)}: neither in the inventory nor in the journal"
            )
        outcome.removed = sorted(
            name
            for name, node in known.items()
            if name not in outcome.nodes and (node.complete or node.issued)
        )
        left = [name for name in outcome.removed if name not in revoke]
        launchers = [name for name in left if known[name].launcher]
        count = len(left) + len(launchers)
        if count > max(0, most):
            shown = [f"launcher {name}" if name in launchers else name for name in left]
            raise AuthorityError(
                f"{counted(len(left), 'node')} left the inventory and would be refused by all"
                f" others: {some(shown, 100)}. Nothing was signed or revoked. ssh_trust_max_removed"
                f" is {most}, and a launcher counts as two: put them back into the model, or let"
                f" them go in one run with -e ssh_trust_max_removed={count}"
            )
        for name in outcome.removed:
            known[name].leave(now)
            if write:
                self.journal.left(name)
        for name in revoke:
            if known[name].keys or known[name].issued or known[name].complete:
                outcome.removed = [*dict.fromkeys([*outcome.removed, name])]
                known[name].leave(now, with_keys=True)
                if write:
                    self.journal.revoked(name)
        _revoked(outcome, known)
        return outcome

    def _advance(
        self,
        state: State,
        wanted: str,
        nodes: Mapping[str, Member],
        overlap: bool,
        steps: list[str],
    ) -> State:
        """The steps of a rotation that are due, each added to `steps`."""
        if not state.current:
            steps.append(f"authority {wanted} is made")
            return State(current=wanted)
        if wanted == state.current and state.next:
            # It has signed nothing yet, so it can be dropped at once.
            steps.append(f"authority {state.next} is given up, {wanted} goes on signing")
            state = State(state.current, previous=state.previous)
        elif wanted not in (state.current, state.next):
            in_use = max(_generation(name) for name in state.trusted)
            if 0 < _generation(wanted) < in_use:
                raise AuthorityError(
                    f"authority {wanted} is wanted, but generation-{in_use} is in use:"
                    f" set ssh_trust_ca_generation to {in_use} or more"
                )
            if not overlap:
                steps.append(f"authority {wanted} replaces {state.current} at once")
                return State(current=wanted)
            steps.append(f"authority {wanted} is made, and every node gets to trust it")
            old = "" if state.previous == wanted else state.previous
            return State(state.current, next=wanted, previous=old)
        if state.previous:
            waiting = [name for name, node in nodes.items() if not _signed_by(node, state.current)]
            if waiting:
                steps.append(
                    f"authority {state.previous} stays until replaced on {some(waiting, 5)}"
                )
            else:
                steps.append(f"authority {state.previous} is no longer trusted")
                state = State(state.current, next=state.next)
        if state.next and not state.previous:
            waiting = [name for name, node in nodes.items() if state.next not in node.trusts]
            if waiting and overlap:
                steps.append(f"authority {state.next} signs once trusted by {some(waiting, 5)} too")
            else:
                steps.append(f"authority {state.next} signs from now on")
                state = State(state.next, previous=state.current if overlap else "")
        return state

    def _revocation_list(self, outcome: Outcome) -> bytes:
        """The KRL, the same to the bit as long as it lists the same."""
        with tempfile.TemporaryDirectory(prefix="ssh-krl-") as scratch:
            made, key = Path(scratch) / "revoked.krl", Path(scratch) / "ca.pub"
            run(["ssh-keygen", "-q", "-k", "-f", str(made)])
            for authority in outcome.authorities:
                for kind, public in authority.public.items():
                    serials = outcome.revoked.get((authority.id, kind), [])
                    if serials:
                        key.write_text(public + "\n", encoding="ascii")
                        listing = "".join(f"serial: {serial}\n" for serial in serials)
                        argv = ["ssh-keygen", "-q", "-k", "-u", "-f", str(made), "-s", str(key)]
                        run([*argv, "-"], stdin=listing)
            if outcome.refused_keys:
                listing = "".join(f"{each}\n" for each in outcome.refused_keys)
                run(["ssh-keygen", "-q", "-k", "-u", "-f", str(made), "-"], stdin=listing)
            krl = bytearray(made.read_bytes())
        krl[KRL_DATE] = bytes(8)
        return bytes(krl)


def passphrase_of(templar: Any, variables: Mapping[str, Any]) -> str:
    """By the variable: an argument of a task goes to callbacks, which may log it elsewhere."""
    return str(templar.template(variables.get("ssh_trust_ca_passphrase") or ""))


def ssh_keygen(
    argv: Sequence[str],
    folder: Path,
    passphrase: str = "",
    *,
    check: bool = True,
    pass_fds: Sequence[int] = (),
) -> Result:
    """Run ssh-keygen in UTC. It gets the passphrase by a pipe: argv and environment are visible.

    It asks a program for it, made in `folder`, which hands a line of this pipe on at each call.
    """
    ask = folder / "askpass"
    ask.write_text(ASKPASS, "ascii")
    ask.chmod(0o700)
    how = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0", "TZ": "UTC0"}
    lines = f"{passphrase.partition(chr(10))[0]}\n" * 2
    argv = ["ssh-keygen", "-q", *argv]
    return run(argv, check=check, stdin=lines, env=how, popen={"pass_fds": pass_fds})


def _revoked(outcome: Outcome, known: Mapping[str, Member]) -> None:
    last = max((node.revoked_at for node in known.values()), default=0)
    last = min(last, int(time.time()))  # a clock that was ahead for a run ends no revocation
    # A machine cloned with its keys, or an attacker who showed the key of another node, must not
    # have that node refused as well.
    holders: dict[str, set[str]] = {}
    for name, node in known.items():
        for each in node.issued:
            holders.setdefault(each.key, set()).add(name)
    for name, node in known.items():
        for key in node.refused_keys:
            if others := holders.get(key, set()) - {name}:
                have = some(sorted(others), 5)
                outcome.steps.append(f"key {digest(key)} of {name} is not refused: also of {have}")
            else:
                outcome.refused_keys.append(key)
        for each in node.revoked:
            if each.valid_before > last:
                outcome.revoked.setdefault((each.authority, each.kind), []).append(each.serial)


def _supplied_key(path: Path) -> str:
    """The public key that the operator named, or that is beside the private one."""
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    if not path.is_file():
        raise AuthorityError(
            f"{path}: no such file: name the private key of your authority, or its public key"
            " (.pub) where an ssh-agent or ssh_trust_signer has the private one"
        )
    key = public_key(public.read_text("utf-8", "replace")) if public.is_file() else ""
    if key and public.stat().st_mode & 0o002:
        raise AuthorityError(f"{public}: any user may write it, and nodes trust it: chmod 644")
    if not key:
        raise AuthorityError(
            f"{public}: missing or not a public key: make it with ssh-keygen -y -f {path}"
        )
    return key


def _generation(name: str) -> int:
    """The number of an authority made here; 0 for one supplied by the operator."""
    prefix, _separator, number = name.partition("-")
    return int(number) if prefix == "generation" else 0


def _signed_by(node: Member, authority: str) -> bool:
    """Whether the node has certificates of this authority, and no others that it may still use."""
    wanted = {(kind, authority) for kind in KINDS}
    return {(each.kind, each.authority) for each in node.issued} == wanted


def expiring(nodes: Mapping[str, Member], now: int, warn_days: float) -> str:
    """The nodes with a certificate that expires within so many days, with the days left."""
    ends = {
        name: min(each.valid_before for each in node.latest().values())
        for name, node in nodes.items()
        if node.issued
    }
    left = sorted((end - now, name) for name, end in ends.items())
    soon = [f"{name} ({each // DAY} days)" for each, name in left if each < warn_days * DAY]
    return some(soon, 5) if soon else ""
