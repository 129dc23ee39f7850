# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the programs that read and set DCB have in common: each interface is asked once."""

from __future__ import annotations

from typing import Union

from ..core.commands import CommandError, Runner
from .dcb_state import DcbState


class DcbTool:
    """What it read, or why it could not, is kept until forgotten: a hang is waited for once."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._known: dict[str, Union[DcbState, CommandError]] = {}

    def read(self, interface: str) -> DcbState:
        if interface not in self._known:
            try:
                self._known[interface] = self._ask(interface)
            except CommandError as error:
                self._known[interface] = error
        known = self._known[interface]
        if isinstance(known, CommandError):
            raise known
        return known

    def forget(self, interface: str) -> None:
        self._known.pop(interface, None)

    def _ask(self, interface: str) -> DcbState:
        raise AssertionError(f"{type(self).__name__} does not say how it reads")
