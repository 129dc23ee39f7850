# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One packet of RoCE v2: who sent it to whom, with which traffic class, and what it is."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Optional

PORT = 4791
"""UDP port of RoCE v2."""
IPV4, IPV6, ROCE_V1 = 0x0800, 0x86DD, 0x8915
VLAN = (0x8100, 0x88A8)
UDP = 17
CNP = 0x81
"""Operation of a congestion notification packet."""
SHORTEST = 12
"""Bytes of the base transport header, which every packet has."""

NOT_ECT, ECT1, ECT0, CE = 0, 1, 2, 3
ECN_NAMES = {NOT_ECT: "Not-ECT", ECT1: "ECT(1)", ECT0: "ECT(0)", CE: "CE"}


class NotRoceError(ValueError):
    """The frame carries no RoCE packet."""


@dataclass(frozen=True)
class Packet:
    """What matters of one packet."""

    source: str
    destination: str
    tos: Optional[int]
    """Traffic class byte of the IP header; None for RoCE v1, which has no IP header."""
    operation: Optional[int] = None
    """Operation code of the base transport header."""

    @property
    def dscp(self) -> Optional[int]:
        return None if self.tos is None else self.tos >> 2

    @property
    def ecn(self) -> Optional[int]:
        return None if self.tos is None else self.tos & 3

    def line(self) -> str:
        """`10.0.0.1 -> 10.0.0.2, TOS 106 (DSCP 26, ECT(0))`"""
        cnp = " CNP" if self.operation == CNP else ""
        return f"{self.source} -> {self.destination}{cnp}, {tos_text(self.tos)}"


def tos_text(tos: Optional[int]) -> str:
    if tos is None:
        return "no traffic class (RoCE v1)"
    return f"TOS {tos} (DSCP {tos >> 2}, {ECN_NAMES[tos & 3]})"


def parse_ethernet(frame: bytes) -> Packet:
    """A whole Ethernet frame, with any VLAN tags. Raises NotRoceError."""
    start = 12
    while True:
        if len(frame) < start + 2:
            raise NotRoceError("the frame ends in its Ethernet header")
        (kind,) = struct.unpack_from("!H", frame, start)
        start += 2
        if kind not in VLAN:
            return parse(kind, frame[start:])
        start += 2


def parse(ethertype: int, data: bytes) -> Packet:
    """What follows an Ethernet header. Raises NotRoceError."""
    if ethertype == ROCE_V1:
        return Packet("", "", None)
    if ethertype == IPV4:
        return _ipv4(data)
    if ethertype == IPV6:
        return _ipv6(data)
    raise NotRoceError(f"Ethernet type {ethertype:#06x}")


def _ipv4(data: bytes) -> Packet:
    if len(data) < 20 or data[0] >> 4 != 4:
        raise NotRoceError("no IPv4 header")
    length = (data[0] & 0x0F) * 4
    (fragment,) = struct.unpack_from("!H", data, 6)
    if length < 20 or data[9] != UDP or fragment & 0x1FFF:
        raise NotRoceError("no UDP header")
    source, destination = (str(ipaddress.IPv4Address(data[at : at + 4])) for at in (12, 16))
    return Packet(source, destination, data[1], _operation(data[length:]))


def _ipv6(data: bytes) -> Packet:
    if len(data) < 40 or data[0] >> 4 != 6:
        raise NotRoceError("no IPv6 header")
    if data[6] != UDP:
        raise NotRoceError("no UDP header")
    tos = (data[0] & 0x0F) << 4 | data[1] >> 4
    source, destination = (str(ipaddress.IPv6Address(data[at : at + 16])) for at in (8, 24))
    return Packet(source, destination, tos, _operation(data[40:]))


def _operation(datagram: bytes) -> int:
    """Of the base transport header behind a UDP header."""
    if len(datagram) < 8 + SHORTEST:
        raise NotRoceError("too short for a base transport header")
    (port,) = struct.unpack_from("!H", datagram, 2)
    if port != PORT:
        raise NotRoceError(f"UDP port {port}")
    return datagram[8]
