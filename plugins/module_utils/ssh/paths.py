# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Detect faults that logins do not show: packet loss on a rail, and firewalls.

TCP hides packet loss until it is severe; RDMA resends whole messages for one lost packet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from ..core.checks import OK, Check, differs
from ..core.commands import CommandError, Result, Runner
from .refusals import EITHER, HERE, TARGET

HEADERS = 28
"""Size in bytes of a packet's IPv4 and ICMP headers."""
PACKET_S = 3
"""Seconds to wait for a packet, which is sent again each second."""
QUICK = ("-A", "-c", "200", "-w", "10")
SLOW = ("-i", "0.01", "-c", "200", "-W", "3")
"""Options of ping for two bursts. At 5 % loss, one burst in 28000 is complete by chance. With -A
ping sends a packet when the previous one returns, which takes 10 ms on a rail; below intervals of
10 ms it would poll. The slow burst must not have -w: ping would send until 200 packets return, and
count those in flight as lost. A faulty rail loses packets at any rate, a busy host only in fast
bursts."""
MAX_LOSS = 0.01
"""Tolerated loss over both bursts. A RoCE fabric must not lose packets, but a busy host drops a
few."""


def carried(
    run: Runner, rail: str, target: str, witness: str = "", root: Path = Path("/")
) -> tuple[str, str]:
    """Send one full packet over the rail, then bursts.

    Returns the reason of a failure, empty if all packets returned, and the end that loses packets,
    empty for other failures. Only `witness`, a third node, shows which end it is.
    """
    try:
        mtu = int((root / "sys/class/net" / rail / "mtu").read_text(encoding="ascii"))
        ping = ["ping", "-n", "-q", "-M", "do", "-s", str(mtu - HEADERS), "-I", rail]
        # Resolves the neighbour as well: the kernel queues only a few packets until then.
        first = run([*ping, "-c", "1", "-w", str(PACKET_S), target], check=False)
        if first.rc:
            return _said(first), ""
        loss, end = lost(run, ping, target), EITHER
        if loss is None:
            return "", ""
        if witness and run([*ping, "-c", "1", "-w", str(PACKET_S), witness], check=False).rc == 0:
            end = TARGET if lost(run, ping, witness, (SLOW, SLOW)) is None else HERE
    except (OSError, ValueError, CommandError) as error:
        return str(error), ""
    return f"{loss:.1%} of full packets lost", end


def _said(done: Result) -> str:
    """The command and its last line."""
    lines = (done.stderr or done.stdout).strip().splitlines()
    return f"{' '.join(done.argv)}: {(lines or ['no answer'])[-1]}"


def lost(
    run: Runner,
    ping: Sequence[str],
    target: str,
    bursts: Sequence[Sequence[str]] = (QUICK, SLOW),
) -> Optional[float]:
    """Share of lost packets; None if it is negligible or one burst was complete."""
    sent = received = 0
    for burst in bursts:
        done = run([*ping, *burst, target], check=False)
        counted = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
        if counted is None:
            raise CommandError(_said(done))
        if counted[1] == counted[2] != "0":
            return None
        sent, received = sent + int(counted[1]), received + int(counted[2])
    share = (sent - received) / sent if sent else 1.0
    return share if share > MAX_LOSS else None


def ends(side: str, rail: str, here: str, host: str) -> str:
    """What the operator must check if packets are lost."""
    where = {HERE: here, TARGET: host}.get(side, f"{here} and {host}")
    return (
        f"check cable, transceiver and leaf port of {rail} on {where}: ethtool -S {rail} (errors,"
        " discards, out of buffer) and the counters of the port; then pause and watermarks of the"
        " leaf"
    )


# Connections back: mpirun's daemons connect to the launcher, and ranks to each other, on any port.

CONNECTS = "connects"
PYTHON = "/usr/bin/python3"
MANAGEMENT = "management"
WAIT_S = 4
"""Seconds to wait for a connection: the kernel repeats the SYN after 1 and 3 s."""
MARK = "mpi-back"
CALL = (
    f"import os,select,socket,sys,time;port,*peers=sys.argv[1:];end=time.time()+{WAIT_S};"
    "tried=[(peer,socket.socket()) for peer in peers];"
    "[one.setblocking(False) for _,one in tried];"
    "begun=[(peer,one,one.connect_ex((peer,int(port)))) for peer,one in tried];"
    f'print("",*["{MARK} %s %s"%(peer,code if code not in(0,115) else one.getsockopt(1,4)'
    " if select.select([],[one],[],max(0,end-time.time()))[1] else 110)"
    ' for peer,one,code in begun],sep="\\n")'
)
"""Program that connects to all peers in parallel and prints an errno for each. It is one line
without shell quotes and csh history characters, as it runs in the MPI user's login shell."""
ELSEWHERE = (errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENETUNREACH)
"""Errors from the connecting host itself: a route or filter there."""
FILTERED = (errno.ETIMEDOUT, errno.EHOSTUNREACH)
"""No answer, or a firewall's answer. Without a listener, the host itself would refuse the
connection.
"""


class Listener:
    """Accept connections on any free TCP port of this host, as a context manager."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        """This host's addresses by network: `management`, or a rail's interface."""

    def __enter__(self) -> Listener:
        self._socket = socket.create_server(("0.0.0.0", 0), backlog=1024)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # shut down in __exit__
            while True:
                self._socket.accept()[0].close()

    def __exit__(self, *_error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # interrupts the pending accept, unlike close
        self._socket.close()

    def call(self, networks: Iterable[str]) -> str:
        """Shell commands to run after `uname -n` on the other host; they print the name again."""
        mine = [self.addresses[name] for name in networks if name in self.addresses]
        words = shlex.join([PYTHON, "-ISc", CALL, str(self.port), *mine])
        return f"; {words}; uname -n" if mine else ""

    def heard(self, answer: str, networks: Iterable[str]) -> dict[str, Optional[int]]:
        """The errno of the connection by network: 0 for success, None if it was not tried."""
        codes = dict(re.findall(rf"^{MARK} (\S+) (\d{{1,4}})$", answer, re.MULTILINE))
        wanted = {name: self.addresses[name] for name in networks if name in self.addresses}
        return {name: int(codes[at]) if at in codes else None for name, at in wanted.items()}


def is_refused(code: Optional[int]) -> bool:
    """Whether the target host, or a firewall in front of it, is the cause."""
    return bool(code) and code not in ELSEWHERE


def told(code: int) -> str:
    """An errno of CALL as text."""
    text = f"no answer within {WAIT_S} s" if code == errno.ETIMEDOUT else os.strerror(code)
    return f"{errno.errorcode.get(code, code)}: {text}"


def back(
    here: str,
    host: str,
    heard: Mapping[str, Optional[int]],
    firewall: Mapping[str, tuple[str, str]],
    check_mode: bool,
) -> Iterator[Check]:
    """One check per network over which `host` connected to this host.

    `firewall` maps each refused network to the filters of this host and the operator's remedy.
    """
    for network, code in heard.items():
        subject = f"{host} -> {here} {network}"
        if code == 0:
            yield Check("tcp_reachable", CONNECTS, CONNECTS, OK, subject)
            continue
        at = step = ""
        if code is None:
            actual, reason = "not tried", f"{PYTHON} on {host} gave no answer"
        elif is_refused(code):
            filters, step = firewall[network]
            actual, reason = told(code), f"{filters}; {step}"
        else:
            actual, at = told(code), host
            reason = step = f"on {host}, check ip route get and filters of its output"
        status = differs(check_mode)
        yield Check("tcp_reachable", CONNECTS, actual, status, subject, reason, at=at, by_hand=step)
