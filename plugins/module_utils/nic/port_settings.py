# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Port settings other than RoCE's: link pause, PCIe read request size, ring sizes."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.checks import FAILED, NOT_APPLICABLE
from .setting import SOFTWARE_REASON, NicSetting, RailNic, Reading

# Driver, counters, ring sizes and link pause are read by the system call of `ethtool`. The call is
# the same on every kernel and needs no package; the output of `ethtool` differs between releases.

_SIOCETHTOOL = 0x8946
_GET_DRIVER, _GET_RINGS, _SET_RINGS, _GET_PAUSE, _SET_PAUSE = 0x03, 0x10, 0x11, 0x12, 0x13
_RINGS, _PAUSE = struct.Struct("9I"), struct.Struct("4I")
_GET_STRINGS, _GET_STATISTICS, _STATISTICS, _WORD_BYTES = 0x1B, 0x1D, 1, 32
_STATISTICS_COUNT = 180
_IFREQ_BYTES, _DRIVER_INFO_BYTES, _DRIVER_NAME = 40, 196, slice(4, 36)


class Ethtool:
    """The ethtool system call; raises OSError, EOPNOTSUPP if the driver lacks the request."""

    def driver(self, interface: str) -> str:
        question = struct.pack("I", _GET_DRIVER).ljust(_DRIVER_INFO_BYTES, b"\0")
        answer = self._ask(interface, question)
        return answer[_DRIVER_NAME].split(b"\0", 1)[0].decode("ascii", "replace")

    def statistics(self, interface: str) -> dict[str, int]:
        info = self._ask(interface, struct.pack("I", _GET_DRIVER).ljust(_DRIVER_INFO_BYTES, b"\0"))
        (count,) = struct.unpack_from("I", info, _STATISTICS_COUNT)
        question = struct.pack("3I", _GET_STRINGS, _STATISTICS, count)
        words = self._ask(interface, question.ljust(12 + _WORD_BYTES * count, b"\0"))[12:]
        question = struct.pack("2I", _GET_STATISTICS, count)
        values = self._ask(interface, question.ljust(8 + 8 * count, b"\0"))
        names = (words[at : at + _WORD_BYTES] for at in range(0, len(words), _WORD_BYTES))
        texts = (name.split(b"\0", 1)[0].decode("ascii", "replace") for name in names)
        # Older drivers have a blank after tx_pause_storm_warning_events.
        return dict(zip(map(str.strip, texts), struct.unpack_from(f"{count}Q", values, 8)))

    def rings(self, interface: str) -> dict[str, int]:
        """Return the current entries of the rings `rx` and `tx`."""
        found = self._rings(interface)
        return {"rx": found[5], "tx": found[8]}

    def set_rings(self, interface: str, wanted: Mapping[str, int]) -> None:
        # Rings that are not in `wanted`, and mini and jumbo rings, are not changed.
        found = self._rings(interface)
        rx, tx = wanted.get("rx", found[5]), wanted.get("tx", found[8])
        self._ask(interface, _RINGS.pack(_SET_RINGS, *found[1:5], rx, *found[6:8], tx))

    def pause(self, interface: str) -> tuple[bool, bool]:
        """Return whether pause frames for the whole link are obeyed (rx) and sent (tx)."""
        answer = self._ask(interface, _PAUSE.pack(_GET_PAUSE, 0, 0, 0))
        _command, _autoneg, rx, tx = _PAUSE.unpack(answer)
        return bool(rx), bool(tx)

    def set_pause(self, interface: str, rx: bool, tx: bool) -> None:
        self._ask(interface, _PAUSE.pack(_SET_PAUSE, 0, rx, tx))

    def _rings(self, interface: str) -> tuple[int, ...]:
        return _RINGS.unpack(self._ask(interface, _RINGS.pack(_GET_RINGS, *[0] * 8)))

    @staticmethod
    def _ask(interface: str, question: bytes) -> bytes:
        buffer = array.array("B", question)
        address, _length = buffer.buffer_info()
        request = struct.pack("16sP", interface.encode(), address).ljust(_IFREQ_BYTES, b"\0")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            try:
                fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"ethtool {interface}") from error
        return buffer.tobytes()


