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
    assert found.dscp is not None and found.ecn is not None
    assert found.dscp << 2 | found.ecn == tos


@given(tos=bytes_of_8, operation=bytes_of_8)
def test_ipv6_has_its_traffic_class_elsewhere(tos: int, operation: int) -> None:
    found = wire.parse(wire.IPV6, ipv6(tos, operation))
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
def test_other_packets_are_told_apart(data: bytes) -> None:
    with pytest.raises(wire.NotRoceError):
        wire.parse(wire.IPV4, data)


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


@given(
    traffic_class=st.integers(0, 63).map(lambda dscp: dscp << 2 | wire.ECT0),
    cnp_dscp=st.integers(0, 63),
    tos=bytes_of_8,
    operation=st.one_of(st.just(wire.CNP), bytes_of_8),
    arrives=st.booleans(),
    options=st.integers(0, 10),
    near=st.booleans(),
)
def test_the_kernel_judges_as_python_does(
    traffic_class: int,
    cnp_dscp: int,
    tos: int,
    operation: int,
    arrives: bool,
    options: int,
    near: bool,
) -> None:
    # Half of the time close to the contract, where mistakes would hide.
    tos = (traffic_class & ~3 | tos & 3) if near else tos
    wanted = wire.Wanted(PEER, traffic_class, cnp_dscp)
    source, destination = (PEER, HERE) if arrives else (HERE, PEER)
    data = ipv4(tos, operation, source, destination, options=options)
    way = wire.IN if arrives else wire.OUT
    passed = [
        kind
        for kind in wire.KINDS[way]
        if Machine(wire.program(wanted, way, kind)).run(data, wire.IPV4, not arrives)
    ]
    (kind,) = passed
    assert (kind in wire.WRONG_KINDS) is not wire.right(wire.parse(wire.IPV4, data), wanted, way)
    assert (kind in (wire.CNP_RIGHT, wire.CNP_WRONG)) is (operation == wire.CNP)
    marked = arrives and operation != wire.CNP and tos == traffic_class | wire.CE
    assert (kind == wire.MARKED) is marked


@pytest.mark.parametrize("kind", wire.KINDS[wire.IN])
def test_packets_of_others_are_not_counted(kind: str) -> None:
    wanted = wire.Wanted(PEER, 106, 48)
    stranger = ipv4(106, 0x0A, HERE, "10.0.0.3")
    dns = ipv4(106, 0x0A, port=53)
    for direction in (wire.OUT, wire.IN):
        machine = Machine(wire.program(wanted, direction, kind))
        assert not machine.run(stranger, wire.IPV4, True)
        assert not machine.run(dns, wire.IPV4, True)
        assert not machine.run(bytes(60), 0x0806, True)


def test_another_family_or_version_is_wrong_whoever_sends_it() -> None:
    wanted = wire.Wanted(PEER, 106, 48)
    for data, ethertype in ((ipv6(106, 0x0A), wire.IPV6), (bytes(60), wire.ROCE_V1)):
        passed = [
            (way, kind)
            for way, kinds in wire.KINDS.items()
            for kind in kinds
            if Machine(wire.program(wanted, way, kind)).run(data, ethertype, True)
        ]
        ((way, kind),) = passed
        assert way == wire.OUT
        assert kind in wire.WRONG_KINDS


COUNTED = ("packets", "wrong", "marked", "cnp")


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
                found[way].update({key: part[key] for key in COUNTED})
                if part["first_wrong"]:
                    first.setdefault(way, part["first_wrong"])
            return [found[way] for way in ("in", "out")] == [
                {"packets": 510, "wrong": 3, "marked": 3, "cnp": 5},
                # Whoever sends may not mark congestion itself.
                {"packets": 510, "wrong": 6, "marked": 0, "cnp": 5},
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
    wanted = wire.Wanted(PEER, 106, 48)
    frames = [framed(ipv4(106, 0x0A))] * 3 + [framed(ipv4(24 << 2 | 2, 0x0A))]
    frames += [framed(ipv4(107, 0x11, PEER, HERE)), framed(ipv4(0, 0x11, port=53)), b"\x00" * 10]
    found = wire.account(wire.read_pcap(pcap(frames)), wanted)
    assert (found["out"]["packets"], found["out"]["wrong"]) == (4, 1)
    assert found["out"]["tos_seen"] == [98, 106]
    assert "TOS 98 (DSCP 24, ECT(0))" in found["out"]["first_wrong"]
    assert (found["in"]["packets"], found["in"]["wrong"], found["in"]["marked"]) == (1, 0, 1)


@pytest.mark.parametrize("data", [b"", b"nonsense" * 4, pcap([], link=113)])
def test_what_is_no_capture_of_ethernet_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        wire.read_pcap(data)
