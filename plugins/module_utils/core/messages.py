# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Messages for the operator: strings with the `code` and `values` that tests and callers read;
golden files (tests/unit/golden/messages) have the sentences."""

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
    """Render `template` with `values`, as str.format does. `code` and `template` must be literals,
    from which the golden files are collected."""
    made = Message(template.format(**values))
    made.code = code
    made.values = values
    return made
