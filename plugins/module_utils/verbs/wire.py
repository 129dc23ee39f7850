# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of a serving node: runs its servers, counts packets meanwhile, and ends.

The file needs nothing but Python and runs by itself under systemd, outside the connection that
started it. It writes one file when all servers listen, and another when all have ended or it is
stopped: how each ended, with which packets. systemd ends it, servers included, at its time limit.
The driving node looks at packets in the same two ways:

- Soft-RoCE passes the kernel's network stack, whose classic BPF filters count every packet;
- a NIC that bypasses the kernel shows packets to tcpdump, where libpcap has the RDMA sniffer.
"""

from __future__ import annotations

import ctypes
import ipaddress
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
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
ECN_NAMES = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")
CE = 3
"""Congestion experienced, set by a switch."""


@dataclass(frozen=True)
class Packet:
    """What matters of one packet."""

    source: str
    destination: str
    tos: Optional[int]
    """Traffic class byte of the IP header; None for RoCE v1, which has no IP header."""
    operation: Optional[int] = None
    """Operation code of the base transport header."""

    def line(self) -> str:
        """`10.0.0.1 -> 10.0.0.2, TOS 106 (DSCP 26, ECT(0))`"""
        cnp = " CNP" if self.operation == CNP else ""
        return f"{self.source} -> {self.destination}{cnp}, {tos_text(self.tos)}"


def tos_text(tos: Optional[int]) -> str:
    if tos is None:
        return "no traffic class (RoCE v1)"
    return f"TOS {tos} (DSCP {tos >> 2}, {ECN_NAMES[tos & 3]})"


def parse_ethernet(frame: bytes) -> Optional[Packet]:
    """The RoCE packet in an Ethernet frame with any VLAN tags; None for another frame."""
    start = 12
    while len(frame) >= start + 2:
        (kind,) = struct.unpack_from("!H", frame, start)
        if kind not in VLAN:
            return parse(kind, frame[start + 2 :])
        start += 4
    return None


def parse(ethertype: int, data: bytes) -> Optional[Packet]:
    """The RoCE packet behind an Ethernet header; None for another packet."""
    if ethertype == ROCE_V1:
        return Packet("", "", None)
    if ethertype == IPV4 and len(data) >= 20:
        protocol, tos, ends, width = data[9], data[1], 12, 4
        start = (data[0] & 0x0F) * 4
        later_fragment = struct.unpack_from("!H", data, 6)[0] & 0x1FFF
    elif ethertype == IPV6 and len(data) >= 40:
        protocol, tos, ends, width = data[6], (data[0] & 0x0F) << 4 | data[1] >> 4, 8, 16
        start, later_fragment = 40, 0
    else:
        return None
    datagram = data[start:]
    if protocol != UDP or later_fragment or len(datagram) < 8 + SHORTEST:
        return None
    if datagram[2:4] != PORT.to_bytes(2, "big"):
        return None
    source, destination = (
        str(ipaddress.ip_address(data[at : at + width])) for at in (ends, ends + width)
    )
    return Packet(source, destination, tos, datagram[8])


@dataclass(frozen=True)
class Wanted:
    """What the contract asks of packets between this rail and one peer."""

    peer: str
    """IPv4 address of the other rail."""
    traffic_class: int
    """The whole byte: DSCP and ECT(0)."""
    cnp_dscp: int


OUT, IN = "out", "in"


def right(packet: Packet, wanted: Wanted, way: str) -> bool:
    """Whether a packet keeps the contract; a switch may have marked one that arrives."""
    if packet.tos is None or ":" in packet.source:
        return False  # its GID is not the rail's address
    if packet.operation == CNP:
        return packet.tos >> 2 == wanted.cnp_dscp
    marked = way == IN and packet.tos == wanted.traffic_class | CE
    return marked or packet.tos == wanted.traffic_class


def summary(
    count: int, wrong: int, seen: Sequence[Packet], bad: Sequence[Packet]
) -> dict[str, Any]:
    """The packets of one direction: how many, how many break the contract, and what they are."""
    return {
        "packets": count,
        "wrong": wrong,
        "tos_seen": sorted({packet.tos for packet in seen if packet.tos is not None}),
        "first_wrong": bad[0].line() if bad else "",
    }


# Which packets to count, as classic BPF programs. The kernel counts what a filter lets through,
# read or not, so every packet counts and none costs the node more than a few instructions. Filters
# see a packet from its network header on (SOCK_DGRAM).

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

Instruction = tuple[int, int, int, int]
"""As `struct sock_filter`: code, jump if true, jump if false, operand."""


def program(wanted: Wanted, way: str, is_right: bool) -> list[Instruction]:
    """The filter for RoCE packets of one direction that keep the contract, or that break it.

    IPv6 and RoCE v1 are wrong from any sender: their GID is not the rail's address.
    """
    marked = wanted.traffic_class | (CE if way == IN else 0)
    text: list[Any] = [
        (LOAD_WORD, KIND),
        (IF_EQUAL, OUTGOING, *(("", "other") if way == OUT else ("other", ""))),
        (LOAD_WORD, PROTOCOL),
        (IF_EQUAL, ROCE_V1, "wrong", ""),
        (IF_EQUAL, IPV4, "ipv4", ""),
        (IF_EQUAL, IPV6, "", "other"),
        (LOAD_BYTE, 6),
        (IF_EQUAL, UDP, "", "other"),
        (LOAD_HALF, 42),
        (IF_EQUAL, PORT, "wrong", "other"),
        "ipv4",
        (LOAD_BYTE, 9),
        (IF_EQUAL, UDP, "", "other"),
        (LOAD_HALF, 6),
        (AND, 0x1FFF),
        (IF_EQUAL, 0, "", "other"),  # no later fragment
        (LOAD_WORD, 16 if way == OUT else 12),
        (IF_EQUAL, int(ipaddress.IPv4Address(wanted.peer)), "", "other"),
        (HEADER_LENGTH_TO_X, 0),
        (LOAD_HALF_AT_X, 2),
        (IF_EQUAL, PORT, "", "other"),
        (LOAD_BYTE_AT_X, 8),
        (IF_EQUAL, CNP, "cnp", ""),
        (LOAD_BYTE, 1),
        (IF_EQUAL, wanted.traffic_class, "right", ""),
        (IF_EQUAL, marked, "right", "wrong"),
        "cnp",
        (LOAD_BYTE, 1),
        (SHIFT_RIGHT, 2),
        (IF_EQUAL, wanted.cnp_dscp, "right", "wrong"),
        "right",
        (RETURN, KEPT_BYTES if is_right else 0),
        "wrong",
        (RETURN, 0 if is_right else KEPT_BYTES),
        "other",
        (RETURN, 0),
    ]
    return assembled(text)


def assembled(text: Sequence[Any]) -> list[Instruction]:
    """Instructions with labels as numbers of instructions to skip; an empty label goes on."""
    lines: list[Any] = []
    places: dict[str, int] = {}
    for line in text:
        if isinstance(line, str):
            places[line] = len(lines)
        else:
            lines.append(line)
    found = []
    for at, (code, operand, *jumps) in enumerate(lines):
        yes, no = (places[name] - at - 1 if name else 0 for name in jumps or ("", ""))
        found.append((code, yes, no, operand))
    return found


# The kernel's counts.

SO_ATTACH_FILTER = 26
SOL_PACKET = 263
PACKET_STATISTICS = 6
ETH_P_ALL = 0x0003
SAMPLES = 32
"""Packets of each kind that are looked at one by one."""


class Witness:
    """Counts from its beginning on; `take` returns what came since the last call."""

    def __init__(self, interface: str, wanted: Wanted) -> None:
        self._sockets: dict[tuple[str, bool], socket.socket] = {}
        try:
            for way in (OUT, IN):
                for kind in (True, False):
                    self._sockets[way, kind] = listen(interface, program(wanted, way, kind))
        except BaseException:
            self.close()
            raise

    def take(self) -> dict[str, Any]:
        """Per direction the packets right and wrong, and what the wrong ones looked like."""
        return {way: self._direction(way) for way in (OUT, IN)}

    def _direction(self, way: str) -> dict[str, Any]:
        good, bad = self._sockets[way, True], self._sockets[way, False]
        wrong, count = received(bad), received(good)
        seen = samples(bad)
        return summary(count + wrong, wrong, [*samples(good), *seen], seen)

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()


def listen(interface: str, code: Sequence[Instruction]) -> socket.socket:
    """A socket that gets the packets of one interface that a filter lets through.

    It is bound only once the filter is in place, so that no other packet is counted.
    """
    one = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    try:
        packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
        text = ctypes.create_string_buffer(packed, len(packed))
        array = struct.pack("HP", len(code), ctypes.addressof(text))
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, array)
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
        packet = parse(address[1], data) if len(found) < SAMPLES else None
        if packet is not None:
            found.append(packet)


# tcpdump's RDMA sniffer: a copy of the packets from the NIC. It costs bandwidth, so it ends after a
# few packets of each exchange.

KERNEL, SNIFFER, NOTHING = "kernel", "sniffer", "nothing"
LIMIT = 256
"""Packets of one exchange that are looked at."""
ETHERNET = b"\1\0"


class Blind:
    """Where packets cannot be seen."""

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
                # `main` blocks signals, SIGTERM among them, and a program inherits that.
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),
            )

    def take(self) -> Optional[dict[str, Any]]:
        self.close()
        try:
            found = account(read_pcap(self.path.read_bytes()), self.wanted)
        except (OSError, ValueError):
            found = None
        self._start()
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def account(seen: Sequence[Packet], wanted: Wanted) -> dict[str, Any]:
    """Captured packets in the form of the kernel's counts."""
    found = {}
    for way in (OUT, IN):
        mine = [one for one in seen if (one.destination == wanted.peer) is (way == OUT)]
        bad = [one for one in mine if not right(one, wanted, way)]
        found[way] = summary(len(mine), len(bad), mine, bad)
    return found


