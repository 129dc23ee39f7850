# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends of this host's pairs: servers in a systemd unit, and clients in sequence."""

from __future__ import annotations

import json
import pkgutil
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Optional

from ..core import commands
from ..core.commands import Runner, search_path
from ..core.waiting import until
from ..hardware import Machine
from ..nic import health
from ..nic.health import PortCounters, PortReading
from . import endpoints, exchanges
from .endpoints import Endpoint, NoEndpointError, SharedEndpointError, cpus_near, endpoint
from .exchanges import GPU, Half, Perftest, Programs, VerifyRequest
from .wire import FORGET, LISTEN_S, RESULT, STATE, Witness

DIRECTORY = Path("/run/baremetal-mpi-roce/verbs")
UNIT = "baremetal-mpi-verbs"
COUNTERS = "counters.json"


class ServingError(Exception):
    """The servers cannot run; the text gives the reason and the remedy."""


def start(
    request: VerifyRequest, machine: Machine, run: Runner, directory: Path = DIRECTORY
) -> tuple[list[int], dict[str, str]]:
    """Start the servers for all pairs that this host serves, replacing those of an earlier run.

    Waits until all of them listen. Returns their ports, and the reason for each rail that cannot be
    served. Raises ServingError.
    """
    stop(run)
    if directory.exists():
        shutil.rmtree(directory)
    found, problems = endpoints_of(request, machine)
    if not found:
        return [], problems
    directory.mkdir(parents=True, mode=0o700)
    plan = plan_of(request, found, problems, machine, run)
    (directory / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (directory / "serve.py").write_bytes(pkgutil.get_data(__package__, "wire.py") or b"")
    ports = {
        rail: {"here": asdict(one), "counted": endpoints.counters(one, request.sys)}
        for rail, one in found.items()
    }
    before = {"at": time.monotonic(), "ports": ports}
    (directory / COUNTERS).write_text(json.dumps(before), encoding="utf-8")
    run(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={UNIT}",
            f"--description=Verification of rails {request.run_id} (baremetal.mpi_roce)",
            f"--property=RuntimeMaxSec={request.limit_s:g}",
            "--property=TimeoutStopSec=10",
            "--property=KillMode=mixed",
            "--property=LimitMEMLOCK=infinity",
            f"--setenv=PATH={search_path()}",
            *(sys.executable, str(directory / "serve.py"), str(directory)),
        ]
    )
    state = wait(directory / STATE)
    if state is None or state["problem"]:
        stop(run)  # servers that failed to start are not collected
        problem = state["problem"] if state else "the servers did not start"
        raise ServingError(
            f"{problem}: see journalctl -u {UNIT}. If a port is in use, free it (ss -ltnp) "
            "or set rdma_verify_port."
        )
    return [one["port"] for rail in plan["rails"] for one in rail["servers"]], problems


def endpoints_of(
    request: VerifyRequest, machine: Machine
) -> tuple[dict[str, Endpoint], dict[str, str]]:
    """Endpoints of the rails that this host serves, and the reason for each rail without one."""
    found: dict[str, Endpoint] = {}
    problems: dict[str, str] = {}
    for half in request.serves:
        try:
            found[half.rail] = endpoint(machine, half.rail, half.address)
        except NoEndpointError as error:
            problems[half.rail] = str(error)
    return found, problems


def plan_of(
    request: VerifyRequest,
    found: Mapping[str, Endpoint],
    problems: dict[str, str],
    machine: Machine,
    run: Runner,
) -> dict[str, Any]:
    """Plan of the serving program. Adds to `problems` the reason if GPU memory cannot be served."""
    gpus, ucx = bool(machine.gpus), request.mpi_environment()
    perftest = Perftest.of(request, gpus, run)

    def served(half: Half) -> list[tuple[int, str]]:
        """The exchanges with their indexes, because the peer counts the ports of all exchanges."""
        reason = request.without_gpu(half, gpus) or perftest.problem
        if GPU in request.exchanges and half.gpu is not None and reason:
            problems[f"{half.rail} {GPU}"] = reason
        return [each for each in enumerate(request.exchanges) if each[1] != GPU or not reason]

    def server(half: Half, here: Endpoint, name: str, port: int) -> dict[str, Any]:
        command = Programs(request, half, here, perftest).server(name, port, ucx)
        return {"exchange": name, "port": port, "argv": command.argv, "env": dict(command.env)}

    rails = [
        {
            "rail": half.rail,
            "peer": half.peer,
            "watch": request.watch(half, found[half.rail]),
            "servers": [
                server(half, found[half.rail], name, half.port + index)
                for index, name in served(half)
            ],
        }
        for half in request.serves
        if half.rail in found
    ]
    return {"run_id": request.run_id, "rails": rails}


def wait(path: Path, limit_s: float = LISTEN_S + 15) -> Optional[dict[str, Any]]:
    """The program's report once its servers listen."""
    if not until(path.exists, limit_s, every_s=0.05):
        return None
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state


def stop(run: Runner) -> None:
    """Stop the servers, if there are any; they then write their report."""
    run(["systemctl", "stop", f"{UNIT}.service"], check=False)


def forget(request: VerifyRequest, run: Runner) -> None:
    """Signal the end of this host's clients, if it serves a rail that one of them sent to."""
    served = {half.peer_address for half in request.serves}
    if any(half.peer_address in served for half in request.drives):
        to = [f"--signal={FORGET.name}", "--kill-who=main", f"{UNIT}.service"]
        run(["systemctl", "kill", *to], check=False)


