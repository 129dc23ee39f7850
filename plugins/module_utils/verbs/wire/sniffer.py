# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packets of a NIC that bypasses the kernel, by tcpdump's RDMA sniffer; and how to watch a rail.

libpcap built with RDMA support lists RDMA devices beside network interfaces and gets a copy of
their packets from the NIC. It costs bandwidth, so it ends after a few packets of each exchange.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional, Protocol

from . import packets
from .filters import IN, OUT, Wanted
from .witness import Witness

KERNEL, SNIFFER, NOTHING = "kernel", "sniffer", "nothing"
LIMIT = 256
"""Packets of one exchange that are looked at."""
ETHERNET = b"\1\0"
KEPT_BYTES = 128


class Watch(Protocol):
    """Looks at the packets between a rail and its peer."""

    def take(self) -> Optional[dict[str, Any]]:
        """What was seen since it was last asked; None where nothing can be seen."""

    def close(self) -> None: ...


class Blind:
    """Where there is no way to see packets."""

    def take(self) -> Optional[dict[str, Any]]:
        return None

    def close(self) -> None:
        pass


class Sniffer:
    """tcpdump on an RDMA device, started again after each look."""

    def __init__(self, device: str, wanted: Wanted, path: Path) -> None:
        self.device = device
        self.wanted = wanted
        self.path = path
        self._start()

    def _start(self) -> None:
        self.path.unlink(missing_ok=True)
        with self.path.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *("tcpdump", "-i", self.device, "-n", "-U", "-Z", "root"),
                    *("-c", str(LIMIT), "-s", str(KEPT_BYTES), "-w", str(self.path)),
                    f"udp port {packets.PORT} and host {self.wanted.peer}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def take(self) -> Optional[dict[str, Any]]:
        self._stop()
        try:
            found = account(read_pcap(self.path.read_bytes()), self.wanted)
        except (OSError, ValueError):
            found = None
        self._start()
        return found

    def close(self) -> None:
        self._stop()


def account(seen: list[packets.Packet], wanted: Wanted) -> dict[str, Any]:
    """Captured packets in the form of the kernel's counts."""
    ways: dict[str, list[packets.Packet]] = {OUT: [], IN: []}
    for packet in seen:
        ways[OUT if packet.destination == wanted.peer else IN].append(packet)
    return {way: _direction(way, found, wanted) for way, found in ways.items()}


def _direction(way: str, seen: list[packets.Packet], wanted: Wanted) -> dict[str, Any]:
    wrong = [packet for packet in seen if not right(packet, wanted, way)]
    return {
        "packets": len(seen),
        "wrong": len(wrong),
        "marked": sum(packet.ecn == packets.CE for packet in seen),
        "cnp": sum(packet.operation == packets.CNP for packet in seen),
        "tos_seen": sorted({packet.tos for packet in seen if packet.tos is not None}),
        "first_wrong": wrong[0].line() if wrong else "",
    }


def right(packet: packets.Packet, wanted: Wanted, way: str) -> bool:
    """Whether a packet keeps the contract; a switch may have marked one that arrives."""
    if packet.operation == packets.CNP:
        return packet.dscp == wanted.cnp_dscp
    marked = way == IN and packet.tos == wanted.traffic_class | packets.CE
    return marked or packet.tos == wanted.traffic_class


def read_pcap(data: bytes) -> list[packets.Packet]:
    """The RoCE packets of a capture file of this machine. Raises ValueError for what is none."""
    if data[:4] != b"\xd4\xc3\xb2\xa1" or len(data) < 24 or data[20:22] != ETHERNET:
        raise ValueError("no capture of Ethernet frames")
    found = []
    place = 24
    while place + 16 <= len(data):
        (kept,) = struct.unpack_from("<I", data, place + 8)
        with suppress(packets.NotRoceError):
            found.append(packets.parse_ethernet(data[place + 16 : place + 16 + kept]))
        place += 16 + kept
    return found


def watch(told: Mapping[str, Any], directory: Path) -> Watch:
    """What a plan in JSON asks for."""
    wanted = Wanted(str(told["peer"]), int(told["traffic_class"]), int(told["cnp_dscp"]))
    if told["by"] == KERNEL:
        return Witness(str(told["interface"]), wanted)
    if told["by"] == SNIFFER:
        return Sniffer(str(told["device"]), wanted, directory / f"{told['interface']}.pcap")
    return Blind()
