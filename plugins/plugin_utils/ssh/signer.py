# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sign files that leave the controller with the user key of the cluster's SSH authority, or with a
key that the operator names. The signatures are OpenSSH's (PROTOCOL.sshsig)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ...module_utils.core.commands import CommandError
from ...module_utils.ssh.keys import USER
from . import identity
from .authority import AuthorityStore, supplied_key
from .journal import Journal
from .rotation import AuthorityError
from .signing import SigningError, file_signatures

NAMESPACES = "baremetal.mpi_roce"


class NoAuthorityError(SigningError):
    """There is no authority that can sign files."""


@dataclass(frozen=True)
class Signer:
    """The SSH authority of the cluster, or an own `key`."""

    cluster: str
    state_directory: Path
    """Directory of the authority (ssh_trust_state_directory)."""
    passphrase: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    """Management addresses by host: an authority of other hosts does not sign."""
    by_command: bool = False
    """Whether a command signs (ssh_trust_signer): SSH certificates only."""
    purpose: str = "acceptance"
    """Part of identity and namespace, so that a signature is valid for one kind of files."""
    key: Optional[Path] = None
    """A private key, or a public key whose private half the agent has."""

    @property
    def identity(self) -> str:
        return f"{self.purpose}@{self.cluster}"

    @property
    def namespace(self) -> str:
        return f"{NAMESPACES}.{self.purpose}"

    def public(self) -> str:
        """The public key that signs. Raises SigningError."""
        return self._chosen()[1]

    def allowed(self) -> str:
        """The line of allowed_signers that verifies its signatures. Raises SigningError."""
        return f'{self.identity} namespaces="{self.namespace}" {self.public()}\n'

    def sign(self, text: str) -> tuple[str, str]:
        """Signature of a text, and the line of allowed_signers that verifies it. Raises
        NoAuthorityError, and SigningError for an authority that cannot be used."""
        return self.sign_all([text])[0], self.allowed()

    def sign_all(self, texts: Sequence[str]) -> list[str]:
        """As `sign`, for many texts by few calls."""
        path, _public = self._chosen()
        journal = Journal(self.state_directory)
        # An own key may be in a directory that this account cannot write to.
        directory = self.state_directory if self.key is None else Path(tempfile.gettempdir())
        try:
            return file_signatures(
                directory, journal.group(), path, self.namespace, texts, self.passphrase
            )
        except SigningError as error:
            if self.by_command and self.key is None:
                raise NoAuthorityError(f"ssh_trust_signer signs no files; {error}") from error
            raise
        except (AuthorityError, CommandError, OSError) as error:
            raise SigningError(str(error)) from error

    def _chosen(self) -> tuple[Path, str]:
        """The key that signs, as a file and as a line."""
        journal = Journal(self.state_directory)
        store = AuthorityStore(journal, self.passphrase)
        try:
            if self.key is not None:
                return self.key, supplied_key(self.key)
            name = store.rotation().current if self.state_directory.is_dir() else ""
            if not name:
                raise NoAuthorityError(
                    f"no SSH authority in {self.state_directory}: run --tags ssh, or set"
                    " ssh_trust_state_directory"
                )
            authority = store.load(name)
            identity.claim(journal, self.members, self.cluster, "")
        except (AuthorityError, OSError) as error:
            raise SigningError(str(error)) from error
        return authority.private[USER], authority.public[USER]
