# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NIC around RoCE: link pause, PCIe read size, rings, accelerations in firmware's registers."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from .ethtool import Ethtool, unanswered
from .rdma_settings import SOFTWARE_REASON
from .setting import Rail, Reading, Setting

ROCE_ACCL = "ROCE_ACCL"
PROGRAMS = ("mlxreg", "mstreg")
"""Of MFT (DOCA-OFED) and of mstflint: registers of a ConnectX that a reset forgets."""
_FIELD = re.compile(r"^(\w+)\s*\|\s*(0x[0-9a-fA-F]+)\s*$", re.M)


class LinkPause(Setting):
    """Off: a pause of the whole link would stop the lossy classes with the lossless one."""

    name = "link_pause"
    tool = "ethtool --pause"
    wanted = "off"

    def __init__(self, rail: Rail, ethtool: Ethtool) -> None:
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

    def set(self, value: Any) -> None:
        on = value.split()
        self._ethtool.set_pause(self._interface, rx="rx" in on, tx="tx" in on)


# Largest read that a PCIe function asks of memory at once: three bits of its configuration space,
# read and written through sysfs, as `setpci -s PCI CAP_EXP+8.w` does.

_FIRST_CAPABILITY = 0x34
_PCI_EXPRESS = 0x10
_DEVICE_CONTROL = 8
"""Its offset in the PCI Express capability."""
_SHIFT, _MASK = 12, 0x7000
_HEADER_BYTES = 64
SIZES = (128, 256, 512, 1024, 2048, 4096)


class NoPcieError(Exception):
    """The function has no PCI Express capability, or only its header may be read."""


def config_path(pci: str, root: Path = Path("/")) -> Path:
    return root / "sys/bus/pci/devices" / pci / "config"


def max_read_request(pci: str, root: Path = Path("/")) -> int:
    """In bytes. Raises NoPcieError, or OSError."""
    with config_path(pci, root).open("rb") as stream:
        _offset, control = _device_control(stream.read(256))
    return 128 << ((control & _MASK) >> _SHIFT)


def set_max_read_request(pci: str, size: int, root: Path = Path("/")) -> None:
    """Change these three bits and no other."""
    file = os.open(config_path(pci, root), os.O_RDWR)
    try:
        offset, control = _device_control(os.pread(file, 256, 0))
        value = control & ~_MASK | SIZES.index(size) << _SHIFT
        os.pwrite(file, struct.pack("<H", value), offset)
    finally:
        os.close(file)


def _device_control(config: bytes) -> tuple[int, int]:
    """Where the register is, and its value."""
    if len(config) <= _HEADER_BYTES:
        raise NoPcieError("only the header of its configuration space can be read")
    place, seen = config[_FIRST_CAPABILITY] & ~3, set[int]()
    while place and place not in seen and place + _DEVICE_CONTROL + 2 <= len(config):
        seen.add(place)
        if config[place] == _PCI_EXPRESS:
            offset = place + _DEVICE_CONTROL
            (control,) = struct.unpack_from("<H", config, offset)
            return offset, control
        place = config[place + 1] & ~3
    raise NoPcieError("it is no PCI Express function")


class MaxReadRequest(Setting):
    """How much the NIC asks of memory at once, in bytes."""

    name = "max_read_request_bytes"

    def __init__(self, rail: Rail, wanted: int, root: Path) -> None:
        self.wanted = wanted
        self.tool = str(config_path(rail.pci or "-", root))
        self._pci = rail.pci if rail.physical else None
        self._root = root

    def read(self) -> Reading:
        if self._pci is None:
            return Reading.unsupported(SOFTWARE_REASON)
        try:
            return Reading(max_read_request(self._pci, self._root))
        except NoPcieError as error:
            return Reading.unsupported(str(error))

    def set(self, value: Any) -> None:
        set_max_read_request(self._pci or "", value, self._root)


class RingSizes(Setting):
    """Entries of the rings of the Ethernet side, which RoCE does not pass through."""

    name = "rings"
    tool = "ethtool --set-ring"

    def __init__(self, rail: Rail, wanted: Mapping[str, int], ethtool: Ethtool) -> None:
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

    def set(self, value: Any) -> None:
        now = self._ethtool.rings(self._interface)
        self._ethtool.set_rings(self._interface, value.get("rx", now.rx), value.get("tx", now.tx))


class Accelerations(Setting):
    """Adaptive routing and the other fields of ROCE_ACCL that the operator asks for."""

    name = "accelerations"

    def __init__(
        self, rail: Rail, wanted: Mapping[str, int], run: Runner, program: Optional[str]
    ) -> None:
        """`program` is the one of PROGRAMS that is installed."""
        self.wanted = dict(sorted(wanted.items()))
        self.tool = f"{program or PROGRAMS[0]} {ROCE_ACCL}"
        self._physical = rail.physical
        self._run = run
        self._program = program
        self._argv = (program or PROGRAMS[0], "-d", rail.pci or "", "--reg_name", ROCE_ACCL)

    def read(self) -> Reading:
        if not self._physical:
            return Reading.unsupported(SOFTWARE_REASON)
        if self._program is None:
            return Reading.unsupported(
                f"neither {' nor '.join(PROGRAMS)} is installed: mft (DOCA-OFED) or mstflint has it"
            )
        output = self._run((*self._argv, "--get")).stdout
        fields = {name: int(value, 16) for name, value in _FIELD.findall(output)}
        if not fields:
            raise CommandError(f"{' '.join(self._argv)} --get: no field in the output: {output}")
        for name in self.wanted:
            # `X_en` has its flag as `X_field_select` or as `X_en_field_select`: 0 is not settable.
            flags = [
                fields.get(f"{each}_field_select") for each in (name, name.removesuffix("_en"))
            ]
            if name not in fields or 0 in flags:
                return Reading.unsupported(f"its firmware has no {name} in {ROCE_ACCL}")
        return Reading({name: fields[name] for name in self.wanted})

    def set(self, value: Any) -> None:
        text = ",".join(f"{name}={field:#x}" for name, field in value.items())
        self._run((*self._argv, "--set", text, "--yes"))
