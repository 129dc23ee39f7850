# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Program of a serving node: run the servers, and count packets until they exit.

This file needs only Python. It runs under systemd, independent of the connection that started it.
It writes one file when all servers listen, and another when all have exited or it is stopped, with
the exit status and packets of each. systemd stops it with its servers at the time limit.

Packets of Soft-RoCE pass through the kernel's network stack, where classic BPF filters count each
of them, here and on the driving node. Packets of a NIC bypass the stack; the NIC's own counters
prove their class.
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
from pathlib import Path
from typing import Any, Optional

PORT = 4791
IPV4 = 0x0800
UDP = 17
ECN_NAMES = ("Not-ECT", "ECT(1)", "ECT(0)", "CE")
CE = 3
"""Congestion experienced, set by a switch."""


def tos_text(tos: int) -> str:
    return f"TOS {tos} (DSCP {tos >> 2}, {ECN_NAMES[tos & 3]})"


def described(data: bytes) -> str:
    """`10.0.0.1 -> 10.0.0.2, TOS 106 (DSCP 26, ECT(0))`, for data from the IPv4 header on."""
    source, destination = (ipaddress.IPv4Address(data[at : at + 4]) for at in (12, 16))
    return f"{source} -> {destination}, {tos_text(data[1])}"


OUT, IN = "out", "in"


# Filters as classic BPF programs. The kernel counts every packet that a filter accepts, even if it
# is not read, which costs the node a few instructions for each packet. Filters see packets from the
# network header on (SOCK_DGRAM).

LOAD_WORD, LOAD_BYTE = 0x20, 0x30
LOAD_HALF_AT_X = 0x48
HEADER_LENGTH_TO_X = 0xB1
IF_EQUAL = 0x15
RETURN = 0x06

PROTOCOL, KIND = 0xFFFFF000, 0xFFFFF004
"""Offsets of the Ethernet type and packet type in the kernel's metadata."""
TO_THIS_HOST, OUTGOING = 0, 4
KEPT_BYTES = 128
"""Bytes read of each packet; enough for the longest headers."""

Instruction = tuple[int, int, int, int]
"""Like `struct sock_filter`: code, jump if true, jump if false, operand."""


def program(peer: str, traffic_class: int, way: str, is_right: bool) -> list[Instruction]:
    """A filter for the RoCE v2 packets of one direction between this rail and the address `peer`
    that have the traffic class, or for the others.

    The GID of a rail is its IPv4 address. Soft-RoCE sends no congestion notifications.
    """
    # Switches mark ECN-capable packets only.
    marked = traffic_class | (CE if way == IN and traffic_class & CE else 0)
    code = [
        (LOAD_WORD, KIND),
        (IF_EQUAL, OUTGOING if way == OUT else TO_THIS_HOST),
        (LOAD_WORD, PROTOCOL),
        (IF_EQUAL, IPV4),
        (LOAD_BYTE, 9),
        (IF_EQUAL, UDP),
        (LOAD_WORD, 16 if way == OUT else 12),
        (IF_EQUAL, int(ipaddress.IPv4Address(peer))),
        (HEADER_LENGTH_TO_X, 0),
        (LOAD_HALF_AT_X, 2),
        (IF_EQUAL, PORT),
        (LOAD_BYTE, 1),
    ]
    # Other packets skip everything up to the last instruction.
    last = len(code) + 4
    return [
        *((op, 0, (last - at - 1) * (op == IF_EQUAL), k) for at, (op, k) in enumerate(code)),
        (IF_EQUAL, 1, 0, traffic_class),
        (IF_EQUAL, 0, 1, marked),
        (RETURN, 0, 0, KEPT_BYTES if is_right else 0),
        (RETURN, 0, 0, 0 if is_right else KEPT_BYTES),
        (RETURN, 0, 0, 0),
    ]


# Counters.

SO_ATTACH_FILTER = 26
SOL_PACKET = 263
PACKET_STATISTICS = 6
ETH_P_ALL = 0x0003
SAMPLES = 32
"""Number of packets of each kind that are inspected individually."""


