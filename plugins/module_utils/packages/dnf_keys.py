# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""As much of OpenPGP as it takes to know which keys a file holds; verifying is left to rpm and gpg.

rpm wants keys in armour, vendors hand them out in either form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from ..dataclass import dataclass

_PUBLIC_KEY = 6
_ARMOUR = re.compile(
    rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+: [^\r\n]*\r?\n)*\r?\n(.*?)"
    rb"(?:\r?\n=[A-Za-z0-9+/]{4})?\r?\n-----END PGP PUBLIC KEY BLOCK-----",
    re.DOTALL,
)
_BEGIN = b"-----BEGIN PGP"


class NotAKeyError(ValueError):
    """The bytes hold no public key that rpm could use."""


@dataclass(frozen=True)
class Key:
    fingerprint: str
    """40 hexadecimal digits, lower case."""
    created: int

    @property
    def rpm_name(self) -> str:
        """Version and release of the `gpg-pubkey` that rpm makes of it."""
        return f"{self.fingerprint[-8:]}-{self.created:08x}"


def keys(data: bytes) -> list[Key]:
    """The primary keys in a file, armoured or not."""
    found = []
    for block in _binary(data):
        for tag, body in _packets(block):
            if tag == _PUBLIC_KEY and body[:1] == b"\4":
                found.append(_key(body))
    if not found:
        raise NotAKeyError("it holds no OpenPGP public key (of version 4)")
    return found


def armoured(data: bytes) -> str:
    """The same keys as text that rpm takes: as it is where it is armoured already."""
    if _BEGIN in data:
        return data.decode("utf-8")
    body = base64.b64encode(data).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    check = base64.b64encode(_crc24(data).to_bytes(3, "big")).decode("ascii")
    return "\n".join(
        [
            "-----BEGIN PGP PUBLIC KEY BLOCK-----",
            "",
            *lines,
            f"={check}",
            "-----END PGP PUBLIC KEY BLOCK-----",
            "",
        ]
    )


def _binary(data: bytes) -> list[bytes]:
    if _BEGIN not in data:
        return [data]
    try:
        return [base64.b64decode(body) for body in _ARMOUR.findall(data)]
    except binascii.Error as error:
        raise NotAKeyError(f"its armour cannot be read ({error})") from error


def _packets(data: bytes) -> list[tuple[int, bytes]]:
    """(tag, body) of every packet, of the old format and of the new one (RFC 4880, 4.2)."""
    found, at = [], 0
    try:
        while at < len(data):
            head = data[at]
            if not head & 0x80:
                raise NotAKeyError("it is not OpenPGP data")
            at += 1
            if head & 0x40:
                tag, first = head & 0x3F, data[at]
                if first < 192:
                    length, at = first, at + 1
                elif first < 224:
                    length, at = ((first - 192) << 8) + data[at + 1] + 192, at + 2
                elif first == 255:
                    length, at = int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
                else:
                    raise NotAKeyError("it has a packet of unknown length")
            else:
                tag, size = (head >> 2) & 0xF, 1 << (head & 3)
                if size == 8:
                    raise NotAKeyError("it has a packet of unknown length")
                length, at = int.from_bytes(data[at : at + size], "big"), at + size
            found.append((tag, data[at : at + length]))
            at += length
    except IndexError as error:
        raise NotAKeyError("it ends in the middle of a packet") from error
    if at != len(data):
        raise NotAKeyError("it ends in the middle of a packet")
    return found


def _key(body: bytes) -> Key:
    hashed = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)  # as RFC 4880, 12.2 says
    return Key(hashed.hexdigest(), int.from_bytes(body[1:5], "big"))


def _crc24(data: bytes) -> int:
    value = 0xB704CE
    for byte in data:
        value ^= byte << 16
        for _bit in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= 0x1864CFB
    return value & 0xFFFFFF
