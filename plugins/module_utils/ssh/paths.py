# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a login does not show: packets lost on a rail, and connections that a firewall refuses.

TCP hides loss until it is most of the traffic; RDMA repeats whole messages for one lost packet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.commands import CommandError, Runner

HEADERS = 28
"""Bytes of IPv4 and ICMP headers in a packet."""
PACKET_S = 3
"""Seconds until a packet returns, sent anew each second."""
BURST = 200
"""Packets in a row: of 5 % loss, one in 28000 bursts shows nothing."""
INTERVAL_S = "0.002"
"""Between two of them, as root may choose it: a burst takes 0.4 s."""
MOST_LOST = 0.005
"""Share of two bursts that may be lost, although a RoCE fabric is to lose none: a host that is busy
for a moment drops a few."""

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
        return Carried(why, TARGET if lost(run, words, witness) is None else HERE, lossy=True)
    except (OSError, ValueError, CommandError) as error:
        return Carried(str(error))


def lost(run: Runner, ping: list[str], target: str) -> Optional[float]:
    """The share that two bursts lose, or None where it is none to speak of, or only of one."""
    sent = received = 0
    for _unused in range(2):
        burst = ["-i", INTERVAL_S, "-c", str(BURST), "-W", "1", "-w", str(PACKET_S)]
        done = run([*ping, *burst, target], check=False)
        counted = re.search(r"(\d+) packets transmitted, (\d+) received", done.stdout)
        if counted is None:
            text = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise CommandError(f"{' '.join(done.argv)}: {(text or ['no answer'])[0]}")
        if counted[1] == counted[2]:
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
