# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Driver, ring sizes and link pause of an interface, by the system call that `ethtool` makes.

The call is the same on every kernel and needs no package; what `ethtool` prints differs from
release to release, and its JSON is young.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct

from ..core.dataclass import dataclass

_SIOCETHTOOL = 0x8946
_GET_DRIVER, _GET_RINGS, _SET_RINGS, _GET_PAUSE, _SET_PAUSE = 0x03, 0x10, 0x11, 0x12, 0x13
_RINGS, _PAUSE = struct.Struct("9I"), struct.Struct("4I")
_IFREQ_BYTES, _DRIVER_INFO_BYTES, _DRIVER_NAME = 40, 196, slice(4, 36)


@dataclass(frozen=True)
class Rings:
    """Entries of the receive and send rings, now and at most."""

    rx: int
    tx: int
    rx_max: int
    tx_max: int


class Ethtool:
    """The drivers of the running kernel; OSError with EOPNOTSUPP where one has no answer."""

    def driver(self, interface: str) -> str:
        answer = self._ask(
            interface, struct.pack("I", _GET_DRIVER).ljust(_DRIVER_INFO_BYTES, b"\0")
        )
        return answer[_DRIVER_NAME].split(b"\0", 1)[0].decode("ascii", "replace")

    def rings(self, interface: str) -> Rings:
        rx_max, _mini, _jumbo, tx_max, rx, _mini, _jumbo, tx = self._rings(interface)[1:]
        return Rings(rx, tx, rx_max, tx_max)

    def set_rings(self, interface: str, rx: int, tx: int) -> None:
        # mini and jumbo rings stay as they are
        found = self._rings(interface)
        self._ask(interface, _RINGS.pack(_SET_RINGS, *found[1:5], rx, *found[6:8], tx))

    def pause(self, interface: str) -> tuple[bool, bool]:
        """Whether pauses of the whole link are obeyed (rx) and sent (tx)."""
        _command, _autoneg, rx, tx = _PAUSE.unpack(
            self._ask(interface, _PAUSE.pack(_GET_PAUSE, 0, 0, 0))
        )
        return bool(rx), bool(tx)

    def set_pause(self, interface: str, rx: bool, tx: bool) -> None:
        self._ask(interface, _PAUSE.pack(_SET_PAUSE, 0, rx, tx))

    def _rings(self, interface: str) -> tuple[int, ...]:
        question = _RINGS.pack(_GET_RINGS, *[0] * 8)
        return _RINGS.unpack(self._ask(interface, question))

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


def unanswered(error: OSError) -> bool:
    """Whether the driver simply has no such thing."""
    return error.errno == errno.EOPNOTSUPP
