# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a login does not show: packets lost on a rail, and connections that a firewall refuses.

TCP hides loss until it is most of the traffic; RDMA repeats whole messages for one lost packet.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.checks import OK, Check, differs
from ..core.commands import CommandError, Runner

HEADERS = 28
"""Bytes of IPv4 and ICMP headers in a packet."""
PACKET_S = 3
"""Seconds until a packet returns, sent anew each second."""
QUICK = ("-A", "-c", "200", "-w", "10")
SLOW = ("-i", "0.01", "-c", "200", "-W", "3")
"""Bursts: at 5 % loss, one burst in 28000 shows nothing. With -A, ping sends a packet when the
previous one returns: a rail takes 10 ms, and little CPU time, whereas ping polls at intervals below
10 ms. The slow burst must not have -w: ping would send until 200 packets return, and count those in
flight as lost. A rail loses at any pace; a busy host or virtual machine drops fast bursts."""
MOST_LOST = 0.01
"""Share of two bursts that may be lost. A RoCE fabric must lose none, but a host that is briefly
busy drops a few."""

HERE = "here"
TARGET = "target"


@dataclass(frozen=True)
class Carried:
    """How a rail carries full packets to another node."""

    why: str = ""
    """Empty where it carries them all."""
    side: str = ""
    """The end that loses packets, where a third node tells."""
    lossy: bool = False


def carried(run: Runner, rail: str, target: str, witness: str, root: Path) -> Carried:
    """Whether a full packet returns by the rail, and then nearly all of many.

    Those that do not are lost at either end: `witness`, a third node, tells which. It is asked only
    then.
    """
    try:
        mtu = int((root / "sys/class/net" / rail / "mtu").read_text(encoding="ascii"))
        words = ["ping", "-n", "-q", "-M", "do", "-s", str(mtu - HEADERS), "-I", rail]
        # Also resolves the neighbour: what waits for that is dropped beyond a few packets.
        first = run([*words, "-c", "1", "-w", str(PACKET_S), target], check=False)
        if first.rc != 0:
            lines = (first.stderr or first.stdout).strip().splitlines()
            return Carried(f"{' '.join(first.argv)}: {(lines or ['no answer'])[-1]}")
        loss = lost(run, words, target)
        if loss is None:
            return Carried()
        why = f"{loss:.1%} of full packets lost"
        if not witness:
            return Carried(why, lossy=True)
        if run([*words, "-c", "1", "-w", str(PACKET_S), witness], check=False).rc != 0:
            return Carried(why, lossy=True)
        witnessed = lost(run, words, witness, (SLOW, SLOW))
        return Carried(why, TARGET if witnessed is None else HERE, lossy=True)
    except (OSError, ValueError, CommandError) as error:
        return Carried(str(error))


def lost(
    run: Runner,
    ping: Sequence[str],
    target: str,
    bursts: Sequence[Sequence[str]] = (QUICK, SLOW),
) -> Optional[float]:
    """The share of bursts that is lost; None where it is negligible, or where one lost none."""
    sent = received = 0
    for burst in bursts:
        done = run([*ping, *burst, target], check=False)
        counted = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
        if counted is None:
            text = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise CommandError(f"{' '.join(done.argv)}: {(text or ['no answer'])[0]}")
        if counted[1] == counted[2] != "0":
            return None
        sent, received = sent + int(counted[1]), received + int(counted[2])
    share = (sent - received) / sent if sent else 1.0
    return share if share > MOST_LOST else None


def ends(side: str, rail: str, here: str, host: str) -> str:
    """What the operator must look at where packets are lost."""
    where = {HERE: here, TARGET: host}.get(side, f"{here} and {host}")
    return (
        f"look at cable, transceiver and leaf port of {rail} on {where}: ethtool -S {rail} (errors,"
        " discards, out of buffer) and the counters of the port; then pause and watermarks of the"
        " leaf"
    )


# Connections back: mpirun's daemons call the launcher, and ranks each other, on any TCP port.