def read_pcap(data: bytes) -> list[Packet]:
    """The RoCE packets of a capture file of this machine. Raises ValueError for another file."""
    if data[:4] != b"\xd4\xc3\xb2\xa1" or len(data) < 24 or data[20:22] != ETHERNET:
        raise ValueError("no capture of Ethernet frames")
    found = []
    place = 24
    while place + 16 <= len(data):
        (kept,) = struct.unpack_from("<I", data, place + 8)
        found.append(parse_ethernet(data[place + 16 : place + 16 + kept]))
        place += 16 + kept
    return [packet for packet in found if packet is not None]


Watch = Union[Witness, Sniffer, Blind]


def watch(how: Mapping[str, Any], directory: Path) -> Watch:
    """What a plan in JSON asks for."""
    wanted = Wanted(str(how["peer"]), int(how["traffic_class"]), int(how["cnp_dscp"]))
    if how["by"] == KERNEL:
        return Witness(str(how["interface"]), wanted)
    if how["by"] == SNIFFER:
        return Sniffer(str(how["device"]), wanted, directory / f"{how['interface']}.pcap")
    return Blind()


# The servers of a node.

STATE, RESULT = "state.json", "result.json"
LISTEN_S = 15.0
"""Seconds for all servers to listen."""
LOG_BYTES = 4000
LISTENING = "0A"
FORGET = signal.SIGUSR1
"""Sent when the clients of this node have ended."""


