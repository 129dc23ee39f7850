# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packets: parsing, and kernel filters for the contract."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections import Counter

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import wire
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loopback import own_address
from tests.waiting import until

PEER, HERE = "10.0.0.2", "10.0.0.1"
WANTED = wire.PacketContract(PEER, 106, 48)
OWN = own_address()
addresses = st.ip_addresses(v=4).map(str)
bytes_of_8 = st.integers(0, 255)


def ipv4(
    tos: int,
    operation: int,
    source: str = HERE,
    destination: str = PEER,
    port: int = wire.PORT,
    options: int = 0,
    protocol: int = wire.UDP,
    fragment: int = 0,
) -> bytes:
    transport = bytes([operation]) + bytes(11)
    udp = struct.pack("!HHHH", 49152, port, 8 + len(transport), 0)
    head = struct.pack(
        "!BBHHHBBH",
        0x45 + options,
        tos,
        20 + 4 * options + len(udp) + len(transport),
        0,
        fragment,
        64,
        protocol,
        0,
    )
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    return head + ends + bytes(4 * options) + udp + transport


def ipv6(tos: int, operation: int, port: int = wire.PORT) -> bytes:
    transport = bytes([operation]) + bytes(11)
    udp = struct.pack("!HHHH", 49152, port, 8 + len(transport), 0)
    head = struct.pack("!IHBB", 6 << 28 | tos << 20, len(udp) + len(transport), wire.UDP, 64)
    return head + bytes(15) + b"\x01" + bytes(15) + b"\x02" + udp + transport


@given(
    tos=bytes_of_8,
    operation=bytes_of_8,
    source=addresses,
    destination=addresses,
    options=st.integers(0, 10),
)
def test_packets_are_parsed(
    tos: int, operation: int, source: str, destination: str, options: int
) -> None:
    data = ipv4(tos, operation, source, destination, options=options)
    assert wire.parse(wire.IPV4, data) == wire.Packet(source, destination, tos, operation)


@given(tos=bytes_of_8, operation=bytes_of_8)
def test_ipv6_has_its_traffic_class_elsewhere(tos: int, operation: int) -> None:
    found = wire.parse(wire.IPV6, ipv6(tos, operation))
    assert (found.tos, found.operation) == (tos, operation)


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
                a = wire.OUTGOING if outgoing else 0
            elif operation in (wire.LOAD_WORD, wire.LOAD_HALF, wire.LOAD_BYTE):
                size = {wire.LOAD_WORD: 4, wire.LOAD_HALF: 2, wire.LOAD_BYTE: 1}[operation]
                if k + size > len(data):
                    return 0
                a = int.from_bytes(data[k : k + size], "big")
            elif operation in (wire.LOAD_HALF_AT_X, wire.LOAD_BYTE_AT_X):
                size = 2 if operation == wire.LOAD_HALF_AT_X else 1
                if x + k + size > len(data):
                    return 0
                a = int.from_bytes(data[x + k : x + k + size], "big")
            elif operation == wire.HEADER_LENGTH_TO_X:
                x = 4 * (data[k] & 0x0F)
            elif operation == wire.SHIFT_RIGHT:
                a >>= k
            elif operation == wire.IF_EQUAL:
                place += yes if a == k else no
            elif operation == wire.AND:
                a &= k
            else:
                raise AssertionError(f"unknown instruction {operation:#x}")


def passed(data: bytes, ethertype: int, outgoing: bool) -> list[tuple[str, bool]]:
    """Filters that accept a packet: direction, and whether they are for right ones."""
    return [
        (way, kind)
        for way in (wire.OUT, wire.IN)
        for kind in (True, False)
        if Machine(wire.program(WANTED, way, kind)).run(data, ethertype, outgoing)
    ]


@given(
    tos=bytes_of_8,
    operation=st.one_of(st.just(wire.CNP), bytes_of_8),
    arrives=st.booleans(),
    options=st.integers(0, 10),
    near=st.booleans(),
)
def test_the_kernel_judges_by_the_contract(
    tos: int, operation: int, arrives: bool, options: int, near: bool
) -> None:
    # Half of the examples are close to the contract, where mistakes are likely.
    tos = ((48 << 2 if operation == wire.CNP else 106 & ~3) | tos & 3) if near else tos
    source, destination = (PEER, HERE) if arrives else (HERE, PEER)
    data = ipv4(tos, operation, source, destination, options=options)
    right = tos == 106 or (arrives and tos == 106 | wire.CE)
    if operation == wire.CNP:
        right = tos >> 2 == 48
    way = wire.IN if arrives else wire.OUT
    assert passed(data, wire.IPV4, not arrives) == [(way, right)]


@pytest.mark.parametrize(("contract", "right"), [(106, True), (96, False)])
def test_only_ecn_capable_packets_may_be_marked(contract: int, right: bool) -> None:
    wanted = wire.PacketContract(PEER, contract, 48)
    data = ipv4(contract | wire.CE, 0x0A, PEER, HERE)
    assert bool(Machine(wire.program(wanted, wire.IN, True)).run(data, wire.IPV4, False)) is right
    plain = ipv4(contract, 0x0A, PEER, HERE)
    assert Machine(wire.program(wanted, wire.IN, True)).run(plain, wire.IPV4, False)


def test_packets_of_others_are_not_counted() -> None:
    assert passed(ipv4(106, 0x0A, HERE, "10.0.0.3"), wire.IPV4, True) == []
    for data in (
        ipv4(106, 0x0A, port=53),
        ipv4(106, 0x0A, protocol=6),
        ipv4(106, 0x0A, fragment=100),
        ipv4(106, 0x0A)[:28],
    ):
        assert passed(data, wire.IPV4, True) == []
    assert passed(bytes(60), 0x0806, True) == []


def test_other_protocols_never_comply() -> None:
    for data, ethertype in ((ipv6(106, 0x0A), wire.IPV6), (bytes(60), wire.ROCE_V1)):
        assert passed(data, ethertype, True) == [(wire.OUT, False)]


def test_the_kernel_counts_every_packet_that_passes_loopback() -> None:
    wanted = wire.PacketContract(OWN, 106, 48)
    try:
        seen = wire.Witness("lo", wanted)
    except PermissionError:
        pytest.skip("raw sockets need root")
    try:
        send(106, 0x0A, 500)
        send(107, 0x0A, 3)
        send(0, 0x0A, 2)
        send(192, wire.CNP, 4)
        send(4, wire.CNP, 1)
        found = {"in": Counter[str](), "out": Counter[str]()}
        first: dict[str, str] = {}

        def arrived() -> bool:
            """Each `take` returns the count since the previous one."""
            for way, part in seen.take().items():
                found[way].update({key: part[key] for key in ("packets", "wrong")})
                if part["first_wrong"]:
                    first.setdefault(way, part["first_wrong"])
            return [found[way] for way in ("in", "out")] == [
                {"packets": 510, "wrong": 3},
                # A sender must not set congestion experienced.
                {"packets": 510, "wrong": 6},
            ]

        until(arrived, f"every packet to be counted, of {found}")
        assert first["in"].endswith("TOS 0 (DSCP 0, Not-ECT)")
        assert "DSCP 26, CE" in first["out"]
        assert seen.take()["out"]["packets"] == 0
    finally:
        seen.close()


def send(tos: int, operation: int, count: int, to: str = OWN) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((OWN, 0))
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        for _ in range(count):
            one.sendto(bytes([operation]) + bytes(200), (to, wire.PORT))
