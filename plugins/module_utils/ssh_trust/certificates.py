# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""OpenSSH certificates: read one, and say what is wrong with it.

Only ed25519 keys are certified here, because only those are made here; the authority that signs may
have a key of any type. The format is OpenSSH's PROTOCOL.certkeys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..dataclass import dataclass
from .wire import PublicKey, Reader, WireError, parse_public_key

USER, HOST = "user", "host"
KINDS = (USER, HOST)
KEY_TYPE = "ssh-ed25519"
CERTIFICATE_TYPE = "ssh-ed25519-cert-v01@openssh.com"
DAY = 86400


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