class Server:
    """One server of one rail."""

    def __init__(self, given: Mapping[str, Any], log: Path) -> None:
        self.exchange = str(given["exchange"])
        self.port = int(given["port"])
        self.argv = [str(word) for word in given["argv"]]
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", **given["env"]},
                start_new_session=True,
            )

    def printed(self) -> str:
        with self.log.open("rb") as stream:
            stream.seek(max(0, self.log.stat().st_size - LOG_BYTES))
            return stream.read().decode(errors="replace")


class Rail:
    """One rail: its servers in the order in which they are used, and its packets."""

    def __init__(self, given: Mapping[str, Any], directory: Path) -> None:
        self.name = str(given["rail"])
        self.peer = str(given["peer"])
        self.outcomes: dict[str, Any] = {}
        self.watch = watch(given["watch"], directory)
        self.servers = [
            Server(one, directory / f"{self.name}-{one['exchange']}.log")
            for one in given["servers"]
        ]

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.servers)

    def look(self) -> None:
        """Note the servers that have ended, with the packets until then."""
        for server in self.servers:
            code = server.process.poll()
            if code is not None and server.exchange not in self.outcomes:
                log = server.printed() if code else ""
                self.outcomes[server.exchange] = {"rc": code, "log": log, "wire": self.watch.take()}

    def end(self) -> dict[str, Any]:
        """End the servers; one that no client used has no exit status."""
        for server in self.servers:
            if server.process.poll() is None:
                os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()
            unused = {"rc": None, "log": "", "wire": None}
            if server.exchange not in self.outcomes:
                self.outcomes[server.exchange] = {**unused, "wire": self.watch.take()}
        self.watch.close()
        return {"peer": self.peer, "exchanges": self.outcomes}


