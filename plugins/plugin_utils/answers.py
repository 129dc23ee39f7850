# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Parse answers from hosts: words from a limited character set, numbers within limits.

A host may be compromised. No part of its answer becomes a path, an argument, a file name or text in
another language (sftp batch, YAML, template) before it is parsed here or by a specific parser.
SECURITY.md lists the uses.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from ..module_utils.core.checks import FAILED, SELDOM, STATUSES, Check, as_dicts
from ..module_utils.core.text import one_line, printable, shortened

MAX_SHOWN_CHARACTERS = 80
"""Maximum length of a rejected value in a message."""
MAX_CHECKS = 20_000
"""Maximum number of checks in one answer: a host may check 8 rails of a thousand nodes."""
MOST_TEXT = 4000
"""Maximum length of a text in a check."""


class AnswerError(ValueError):
    """An answer has an unexpected form; the message gives position and value as printable text."""


class Form:
    """A word from a limited character set, without quotes, blanks, braces or control characters."""

    def __init__(self, what: str, pattern: str) -> None:
        self.what = what
        self._pattern = re.compile(pattern, re.ASCII)

    def fits(self, value: Any) -> bool:
        return isinstance(value, str) and self._pattern.fullmatch(value) is not None

    def of(self, value: Any, where: str) -> str:
        """The value as plain text. Raises AnswerError, naming its position (`where`)."""
        if not self.fits(value):
            raise AnswerError(f"{where} is {shown(value)}, not {self.what}")
        return str(value)

    def known(self, value: Any) -> str:
        """The value, or an empty string if it has another form."""
        return str(value) if self.fits(value) else ""


SHA256 = Form("a SHA-256 of 64 hexadecimal digits", r"[0-9a-f]{64}")
PCI = Form("a PCI address", r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
INTERFACE = Form("a name of an interface", r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,14}")
NAME = Form("a host name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
PORT = Form("a name of a switch's port", r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,63}")
VERSION = Form("a version", r"[A-Za-z0-9][A-Za-z0-9._+~:-]{0,79}")
CHECK = Form("a name of a check", r"[a-z][a-z0-9_.-]{0,79}")
PATH = Form(
    "an absolute path of plain characters", r"(/(?!\.\.?(/|$))[A-Za-z0-9._+@=-]{1,255}){1,16}"
)


def whole(value: Any, where: str, most: int, least: int = 0) -> int:
    """An integer within limits; JSON allows any size, and Python accepts booleans."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AnswerError(f"{where} is {shown(value)}, not an integer from {least} to {most}")
    return int(value)


def amount(value: Any, most: float) -> Optional[float]:
    """A number from 0 to `most`; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        return None
    return value


def mapping(value: Any) -> Mapping[str, Any]:
    """Its entries that have text keys; empty if it is not a mapping."""
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}


def sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def sentence(value: Any, most: int = 120) -> str:
    """One line of ASCII for display, without braces of templates."""
    text = re.sub(r"[{}]", " ", value) if isinstance(value, str) else ""
    plain = "".join(
        item for item in " ".join(text.split()) if item.isascii() and item.isprintable()
    )
    return plain[:most]


def checks(value: Any) -> list[dict[str, Any]]:
    """The checks that a module returned, in the form of `Check`, within limits.

    Invalid checks are replaced by one failed check, so that they affect only that host and are not
    overlooked.
    """
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    read = [(item, _check(item)) for item in given[:MAX_CHECKS]]
    strange = [shown(item) for item, check in read if check is None]
    if len(given) > MAX_CHECKS:
        strange.append(f"{len(given)} checks")
    found = [check for _each, check in read if check is not None]
    if strange:
        reason = (
            f"{len(strange)} of its checks have an invalid form: find out who changed its Python"
            " before you use the host again"
        )
        found += as_dicts([Check("answer", "checks", strange[0], FAILED, reason=reason)])
    return found


def _check(value: Any) -> Optional[dict[str, Any]]:
    given = mapping(value)
    status = given.get("status")
    if not CHECK.fits(given.get("name")) or not isinstance(status, str) or status not in STATUSES:
        return None
    texts = {key: given.get(key, "") for key in ("subject", "reason", *SELDOM)}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    texts = {key: shortened(one_line(text), MOST_TEXT) for key, text in texts.items()}
    return {
        "name": given["name"],
        **{key: _value(given.get(key)) for key in ("wanted", "found")},
        "status": status,
        **{key: text for key, text in texts.items() if text or key not in SELDOM},
    }


def _value(value: Any) -> Any:
    """A desired or actual value: JSON within limits, else the beginning of its text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= MOST_TEXT else shortened(text, MOST_TEXT)


def finite(value: Any) -> Any:
    """A JSON value without NaN and infinity, which other programs reject."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def json_text(value: Any) -> str:
    """JSON that other programs read; what JSON cannot express becomes text."""
    try:
        return json.dumps(value, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), default=str)


def json_parts(value: Any) -> Iterator[str]:
    """JSON text, in parts: a mapping that reads its items when asked is never in memory whole."""
    if not isinstance(value, Mapping):
        yield json_text(value)
        return
    yield "{"
    for number, (key, item) in enumerate(value.items()):
        yield f"{', ' if number else ''}{json.dumps(str(key))}: "
        yield from json_parts(item)
    yield "}"


@contextlib.contextmanager
def form_of(what: str) -> Iterator[None]:
    """Convert exceptions raised while parsing an answer to AnswerError. `what` names the answer."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AnswerError(
            f"{what} has an invalid form ({sentence(repr(error))}): find out who changed the host's"
            " Python before you use it again"
        ) from error


def shown(value: Any) -> str:
    """A rejected value as printable text; for a structure, its type."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number of more than 18 digits"
    return shortened(repr(printable(value)), MAX_SHOWN_CHARACTERS)
