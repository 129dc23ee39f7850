# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A packet of full size to each rail's gateway, and its reply without fragments.

The packet must not be fragmented, which proves the MTU of the leaf's port in one direction. In the
other, the routed interface behind the port (1500 bytes on EOS by default) has a separate MTU: the
leaf may fragment a reply, but drops a RoCE packet. Therefore the kernel is asked for the largest
fragment of the reply (Linux 70ecc2484132, IP_RECVFRAGSIZE, since 4.10).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

from ..core.checks import FAILED, OK, PENDING, Check
from ..core.checks import not_applicable as inapplicable
from ..core.commands import CommandError
from ..core.part import Node
from ..core.waiting import until
from .plan import RailPlan

PATH = "rail_path"
_PAUSE_S = 0.3
"""Pause between two packets, as this host may reject a packet immediately."""
_HEADERS = 28
"""Size of the IPv4 and ICMP headers in bytes."""
_ANSWER_S = 1.0
"""Timeout for a reply, as in ping."""
# From linux/in.h; Python lacks these names.
_MTU_DISCOVER, _DO, _RECVFRAGSIZE = 10, 2, 25
_ECHO = struct.Struct("!BBHHH")
_ASKED, _ANSWERED = 8, 0
"""ICMP types."""

Probe = Callable[[RailPlan], Optional[int]]
"""Returns the largest fragment of the reply to a full packet in bytes, or None if it was whole.
Raises OSError, including for a missing reply."""


def path_checks(
    rails: Sequence[RailPlan],
    sound: Sequence[RailPlan],
    node: Node,
    wait_s: float,
    probe: Optional[Probe] = None,
) -> dict[str, Check]:
    """Return the checks of `sound` rails; in check mode, others are pending."""

    def check(rail: RailPlan) -> Optional[Check]:
        name = rail.interface
        if rail.gateway is None:
            wanted = "a full packet returns"
            return inapplicable(PATH, wanted, "no gateway in the model", subject=name)
        wanted = f"a packet of {rail.mtu} bytes returns whole from {rail.gateway}"
        if rail not in sound:
            reason = "not sent: the rail is not as planned yet"
            return Check(PATH, wanted, None, PENDING, name, reason) if node.check_mode else None
        size = str(rail.mtu - _HEADERS)
        argv = f"ping -n -q -M do -s {size} -c 1 -W 1 -I {rail.address} {rail.gateway}".split()
        reason = ""

        def answer() -> Optional[Check]:
            nonlocal reason
            try:
                result = node.run(argv, check=False)
            except CommandError as error:
                return Check(PATH, wanted, "no answer", FAILED, name, str(error))
            output = (result.stderr or result.stdout).strip().splitlines()[-1:]
            reason = (output or ["no answer"])[0]
            if result.rc != 0:
                return None
            try:
                largest = (probe or largest_fragment)(rail)
            except OSError as error:
                reason = f"it replies to this packet but not to a second one: {error}"
                return None
            return _answered(rail, wanted, largest)

        found = until(answer, wait_s, _PAUSE_S, clock=node.clock, sleep=node.sleep)
        reason = f"{' '.join(argv)}: {reason}"
        return found or Check(PATH, wanted, "no answer", FAILED, name, reason)

    with ThreadPoolExecutor(max_workers=max(1, len(rails))) as pool:
        checks = pool.map(check, rails)
        return {rail.interface: found for rail, found in zip(rails, checks) if found}


def _answered(rail: RailPlan, wanted: str, largest: Optional[int]) -> Check:
    if largest is None:
        return Check(PATH, wanted, wanted, OK, rail.interface)
    found = f"in fragments of {largest} bytes at most"
    reason = (
        f"the interface of the leaf with {rail.gateway} (VLAN or routed port) has an MTU of about "
        f"{largest}: longer RoCE packets from other networks to this rail are dropped. Set it to "
        f"{rail.mtu} or more on the leaf, by hand: the layer fabric sets only ports"
    )
    return Check(PATH, wanted, found, FAILED, rail.interface, reason)


def largest_fragment(rail: RailPlan) -> Optional[int]:
    """Implements Probe; needs CAP_NET_RAW, like ping."""
    gateway = rail.gateway or ""
    mark = os.urandom(8)
    (number,) = struct.unpack_from("!H", mark)
    data = mark.ljust(rail.mtu - _HEADERS, b"\0")
    head = _ECHO.pack(_ASKED, 0, 0, number, 1)
    packet = _ECHO.pack(_ASKED, 0, _checksum(head + data), number, 1) + data
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as echo:
        echo.setsockopt(socket.IPPROTO_IP, _RECVFRAGSIZE, 1)
        echo.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, _DO)
        echo.bind((rail.address, 0))
        echo.settimeout(_ANSWER_S)
        deadline = time.monotonic() + _ANSWER_S
        echo.sendto(packet, (gateway, 0))
        while time.monotonic() < deadline:
            # The socket also receives replies to other programs of this host.
            answer, more, _flags, _sender = echo.recvmsg(len(packet) + 60, 64)
            start = (answer[0] & 15) * 4 if answer else 0
            kind, *_rest = _ECHO.unpack_from(answer.ljust(start + _ECHO.size, b"\0"), start)
            if kind == _ANSWERED and answer[start + _ECHO.size :].startswith(mark):
                sizes = (
                    int.from_bytes(value[:4], sys.byteorder)
                    for level, kind, value in more
                    if (level, kind) == (socket.IPPROTO_IP, _RECVFRAGSIZE)
                )
                return next(sizes, None)
    raise TimeoutError(f"no answer from {gateway} within {_ANSWER_S:g} s")


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
