# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Messages for the operator, rendered from a code and values.

A `Message` is a string, so that it passes through JSON and exceptions like any other text; tests
and callers read its `code` and `values` and leave the sentence to the golden files
(tests/unit/golden/messages).
"""

from __future__ import annotations

from typing import Any


class Message(str):
    """`code` is stable and lower case; `values` are those that the sentence was rendered from."""

    __slots__ = ("code", "values")
    code: str
    values: dict[str, Any]

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)


def message(code: str, template: str, **values: Any) -> Message:
    """Render `template` with `values`, as str.format does; values are never parsed.

    `code` and `template` must be literals: the golden files are collected from the source.
    """
    made = Message(template.format(**values))
    made.code = code
    made.values = values
    return made
