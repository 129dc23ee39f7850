# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packets: kernel filters for the contract."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import wire
from hypothesis import given
from hypothesis import strategies as st

PEER, HERE = "10.0.0.2", "10.0.0.1"
bytes_of_8 = st.integers(0, 255)


def ipv4(
    tos: int,
    source: str = HERE,
    destination: str = PEER,
    port: int = wire.PORT,
    options: int = 0,
    protocol: int = wire.UDP,
) -> bytes:
    udp = struct.pack("!HHHH", 49152, port, 20, 0) + bytes(12)
    length = 20 + 4 * options + len(udp)
    head = struct.pack("!BBHHHBBH", 0x45 + options, tos, length, 0, 0, 64, protocol, 0)
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    return head + ends + bytes(4 * options) + udp


class Machine:
    """Interpreter for the instructions of classic BPF that are used."""

    def __init__(self, code: list[tuple[int, int, int, int]]) -> None:
        self.code = code

    def run(self, data: bytes, ethertype: int, outgoing: bool) -> int:
        a = x = place = 0
        while True:
            operation, yes, no, k = self.code[place]
            place += 1
            if operation == wire.RETURN:
                return k
            if operation == wire.LOAD_WORD and k == wire.PROTOCOL:
                a = ethertype
            elif operation == wire.LOAD_WORD and k == wire.KIND:
                a = wire.OUTGOING if outgoing else wire.TO_THIS_HOST
            elif operation in (wire.LOAD_WORD, wire.LOAD_BYTE, wire.LOAD_HALF_AT_X):
                size = {wire.LOAD_WORD: 4, wire.LOAD_BYTE: 1, wire.LOAD_HALF_AT_X: 2}[operation]
                at = k + (x if operation == wire.LOAD_HALF_AT_X else 0)
                if at + size > len(data):
                    return 0
                a = int.from_bytes(data[at : at + size], "big")
            elif operation == wire.HEADER_LENGTH_TO_X:
                x = 4 * (data[k] & 0x0F)
            else:
                assert operation == wire.IF_EQUAL
                place += yes if a == k else no


def passed(
    data: bytes, outgoing: bool, ethertype: int = wire.IPV4, contract: int = 106
) -> list[tuple[str, bool]]:
    """Filters that accept a packet: direction, and whether they are for right ones."""
    return [
        (way, kind)
        for way in (wire.OUT, wire.IN)
        for kind in (True, False)
        if Machine(wire.program(PEER, contract, way, kind)).run(data, ethertype, outgoing)
    ]


@given(tos=bytes_of_8, arrives=st.booleans(), options=st.integers(0, 10), near=st.booleans())
def test_the_kernel_judges_by_the_contract(
    tos: int, arrives: bool, options: int, near: bool
) -> None:
    # Half of the examples are close to the contract, where mistakes are likely.
    tos = (106 & ~3 | tos & 3) if near else tos
    source, destination = (PEER, HERE) if arrives else (HERE, PEER)
    right = tos == 106 or (arrives and tos == 106 | wire.CE)
    way = wire.IN if arrives else wire.OUT
    data = ipv4(tos, source, destination, options=options)
    assert passed(data, not arrives) == [(way, right)]


@pytest.mark.parametrize(("contract", "right"), [(106, True), (96, False)])
def test_only_ecn_capable_packets_may_be_marked(contract: int, right: bool) -> None:
    marked = ipv4(contract | wire.CE, PEER, HERE)
    assert passed(marked, False, contract=contract) == [(wire.IN, right)]
    plain = ipv4(contract, PEER, HERE)
    assert passed(plain, False, contract=contract) == [(wire.IN, True)]


def test_packets_of_others_are_not_counted() -> None:
    for data in (
        ipv4(106, HERE, "10.0.0.3"),
        ipv4(106, port=53),
        ipv4(106, protocol=6),
        ipv4(106)[:22],
    ):
        assert passed(data, True) == []
    assert passed(bytes(60), True, 0x0806) == []