def collect(request: VerifyRequest, run: Runner, directory: Path = DIRECTORY) -> dict[str, Any]:
    """Stop the servers. Returns by rail arrived packets, growth of counters and the port's health.

    Includes rails whose link went down. Raises ServingError if the servers belong to another run.
    """
    stop(run)
    try:
        result = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        before = json.loads((directory / COUNTERS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ServingError(
            f"the servers were killed or reached their time limit of {request.limit_s:g} "
            f"s: see journalctl -u {UNIT}"
        ) from None
    if result["run_id"] != request.run_id:
        raise ServingError(
            f"another run ({result['run_id']}) has replaced the servers; verify one at a time"
        )
    rails: dict[str, Any] = result["rails"]
    for rail, seen in rails.items():
        here, counted = Endpoint(**before["ports"][rail]["here"]), before["ports"][rail]["counted"]
        after = endpoints.counters(here, request.sys)
        seen["growth"] = endpoints.grown(counted, after, congestion=bool(request.incast))
        if not here.software:
            check = health.check(
                rail,
                PortCounters(health.of_port(counted), before["at"]),
                PortCounters(health.of_port(after)),
                request.speeds_gbps.get(rail),
                PortReading.of(here.pci, run),
                request.health,
                lossless=(),  # rail_losses reports losses, with the counters of the peer
            )
            seen["health"] = asdict(check)
    shutil.rmtree(directory)
    return rails


# The driving end

Client = Callable[..., commands.Result]
"""Runs the client of an exchange; a fake one in tests."""


def client(argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float) -> commands.Result:
    return commands.run(list(argv), check=False, timeout_s=limit_s, env=env)


def drive(
    request: VerifyRequest,
    machine: Machine,
    run: Runner,
    client: Client = client,
    watching: Callable[[Mapping[str, Any]], Witness] = Witness,
) -> list[dict[str, Any]]:
    """Run every pair that this host drives; returns figures, packets and problems."""
    gpus = bool(machine.gpus)
    perftest = Perftest.of(request, gpus, run)
    found = []
    for half in request.drives:
        one: dict[str, Any] = {"host": request.host, "rail": half.rail, "peer": half.peer}
        one["exchanges"] = {}
        found.append(one)
        if half.peer in request.lost:
            one["lost"] = True
            continue
        unserved = request.unserved.get(half.peer, {})
        try:
            here = endpoint(machine, half.rail, half.address)
            if half.rail in unserved:
                raise NoEndpointError(f"{half.peer} cannot serve it: {unserved[half.rail]}")
        except NoEndpointError as error:
            one["shared" if isinstance(error, SharedEndpointError) else "problem"] = str(error)
            continue
        one.update(device=here.device, software=here.software)
        one["line_rate_gbits_s"] = half.peer_gbps or request.speeds_gbps.get(half.rail)
        there = unserved.get(f"{half.rail} {GPU}")
        problem = perftest.problem or (f"{half.peer} cannot serve it: {there}" if there else "")
        skipped = request.without_gpu(half, gpus)
        if problem and not (skipped or request.options.needs_cuda):
            skipped = f"GPU memory is not measured: {problem}"
        if GPU in request.exchanges and skipped:
            one["exchanges"][GPU] = {"skipped": skipped}
        seen = watching(request.watch(half, here))
        programs = Programs(request, half, here, perftest)
        try:
            for index, name in enumerate(request.exchanges):
                if name in one["exchanges"]:
                    continue
                reason = problem if name == GPU else ""
                result = _exchange(programs, name, half.port + index, reason, client)
                one["exchanges"][name] = {**result, "wire": seen.take()}
                if "problem" in result:
                    break  # the remaining exchanges are skipped
        finally:
            seen.close()
    return found


def _exchange(
    programs: Programs, name: str, port: int, problem: str, client: Client
) -> dict[str, Any]:
    """Figures of one exchange and the growth of counters; `problem`: why it is not possible."""
    request, here = programs.request, programs.endpoint
    before, begin = endpoints.counters(here, request.sys), time.monotonic()
    ucx: dict[str, str] = {}
    try:
        if name == exchanges.UCX:
            ucx = request.mpi_environment()
        found: dict[str, Any] = {"problem": problem}
        if not problem:
            found = figures_of(programs, name, port, ucx, client)
    except (exchanges.OutputError, commands.CommandError, OSError) as error:
        found = {"problem": str(error)}
    growth = endpoints.grown(before, endpoints.counters(here, request.sys))
    if ucx:
        found["environment"] = {key: ucx[key] for key in sorted(ucx) if key.startswith("UCX_")}
    return {**found, "seconds": round(time.monotonic() - begin, 2), "growth": growth}


def figures_of(
    programs: Programs, name: str, port: int, ucx: Mapping[str, str], client: Client
) -> dict[str, Any]:
    options = programs.request.options
    cpus = cpus_near(programs.endpoint.numa, programs.request.sys)
    command, limit = programs.client(name, port, ucx, cpus), options.ends_s
    result = client(command.argv, env=command.env, limit_s=limit + 2 * exchanges.END_S)
    if result.rc in (124, 137):
        return {"problem": f"not finished within {limit:g} s"}
    if result.rc != 0:
        lines = exchanges.error_lines(f"{result.stdout}\n{result.stderr}")
        return {"problem": f"{exchanges.PROGRAMS[name]} exited with status {result.rc}: {lines}"}
    # ucx_perftest does not print its message size.
    return {"bytes": options.message_bytes, **exchanges.figures(name, result.stdout)}
