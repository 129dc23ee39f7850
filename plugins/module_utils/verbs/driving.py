# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The near end: one client after another, rail by rail, with the packets and counters of each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.dataclass import dataclass
from ..hardware import Machine
from . import endpoints, exchanges
from .endpoints import Endpoint, NoEndpointError, cpus_near, endpoint
from .request import EnvironmentFileError, Half, Request, watch_told
from .wire import Watch, watch

FAILURES = (exchanges.OutputError, commands.CommandError, EnvironmentFileError, OSError)
Watching = Callable[[Mapping[str, Any], Path], Watch]


Program = Callable[..., commands.Result]
"""Runs one exchange's client. Tests bring their own."""


def client(argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float) -> commands.Result:
    return commands.run(list(argv), check=False, timeout_s=limit_s, env=env)


def drive(
    request: Request,
    machine: Machine,
    run: commands.Runner,
    lost: Collection[str] = (),
    unserved: Optional[Mapping[str, Mapping[str, str]]] = None,
    program: Program = client,
    watching: Watching = watch,
) -> list[dict[str, Any]]:
    """Every pair that this host drives, with what was measured and seen; problems are in it."""
    bind = exchanges.bind_option(request.exchanges, run)
    sniffed: Optional[frozenset[str]] = None
    found = []
    with tempfile.TemporaryDirectory(prefix="baremetal-mpi-verbs-") as name:
        for half in request.drives:
            one: dict[str, Any] = {"rail": half.rail, "peer": half.peer, "exchanges": {}}
            found.append(one)
            if half.peer in lost:
                one["lost"] = True
                continue
            reason = (unserved or {}).get(half.peer, {}).get(half.rail)
            if reason:
                one["problem"] = f"{half.peer} cannot serve it: {reason}"
                continue
            try:
                here = endpoint(machine, half.rail, half.address)
            except NoEndpointError as error:
                one["problem"] = str(error)
                continue
            if sniffed is None and not here.software:
                sniffed = exchanges.sniffed_devices(run)
            by = exchanges.watched_by(here.software, here.device, sniffed or ())
            one.update(device=here.device, software=here.software, watched_by=by)
            one["line_rate_gbits_s"] = request.speeds_gbps.get(half.rail)
            seen = watching(watch_told(request, half, by, here.device), Path(name))
            try:
                unservable = (unserved or {}).get(half.peer, {})
                pair = _Pair(request, half, here, bind, run, program, unservable)
                for place, exchange in enumerate(request.exchanges):
                    result = pair.exchange(exchange, half.port + place)
                    one["exchanges"][exchange] = {**result, "wire": seen.take()}
                    if "problem" in result:
                        break  # the others are not tried
            finally:
                seen.close()
    return found


@dataclass(frozen=True)
class _Pair:
    """One rail and its peer."""

    request: Request
    half: Half
    here: Endpoint
    bind: str
    run: commands.Runner
    program: Program
    unserved: Mapping[str, str]
    """What the peer cannot serve, and why."""

    def exchange(self, name: str, port: int) -> dict[str, Any]:
        half = self.half
        reason = self.unserved.get(f"{half.rail} {name}")
        if reason:
            return {"problem": f"{half.peer} cannot serve it: {reason}", "seconds": 0, "growth": {}}
        before, begin = self._counters(), time.monotonic()
        ucx: dict[str, str] = {}
        try:
            if name == exchanges.UCX:
                ucx = self.request.mpi_environment()
            found = self._figures(name, port, ucx)
        except FAILURES as error:
            found = {"problem": str(error)}
        growth = endpoints.grown(before, self._counters())
        if ucx:
            found["environment"] = {key: ucx[key] for key in sorted(ucx) if key.startswith("UCX_")}
        return {**found, "seconds": round(time.monotonic() - begin, 2), "growth": growth}

    def _figures(self, name: str, port: int, ucx: Mapping[str, str]) -> dict[str, Any]:
        request, half = self.request, self.half
        command = exchanges.Programs(
            self.here, half.address, request.settings.traffic_class, request.effort, self.bind
        ).client(name, port, ucx, half.peer_address, cpus_near(self.here.numa, request.sys))
        limit = request.effort.ends_s
        result = self.program(command.argv, env=command.env, limit_s=limit + 2 * exchanges.END_S)
        if result.rc in (124, 137):
            return {"problem": f"no end within {limit} s", "hung": True}
        if result.rc != 0:
            told = exchanges.telling(f"{result.stdout}\n{result.stderr}")
            return {"problem": f"{exchanges.PROGRAMS[name]} ended with status {result.rc}: {told}"}
        return exchanges.figures(name, result.stdout)

    def _counters(self) -> dict[str, int]:
        here = self.here
        return endpoints.read(here.device, here.port, here.rail, self.run, self.request.sys)
