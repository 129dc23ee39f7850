# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The packets between a rail and one peer, as the kernel counts them.

Works for RDMA that passes the kernel's network stack (Soft-RoCE). A NIC that bypasses it shows no
packet here: see sniffer and counters.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Any

from . import filters, packets

SO_ATTACH_FILTER = 26
SOL_PACKET = 263
PACKET_STATISTICS = 6
ETH_P_ALL = 0x0003
SAMPLES = 32
"""Packets of each kind that are looked at one by one."""

KINDS = (
    (filters.OUT, filters.RIGHT),
    (filters.OUT, filters.WRONG),
    (filters.IN, filters.RIGHT),
    (filters.IN, filters.WRONG),
    (filters.IN, filters.MARKED),
    (filters.OUT, filters.NOTIFIED),
    (filters.IN, filters.NOTIFIED),
)


class Witness:
    """Counts from its beginning on; `take` returns what came since it was last asked."""

    def __init__(self, interface: str, wanted: filters.Wanted) -> None:
        self._sockets: dict[tuple[str, str], socket.socket] = {}
        try:
            for direction, verdict in KINDS:
                self._sockets[direction, verdict] = listen(
                    interface, filters.packed(filters.program(wanted, direction, verdict))
                )
        except BaseException:
            self.close()
            raise

    def take(self) -> dict[str, Any]:
        """Per direction the packets right and wrong, and what the wrong ones looked like."""
        return {way: self._direction(way) for way in (filters.OUT, filters.IN)}

    def _direction(self, way: str) -> dict[str, Any]:
        mine = {verdict: one for (there, verdict), one in self._sockets.items() if there == way}
        counts = {verdict: received(one) for verdict, one in mine.items()}
        wrong = samples(mine[filters.WRONG])
        seen = samples(mine[filters.RIGHT]) + wrong
        return {
            "packets": counts[filters.RIGHT] + counts[filters.WRONG],
            "wrong": counts[filters.WRONG],
            "marked": counts.get(filters.MARKED, 0),
            "cnp": counts.get(filters.NOTIFIED, 0),
            "tos_seen": sorted({one.tos for one in seen if one.tos is not None}),
            "first_wrong": wrong[0].line() if wrong else "",
        }

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()


def listen(interface: str, code: bytes) -> socket.socket:
    """A socket that gets the packets of one interface that a filter lets through.

    It is bound only once the filter is in place, so that no other packet is counted.
    """
    one = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    try:
        text = ctypes.create_string_buffer(code, len(code))
        one.setsockopt(
            socket.SOL_SOCKET,
            SO_ATTACH_FILTER,
            struct.pack("HP", len(code) // 8, ctypes.addressof(text)),
        )
        one.setblocking(False)
        one.bind((interface, ETH_P_ALL))
    except BaseException:
        one.close()
        raise
    return one


def received(one: socket.socket) -> int:
    """Packets since the last call, those included that did not fit into the socket's buffer."""
    found = one.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
    return int(struct.unpack("II", found)[0])


def samples(one: socket.socket) -> list[packets.Packet]:
    """The first packets since the last call; the buffer is emptied."""
    found: list[packets.Packet] = []
    while True:
        try:
            data, address = one.recvfrom(filters.KEPT_BYTES)
        except BlockingIOError:
            return found
        if len(found) < SAMPLES:
            try:
                found.append(packets.parse(address[1], data))
            except packets.NotRoceError:
                continue  # cut short by its sender; it is counted all the same
