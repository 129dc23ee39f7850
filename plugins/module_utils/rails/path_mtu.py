# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One full packet to each rail's gateway proves cable, address, route and the leaf's MTU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..core.commands import CommandError, Runner
from .plan import RailPlan

_PAUSE_S = 0.3
"""Between two packets: a refusal by this host itself comes at once."""
_HEADERS = 28
"""Bytes of IPv4 and ICMP headers in a packet."""


def ping_command(rail: RailPlan) -> tuple[str, ...]:
    """From the rail's own address, not to be fragmented, as large as its MTU allows."""
    size = str(rail.mtu - _HEADERS)
    return (
        *("ping", "-n", "-q", "-M", "do", "-s", size, "-c", "1", "-W", "1"),
        *("-I", rail.address, str(rail.gateway)),
    )


def unreached(
    rails: Sequence[RailPlan],
    run: Runner,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Rails whose gateway did not answer within `wait_s`, with the command and what it said."""
    deadline = clock() + wait_s

    def ask(rail: RailPlan) -> str:
        argv = ping_command(rail)
        while True:
            try:
                result = run(argv, check=False)
            except CommandError as error:
                return str(error)
            if result.rc == 0:
                return ""
            sleep(_PAUSE_S)
            if clock() >= deadline:
                said = (result.stderr.strip() or _loss(result.stdout))[-300:]
                return f"{' '.join(argv)}: {said}"

    asked = [rail for rail in rails if rail.gateway]
    if not asked:
        return {}
    with ThreadPoolExecutor(max_workers=len(asked)) as pool:
        answers = list(pool.map(ask, asked))
    return {rail.interface: answer for rail, answer in zip(asked, answers) if answer}


def _loss(text: str) -> str:
    """The line of ping's summary that says how much was lost."""
    return next((line.strip() for line in text.splitlines() if "packet" in line), "no answer")