def listening(text: str) -> set[int]:
    """TCP ports with a listener, from /proc/net/tcp."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3:4] == [LISTENING]}


def ports_open() -> set[int]:
    paths = [Path("/proc/net", name) for name in ("tcp", "tcp6")]
    texts = [path.read_text(encoding="ascii") for path in paths if path.exists()]
    return {port for text in texts for port in listening(text)}


def wait_for(servers: Sequence[Server]) -> Optional[str]:
    """Until all listen; the reason if one does not."""
    until = time.monotonic() + LISTEN_S
    while True:
        for server in servers:
            if server.process.poll() is not None:
                printed = server.printed().strip()[-400:] or "it printed nothing"
                shown = " ".join(server.argv)
                return f"{shown}: ended with status {server.process.returncode}: {printed}"
        silent = {one.port for one in servers} - ports_open()
        if not silent:
            return None
        if time.monotonic() > until:
            return f"the server of port {min(silent)} does not listen after {LISTEN_S:g} s"
        time.sleep(0.05)


def write(path: Path, value: Any) -> None:
    """Readers see all of it or none."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def main(directory: Path) -> int:
    plan = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    rails: list[Rail] = []
    problem: Optional[str] = None
    try:
        # Another listener would be mistaken for a server of ours.
        ports = {one["port"] for rail in plan["rails"] for one in rail["servers"]} & ports_open()
        if ports:
            problem = f"TCP port {min(ports)} is taken by another program"
        else:
            for one in plan["rails"]:
                rails.append(Rail(one, directory))
            problem = wait_for([server for rail in rails for server in rail.servers])
        # Blocked only now, as servers inherit what is blocked.
        signals = {signal.SIGCHLD, signal.SIGTERM, FORGET}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        write(directory / STATE, {"run_id": plan["run_id"], "problem": problem or ""})
        while problem is None and not all(rail.done for rail in rails):
            received = signal.sigtimedwait(signals, 1.0)
            number = received.si_signo if received is not None else 0
            if number == signal.SIGTERM:
                break
            for rail in rails:
                rail.look()
                if number == FORGET:
                    # Answers to this node's own clients, from a peer both ways.
                    rail.watch.take()
    except OSError as error:
        problem = f"{error.strerror}: {error.filename or ''}".rstrip(": ")
        write(directory / STATE, {"run_id": plan["run_id"], "problem": problem})
    finally:
        result = {rail.name: rail.end() for rail in rails}
        write(directory / RESULT, {"run_id": plan["run_id"], "rails": result})
    return 1 if problem else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
