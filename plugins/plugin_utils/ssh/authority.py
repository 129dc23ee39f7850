# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Store the cluster's certificate authorities on the controller, and build the revocation list.

An authority is two key pairs: one signs users, the other hosts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.commands import Result, run
from ...module_utils.ssh.keys import KINDS, public_key
from .journal import Journal, Member
from .rotation import AuthorityError, Revocations, Rotation, advance, departures, revocations

ASKPASS = "#!/bin/sh\nIFS= read -r line && printf '%s\\n' \"$line\"\n"
KRL_DATE = slice(20, 28)
"""Creation time in the header of a revocation list (OpenSSH, PROTOCOL.krl). No program reads it."""


@dataclass(frozen=True)
class Authority:
    """Name, public keys (`type base64`) and private key files of an authority, by kind."""

    id: str
    public: Mapping[str, str]
    private: Mapping[str, Path]


@dataclass
class ClusterTrust:
    """Trust of the whole cluster after this run's decisions."""

    nodes: dict[str, Member] = field(default_factory=dict)
    """Every node of the inventory, from the journal."""
    removed: list[str] = field(default_factory=list)
    """Nodes that left the inventory or were revoked since the last run."""
    revoked: Revocations = field(default_factory=Revocations)
    outdated: list[str] = field(default_factory=list)
    """Nodes whose last complete run installed a different revocation list."""
    authorities: list[Authority] = field(default_factory=list)
    """Trusted authorities; the first one signs. Empty in check mode before the first run."""
    krl: bytes = b""
    made: bool = False
    """Whether an authority was created, put into use or dropped."""
    steps: list[str] = field(default_factory=list)
    """Messages for the operator: steps done or pending; in check mode, those that would be done."""


class AuthorityStore:
    """The authorities of one cluster, in the directory of its journal."""

    def __init__(self, journal: Journal, passphrase: str = "") -> None:
        self.journal = journal
        self.directory = journal.directory / "authorities"
        self.passphrase = passphrase
        """Passphrase of newly created private keys."""

    def rotation(self) -> Rotation:
        path = self.journal.directory / "state.json"
        try:
            return Rotation(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return Rotation()
        except (ValueError, TypeError) as error:
            raise self._damaged(path, error) from error

    def load(self, name: str) -> Authority:
        """Read an authority. Raises AuthorityError when a file is missing or damaged."""
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
        max_removed: int = 1,
        revoke: Sequence[str] = (),
    ) -> ClusterTrust:
        """Decide what this run changes, and with `write` apply it.

        `members` are all nodes in the inventory. `supplied` are the operator's keys by kind, used
        in place: private keys, or public ones (`.pub`) whose private half an agent or signer has.
        `revoke` are nodes to refuse although they are in the inventory. Raises AuthorityError
        before anything is written.
        """
        wanted = _supplied_name(supplied) if supplied else f"generation-{generation}"
        known, before = self.journal.read(), self.rotation()
        left, revoked = departures(known, members, max_removed, revoke)
        removed = [*dict.fromkeys([*left, *revoked])]
        for name in removed:
            known[name].leave(now, with_keys=name in revoked)
        trust = _trust(known, members)
        trust.removed = removed
        active = {name: node for name, node in trust.nodes.items() if node.admitted}
        after, steps = advance(before, wanted, active, overlap)
        trust.steps += steps
        trust.made = after != before
        if not write:
            usable = [name for name in after.trusted if name in before.trusted]
            return self._complete(trust, usable)
        for name in left:
            self.journal.left(name)
        for name in revoked:
            self.journal.revoked(name)
        if supplied or wanted not in before.trusted:
            self._make(wanted, comment, supplied or {})
        if trust.made:
            self.journal.write("state.json", json.dumps(vars(after)) + "\n")
        self._complete(trust, after.trusted)
        self._remove_dropped(after.trusted)
        return trust

    def after(self, members: Sequence[str]) -> ClusterTrust:
        """Trust after the nodes have been configured: replaced certificates are revoked."""
        return self._complete(_trust(self.journal.read(), members), self.rotation().trusted)

    def _make(self, name: str, comment: str, supplied: Mapping[str, Path]) -> None:
        """Create an authority's directory atomically. Supplied keys may have moved."""
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
                if supplied:
                    _link(folder / f"{kind}_ca", supplied[kind])
                else:
                    self._generate(folder / f"{kind}_ca", f"{comment} {kind} {name}")
            if final.is_dir():
                final.rename(Path(scratch) / "moved")
            folder.rename(final)

    def _generate(self, path: Path, comment: str) -> None:
        argv = ["-t", "ed25519", "-C", comment, "-f", str(path)]
        ssh_keygen(argv, path.parent.parent, self.passphrase)
        opened = run(["ssh-keygen", "-y", "-P", "", "-f", str(path)], check=False)
        if self.passphrase and opened.rc == 0:
            raise AuthorityError(
                f"{self.directory}: ssh-keygen got no passphrase for the new key, which was"
                " removed: is this file system mounted noexec?"
            )

    def _remove_dropped(self, trusted: Sequence[str]) -> None:
        """Delete the private keys of dropped authorities, and leftovers of killed runs."""
        for folder in self.directory.iterdir():
            if folder.name not in trusted:
                # A killed run of another operator may have left an unreadable directory.
                shutil.rmtree(folder, ignore_errors=folder.name.startswith("."))

    def _complete(self, trust: ClusterTrust, names: Sequence[str]) -> ClusterTrust:
        """Add the authorities with these names, and the revocation list."""
        trust.authorities = [self.load(name) for name in names]
        if trust.authorities:
            trust.krl = _revocation_list(trust.authorities, trust.revoked)
        wanted = hashlib.sha256(trust.krl).hexdigest()
        trust.outdated = [
            name for name, node in trust.nodes.items() if node.complete and node.krl != wanted
        ]
        return trust


