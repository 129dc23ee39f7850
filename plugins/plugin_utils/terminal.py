# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Displays lines that may contain text from a host: printable and of limited length."""

from __future__ import annotations

import os
import sys
from typing import Any

from ansible.utils.display import Display

from ..module_utils.core.text import printable, shortened

MAX_LINE_CHARACTERS = 1 << 20
CLEAR = "\r\x1b[K"
"""Moves a terminal's cursor to the start of its line, and erases the line."""


class Terminal:
    """Show lines. Text from a host cannot move the cursor, set a colour or fill the terminal."""

    def __init__(self) -> None:
        self._display = Display()

    def display(self, line: str, color: Any = None) -> None:
        self._display.display(_plain(line), color=color)

    @property
    def redraws(self) -> bool:
        """Whether the last line can be replaced, on a terminal."""
        return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def redraw(self, line: str = "") -> None:
        """Replace the last line by one that is not complete yet."""
        text = CLEAR + _plain(line)[: self._display.columns - 1]
        self._display.display(text, screen_only=True, newline=False)

    def warning(self, line: str) -> None:
        self._display.warning(_plain(line))

    def error(self, line: str) -> None:
        self._display.error(_plain(line), wrap_text=False)


def _plain(line: str) -> str:
    return str(printable(shortened(line, MAX_LINE_CHARACTERS)))


display = Terminal()