NAME = "tcp_reachable"
CONNECTS = "connects"
PYTHON = "/usr/bin/python3"
MANAGEMENT = "management"
LOOPBACK = {"loopback": "127.0.0.1"}
"""By which ranks call the daemon of their own host (PMIx)."""
WAIT_S = 4
"""Seconds for a connection: the kernel sends again after 1 and 3 s."""
MARK = "mpi-back"
NOT_TRIED = "not tried"
CALL = (
    f"import os,select,socket,sys,time;port,*peers=sys.argv[1:];end=time.time()+{WAIT_S};"
    "tried=[(peer,socket.socket()) for peer in peers];"
    "[one.setblocking(False) for _,one in tried];"
    "begun=[(peer,one,one.connect_ex((peer,int(port)))) for peer,one in tried];"
    f'print("",*["{MARK} %s %s"%(peer,code if code not in(0,115) else one.getsockopt(1,4)'
    " if select.select([],[one],[],max(0,end-time.time()))[1] else 110)"
    ' for peer,one,code in begun],sep="\\n")'
)
"""Connects to every peer, all together, and prints each one's errno. One line without a quote of
the shell, and without what csh takes for history: it runs in the login shell of the MPI user."""
ELSEWHERE = (errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENETUNREACH)
"""The other host rejects its packet itself: by a route or a filter there."""
FILTERED = (errno.ETIMEDOUT, errno.EHOSTUNREACH)
"""No answer, or that of a firewall: where nothing listens, the host itself refuses."""


class Listener:
    """A TCP port of this host, any that is free, which takes connections while it is looked at."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        """By network, `management` or the rail's interface, this host's own."""

    def __enter__(self) -> Listener:
        self._socket = socket.create_server(("0.0.0.0", 0), backlog=1024)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # shut down at the end
            while True:
                self._socket.accept()[0].close()

    def __exit__(self, *_error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends the accept that waits, which close does not
        self._socket.close()

    def itself(self) -> dict[str, Optional[int]]:
        """By LOOPBACK's name the errno of this host's call to itself."""
        codes: dict[str, Optional[int]] = {}
        for name, address in LOOPBACK.items():
            with socket.socket() as own:
                own.settimeout(WAIT_S)
                code = own.connect_ex((address, self.port))
            codes[name] = errno.ETIMEDOUT if code == errno.EAGAIN else code
        return codes

    def call(self, networks: Iterable[str]) -> str:
        """What the other host's shell adds to its `uname -n`; the name is the last word again."""
        mine = [self.addresses[name] for name in networks if name in self.addresses]
        words = shlex.join([PYTHON, "-ISc", CALL, str(self.port), *mine])
        return f"; {words}; uname -n" if mine else ""

    def heard(self, answer: str, networks: Iterable[str]) -> dict[str, Optional[int]]:
        """By network the errno of the connection, 0 where it came about, None where none was
        tried."""
        codes = dict(re.findall(rf"^{MARK} (\S+) (\d{{1,4}})$", answer, re.MULTILINE))
        wanted = {name: self.addresses[name] for name in networks if name in self.addresses}
        return {name: int(codes[at]) if at in codes else None for name, at in wanted.items()}


def is_refused(code: Optional[int]) -> bool:
    """Whether something on the host that was called, or before it, is why."""
    return bool(code) and code not in ELSEWHERE


def told(code: int) -> str:
    """An errno of CALL for the operator."""
    text = f"no answer within {WAIT_S} s" if code == errno.ETIMEDOUT else os.strerror(code)
    return f"{errno.errorcode.get(code, code)}: {text}"


def back(
    here: str,
    host: str,
    heard: Mapping[str, Optional[int]],
    firewall: Mapping[str, tuple[str, str]],
    check_mode: bool,
) -> Iterator[Check]:
    """A verdict for each network by which `host` called this host.

    `firewall` has for each network that is refused what filters it here, and what the operator must
    do.
    """
    for network, code in heard.items():
        subject = f"{host} -> {here} {network}"
        if code == 0:
            yield Check(NAME, CONNECTS, CONNECTS, OK, subject)
            continue
        at = step = ""
        if code is None:
            found, why = NOT_TRIED, f"{PYTHON} on {host} gave no answer"
        else:
            found = told(code)
            if is_refused(code):
                filters, step = firewall[network]
                why = f"{filters}; {step}"
            else:
                at = host
                why = step = f"look on {host} at ip route get and at what filters its output"
        status = differs(check_mode)
        yield Check(NAME, CONNECTS, found, status, subject, why, at=at, by_hand=step)