def _trust(known: Mapping[str, Member], members: Sequence[str]) -> ClusterTrust:
    listed = revocations(known)
    nodes = {name: known.get(name, Member()) for name in members}
    return ClusterTrust(nodes, revoked=listed, steps=listed.notes)


def _revocation_list(authorities: Sequence[Authority], listed: Revocations) -> bytes:
    """Build the KRL. Equal contents give equal bytes."""
    with tempfile.TemporaryDirectory(prefix="ssh-krl-") as scratch:
        made, key = Path(scratch) / "revoked.krl", Path(scratch) / "ca.pub"
        run(["ssh-keygen", "-q", "-k", "-f", str(made)])
        update = ["ssh-keygen", "-q", "-k", "-u", "-f", str(made)]
        for authority in authorities:
            for kind, public in authority.public.items():
                serials = listed.serials.get((authority.id, kind), [])
                if serials:
                    key.write_text(public + "\n", encoding="ascii")
                    lines = "".join(f"serial: {serial}\n" for serial in serials)
                    run([*update, "-s", str(key), "-"], stdin=lines)
        if listed.keys:
            run([*update, "-"], stdin="".join(f"{key}\n" for key in listed.keys))
        krl = bytearray(made.read_bytes())
    krl[KRL_DATE] = bytes(8)
    return bytes(krl)


def passphrase_of(templar: Any, variables: Mapping[str, Any]) -> str:
    """Read the passphrase from its variable: callbacks may log a task's arguments elsewhere."""
    return str(templar.template(variables.get("ssh_trust_ca_passphrase") or ""))


def ssh_keygen(
    argv: Sequence[str],
    folder: Path,
    passphrase: str = "",
    *,
    check: bool = True,
    pass_fds: Sequence[int] = (),
) -> Result:
    """Run ssh-keygen in UTC, with the passphrase on a pipe: other users see argv and environment.

    ssh-keygen requests the passphrase from a program, written to `folder`, which forwards one line
    of the pipe per call.
    """
    ask = folder / "askpass"
    ask.write_text(ASKPASS, "ascii")
    ask.chmod(0o700)
    how = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0", "TZ": "UTC0"}
    lines = f"{passphrase.partition(chr(10))[0]}\n" * 2
    argv = ["ssh-keygen", "-q", *argv]
    return run(argv, check=check, stdin=lines, env=how, popen={"pass_fds": pass_fds})


def _link(path: Path, supplied: Path) -> None:
    path.symlink_to(supplied.absolute())
    path.with_suffix(".pub").write_text(supplied_key(supplied) + "\n", "ascii")


def _supplied_name(supplied: Mapping[str, Path]) -> str:
    keys = [base64.b64decode(supplied_key(supplied[kind]).split()[1]) for kind in KINDS]
    return "-".join(["supplied", *(key[-6:].hex() for key in keys)])


def supplied_key(path: Path) -> str:
    """The operator's public key: the named file, or the `.pub` file next to a private key."""
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    if not path.is_file():
        raise AuthorityError(
            f"{path}: no such file: name the private key of your authority, or its public key"
            " (.pub) if an ssh-agent or ssh_trust_signer has the private key"
        )
    key = public_key(public.read_text("utf-8", "replace")) if public.is_file() else ""
    if key and public.stat().st_mode & 0o002:
        raise AuthorityError(
            f"{public}: any user can write this file, which nodes trust: chmod 644 {public}"
        )
    if not key:
        raise AuthorityError(
            f"{public}: missing or not a public key: create it with ssh-keygen -y -f {path}"
        )
    return key
