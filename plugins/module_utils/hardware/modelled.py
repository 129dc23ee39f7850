# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of the cluster model beside what the machine has at their places."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ..dataclass import dataclass
from .inventory import MELLANOX, RAIL, Machine, RdmaDevice
from .pci import card_of


@dataclass(frozen=True)
class Rail:
    """One entry of `cluster_rails`, and what the machine has at its place."""

    name: str
    entry: Mapping[str, Any]
    port: Optional[RdmaDevice]

    @property
    def pci(self) -> str:
        """Where the model says it is; without that, where its interface is."""
        return self.entry.get("pci") or (self.port.pci if self.port else None) or ""

    @property
    def speed(self) -> Optional[float]:
        speed: Optional[float] = self.entry.get("speed_gbps")
        return speed

    @property
    def place(self) -> str:
        """`rail3 at 0000:5d:00.0`, as messages say it."""
        return f"{self.name} at {self.pci}" if self.pci else self.name


class Modelled:
    """A machine and the rails that it is to have."""

    def __init__(
        self,
        machine: Machine,
        rails: Sequence[Mapping[str, Any]],
        gpus: Sequence[Mapping[str, Any]],
    ) -> None:
        self.machine = machine
        self.rails = [Rail(str(entry["interface"]), entry, self._port(entry)) for entry in rails]
        self.gpus = {int(gpu["index"]): str(gpu["pci"]) for gpu in gpus if gpu.get("pci")}

    def _port(self, entry: Mapping[str, Any]) -> Optional[RdmaDevice]:
        if entry.get("pci"):
            return self.machine.at(str(entry["pci"]))
        name = str(entry["interface"])
        return next((port for port in self.machine.netdevs if port.netdev == name), None)

    def spare(self) -> list[RdmaDevice]:
        """NICs beside a GPU that no rail of the model names."""
        named = {rail.pci for rail in self.rails}
        return [port for port in self.machine.of_kind(RAIL) if port.pci not in named]

    def on_card(self, pci: str) -> list[Rail]:
        """The rails of the model that share a card, and so its PCIe link."""
        return [rail for rail in self.rails if card_of(rail.pci) == card_of(pci)]

    def functions_on_card(self, pci: str) -> list[RdmaDevice]:
        """The functions on a card that can be rails."""
        return [
            port for port in self.machine.of_kind(RAIL) if card_of(port.pci or "") == card_of(pci)
        ]

    def planes(self, rail: Rail) -> int:
        """How many planes the model gives this rail."""
        return sum(1 for each in self.rails if each.entry.get("rail") == rail.entry.get("rail"))

    def split(self, rail: Rail) -> bool:
        """Whether the rail's card shows up as more functions than the model has rails on it."""
        if rail.port is None or rail.port.kind != RAIL:
            return False
        return len(self.functions_on_card(rail.pci)) > len(self.on_card(rail.pci))

    def merged(self, rail: Rail) -> bool:
        """Whether this is a plane without a function, on a card that shows up as fewer."""
        beside = self.functions_on_card(rail.pci)
        return rail.port is None and self.planes(rail) > 1 and bool(beside)


def is_nic(port: Optional[RdmaDevice]) -> bool:
    """Whether this is a physical RoCE NIC, with its driver or without."""
    return port is not None and (port.vendor == MELLANOX or bool(port.name))


def named(ports: Iterable[RdmaDevice]) -> str:
    """`0000:5d:00.0 (rail3), 0000:8b:00.0`"""
    return ", ".join(
        f"{port.pci} ({port.netdev or port.name})" if port.netdev or port.name else str(port.pci)
        for port in ports
    )
