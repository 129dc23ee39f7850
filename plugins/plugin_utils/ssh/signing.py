# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signing certificates on the controller.

`ssh-keygen -s` gives one process, and so one identity and one list of names, to each certificate:
6 ms each, two for each node. ansible-core brings the `cryptography` library, which signs the same
certificate in 0.2 ms in the process that is already running: 10,000 nodes in seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...module_utils.dataclass import dataclass
from ...module_utils.ssh_trust.certificates import HOST
from ...module_utils.ssh_trust.wire import PublicKey

try:
    from cryptography.hazmat.primitives.serialization import (
        SSHCertificateBuilder,
        SSHCertificateType,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError:  # only the controller signs; a node never needs it
    HAS_CRYPTOGRAPHY = False
else:
    HAS_CRYPTOGRAPHY = True

BACKDATED_S = 3600
"""Certificates begin an hour ago, so that a node whose clock is a little late accepts them."""


class SigningError(Exception):
    """The authority's private key cannot be used."""


@dataclass(frozen=True)
class Request:
    """One certificate to be signed."""

    kind: str
    key: PublicKey
    key_id: str
    principals: tuple[str, ...]
    serial: int
    now: int
    validity_s: int


class Signer:
    """An authority's private key, read once."""

    def __init__(self, path: Path) -> None:
        if not HAS_CRYPTOGRAPHY:
            raise SigningError(
                "the controller's Python has no module cryptography with SSH certificates"
                " (version 40 or later): install it where ansible-core is installed"
            )
        try:
            key = load_ssh_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise SigningError(f"{path}: cannot read it: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            raise SigningError(
                f"{path}: not an OpenSSH private key without passphrase: make it one with"
                " ssh-keygen -p, or name another file"
            ) from error
        self._key: Any = key

    def sign(self, request: Request) -> str:
        """The certificate as a line of a `-cert.pub` file."""
        public: Any = load_ssh_public_key(request.key.text.encode())
        host = request.kind == HOST
        builder = (
            SSHCertificateBuilder()
            .public_key(public)
            .serial(request.serial)
            .type(SSHCertificateType.HOST if host else SSHCertificateType.USER)
            .key_id(request.key_id.encode())
            .valid_principals([name.encode() for name in request.principals])
            .valid_after(request.now - BACKDATED_S)
            .valid_before(request.now + request.validity_s)
        )
        if not host:
            # A launcher needs a command run, a person a terminal; nothing is to be forwarded.
            builder = builder.add_extension(b"permit-pty", b"")
        line = builder.sign(self._key).public_bytes().decode("ascii")
        return f"{line} {request.key_id}\n"
