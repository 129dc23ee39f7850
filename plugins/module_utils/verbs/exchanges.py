# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exchanges between two rails: the programs of both ends, and the parsers of their output.

`write_bw`, `write_lat` and `send_bw` are perftest's and prove the rail. perftest gets the traffic
class of the contract, which proves how the NIC treats it. `ucx` is UCX's benchmark with only the
node's environment file, which proves MPI's packets. `gpu_write_bw` is perftest between the memory
of the rail's GPU and that of the peer's. `incast` is perftest from several servers to one client.

Figures of perftest come from the table that every version prints (Ubuntu 22.04 has 4.4; JSON exists
since 24.01), after its heading is verified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner, find_program
from ..mpi import environment as mpi_environment
from ..qos import HostSettings
from .endpoints import Endpoint

INCAST = "incast"
PERFTEST = {
    "write_bw": "ib_write_bw",
    "write_lat": "ib_write_lat",
    "send_bw": "ib_send_bw",
    INCAST: "ib_write_bw",
}
UCX = "ucx"
UCX_PERFTEST = "ucx_perftest"
GPU = "gpu_write_bw"
PROGRAMS = {**PERFTEST, UCX: UCX_PERFTEST, GPU: "ib_write_bw"}
EXCHANGES = tuple(name for name in PROGRAMS if name != INCAST)
"""Exchanges of a pair in order; each has a separate TCP port."""
LATENCY = "write_lat"

MARGIN_S = 30
"""Seconds to connect and register memory, in addition to the measurement."""
END_S = 5
"""Seconds between SIGTERM and SIGKILL."""


class OutputError(Exception):
    """A program succeeded, but its output cannot be parsed; the text contains it."""


@dataclass(frozen=True)
class Options:
    """Options of the module rdma_verify, which documents them."""

    duration_s: int = 2
    message_bytes: int = 65536
    queue_pairs: int = 8
    iterations: int = 1000
    messages: int = 200
    time_limit_s: int = 30
    min_write_share: Optional[float] = None
    min_send_share: Optional[float] = None
    max_latency_us: Optional[float] = None
    min_gpu_write_share: Optional[float] = None
    cuda_perftest: str = PROGRAMS[GPU]
    cuda_dmabuf: bool = True

    @property
    def needs_cuda(self) -> bool:
        """Whether a perftest with CUDA was configured, so that its absence is a failure."""
        return self.cuda_perftest != PROGRAMS[GPU]

    @property
    def ends_s(self) -> int:
        """Seconds after which an exchange is stopped and counts as failed."""
        return max(self.time_limit_s, self.duration_s + MARGIN_S)


@dataclass(frozen=True)
class Half:
    """A pair, as seen from one of its hosts."""

    rail: str
    """Interface of the rail, the same name on both hosts: `rail3`, `rail3p1`."""
    address: str
    peer: str
    peer_address: str
    port: int
    """TCP port of the first exchange on the serving host."""
    gpu: Optional[int] = None
    """GPU of the rail on this host, if the model has one at both ends."""
    peer_gbps: Optional[float] = None
    """Line rate of the peer's rail, if it is lower."""
    fair: Optional[float] = None
    """In an incast, the share of its line rate that each sender can have."""


