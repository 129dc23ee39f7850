# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Public keys and OpenSSH certificates: read one, and say what is wrong with it.

Only ed25519 keys are certified here, because only those are made here; the authority that signs may
have a key of any type. The format is OpenSSH's PROTOCOL.certkeys. Reading it here instead of by
`ssh-keygen -L` saves a process per certificate and gives values instead of text made for people.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Optional

from ..core.dataclass import dataclass

USER, HOST = "user", "host"
KINDS = (USER, HOST)
KEY_TYPE = "ssh-ed25519"
CERTIFICATE_TYPE = "ssh-ed25519-cert-v01@openssh.com"
DAY = 86400


class WireError(ValueError):
    """Bytes or a line that are not what they should be."""


@dataclass
class Reader:
    """Takes fields of the wire format (RFC 4251, section 5) off the front of a blob."""

    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise WireError(f"ends after {len(self.data)} bytes in the middle of a field")
        self.at += count
        return self.data[self.at - count : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def string(self) -> bytes:
        return self.take(self.u32())

    @property
    def done(self) -> bool:
        return self.at == len(self.data)


@dataclass(frozen=True)
class PublicKey:
    """A public key or certificate as it stands in a `.pub` file, without its comment."""

    type: str
    blob: bytes

    @property
    def text(self) -> str:
        """`ssh-ed25519 AAAA...`: what two keys are compared by."""
        return f"{self.type} {base64.b64encode(self.blob).decode('ascii')}"

    @property
    def fingerprint(self) -> str:
        """`SHA256:...`, as every OpenSSH tool and log prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii")
        return "SHA256:" + digest.rstrip("=")


def parse_public_key(line: str) -> PublicKey:
    """The key of one line `type base64 [comment]`."""
    words = line.split()
    if len(words) < 2:
        raise WireError(f"not a public key: {line[:40]!r}")
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(f"not a public key: {line[:40]!r} is not base64") from error
    named = Reader(blob).string().decode("ascii", "replace")
    if named != words[0]:
        raise WireError(f"not a public key: says {words[0]} and holds {named[:40]!r}")
    return PublicKey(words[0], blob)


def public_key_or_none(text: Optional[str]) -> Optional[PublicKey]:
    """The key of the first line of a file, or None when the file is missing or damaged."""
    try:
        return parse_public_key((text or "").strip().split("\n")[0])
    except WireError:
        return None


@dataclass(frozen=True)
class Certificate:
    """What a certificate says. Times are seconds since 1970."""

    kind: str
    serial: int
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    key: PublicKey
    authority: PublicKey

    def days_left(self, now: int) -> int:
        """Whole days until it expires; negative when it has."""
        return (self.valid_before - now) // DAY


@dataclass(frozen=True)
class Wanted:
    """What a certificate has to be to be left as it is.

    `digest` is of the very one that was issued, so that one that was spoiled is noticed as well;
    empty when none ever was.
    """

    kind: str
    digest: str
    principals: tuple[str, ...]
    key: PublicKey
    authority: PublicKey


def parse_certificate(line: str) -> Certificate:
    """The certificate of a `-cert.pub` line. Raises WireError on anything else."""
    outer = parse_public_key(line)
    if outer.type != CERTIFICATE_TYPE:
        raise WireError(f"not an ed25519 certificate: {outer.type}")
    reader = Reader(outer.blob)
    reader.string()  # the type again
    reader.string()  # nonce
    public = reader.string()
    serial = reader.u64()
    kind = {1: USER, 2: HOST}.get(reader.u32())
    if kind is None:
        raise WireError("a certificate of neither a user nor a host")
    key_id = reader.string().decode("utf-8", "replace")
    names = Reader(reader.string())
    principals = []
    while not names.done:
        principals.append(names.string().decode("utf-8", "replace"))
    valid_after, valid_before = reader.u64(), reader.u64()
    reader.string()  # critical options
    reader.string()  # extensions
    reader.string()  # reserved
    signer = reader.string()
    reader.string()  # signature
    if not reader.done:
        raise WireError("bytes after the signature")
    return Certificate(
        kind=kind,
        serial=serial,
        key_id=key_id,
        principals=tuple(principals),
        valid_after=valid_after,
        valid_before=valid_before,
        key=PublicKey(KEY_TYPE, _field(KEY_TYPE.encode()) + _field(public)),
        authority=PublicKey(Reader(signer).string().decode("ascii", "replace"), signer),
    )


def _field(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def digest(line: str) -> str:
    """What tells one certificate from every other."""
    return parse_public_key(line).fingerprint


def fault(text: Optional[str], wanted: Wanted, now: int, renew_before_s: int) -> str:
    """Why this certificate has to be signed anew, as a phrase; empty when it serves."""
    if not (text or "").strip():
        return "there is none"
    try:
        found = parse_certificate(text or "")
    except WireError as error:
        return f"unreadable: {error}"
    if found.key != wanted.key:
        return f"for another key, {found.key.fingerprint}"
    if found.authority != wanted.authority:
        return f"signed by another authority, {found.authority.fingerprint}"
    if found.kind != wanted.kind:
        return f"it is a certificate of a {found.kind}, not of a {wanted.kind}"
    if digest(text or "") != wanted.digest:
        return f"serial {found.serial}, not the one that was issued last"
    if found.principals != wanted.principals:
        return "names changed: " + _difference(found.principals, wanted.principals)
    if now >= found.valid_before:
        return f"expired {-found.days_left(now)} days ago"
    if now < found.valid_after:
        return "not valid yet"
    if found.valid_before - now < renew_before_s:
        return f"expires in {found.days_left(now)} days"
    return ""


def _difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    gone = [f"-{name}" for name in found if name not in wanted]
    new = [f"+{name}" for name in wanted if name not in found]
    return " ".join(gone + new) or "other order"
