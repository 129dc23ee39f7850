# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Congestion: several nodes send to one rail simultaneously.

The receiver starts all clients, which the servers send to: so they begin together, without clocks
or tasks of several hosts that would. Switches should mark packets (ECN), the receiver answer with
CNPs, and senders obey (DCQCN), so that the port's queue stays short. PFC is the second line: it
pauses a port with all its flows, and spreads to other ports. Nothing may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from ..core import commands
from ..core.checks import FAILED, NOT_APPLICABLE, OK, Check, not_applicable
from ..core.commands import Runner
from ..core.text import bits_text, some
from ..hardware import Machine
from ..nic import health
from . import endpoints, ends, evaluation, exchanges
from .endpoints import Endpoint, NoEndpointError, SharedEndpointError, endpoint
from .evaluation import SOFTWARE
from .exchanges import INCAST, Half, Perftest, Programs, VerifyRequest, error_lines

LEAST = 2
"""Senders without which there is no congestion."""
PAUSED = 0.5
"""Largest part of the reduction of a sender's rate that may be by pauses; an estimate. With PFC
and without ECN it is all of it."""
STORM = "tx_pause_storm_warning_events"


def drive(
    request: VerifyRequest, machine: Machine, run: Runner, client: ends.Client = ends.client
) -> list[dict[str, Any]]:
    """Receive over one rail after another. Returns the figures of every sender."""
    perftest = Perftest.of(request, False, run)
    found: list[dict[str, Any]] = []
    for rail, halves in groupby(request.drives, key=lambda half: half.rail):
        pairs = {
            half: {"host": request.host, "rail": rail, "peer": half.peer, "exchanges": {}}
            for half in halves
        }
        found += pairs.values()
        try:
            here = endpoint(machine, rail, next(iter(pairs)).address)
        except NoEndpointError as error:
            why = "shared" if isinstance(error, SharedEndpointError) else "problem"
            for pair in pairs.values():
                pair[why] = str(error)
            continue
        for half, pair in pairs.items():
            unserved = request.unserved.get(half.peer, {}).get(rail)
            if half.peer in request.lost:
                pair["lost"] = True
            elif unserved:
                pair["problem"] = f"{half.peer} cannot send: {unserved}"
        senders = [half for half, pair in pairs.items() if not {"lost", "problem"} & set(pair)]
        results: Sequence[dict[str, Any]] = ()
        if len(senders) >= LEAST:
            results = _receive(request, here, senders, perftest, client)
        else:
            results = [{"problem": "fewer than two senders are left"} for _half in senders]
        for half, result in zip(senders, results):
            pairs[half].update(device=here.device, software=here.software)
            pairs[half]["line_rate_gbits_s"] = request.speeds_gbps.get(rail)
            pairs[half]["exchanges"] = {INCAST: result}
    return found


def _receive(
    request: VerifyRequest,
    here: Endpoint,
    senders: Sequence[Half],
    perftest: Perftest,
    client: ends.Client,
) -> list[dict[str, Any]]:
    """Figures of the senders; the first has the growth of this rail's counters."""

    def receive(half: Half) -> dict[str, Any]:
        try:
            programs = Programs(request, half, here, perftest)
            return ends.figures_of(programs, INCAST, half.port, {}, client)
        except (exchanges.OutputError, commands.CommandError) as error:
            return {"problem": str(error)}

    before = endpoints.counters(here, request.sys)
    with ThreadPoolExecutor(len(senders)) as pool:
        results = list(pool.map(receive, senders))
    growth = endpoints.grown(before, endpoints.counters(here, request.sys), congestion=True)
    return [{**result, "growth": {} if at else growth} for at, result in enumerate(results)]


