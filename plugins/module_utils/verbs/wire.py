# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of a serving node: runs its servers, counts packets meanwhile, and ends.

The file needs nothing but Python and runs by itself under systemd, outside the connection that
started it. It writes when all servers listen, and how each ended with which packets when all have
ended or it must stop. systemd ends it, servers and all, at
its time limit. The driving node looks at packets in the same two ways:

- Soft-RoCE passes the kernel's network stack, whose classic BPF filters count every packet;
- a NIC that bypasses the kernel shows packets to tcpdump, where libpcap has the RDMA sniffer.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

# One packet of RoCE v2: source, destination and traffic class.

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


# Which packets to count, as classic BPF programs. The kernel counts what a filter lets through,
# read or not, so every packet counts and none costs the node more than a few instructions. Filters
# see a packet from its network header on (SOCK_DGRAM).

OUT, IN = "out", "in"
RIGHT = "right"
"""Carries the contract's traffic class."""
MARKED = "marked"
"""Right, and marked by a switch on its way: congestion experienced. Only on arrival."""
WRONG = "wrong"
"""Carries another traffic class."""
CNP_RIGHT, CNP_WRONG = "cnp", "cnp_wrong"
"""Congestion notifications, with the DSCP that the contract has for them or another."""
BY_IPV6, BY_ROCE_V1 = "ipv6", "roce_v1"
"""Wrong in any case: their GID is not the rail's address."""
SENT = (RIGHT, WRONG, CNP_RIGHT, CNP_WRONG, BY_IPV6, BY_ROCE_V1)
KINDS = {OUT: SENT, IN: (*SENT, MARKED)}
WRONG_KINDS = (WRONG, CNP_WRONG, BY_IPV6, BY_ROCE_V1)

LOAD_WORD, LOAD_HALF, LOAD_BYTE = 0x20, 0x28, 0x30
LOAD_HALF_AT_X, LOAD_BYTE_AT_X = 0x48, 0x50
HEADER_LENGTH_TO_X = 0xB1
AND, SHIFT_RIGHT = 0x54, 0x74
IF_EQUAL = 0x15
RETURN = 0x06

PROTOCOL, KIND = 0xFFFFF000, 0xFFFFF004
"""Where the kernel shows the Ethernet type, and whether the packet leaves or arrives."""
OUTGOING = 4
KEPT_BYTES = 128
"""Of each packet; enough for the longest headers."""


@dataclass(frozen=True)
class Wanted:
    """What the contract says of packets between this rail and one peer."""

    peer: str
    """IPv4 address of the other rail."""
    traffic_class: int
    """The whole byte: DSCP and ECT(0)."""
    cnp_dscp: int


Test = tuple[list[tuple[int, int]], int, bool]
"""Instructions that load a value, what it is compared with, and whether it must be equal."""


def program(wanted: Wanted, direction: str, kind: str) -> list[tuple[int, int, int, int]]:
    """The filter for one kind of packets in one direction: all of its tests must hold.

    As `struct sock_filter` has them: code, jump if true, jump if false, operand.
    """
    tests: list[Test] = [([(LOAD_WORD, KIND)], OUTGOING, direction == OUT)]
    ethertype = {BY_IPV6: IPV6, BY_ROCE_V1: ROCE_V1}.get(kind, IPV4)
    tests.append(([(LOAD_WORD, PROTOCOL)], ethertype, True))
    if ethertype == IPV6:
        tests += [([(LOAD_BYTE, 6)], UDP, True), ([(LOAD_HALF, 42)], PORT, True)]
    if ethertype == IPV4:
        peer = int(ipaddress.IPv4Address(wanted.peer))
        tests += [
            ([(LOAD_BYTE, 9)], UDP, True),
            ([(LOAD_HALF, 6), (AND, 0x1FFF)], 0, True),  # no later fragment
            ([(LOAD_WORD, 16 if direction == OUT else 12)], peer, True),
            ([(HEADER_LENGTH_TO_X, 0), (LOAD_HALF_AT_X, 2)], PORT, True),
            ([(LOAD_BYTE_AT_X, 8)], CNP, kind in (CNP_RIGHT, CNP_WRONG)),
            *_marks(wanted, direction, kind),
        ]
    code: list[tuple[int, int, int, int]] = []
    end = sum(len(loads) + 1 for loads, _value, _equal in tests) + 1
    for loads, value, equal in tests:
        code += [(operation, 0, 0, operand) for operation, operand in loads]
        skip = end - len(code) - 1
        code.append((IF_EQUAL, 0 if equal else skip, skip if equal else 0, value))
    return [*code, (RETURN, 0, 0, KEPT_BYTES), (RETURN, 0, 0, 0)]


def _marks(wanted: Wanted, direction: str, kind: str) -> list[Test]:
    tos, dscp = [(LOAD_BYTE, 1)], [(LOAD_BYTE, 1), (SHIFT_RIGHT, 2)]
    right, marked = wanted.traffic_class, wanted.traffic_class | CE
    if kind in (CNP_RIGHT, CNP_WRONG):
        return [(dscp, wanted.cnp_dscp, kind == CNP_RIGHT)]
    if kind != WRONG:
        return [(tos, marked if kind == MARKED else right, True)]
    return [(tos, right, False), *([(tos, marked, False)] if direction == IN else [])]