@dataclass(frozen=True)
class VerifyRequest:
    """Work of one host in one run."""

    run_id: str
    host: str
    settings: HostSettings
    drives: tuple[Half, ...] = ()
    serves: tuple[Half, ...] = ()
    exchanges: tuple[str, ...] = EXCHANGES
    incast: str = ""
    """Where the senders of an incast are: `leaf` or `spine`; otherwise the exchanges are run."""
    options: Options = Options()
    speeds_gbps: Mapping[str, float] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)
    limit_s: float = 600.0
    """Seconds after which the servers are stopped in any case."""
    lost: tuple[str, ...] = ()
    """Peers that failed or became unreachable."""
    unserved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The reason for each rail that a peer cannot serve, by peer."""
    environment_file: Path = Path(mpi_environment.ENVIRONMENT_FILE)
    sys: Path = Path("/sys")

    def without_gpu(self, half: Half, gpus: bool) -> str:
        """Why GPU memory is not measured over a rail; empty if it is."""
        if half.gpu is None:
            return f"{half.rail} has no GPU at both ends in the model"
        return "" if gpus else f"{self.host} has no GPU"

    def mpi_environment(self) -> dict[str, str]:
        if UCX not in self.exchanges:
            return {}
        try:
            text = self.environment_file.read_text(encoding="utf-8")
            return mpi_environment.parse_environment(text)
        except (OSError, ValueError) as error:
            file = self.environment_file
            raise OSError(f"{file}: {error}; run --tags mpi --limit {self.host}") from error

    def watch(self, half: Half, here: Endpoint) -> dict[str, Any]:
        """Plan for counting the packets of a rail, in the format of wire.py."""
        return {
            "kernel": here.software,
            "interface": half.rail,
            "peer": half.peer_address,
            "traffic_class": self.settings.traffic_class,
        }


@dataclass(frozen=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Programs:
    request: VerifyRequest
    half: Half
    endpoint: Endpoint
    perftest: Perftest

    def server(self, name: str, port: int, ucx: Mapping[str, str]) -> Command:
        """The server, which exits after one client."""
        own = (UCX_PERFTEST, "-p", str(port)) if name == UCX else self._perftest(name, port)
        return Command((*_bounded(self.request.limit_s), *own), self._environment(name, ucx))

    def client(self, name: str, port: int, ucx: Mapping[str, str], cpus: str = "") -> Command:
        """The client, on the CPUs of a list (`0-55`)."""
        options, peer = self.request.options, self.half.peer_address
        guard = (*_bounded(options.ends_s), *(("taskset", "--cpu-list", cpus) if cpus else ()))
        if name == UCX:
            argv = (UCX_PERFTEST, peer, "-p", str(port), "-t", "tag_bw", "-f", "-v")
            amount = ("-s", str(options.message_bytes), "-n", str(options.messages), "-w", "10")
            own: tuple[str, ...] = (*argv, *amount)
        else:
            own = (*self._perftest(name, port), peer)
        return Command((*guard, *own), self._environment(name, ucx))

    def _perftest(self, name: str, port: int) -> tuple[str, ...]:
        """Arguments of both ends, which must use the same amount."""
        here, options = self.endpoint, self.request.options
        amount: tuple[str, ...] = ("-n", str(options.iterations), "-s", "2")
        if name != LATENCY:
            length = ("-D", str(options.duration_s)) if options.duration_s else amount[:2]
            many = ("-q", str(options.queue_pairs), *length, "--report_gbits")
            amount = ("-s", str(options.message_bytes), *many)
        if name == INCAST:
            # The server sends: perftest_parameters.c, "fan-in addition" (linux-rdma/perftest
            # 00b55b6; since 2013).
            amount += ("--reversed",)
        program, bind = PROGRAMS[name], self.perftest.bind
        if name == GPU:
            program, bind = options.cuda_perftest, self.perftest.gpu_bind
            # perftest requires this order: it refuses --use_cuda_dmabuf before --use_cuda.
            amount += (f"--use_cuda={self.half.gpu}",)
            amount += ("--use_cuda_dmabuf",) if options.cuda_dmabuf else ()
        return (
            *(program, "-d", here.device, "-i", str(here.port), "-x", str(here.gid_index)),
            *(f"--tclass={self.request.settings.traffic_class}", "-p", str(port), "-F", *amount),
            *((f"{bind}={self.half.address}",) if bind else ()),
        )

    def _environment(self, name: str, ucx: Mapping[str, str]) -> dict[str, str]:
        """The node's own UCX environment, restricted to one rail."""
        if name == UCX:
            return {**ucx, "UCX_NET_DEVICES": f"{self.endpoint.device}:{self.endpoint.port}"}
        # GPU k is the k-th on the PCI bus, as in nvidia-smi; by default CUDA sorts by speed.
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if name == GPU else {}


def _bounded(limit_s: float) -> tuple[str, ...]:
    """Stop the program at the limit, even if its parent was killed."""
    return ("timeout", f"--kill-after={END_S}", f"{limit_s:g}")


ERROR_LINE = re.compile(
    r"\bERROR\b|Fatal|[Ff]ail|Unable|Couldn't|not found|ncompatib|not available|not support|"
    r"nsupported|No such|\bcu[A-Z]\w+(\(.*\))? (error|returned)"
)
MAX_LINES = 3