class Witness:
    """Counts the packets of a rail from its creation, if the kernel sees them, as `plan` says."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._sockets: dict[tuple[str, bool], socket.socket] = {}
        try:
            for way in (OUT, IN) if plan["kernel"] else ():
                for kind in (True, False):
                    code = program(plan["peer"], plan["traffic_class"], way, kind)
                    self._sockets[way, kind] = listen(plan["interface"], code)
        except BaseException:
            self.close()
            raise

    def take(self) -> Optional[dict[str, Any]]:
        """Right and wrong packets since the last call by direction; None if they are not seen."""
        return {way: self._direction(way) for way in (OUT, IN)} if self._sockets else None

    def _direction(self, way: str) -> dict[str, Any]:
        good, bad = self._sockets[way, True], self._sockets[way, False]
        wrong, count = received(bad), received(good)
        samples_wrong = samples(bad)
        return {
            "packets": count + wrong,
            "wrong": wrong,
            "tos_seen": sorted({data[1] for data in (*samples(good), *samples_wrong)}),
            "first_wrong": described(samples_wrong[0]) if samples_wrong else "",
        }

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()


def listen(interface: str, code: Sequence[Instruction]) -> socket.socket:
    """A socket that receives the packets of one interface that a filter accepts.

    It is bound after the filter is attached, so no other packet is counted.
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
    """Packets since the last call, including those that did not fit into the socket's buffer."""
    found = one.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
    return int(struct.unpack("II", found)[0])


def samples(one: socket.socket) -> list[bytes]:
    """The first packets since the last call; empties the buffer."""
    found: list[bytes] = []
    while True:
        try:
            data = one.recv(KEPT_BYTES)
        except BlockingIOError:
            return found
        if len(found) < SAMPLES:
            found.append(data)


# Servers of a node.

STATE, RESULT = "state.json", "result.json"
LISTEN_S = 15.0
"""Seconds within which all servers must listen."""
LOG_BYTES = 4000
LISTENING = "0A"
FORGET = signal.SIGUSR1
"""Signal that the clients of this node have finished."""


class Server:
    def __init__(self, given: Mapping[str, Any], log: Path) -> None:
        self.exchange, self.port, self.argv = given["exchange"], given["port"], given["argv"]
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


class ServedRail:
    """One rail: its servers in the order of use, and its packets."""

    def __init__(self, given: Mapping[str, Any], directory: Path) -> None:
        self.name, self.peer = given["rail"], given["peer"]
        self.outcomes: dict[str, Any] = {}
        self.watch = Witness(given["watch"])
        self.servers = [
            Server(one, directory / f"{self.name}-{one['exchange']}.log")
            for one in given["servers"]
        ]

    @property
    def done(self) -> bool:
        return len(self.outcomes) == len(self.servers)

    def look(self) -> None:
        """Record the servers that have exited, with the packets counted until then."""
        for server in self.servers:
            code = server.process.poll()
            if code is not None and server.exchange not in self.outcomes:
                log = server.printed() if code else ""
                self.outcomes[server.exchange] = {"rc": code, "log": log, "wire": self.watch.take()}

    def end(self) -> dict[str, Any]:
        """Stop the servers; one that no client used has no exit status."""
        for server in self.servers:
            if server.process.poll() is None:
                os.killpg(server.process.pid, signal.SIGKILL)
                server.process.wait()
            if server.exchange not in self.outcomes:
                unused = {"rc": None, "log": "", "wire": self.watch.take()}
                self.outcomes[server.exchange] = unused
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
    """Wait until all servers listen; returns the reason if one does not."""
    until = time.monotonic() + LISTEN_S
    while True:
        for server in servers:
            if server.process.poll() is not None:
                printed = server.printed().strip()[-400:] or "it printed nothing"
                shown = " ".join(server.argv)
                return f"{shown}: exited with status {server.process.returncode}: {printed}"
        silent = {one.port for one in servers} - ports_open()
        if not silent:
            return None
        if time.monotonic() > until:
            return f"the server of port {min(silent)} does not listen after {LISTEN_S:g} s"
        time.sleep(0.05)


def write(path: Path, value: Any) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value), encoding="utf-8")
    part.replace(path)


def main(directory: Path) -> int:
    plan = json.loads((directory / "plan.json").read_text(encoding="utf-8"))
    rails: list[ServedRail] = []
    problem: Optional[str] = None
    try:
        # Another listener on a port would be mistaken for one of these servers.
        ports = {one["port"] for rail in plan["rails"] for one in rail["servers"]} & ports_open()
        if ports:
            problem = f"TCP port {min(ports)} is in use by another program"
        else:
            for one in plan["rails"]:
                rails.append(ServedRail(one, directory))
            problem = wait_for([server for rail in rails for server in rail.servers])
        # Signals are blocked after the servers have started, which would inherit the mask.
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
                    # Answers to this node's own clients, from a peer with pairs in both directions.
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