def packed(code: list[tuple[int, int, int, int]]) -> bytes:
    """An array of `struct sock_filter`."""
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


# The kernel's counts.

SO_ATTACH_FILTER = 26
SOL_PACKET = 263
PACKET_STATISTICS = 6
ETH_P_ALL = 0x0003
SAMPLES = 32
"""Packets of each kind that are looked at one by one."""


class Witness:
    """Counts from its beginning on; `take` returns what came since it was last asked."""

    def __init__(self, interface: str, wanted: Wanted) -> None:
        self._sockets: dict[tuple[str, str], socket.socket] = {}
        try:
            for direction, kinds in KINDS.items():
                for kind in kinds:
                    code = packed(program(wanted, direction, kind))
                    self._sockets[direction, kind] = listen(interface, code)
        except BaseException:
            self.close()
            raise

    def take(self) -> dict[str, Any]:
        """Per direction the packets right and wrong, and what the wrong ones looked like."""
        return {way: self._direction(way) for way in (OUT, IN)}

    def _direction(self, way: str) -> dict[str, Any]:
        mine = {kind: one for (there, kind), one in self._sockets.items() if there == way}
        counts = {kind: received(one) for kind, one in mine.items()}
        seen = {kind: samples(one) for kind, one in mine.items()}
        wrong = [packet for kind in WRONG_KINDS for packet in seen[kind]]
        return {
            "packets": sum(counts.values()),
            "wrong": sum(counts[kind] for kind in WRONG_KINDS),
            "marked": counts.get(MARKED, 0),
            "cnp": counts[CNP_RIGHT] + counts[CNP_WRONG],
            "tos_seen": sorted(
                {each.tos for found in seen.values() for each in found if each.tos is not None}
            ),
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


def samples(one: socket.socket) -> list[Packet]:
    """The first packets since the last call; the buffer is emptied."""
    found: list[Packet] = []
    while True:
        try:
            data, address = one.recvfrom(KEPT_BYTES)
        except BlockingIOError:
            return found
        if len(found) < SAMPLES:
            try:
                found.append(parse(address[1], data))
            except NotRoceError:
                continue  # cut short by its sender; it is counted all the same


# tcpdump's RDMA sniffer: a copy of the packets from the NIC. It costs bandwidth, so it ends after a
# few packets of each exchange.

KERNEL, SNIFFER, NOTHING = "kernel", "sniffer", "nothing"
LIMIT = 256
"""Packets of one exchange that are looked at."""
ETHERNET = b"\1\0"


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
                    f"udp port {PORT} and host {self.wanted.peer}",
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


def account(seen: list[Packet], wanted: Wanted) -> dict[str, Any]:
    """Captured packets in the form of the kernel's counts."""
    ways: dict[str, list[Packet]] = {OUT: [], IN: []}
    for packet in seen:
        ways[OUT if packet.destination == wanted.peer else IN].append(packet)
    return {way: _direction(way, found, wanted) for way, found in ways.items()}


def _direction(way: str, seen: list[Packet], wanted: Wanted) -> dict[str, Any]:
    wrong = [packet for packet in seen if not right(packet, wanted, way)]
    return {
        "packets": len(seen),
        "wrong": len(wrong),
        "marked": sum(packet.ecn == CE for packet in seen),
        "cnp": sum(packet.operation == CNP for packet in seen),
        "tos_seen": sorted({packet.tos for packet in seen if packet.tos is not None}),
        "first_wrong": wrong[0].line() if wrong else "",
    }


def right(packet: Packet, wanted: Wanted, way: str) -> bool:
    """Whether a packet keeps the contract; a switch may have marked one that arrives."""
    if packet.operation == CNP:
        return packet.dscp == wanted.cnp_dscp
    marked = way == IN and packet.tos == wanted.traffic_class | CE
    return marked or packet.tos == wanted.traffic_class


def read_pcap(data: bytes) -> list[Packet]:
    """The RoCE packets of a capture file of this machine. Raises ValueError for what is none."""
    if data[:4] != b"\xd4\xc3\xb2\xa1" or len(data) < 24 or data[20:22] != ETHERNET:
        raise ValueError("no capture of Ethernet frames")
    found = []
    place = 24
    while place + 16 <= len(data):
        (kept,) = struct.unpack_from("<I", data, place + 8)
        with suppress(NotRoceError):
            found.append(parse_ethernet(data[place + 16 : place + 16 + kept]))
        place += 16 + kept
    return found


Watch = Union[Witness, Sniffer, Blind]


def watch(told: Mapping[str, Any], directory: Path) -> Watch:
    """What a plan in JSON asks for."""
    wanted = Wanted(str(told["peer"]), int(told["traffic_class"]), int(told["cnp_dscp"]))
    if told["by"] == KERNEL:
        return Witness(str(told["interface"]), wanted)
    if told["by"] == SNIFFER:
        return Sniffer(str(told["device"]), wanted, directory / f"{told['interface']}.pcap")
    return Blind()


# The servers of a node.

STATE, RESULT = "state.json", "result.json"
LISTEN_S = 15.0
"""Seconds for all servers to listen."""
LOG_BYTES = 4000
LISTENING = "0A"
FORGET = signal.SIGUSR1
"""Tells it that its own node's clients are done."""


class Server:
    """One server of one rail."""

    def __init__(self, told: Mapping[str, Any], log: Path) -> None:
        self.exchange = str(told["exchange"])
        self.port = int(told["port"])
        self.log = log
        self.noted = False
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                told["argv"],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", **told["env"]},
                start_new_session=True,
            )

    def outcome(self, wire: Any) -> dict[str, Any]:
        """How it ended; one that ended well has nothing to say."""
        self.noted = True
        code = self.process.poll()
        return {"rc": code, "log": self.said() if code else "", "wire": wire}

    def said(self) -> str:
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - LOG_BYTES))
            return stream.read().decode(errors="replace")

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Rail:
    """One rail: its servers in the order in which they are used, and its packets."""

    def __init__(self, told: Mapping[str, Any], directory: Path) -> None:
        self.name = str(told["rail"])
        self.peer = str(told["peer"])
        self.outcomes: dict[str, Any] = {}
        self.watch = watch(told["watch"], directory)
        self.servers = [
            Server(one, directory / f"{self.name}-{one['exchange']}.log") for one in told["servers"]
        ]

    def look(self) -> None:
        """Note the servers that have ended, with what was seen until then."""
        for server in self.servers:
            if not server.noted and server.process.poll() is not None:
                self.outcomes[server.exchange] = server.outcome(self.watch.take())

    def forget(self) -> None:
        """What was seen so far: answers to this node's own clients, from a peer both ways."""
        self.watch.take()

    @property
    def done(self) -> bool:
        return all(server.noted for server in self.servers)

    def end(self) -> dict[str, Any]:
        for server in self.servers:
            server.end()
            if not server.noted:
                self.outcomes[server.exchange] = {
                    **server.outcome(self.watch.take()),
                    "rc": None,
                }
        self.watch.close()
        return {"peer": self.peer, "exchanges": self.outcomes}


