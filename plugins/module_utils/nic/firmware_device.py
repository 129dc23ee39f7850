# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NICs' firmware as one run sees it: each card asked once, and told once per rail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Union

from ..core.commands import CommandError, Runner
from . import firmware_tool
from .firmware_tool import Parameter


class Firmwares:
    """Answers of the tool, kept per card: the functions of one card share its settings."""

    def __init__(self, tool: Optional[str], run: Runner) -> None:
        self.tool = tool
        self._run = run
        self._answers: dict[str, Union[dict[str, Parameter], CommandError]] = {}
        self._written: set[str] = set()

    def parameters(self, pci: str) -> Mapping[str, Parameter]:
        """What the firmware of the card at `pci` knows. Raises CommandError, the same one again."""
        card = _card(pci)
        if card not in self._answers:
            try:
                self._answers[card] = self._query(pci)
            except CommandError as error:
                self._answers[card] = error
        answer = self._answers[card]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def set(self, pci: str, values: Mapping[str, int]) -> None:
        """Of these known ones, what the next reset would not bring: in one call, or none."""
        known = self.parameters(pci)
        differing = {
            name: value for name, value in values.items() if known[name].next_boot != value
        }
        if not differing:
            return
        if self.tool is None:
            raise CommandError(NO_TOOL)
        card = _card(pci)
        self._written.add(card)
        firmware_tool.set_for_next_boot(self.tool, pci, differing, self._run)
        told = {name: Parameter(known[name].current, value) for name, value in differing.items()}
        self._answers[card] = {**known, **told}

    def forget(self, pci: str) -> None:
        """Ask a card again that was told something since it was asked."""
        card = _card(pci)
        if card in self._written:
            self._written.discard(card)
            self._answers.pop(card, None)

    def port_parameter(self, pci: str, name: str) -> str:
        """`LINK_TYPE_P1` as the second function of a card calls it: `LINK_TYPE_P2`.

        Where the firmware has no such port, every function of the card has port 1.
        """
        stem, _separator, port = name.rpartition("_P")
        if not stem or not port.isdigit():
            return name
        own = f"{stem}_P{int(pci[-1]) + 1}"
        return own if own in self.parameters(pci) else name

    def _query(self, pci: str) -> dict[str, Parameter]:
        if self.tool is None:
            raise CommandError(NO_TOOL)
        return firmware_tool.query(self.tool, pci, self._run)


NO_TOOL = (
    "its firmware settings cannot be read: neither mlxconfig nor mstconfig is installed. Install "
    f"{firmware_tool.PACKAGES}, or set roce_rails_firmware: false to leave firmware alone"
)


def _card(pci: str) -> str:
    """The address without its function."""
    return pci.rpartition(".")[0]
