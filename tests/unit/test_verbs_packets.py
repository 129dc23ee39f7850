# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packets: what is read from a frame, and that the kernel's filters judge it as Python does."""

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
WANTED = wire.Wanted(PEER, 106, 48)
OWN = own_address()
MAC = bytes(6)
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
        *(0x45 + options, tos, 20 + 4 * options + len(udp) + len(transport), 0, fragment),
        *(64, protocol, 0),
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
    tags=st.integers(0, 2),
)
def test_what_was_put_into_a_frame_is_read_from_it(
    tos: int, operation: int, source: str, destination: str, options: int, tags: int
) -> None:
    tag = struct.pack("!HH", 0x8100, 5)
    data = ipv4(tos, operation, source, destination, options=options)
    frame = MAC + MAC + tag * tags + struct.pack("!H", wire.IPV4) + data
    found = wire.parse_ethernet(frame)
    assert found == wire.Packet(source, destination, tos, operation)


@given(tos=bytes_of_8, operation=bytes_of_8)
def test_ipv6_has_its_traffic_class_elsewhere(tos: int, operation: int) -> None:
    found = wire.parse(wire.IPV6, ipv6(tos, operation))
    assert found is not None
    assert (found.tos, found.operation) == (tos, operation)


@pytest.mark.parametrize(
    "data",
    [
        ipv4(106, 10, port=4790),
        ipv4(106, 10, protocol=6),
        ipv4(106, 10, fragment=100),
        ipv4(106, 10)[:36],
    ],
)
def test_other_packets_are_no_roce(data: bytes) -> None:
    assert wire.parse(wire.IPV4, data) is None


class Machine:
    """What the kernel does with a classic BPF program, for the instructions in use."""

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
    """The filters that let a packet through, by direction and whether they are for right ones."""
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
def test_the_kernel_judges_as_python_does(
    tos: int, operation: int, arrives: bool, options: int, near: bool
) -> None:
    # Half of the time close to the contract, where mistakes would hide.
    tos = ((48 << 2 if operation == wire.CNP else 106 & ~3) | tos & 3) if near else tos
    source, destination = (PEER, HERE) if arrives else (HERE, PEER)
    data = ipv4(tos, operation, source, destination, options=options)
    packet = wire.parse(wire.IPV4, data)
    assert packet is not None
    way = wire.IN if arrives else wire.OUT
    assert passed(data, wire.IPV4, not arrives) == [(way, wire.right(packet, WANTED, way))]


def test_packets_of_others_are_not_counted() -> None:
    assert passed(ipv4(106, 0x0A, HERE, "10.0.0.3"), wire.IPV4, True) == []
    assert passed(ipv4(106, 0x0A, port=53), wire.IPV4, True) == []
    assert passed(bytes(60), 0x0806, True) == []


def test_another_family_or_version_is_wrong_from_any_sender() -> None:
    for data, ethertype in ((ipv6(106, 0x0A), wire.IPV6), (bytes(60), wire.ROCE_V1)):
        packet = wire.parse(ethertype, data)
        assert packet is not None
        assert not wire.right(packet, WANTED, wire.OUT)
        assert passed(data, ethertype, True) == [(wire.OUT, False)]


def test_the_kernel_counts_every_packet_that_passes_loopback() -> None:
    wanted = wire.Wanted(OWN, 106, 48)
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
            """Each take has what came since the one before."""
            for way, part in seen.take().items():
                found[way].update({key: part[key] for key in ("packets", "wrong")})
                if part["first_wrong"]:
                    first.setdefault(way, part["first_wrong"])
            return [found[way] for way in ("in", "out")] == [
                {"packets": 510, "wrong": 3},
                # A sender must not mark congestion itself.
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


def pcap(frames: list[bytes], link: int = 1) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    records = [struct.pack("<IIII", 0, 0, len(one), len(one)) + one for one in frames]
    return head + b"".join(records)


def framed(data: bytes) -> bytes:
    return MAC + MAC + struct.pack("!H", wire.IPV4) + data


def test_a_capture_counts_like_the_kernel() -> None:
    frames = [framed(ipv4(106, 0x0A))] * 3 + [framed(ipv4(24 << 2 | 2, 0x0A))]
    frames += [framed(ipv4(107, 0x11, PEER, HERE)), framed(ipv4(0, 0x11, port=53)), b"\x00" * 10]
    found = wire.account(wire.read_pcap(pcap(frames)), WANTED)
    assert (found["out"]["packets"], found["out"]["wrong"]) == (4, 1)
    assert found["out"]["tos_seen"] == [98, 106]
    assert "TOS 98 (DSCP 24, ECT(0))" in found["out"]["first_wrong"]
    assert (found["in"]["packets"], found["in"]["wrong"]) == (1, 0)


@pytest.mark.parametrize("data", [b"", b"nonsense" * 4, pcap([], link=113)])
def test_what_is_no_capture_of_ethernet_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        wire.read_pcap(data)
