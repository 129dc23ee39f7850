# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Largest read that a PCIe function asks of memory at once: three bits of its configuration space.

Read and written through sysfs, as `setpci -s PCI CAP_EXP+8.w` does.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

_FIRST_CAPABILITY = 0x34
_PCI_EXPRESS = 0x10
_DEVICE_CONTROL = 8
"""Its offset in the PCI Express capability."""
_SHIFT, _MASK = 12, 0x7000
_HEADER_BYTES = 64
SIZES = (128, 256, 512, 1024, 2048, 4096)


class NoPcieError(Exception):
    """The function has no PCI Express capability, or only its header may be read."""


def path(pci: str, root: Path = Path("/")) -> Path:
    return root / "sys/bus/pci/devices" / pci / "config"


def max_read_request(pci: str, root: Path = Path("/")) -> int:
    """In bytes. Raises NoPcieError, or OSError."""
    with path(pci, root).open("rb") as stream:
        _offset, control = _device_control(stream.read(256))
    return 128 << ((control & _MASK) >> _SHIFT)


def set_max_read_request(pci: str, size: int, root: Path = Path("/")) -> None:
    """Change these three bits and no other."""
    file = os.open(path(pci, root), os.O_RDWR)
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