def error_lines(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    found = [line for line in lines if ERROR_LINE.search(line)] or lines[-MAX_LINES:]
    return "; ".join(dict.fromkeys(found[:MAX_LINES])) or "it printed nothing"


def figures(name: str, printed: str) -> dict[str, Any]:
    """Parse the figures of an exchange: for each program, the row below its heading.

    Bandwidths are in Gbit/s (10^9), times in microseconds. Raises OutputError.
    """
    try:
        return _ucx_figures(printed) if name == UCX else _perftest_figures(name, printed)
    except (StopIteration, KeyError, ValueError) as error:
        tail = printed.strip()[-300:]
        raise OutputError(f"{PROGRAMS[name]}: no figures ({error!r}) in {tail!r}") from error


def _perftest_figures(name: str, printed: str) -> dict[str, Any]:
    columns, width, unit = {"gbits_s": 3}, 5, "BW average[Gb/sec]"
    if name == LATENCY:
        columns, width, unit = {"median_us": 4, "p99_us": 7}, 8, "t_typical[usec]"
    lines = printed.splitlines()
    cells = next(
        row.split()
        for heading, row in zip(lines, lines[1:])
        if heading.split()[:1] == ["#bytes"] and unit in heading and len(row.split()) >= width
    )
    mtu = re.search(r"^\s*Mtu\s*:\s*(\d+)", printed, re.M)
    return {
        "bytes": int(cells[0]),
        "iterations": int(cells[1]),
        **{key: measured(cells[at]) for key, at in columns.items()},
        "path_mtu": int(mtu[1]) if mtu else None,
    }


def measured(text: str) -> Optional[float]:
    """A figure, or None for values that cannot be one: 0, inf, nan.

    perftest measures time in processor cycles, and prints such values without a clock rate, for
    example under emulation.
    """
    number = float(text)
    return number if math.isfinite(number) and number > 0 else None


def _ucx_figures(printed: str) -> dict[str, Any]:
    """Parse the comma-separated output of ucx_perftest, whose MB are 2^20 bytes."""
    lines = [line.strip().split(",") for line in printed.splitlines()]
    names, row = next(pair for pair in zip(lines, lines[1:]) if pair[0][0] == "iterations")
    values = dict(zip(names, row))
    return {
        "iterations": int(values["iterations"]),
        "gbits_s": round(float(values["overall_bw"]) * 8 * 2**20 / 1e9, 6),
    }


# Programs on this node: missing ones, and capabilities of the others.


def missing(names: Iterable[str]) -> list[str]:
    """Programs that this node needs and lacks."""
    return [PROGRAMS[name] for name in names if find_program(PROGRAMS[name]) is None]


@dataclass(frozen=True)
class Perftest:
    """Capabilities of the installed perftest, from `--help`: all its programs share options."""

    bind: str = ""
    """Option that binds TCP connections to an address; empty if there is none."""
    gpu_bind: str = ""
    """The same option of the perftest that measures GPU memory."""
    problem: str = ""

    @classmethod
    def of(cls, request: VerifyRequest, gpus: bool, run: Runner) -> Perftest:
        """Read the capabilities; those for GPU memory only if the node has `gpus`."""
        name = next((name for name in request.exchanges if name in PERFTEST), None)
        bind = _bind(_help(PERFTEST[name], run)) if name else ""
        if GPU not in request.exchanges or not gpus:
            return cls(bind)
        program, dmabuf = request.options.cuda_perftest, request.options.cuda_dmabuf
        text = _help(program, run) if find_program(program) else ""
        problem = ""
        if not text:
            problem = "not found"
        elif "--use_cuda=" not in text:
            problem = "was built without CUDA"
        elif dmabuf and "--use_cuda_dmabuf" not in text:
            problem = "was built without dma-buf (requires CUDA 11.7 or later)"
        if problem:
            problem = (
                f"{program} {problem}: build perftest with CUDA's headers, and set "
                "rdma_verify_cuda_perftest to the path of its ib_write_bw"
            )
        return cls(bind, _bind(text), problem)


def _help(program: str, run: Runner) -> str:
    answer = run([program, "--help"], check=False)
    return answer.stdout + answer.stderr


def _bind(text: str) -> str:
    """The option was renamed once, and one version lacked it."""
    return next((name for name in ("--bind_source_ip", "--source_ip") if name in text), "")
