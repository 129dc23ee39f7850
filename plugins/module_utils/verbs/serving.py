# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The far end: this host's servers under systemd, and their results."""

from __future__ import annotations

import json
import pkgutil
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner, search_path
from ..hardware import Machine
from . import endpoints, exchanges
from .endpoints import Endpoint, NoEndpointError, endpoint
from .request import DIRECTORY, UNIT, EnvironmentFileError, Half, Request, watch_told
from .wire import FORGET, LISTEN_S, RESULT, STATE

COUNTERS = "counters.json"


def program() -> bytes:
    """The serving node's program: one file that Python runs by itself, without the collection."""
    source = pkgutil.get_data(__package__, "wire.py")
    if source is None:
        raise OSError("the source of verbs/wire.py cannot be read")
    return source


class ServingError(Exception):
    """The servers cannot run; the text has the reason and the remedy."""


def start(
    request: Request, machine: Machine, run: Runner, directory: Path = DIRECTORY
) -> tuple[list[int], dict[str, str]]:
    """Servers for all halves that this host serves. Replaces those of an earlier run.

    Returns when all of them listen: their ports, and why rails cannot be served (`rail3 ucx` where
    it is one exchange alone). Raises ServingError.
    """
    stop(run)
    if directory.exists():
        shutil.rmtree(directory)
    found, problems = endpoints_of(request, machine)
    if not found:
        return [], problems
    directory.mkdir(parents=True, mode=0o700)
    plan = plan_of(request, found, run, problems)
    (directory / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (directory / "serve.py").write_bytes(program())
    (directory / COUNTERS).write_text(
        json.dumps(read_counters(request, found, run)), encoding="utf-8"
    )
    run(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit={UNIT}"),
            f"--description=Verification of rails {request.run_id} (baremetal.mpi_roce)",
            f"--property=RuntimeMaxSec={request.limit_s:g}",
            *("--property=TimeoutStopSec=10", "--property=KillMode=mixed"),
            *("--property=LimitMEMLOCK=infinity", f"--setenv=PATH={search_path()}"),
            *(sys.executable, str(directory / "serve.py"), str(directory)),
        ]
    )
    state = wait(directory / STATE)
    if state is None or state["problem"]:
        stop(run)  # nothing collects what did not start
        problem = state["problem"] if state else "the servers did not start"
        raise ServingError(
            f"{problem}: see journalctl -u {UNIT}. If a port is taken, free it (ss -ltnp) or "
            "choose others with rdma_verify_port."
        )
    return [one["port"] for rail in plan["rails"] for one in rail["servers"]], problems


def endpoints_of(request: Request, machine: Machine) -> tuple[dict[str, Endpoint], dict[str, str]]:
    """Endpoints of the rails that this host serves, and why others have none."""
    found: dict[str, Endpoint] = {}
    problems: dict[str, str] = {}
    for half in request.serves:
        try:
            found[half.rail] = endpoint(machine, half.rail, half.address)
        except NoEndpointError as error:
            problems[half.rail] = str(error)
    return found, problems


def physical(request: Request, machine: Machine) -> bool:
    """Whether a rail of this host is a real NIC, whose counters prove the class."""
    found, _problems = endpoints_of(request, machine)
    return any(not one.software for one in found.values())


def plan_of(
    request: Request, found: dict[str, Endpoint], run: Runner, problems: dict[str, str]
) -> dict[str, Any]:
    """The plan of the serving program. Adds to `problems` the exchanges that cannot be served."""
    bind = exchanges.bind_option(request.exchanges, run)
    seen = any(not one.software for one in found.values())
    sniffed = exchanges.sniffed_devices(run) if seen else frozenset()
    served = dict(enumerate(request.exchanges))
    ucx: dict[str, str] = {}
    try:
        if exchanges.UCX in request.exchanges:
            ucx = request.mpi_environment()
    except EnvironmentFileError as error:
        problems.update({f"{rail} {exchanges.UCX}": str(error) for rail in found})
        # The others keep their ports: the peer counts all of them.
        served = {place: name for place, name in served.items() if name != exchanges.UCX}

    def server(half: Half, here: Endpoint, name: str, port: int) -> dict[str, Any]:
        tos = request.settings.traffic_class
        programs = exchanges.Programs(here, half.address, tos, request.effort, bind)
        command = programs.server(name, port, ucx, request.limit_s)
        argv, env = list(command.argv), dict(command.env)
        return {"exchange": name, "port": port, "argv": argv, "env": env}

    rails = []
    for half in request.serves:
        here = found.get(half.rail)
        if here is not None:
            by = exchanges.watched_by(here.software, here.device, sniffed)
            rails.append(
                {
                    "rail": half.rail,
                    "peer": half.peer,
                    "watch": watch_told(request, half, by, here.device),
                    "servers": [
                        server(half, here, name, half.port + place)
                        for place, name in served.items()
                    ],
                }
            )
    return {"run_id": request.run_id, "rails": rails}


def read_counters(
    request: Request, found: dict[str, Endpoint], run: Runner
) -> dict[str, dict[str, int]]:
    return {
        rail: endpoints.read(one.device, one.port, rail, run, request.sys)
        for rail, one in found.items()
    }


def wait(path: Path, limit_s: float = LISTEN_S + 15) -> Optional[dict[str, Any]]:
    """What the program says once its servers listen."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if path.exists():
            state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return state
        time.sleep(0.05)
    return None


def stop(run: Runner) -> None:
    """End the servers, if there are any; they write down what they saw."""
    run(["systemctl", "stop", f"{UNIT}.service"], check=False)


def forget(request: Request, run: Runner) -> None:
    """Tell the servers that this host's clients are done, where both have a peer in common."""
    if {half.peer for half in request.drives} & {half.peer for half in request.serves}:
        to = [f"--signal={FORGET.name}", "--kill-who=main", f"{UNIT}.service"]
        run(["systemctl", "kill", *to], check=False)


def collect(
    request: Request, machine: Machine, run: Runner, directory: Path = DIRECTORY
) -> dict[str, Any]:
    """Stop the servers; what each rail saw, and by how much its counters grew.

    Raises ServingError where the servers are not those of this run.
    """
    stop(run)
    try:
        result = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        before = json.loads((directory / COUNTERS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ServingError(
            f"the servers were killed or ran into their time limit of {request.limit_s:g} s: see "
            f"journalctl -u {UNIT}"
        ) from None
    if result["run_id"] != request.run_id:
        raise ServingError(
            f"another run ({result['run_id']}) has taken the servers over; verify one at a time"
        )
    found, _problems = endpoints_of(request, machine)
    after = read_counters(request, found, run)
    for rail, seen in result["rails"].items():
        seen["growth"] = endpoints.grown(before.get(rail, {}), after.get(rail, {}))
    shutil.rmtree(directory)
    rails: dict[str, Any] = result["rails"]
    return rails
