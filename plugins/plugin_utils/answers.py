# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host answered, parsed to a type: words of a closed set of characters, numbers in bounds.

A host may be in the hands of an attacker. So nothing of its answer becomes a path, an argument, a
name of a file, or text of another program's language (sftp's batch, YAML, a template) before it was
parsed here, or by a parser of its subject. SECURITY.md lists the places.
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

SHOWN = 80
"""Characters of a value that was refused."""
MOST_CHECKS = 20_000
"""Of one answer: 8 rails of a thousand nodes, each with a check of the host that looks at them."""
MOST_TEXT = 4000
"""Characters of a text of a check."""


class AnswerError(ValueError):
    """A host answered in another form than expected: where, and the value in printable text."""


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
        """The value, or empty for one of another form, which counts as not answered."""
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
    """A whole number in bounds: JSON has them without end, and Python counts truths as numbers."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AnswerError(f"{where} is {shown(value)}, not a whole number from {least} to {most}")
    return int(value)


def amount(value: Any, most: float) -> Optional[float]:
    """A number from 0 to `most`; None for anything else, which counts as not answered."""
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


def checks(value: Any) -> list[dict[str, Any]]:
    """The checks that a module returned, as `Check` has them, in bounds.

    Those of another form are replaced by one failed check: a failure of that host only, and one
    that is not passed over.
    """
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    read = [(each, _check(each)) for each in given[:MOST_CHECKS]]
    strange = [shown(each) for each, check in read if check is None]
    if len(given) > MOST_CHECKS:
        strange.append(f"{len(given)} checks")
    found = [check for _each, check in read if check is not None]
    if strange:
        why = (
            f"{len(strange)} of its checks have another form than its module gives them: look who"
            " has changed its Python, before it is used again"
        )
        found += as_dicts([Check("answer", "checks", strange[0], FAILED, reason=why)])
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
    """What was wanted or found: any JSON in bounds, else the beginning of its text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= MOST_TEXT else shortened(text, MOST_TEXT)


def finite(value: Any) -> Any:
    """As JSON, which has no NaN and no infinity: other programs refuse a whole report for one."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return value


@contextlib.contextmanager
def form_of(what: str) -> Iterator[None]:
    """Around what reads an answer of many parts, of one host: what raises for a part of another
    type raises AnswerError, with `what` it is."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AnswerError(
            f"{what} has another form than its module gives it ({sentence(repr(error))}): look who"
            " has changed its Python, before it is used again"
        ) from error


def shown(value: Any) -> str:
    """A value that was refused, so that it only prints; of a structure only its kind."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number of more than 18 digits"
    return shortened(repr(printable(value)), SHOWN)