def driven(request: VerifyRequest, pairs: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Checks of the receivers."""
    by_rail = groupby(pairs, key=lambda pair: str(pair["rail"]))
    return [check for rail, those in by_rail for check in _received(request, rail, list(those))]


def _received(
    request: VerifyRequest, rail: str, pairs: Sequence[Mapping[str, Any]]
) -> Iterator[Check]:
    results = []
    for pair in pairs:
        where, result = (
            f"{request.incast} {rail} <- {pair['peer']}",
            pair["exchanges"].get(INCAST) or {},
        )
        problem = pair.get("problem") or result.get("problem")
        if skipped := pair.get("shared") or (pair.get("lost") and f"{pair['peer']} failed before"):
            yield not_applicable(INCAST, "measured", skipped, subject=where)
        elif problem:
            yield Check(INCAST, "measured", "not", FAILED, where, problem)
        elif not result["gbits_s"]:
            reason = "it sent nothing: congestion must not stop a sender"
            yield Check(INCAST, "measured", 0, FAILED, where, reason)
        else:
            results.append((pair, result))
    if len(results) < LEAST:
        return
    where = f"{request.incast} {rail} <- {some([pair['peer'] for pair, _result in results], 8)}"
    pair, rates = results[0][0], [result["gbits_s"] for _pair, result in results]
    found = f"{bits_text(sum(rates))}, from {bits_text(min(rates))} to {bits_text(max(rates))} each"
    if pair["software"]:
        reason = f"{pair['device']} {SOFTWARE}, and it has neither ECN nor PFC"
        yield Check(INCAST, "measured", found, NOT_APPLICABLE, where, reason)
        return
    yield Check(INCAST, "measured", found, OK, where)
    every = [(one["exchanges"].get(INCAST) or {}).get("growth") or {} for one in pairs]
    growth: Mapping[str, int] = next(filter(None, every), {})
    yield from _losses(request, rail, where, growth)
    yield evaluation.congestion(request, where, growth, health.MARKED)
    wanted = "no pause storm"
    if STORM not in growth:
        reason = f"its driver does not count {STORM}"
        yield not_applicable("incast_pauses", wanted, reason, subject=where)
    else:
        why = (
            "the NIC paused the leaf for long, so the host does not accept the data: dmesg, "
            "PCIe (rail_pcie)"
        )
        status, reason = (FAILED, why) if growth[STORM] else (OK, "")
        yield Check("incast_pauses", wanted, growth[STORM], status, where, reason)


def _losses(
    request: VerifyRequest, rail: str, where: str, growth: Mapping[str, int]
) -> Iterator[Check]:
    yield evaluation.retries(request, where, rail, growth, none=True)
    yield evaluation.lost(request, where, rail, growth)


def served(request: VerifyRequest, rails: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    """Checks of the senders, which are servers."""
    halves = {half.rail: half for half in request.serves}
    return [
        check
        for rail, seen in rails.items()
        if rail in halves
        for check in _sent(request, halves[rail], seen)
    ]


def _sent(request: VerifyRequest, half: Half, seen: Mapping[str, Any]) -> Iterator[Check]:
    rail, where = half.rail, f"{request.incast} {half.rail} -> {half.peer}"
    outcome = seen["exchanges"][INCAST]
    if outcome["rc"] is None:
        reason = f"{half.peer} did not connect: see its own checks of {rail}"
        yield not_applicable(INCAST, "sent", reason, subject=where)
        return
    if outcome["rc"] != 0:
        reason = f"status {outcome['rc']}: {error_lines(outcome['log'])}"
        yield Check(INCAST, "sent", "not", FAILED, where, reason)
        return
    if "health" not in seen:
        yield not_applicable(INCAST, "sent", f"{rail} {SOFTWARE}", subject=where)
        return
    growth = seen.get("growth") or {}
    yield Check(**{**seen["health"], "subject": where})
    yield from _losses(request, rail, where, growth)
    yield evaluation.congestion(request, where, growth, health.OBEYED)
    yield _pauses(request, half, where, growth)


def _pauses(request: VerifyRequest, half: Half, where: str, growth: Mapping[str, int]) -> Check:
    """Check that notifications reduced the rate of a sender rather than pauses.

    Durations are in microseconds, in which the port sent nothing of this priority (counters.rst).
    """
    name = f"rx_prio{request.settings.service_level}_pause_duration"
    limit = PAUSED * (1 - (half.fair or 0))
    wanted = f"paused for at most {limit:.0%} of the time"
    if not request.settings.lossless or name not in growth or not request.options.duration_s:
        reason = f"its driver does not count {name}"
        if not request.settings.lossless:
            reason = "RoCE data has no PFC (roce_qos.roce.lossless: false)"
        return not_applicable("incast_pauses", wanted, reason, subject=where)
    share = growth[name] / (request.options.duration_s * 1e6)
    why = (
        f"PFC rather than ECN reduced its rate of {half.rail}: rail_congestion here and at "
        f"{half.peer}; thresholds of ECN at the leaf (port_ecn, --tags fabric)"
    )
    holds = share <= limit
    found = f"{share:.1%}"
    return Check(
        "incast_pauses", wanted, found, OK if holds else FAILED, where, "" if holds else why
    )