def listening(text: str) -> set[int]:
    """TCP ports with a listener, from /proc/net/tcp."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3:4] == [LISTENING]}


def ports_open() -> set[int]:
    found: set[int] = set()
    for name in ("tcp", "tcp6"):
        path = Path("/proc/net") / name
        if path.exists():
            found |= listening(path.read_text(encoding="ascii"))
    return found


def taken(rails: list[Any]) -> Optional[str]:
    """Ports with another listener, which would be mistaken for ours."""
    ports = {int(one["port"]) for rail in rails for one in rail["servers"]} & ports_open()
    return f"TCP port {min(ports)} is taken by another program" if ports else None


def wait_for(servers: list[Server]) -> Optional[str]:
    """Until all listen. The reason if one does not."""
    until = time.monotonic() + LISTEN_S
    while True:
        for server in servers:
            if server.process.poll() is not None:
                told = server.said().strip()[-400:] or "it printed nothing"
                argv = server.process.args
                shown = " ".join(argv) if isinstance(argv, list) else str(argv)
                return f"{shown}: ended with status {server.process.returncode}: {told}"
        silent = [one for one in servers if one.port not in ports_open()]
        if not silent:
            return None
        if time.monotonic() > until:
            return f"the server of port {silent[0].port} does not listen after {LISTEN_S:g} s"
        time.sleep(0.05)


def write(path: Path, value: Any) -> None:
    """Readers see all of it or none."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def main(directory: Path) -> int:
    told = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    stopped: list[int] = []
    forget: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    signal.signal(FORGET, lambda number, frame: forget.append(number))
    rails: list[Rail] = []
    problem: Optional[str] = None
    try:
        problem = taken(told["rails"])
        for one in told["rails"] if problem is None else ():
            rails.append(Rail(one, directory))
        problem = problem or wait_for([server for rail in rails for server in rail.servers])
        write(directory / STATE, {"run_id": told["run_id"], "problem": problem or ""})
        while problem is None and not stopped and not all(rail.done for rail in rails):
            select.select([reader], [], [], 1.0)
            while select.select([reader], [], [], 0)[0]:
                os.read(reader, 512)
            asked = len(forget)
            for rail in rails:
                rail.look()
                if asked:
                    rail.forget()
            del forget[:asked]
    except OSError as error:
        problem = f"{error.strerror}: {error.filename or ''}".rstrip(": ")
        write(directory / STATE, {"run_id": told["run_id"], "problem": problem})
    finally:
        result = {rail.name: rail.end() for rail in rails}
        write(directory / RESULT, {"run_id": told["run_id"], "rails": result})
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
