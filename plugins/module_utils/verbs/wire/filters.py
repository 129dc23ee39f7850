# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which packets of a rail to count, as classic BPF programs that the kernel runs.

The kernel counts what a filter lets through, read or not, so every packet counts and none costs the
node more than a few instructions. Filters see a packet from its network header on (SOCK_DGRAM).
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import Optional

from .packets import CE, CNP, IPV4, IPV6, PORT, ROCE_V1, UDP

RIGHT = "right"
"""Carries the contract's traffic class, or the contract's DSCP if it is a CNP."""
WRONG = "wrong"
"""Carries another one, or goes by RoCE v1 or IPv6, whose GID is not the rail's address."""
MARKED = "marked"
"""Right, and marked by a switch on its way: congestion experienced."""
NOTIFIED = "cnp"
"""Congestion notification packets, right or wrong."""
OUT, IN = "out", "in"

LOAD_WORD, LOAD_HALF, LOAD_BYTE = 0x20, 0x28, 0x30
LOAD_HALF_AT_X, LOAD_BYTE_AT_X = 0x48, 0x50
HEADER_LENGTH_TO_X = 0xB1
AND, SHIFT_RIGHT = 0x54, 0x74
IF_EQUAL, IF_ANY_BIT = 0x15, 0x45
RETURN = 0x06

PROTOCOL, KIND = 0xFFFFF000, 0xFFFFF004
"""Where the kernel shows the Ethernet type, and whether the packet leaves or arrives."""
OUTGOING = 4
KEPT_BYTES = 96
"""Of each packet; enough for the longest headers."""


@dataclass(frozen=True)
class Wanted:
    """What the contract says of packets between this rail and one peer."""

    peer: str
    """IPv4 address of the other rail."""
    traffic_class: int
    """The whole byte: DSCP and ECT(0)."""
    cnp_dscp: int


Instruction = tuple[int, int, Optional[str], Optional[str]]
"""Operation, operand, and the labels to go on at if true or false."""


class Program:
    """Instructions with labels; a jump goes forward only, as the kernel demands."""

    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.labels: dict[str, int] = {}

    def do(self, operation: int, operand: int = 0) -> None:
        self.code.append((operation, operand, None, None))

    def equal(self, operand: int, yes: Optional[str] = None, no: Optional[str] = None) -> None:
        self.code.append((IF_EQUAL, operand, yes, no))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.code)

    def assembled(self) -> list[tuple[int, int, int, int]]:
        """As `struct sock_filter` has them: code, jump if true, jump if false, operand."""
        return [
            (operation, self._skip(yes, place), self._skip(no, place), operand)
            for place, (operation, operand, yes, no) in enumerate(self.code)
        ]

    def _skip(self, label: Optional[str], place: int) -> int:
        return 0 if label is None else self.labels[label] - place - 1


def program(wanted: Wanted, direction: str, verdict: str) -> list[tuple[int, int, int, int]]:
    """The filter that lets packets through which go in one direction and deserve one verdict."""
    here = Program()
    here.do(LOAD_WORD, KIND)
    if direction == OUT:
        here.equal(OUTGOING, None, "drop")
    else:
        here.equal(OUTGOING, "drop", None)
    here.do(LOAD_WORD, PROTOCOL)
    here.equal(IPV4, "ipv4", None)
    here.equal(IPV6, "ipv6", None)
    here.equal(ROCE_V1, "wrong", "drop")

    here.label("ipv6")
    here.do(LOAD_BYTE, 6)
    here.equal(UDP, None, "drop")
    here.do(LOAD_HALF, 42)
    here.equal(PORT, "wrong", "drop")

    here.label("ipv4")
    here.do(LOAD_BYTE, 9)
    here.equal(UDP, None, "drop")
    here.do(LOAD_HALF, 6)
    here.code.append((IF_ANY_BIT, 0x1FFF, "drop", None))
    here.do(LOAD_WORD, 16 if direction == OUT else 12)
    here.equal(int(ipaddress.IPv4Address(wanted.peer)), None, "drop")
    here.do(HEADER_LENGTH_TO_X, 0)
    here.do(LOAD_HALF_AT_X, 2)
    here.equal(PORT, None, "drop")
    here.do(LOAD_BYTE_AT_X, 8)
    here.equal(CNP, "cnp", None)
    if direction == IN:
        here.do(LOAD_BYTE, 1)
        here.equal(wanted.traffic_class | CE, "marked", None)
    here.do(LOAD_BYTE, 1)
    here.equal(wanted.traffic_class, "right", "wrong")

    here.label("cnp")
    if verdict != NOTIFIED:
        here.do(LOAD_BYTE, 1)
        here.do(SHIFT_RIGHT, 2)
        here.equal(wanted.cnp_dscp, "right", "wrong")
    else:
        here.do(RETURN, KEPT_BYTES)
    for name in (MARKED, RIGHT, WRONG):
        here.label(name)
        passed = name == verdict or (name == MARKED and verdict == RIGHT)
        here.do(RETURN, KEPT_BYTES if passed else 0)
    here.label("drop")
    here.do(RETURN, 0)
    return here.assembled()


def packed(code: list[tuple[int, int, int, int]]) -> bytes:
    """An array of `struct sock_filter`."""
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)
