# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NIC around RoCE: link pause, PCIe read size, rings, accelerations in firmware's registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.dataclass import dataclass
from . import pci_config
from .ethtool import Ethtool, unanswered
from .options import NicOptions
from .rdma_settings import SOFTWARE_REASON
from .registers import PACKAGE, PROGRAMS, Registers
from .setting import RUNTIME, Rail, Reading, Setting

ROCE_ACCL = "ROCE_ACCL"


@dataclass(frozen=True)
class NicSettings:
    """Provider of what holds whatever the contract says, and of the operator's options."""

    options: NicOptions
    ethtool: Ethtool
    registers: Registers
    root: Path = Path("/")

    def __call__(self, rail: Rail) -> Sequence[Setting]:
        # Pause first: a port cannot have both, and PFC is written after it.
        settings: list[Setting] = [LinkPause(rail, self.ethtool)]
        if self.options.max_read_request_bytes is not None:
            settings.append(MaxReadRequest(rail, self.options.max_read_request_bytes, self.root))
        if self.options.rings:
            settings.append(RingSizes(rail, self.options.rings, self.ethtool))
        if self.options.accelerations:
            settings.append(Accelerations(rail, self.options.accelerations, self.registers))
        return settings


class LinkPause:
    """Off: a pause of the whole link would stop the lossy classes with the lossless one."""

    name = "link_pause"
    persistence = RUNTIME
    tool = "ethtool --pause"
    wanted = "off"

    def __init__(self, rail: Rail, ethtool: Ethtool) -> None:
        self.rail = rail.name
        self._interface = rail.interface
        self._ethtool = ethtool

    def read(self) -> Reading:
        try:
            rx, tx = self._ethtool.pause(self._interface)
        except OSError as error:
            if unanswered(error):
                return Reading.kept_otherwise("its driver knows no link pause")
            raise
        on = [name for name, value in (("rx", rx), ("tx", tx)) if value]
        return Reading(" ".join(on) or "off")

    def write(self) -> None:
        self._ethtool.set_pause(self._interface, rx=False, tx=False)

    def restore(self, reading: Reading) -> None:
        on = reading.found.split()
        self._ethtool.set_pause(self._interface, rx="rx" in on, tx="tx" in on)


class MaxReadRequest:
    """How much the NIC asks of memory at once, in bytes."""

    name = "max_read_request_bytes"
    persistence = RUNTIME

    def __init__(self, rail: Rail, wanted: int, root: Path) -> None:
        self.rail = rail.name
        self.wanted = wanted
        self._pci = rail.pci
        self._physical = rail.physical
        self._root = root

    @property
    def tool(self) -> str:
        return str(pci_config.path(self._pci or "-", self._root))

    def read(self) -> Reading:
        if not self._physical or self._pci is None:
            return Reading.unsupported(SOFTWARE_REASON)
        try:
            return Reading(pci_config.max_read_request(self._pci, self._root))
        except pci_config.NoPcieError as error:
            return Reading.unsupported(str(error))

    def write(self) -> None:
        self._set(self.wanted)

    def restore(self, reading: Reading) -> None:
        self._set(reading.found)

    def _set(self, size: int) -> None:
        if self._pci is not None:
            pci_config.set_max_read_request(self._pci, size, self._root)


class RingSizes:
    """Entries of the rings of the Ethernet side, which RoCE does not pass through."""

    name = "rings"
    persistence = RUNTIME
    tool = "ethtool --set-ring"

    def __init__(self, rail: Rail, wanted: Mapping[str, int], ethtool: Ethtool) -> None:
        self.rail = rail.name
        self.wanted = dict(sorted(wanted.items()))
        self._interface = rail.interface
        self._ethtool = ethtool

    def read(self) -> Reading:
        try:
            rings = self._ethtool.rings(self._interface)
        except OSError as error:
            if unanswered(error):
                return Reading.unsupported("its driver has no ring sizes")
            raise
        most = {"rx": rings.rx_max, "tx": rings.tx_max}
        for name, value in self.wanted.items():
            if value > most[name]:
                return Reading.unsupported(f"its {name} ring has {most[name]} entries at most")
        found = {"rx": rings.rx, "tx": rings.tx}
        return Reading({name: found[name] for name in self.wanted})

    def write(self) -> None:
        self._set(self.wanted)

    def restore(self, reading: Reading) -> None:
        self._set(reading.found)

    def _set(self, sizes: Mapping[str, int]) -> None:
        now = self._ethtool.rings(self._interface)
        self._ethtool.set_rings(self._interface, sizes.get("rx", now.rx), sizes.get("tx", now.tx))


class Accelerations:
    """Adaptive routing and the other fields of ROCE_ACCL that the operator asks for."""

    name = "accelerations"
    persistence = RUNTIME

    def __init__(self, rail: Rail, wanted: Mapping[str, int], registers: Registers) -> None:
        self.rail = rail.name
        self.wanted = dict(sorted(wanted.items()))
        self._pci = rail.pci or ""
        self._physical = rail.physical
        self._registers = registers

    @property
    def tool(self) -> str:
        return f"{self._registers.program or PROGRAMS[0]} {ROCE_ACCL}"

    def read(self) -> Reading:
        if not self._physical:
            return Reading.unsupported(SOFTWARE_REASON)
        if self._registers.program is None:
            return Reading.unsupported(
                f"neither {' nor '.join(PROGRAMS)} is installed: package {PACKAGE}"
            )
        fields = self._registers.read(self._pci, ROCE_ACCL)
        for name in self.wanted:
            # `X_en` has its flag as `X_field_select` or as `X_en_field_select`: 0 is not settable.
            flags = [
                fields.get(f"{each}_field_select") for each in (name, name.removesuffix("_en"))
            ]
            if name not in fields or 0 in flags:
                return Reading.unsupported(f"its firmware has no {name} in {ROCE_ACCL}")
        return Reading({name: fields[name] for name in self.wanted})

    def write(self) -> None:
        self._registers.write(self._pci, ROCE_ACCL, self.wanted)

    def restore(self, reading: Reading) -> None:
        self._registers.write(self._pci, ROCE_ACCL, reading.found)

    def forget(self) -> None:
        self._registers.forget(self._pci)
