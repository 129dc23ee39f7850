# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Displays lines that may contain text from a host: printable and of limited length."""

from __future__ import annotations

from typing import Any

from ansible.utils.display import Display

from ..module_utils.core.text import printable, shortened

MAX_LINE_CHARACTERS = 1 << 20


class Terminal:
    """Show lines. Text from a host cannot move the cursor, set a colour or fill the terminal."""

    def __init__(self) -> None:
        self._display = Display()

    def display(self, line: str, color: Any = None) -> None:
        self._display.display(_plain(line), color=color)

    def warning(self, line: str) -> None:
        self._display.warning(_plain(line))

    def error(self, line: str) -> None:
        self._display.error(_plain(line), wrap_text=False)


def _plain(line: str) -> str:
    return str(printable(shortened(line, MAX_LINE_CHARACTERS)))


display = Terminal()
