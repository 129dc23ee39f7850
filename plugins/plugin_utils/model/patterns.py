# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Name patterns: `node{:02d}` with a number, `rail{rail}p{plane}` with named ones."""

from __future__ import annotations

import re
import string

_SPEC = re.compile(r"(0?[1-9])?d?")


class PatternError(ValueError):
    """A pattern that cannot be used; the text says why."""


def check(pattern: str, fields: tuple[str, ...], needed: tuple[str, ...]) -> None:
    """Raise PatternError unless `pattern` uses only `fields`, and each of `needed`."""
    try:
        parts = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise PatternError(str(error)) from error
    used = []
    for literal, field, spec, conversion in parts:
        if re.search(r"[\s{}]", literal):
            raise PatternError("it has a blank or a brace in its text")
        if field is None:
            continue
        if field not in fields:
            known = ", ".join(f"{{{name}}}" for name in fields)
            raise PatternError(f"it has {{{field}}}, known are {known}")
        if conversion or not _SPEC.fullmatch(spec or ""):
            raise PatternError(f"{{{field}:{spec}}} is no format of a number")
        used.append(field)
    for name in needed:
        if used.count(name) != 1:
            raise PatternError(f"it needs {{{name}}} exactly once")
