# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Signing what a node needs, on the controller, and noting what it has shown.

`ssh-keygen -s` gives one process, and so one identity and one list of names, to each certificate:
6 ms each, two for each node. ansible-core brings the `cryptography` library, which signs the same
certificate in 0.2 ms in the process that is already running: 10,000 nodes in seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...module_utils.ssh_trust.certificates import (
    DAY,
    HOST,
    USER,
    PublicKey,
    digest,
    parse_public_key,
)
from .journal import Issued, Journal, new_serial

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


@functools.cache
def private_key(path: Path) -> Any:
    """An authority's private key, read once."""
    if not HAS_CRYPTOGRAPHY:
        raise SigningError(
            "the controller's Python has no module cryptography with SSH certificates"
            " (version 40 or later): install it where ansible-core is installed"
        )
    try:
        return load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SigningError(f"{path}: cannot read it: {error.strerror}") from error
    except (TypeError, ValueError) as error:
        raise SigningError(
            f"{path}: not an OpenSSH private key without passphrase: make it one with"
            " ssh-keygen -p, or name another file"
        ) from error


def sign(
    authority: Path,
    kind: str,
    key: PublicKey,
    *,
    key_id: str,
    principals: Sequence[str],
    serial: int,
    now: int,
    validity_s: int,
) -> str:
    """The certificate as a line of a `-cert.pub` file."""
    signer, public = private_key(authority), load_ssh_public_key(key.text.encode())
    builder = (
        SSHCertificateBuilder()
        .public_key(public)  # type: ignore[arg-type]
        .serial(serial)
        .type(SSHCertificateType.HOST if kind == HOST else SSHCertificateType.USER)
        .key_id(key_id.encode())
        .valid_principals([name.encode() for name in principals])
        .valid_after(now - BACKDATED_S)
        .valid_before(now + validity_s)
    )
    if kind == USER:
        # A launcher needs a command run, a person a terminal; nothing is to be forwarded.
        builder = builder.add_extension(b"permit-pty", b"")
    return f"{builder.sign(signer).public_bytes().decode('ascii')} {key_id}\n"


def issue(
    journal: Journal,
    name: str,
    kinds: Sequence[str],
    public_keys: Mapping[str, str],
    told: Mapping[str, Any],
    *,
    user: str,
    names: Sequence[str],
    validity_days: int,
    now: int,
) -> dict[str, str]:
    """Sign the certificates of these kinds for a node, by the authority that every node is told of.

    They are in the journal before they leave.
    """
    certificates, signed = {}, []
    for kind in kinds:
        serial = new_serial()
        text = certificates[kind] = sign(
            Path(told["private_keys"][kind]),
            kind,
            parse_public_key(public_keys[kind]),
            key_id=f"{user}@{name}" if kind == USER else name,
            principals=(told["principal"],) if kind == USER else names,
            serial=serial,
            now=now,
            validity_s=validity_days * DAY,
        )
        ends = now + validity_days * DAY
        signed.append(Issued(kind, serial, told["signs"], ends, digest(text)))
    journal.issued(name, signed)
    return certificates


def remember(
    journal: Journal,
    name: str,
    known: Mapping[str, Any],
    public_keys: Mapping[str, str],
    trusts: Sequence[str],
) -> None:
    """Note what a node has after a run, where that is not known already."""
    shown = {f"{kind}_key": public_keys[kind] for kind in (USER, HOST)}
    if known["shown"] != {**shown, "trusts": list(trusts)}:
        journal.shown(name, {**shown, "trusts": list(trusts)})