class LinkPause(NicSetting):
    """Link pause, which must be off: it would stop lossy classes together with the lossless one."""

    name = "link_pause"
    wanted = "off"

    def __init__(self, rail: RailNic, ethtool: Ethtool) -> None:
        self._interface = rail.interface
        self._ethtool = ethtool

    def read(self) -> Reading:
        try:
            rx, tx = self._ethtool.pause(self._interface)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return Reading(None, "its driver has no link pause", NOT_APPLICABLE)
        on = [name for name, value in (("rx", rx), ("tx", tx)) if value]
        return Reading(" ".join(on) or "off")

    def set(self, value: Any) -> None:
        on = value.split()
        self._ethtool.set_pause(self._interface, rx="rx" in on, tx="tx" in on)


class RingSizes(NicSetting):
    """Entries of the Ethernet rings, which RoCE traffic bypasses."""

    name = "rings"

    def __init__(self, rail: RailNic, wanted: Mapping[str, int], ethtool: Ethtool) -> None:
        self.wanted = dict(sorted(wanted.items()))
        self._interface = rail.interface
        self._ethtool = ethtool

    def read(self) -> Reading:
        now = self._ethtool.rings(self._interface)
        return Reading({name: now[name] for name in self.wanted})

    def set(self, value: Any) -> None:
        self._ethtool.set_rings(self._interface, value)


# The maximum read request size of a PCIe function: three bits of its configuration space, read and
# written through sysfs, as `setpci -s PCI CAP_EXP+8.w` does.

SIZES = (128, 256, 512, 1024, 2048, 4096)
_FIRST_CAPABILITY = 0x34
_PCI_EXPRESS = 0x10
_DEVICE_CONTROL = 8
"""Offset in the PCI Express capability."""
_SHIFT, _MASK = 12, 0x7000


class MaxReadRequest(NicSetting):
    """The largest PCIe read request of the NIC, in bytes.

    Kernel lockdown (Secure Boot) forbids writing it; the contract's settings do not depend on it.
    """

    name = "max_read_request_bytes"
    optional = True

    def __init__(self, rail: RailNic, wanted: int, root: Path) -> None:
        self.wanted = wanted
        self._config = root / "sys/bus/pci/devices" / (rail.pci or "-") / "config"
        self._real = rail.physical

    def read(self) -> Reading:
        if not self._real:
            return Reading(None, SOFTWARE_REASON, FAILED)
        if self.wanted not in SIZES:
            reason = f"roce_rails_nic: {self.wanted} is not one of {SIZES}"
            return Reading(None, reason, FAILED)
        with self._config.open("rb") as stream:
            _offset, control = _device_control(stream.read(256))
        return Reading(128 << ((control & _MASK) >> _SHIFT))

    def set(self, value: Any) -> None:
        file = os.open(self._config, os.O_RDWR)
        try:
            offset, control = _device_control(os.pread(file, 256, 0))
            new = control & ~_MASK | SIZES.index(value) << _SHIFT
            os.pwrite(file, struct.pack("<H", new), offset)
        finally:
            os.close(file)


def _device_control(config: bytes) -> tuple[int, int]:
    """Return offset and value of the Device Control register. Raises OSError."""
    pointer, seen = config[_FIRST_CAPABILITY] & ~3, set[int]()
    while pointer and pointer not in seen and pointer + _DEVICE_CONTROL + 2 <= len(config):
        seen.add(pointer)
        if config[pointer] == _PCI_EXPRESS:
            offset = pointer + _DEVICE_CONTROL
            (control,) = struct.unpack_from("<H", config, offset)
            return offset, control
        pointer = config[pointer + 1] & ~3
    raise OSError("no PCI Express capability can be read")
