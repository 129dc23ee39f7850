# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host answered, parsed to a type: words of a closed set of characters, numbers in bounds.

A host may be in the hands of an attacker. So nothing of its answer becomes a path, an argument, a
name of a file, or text of another program's language (sftp's batch, YAML, a template) before it was
parsed here, or by a parser of its subject. SECURITY.md lists the places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..module_utils.core.text import printable, shortened

SHOWN = 80
"""Characters of a value that was refused."""


class AnswerError(ValueError):
    """A host answered something of another form: what, and the value as far as it prints."""


class Form:
    """A word of a closed set of characters. Each excludes quotes, blanks, braces and controls."""

    def __init__(self, what: str, pattern: str) -> None:
        self.what = what
        self._pattern = re.compile(pattern, re.ASCII)

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and self._pattern.fullmatch(value) is not None

    def of(self, value: Any, where: str) -> str:
        """The value as plain text. Raises AnswerError with `where` it stood."""
        if not self.fits(value):
            raise AnswerError(f"{where} is {shown(value)}, not {self.what}")
        return str(value)

    def known(self, value: Any) -> str:
        """The value, or empty where it has another form: then it counts as not answered."""
        return str(value) if self.fits(value) else ""


SHA256 = Form("a SHA-256 of 64 hexadecimal digits", r"[0-9a-f]{64}")
PCI = Form("a PCI address", r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
INTERFACE = Form("a name of an interface", r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
NAME = Form("a host name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
PORT = Form("a name of a switch's port", r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,63}")
VERSION = Form("a version", r"[A-Za-z0-9][A-Za-z0-9._+~:-]{0,79}")
PATH = Form(
    "an absolute path of plain characters", r"(/(?!\.\.?(/|$))[A-Za-z0-9._+@=-]{1,255}){1,16}"
)


def whole(value: Any, where: str, most: int, least: int = 0) -> int:
    """A whole number in bounds: JSON has them without end, and Python counts truths as numbers."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AnswerError(f"{where} is {shown(value)}, not a whole number from {least} to {most}")
    return int(value)


def amount(value: Any, most: float) -> Optional[float]:
    """A number from 0 to `most`; None where it is no such number: then it was not answered."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        return None
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """Its entries with a name; none where it is no mapping."""
    if not isinstance(value, Mapping):
        return {}
    return {key: each for key, each in value.items() if isinstance(key, str)}


def sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def sentence(value: Any, most: int = 120) -> str:
    """For people, where nothing reads it: one line of ASCII, without marks of templates."""
    text = re.sub(r"[{}]", " ", value) if isinstance(value, str) else ""
    plain = "".join(
        each for each in " ".join(text.split()) if each.isascii() and each.isprintable()
    )
    return plain[:most]


def shown(value: Any) -> str:
    """A value that was refused, so that it only prints; of a structure only its kind."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number of more than 18 digits"
    return shortened(repr(printable(value)), SHOWN)
