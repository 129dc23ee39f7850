# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The SSH wire format (RFC 4251, section 5) and the one-line form of public keys.

Reading certificates here instead of through `ssh-keygen -L` saves a process per certificate and
gives values instead of text made for people.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Optional

from ..dataclass import dataclass


class WireError(ValueError):
    """Bytes or a line that are not what they should be."""


@dataclass
class Reader:
    """Takes fields off the front of a blob."""

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
