# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""mpirun in threads: the program of the ranks as it is, over nodes and rails that only count.

What a collective sends is counted as one of MPI's algorithms would send it, over the rail that UCX
would take: of several devices the first, and where sockets are not bound that of the routes.
"""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import numpy
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.launch import Outcome
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import (
    RAIL_BIND,
    Node,
    Plan,
    command,
)
from pytest import MonkeyPatch

from tests.unit import programs
from tests.unit.programs import ROOT

FILES = ROOT / "roles/mpi_stack/files"
me = threading.local()

Moves = Iterator[tuple[int, int, float]]
Algorithm = Callable[[int], Moves]


def ring(ranks: int) -> Moves:
    """Who sends to whom, in buffers: each to the next one alone."""
    for rank in range(ranks):
        yield rank, (rank + 1) % ranks, 2 * (ranks - 1) / ranks


def doubling(ranks: int) -> Moves:
    """Recursive doubling; ranks beyond a power of two are folded into their neighbours."""
    power = 1 << int(math.log2(ranks))
    beyond = ranks - power
    for pair in range(beyond):
        yield 2 * pair, 2 * pair + 1, 1
        yield 2 * pair + 1, 2 * pair, 1
    left = [2 * pair + 1 for pair in range(beyond)] + list(range(2 * beyond, ranks))
    for step in range(int(math.log2(power))):
        for place in range(power):
            yield left[place], left[place ^ (1 << step)], 1


class Comm:
    """A communicator of mpi4py, as far as the program uses it."""

    def __init__(self, launch: Launch, members: Sequence[int]) -> None:
        self.launch, self.members = launch, members
        self.meeting = threading.Barrier(len(members))
        launch.meetings.append(self.meeting)
        self.told: list[Any] = [None] * len(members)

    def Get_rank(self) -> int:
        return self.members.index(me.rank)

    def Get_size(self) -> int:
        return len(self.members)

    def all_of(self, value: Any) -> list[Any]:
        self.told[self.Get_rank()] = value
        self.meeting.wait()
        found = list(self.told)
        self.meeting.wait()
        return found

    def Barrier(self) -> None:
        self.all_of(None)

    def gather(self, value: Any) -> Optional[list[Any]]:
        found = self.all_of(value)
        return found if self.Get_rank() == 0 else None

    def Split_type(self, _shared: Any) -> Comm:
        return self.Split(self.launch.ranks[me.rank].node.name, me.rank)

    def Split(self, color: Any, key: int) -> Comm:
        alike = sorted(
            entry[1:] for entry in self.all_of((color, key, me.rank)) if entry[0] == color
        )
        members = [rank for _key, rank in alike]
        made = self.all_of(Comm(self.launch, members) if members[0] == me.rank else None)
        return made[self.members.index(members[0])]

    def Allreduce(self, mine: Any, result: Any, operation: Any) -> None:
        values = self.all_of((result if mine is None else mine).copy())
        result[...] = functools.reduce(operation, values)
        if self.Get_rank() == 0:
            self.launch.move(self.members, result.nbytes)


class Launch:
    """One mpirun."""

    def __init__(self, nodes: NodesInThreads, plan: Plan, argv: Sequence[str]) -> None:
        self.nodes = nodes
        self.meetings: list[threading.Barrier] = []
        binding: Sequence[str] = ()
        if RAIL_BIND in argv:
            binding = argv[argv.index(RAIL_BIND) + 1 : argv.index(plan.python)]
        parameters = {one[0]: one[1] for one in zip(argv[2::3], argv[3::3])}
        self.binds = not nodes.routed or parameters.get("pml") == "ob1"
        self.ranks = [
            SimpleNamespace(
                node=node, rails=nodes.rails_of(node, number, RAIL_BIND in argv, binding)
            )
            for node in plan.nodes
            for number in range(node.slots)
        ]
        self.records: list[dict[str, Any]] = []
        self.failure: Optional[BaseException] = None
        self.spec = json.loads(argv[-1])
        self.world = Comm(self, range(len(self.ranks)))

    def move(self, members: Sequence[int], size: int) -> None:
        for source, target, buffers in self.nodes.algorithm(len(members)):
            one, other = (self.ranks[members[place]] for place in (source, target))
            connects = members[source] < members[target]
            if one.node is not other.node:
                rail = one.rails[0] if self.binds or not connects else one.node.rails[0]
                with self.nodes.lock:
                    self.nodes.sent[one.node.name][rail] += int(buffers * size)

    def rank(self, number: int, program: ModuleType) -> None:
        me.rank, me.node = number, self.ranks[number].node.name
        log = f"UCX  INFO  ep_cfg[2]: tag(tcp/{self.ranks[number].rails[0]})"
        try:
            report = SimpleNamespace(write=self.write)
            program.run(self.spec, report, SimpleNamespace(text=lambda: log))
        except BaseException as error:
            self.failure = self.failure or error
            for meeting in self.meetings:
                meeting.abort()

    def write(self, kind: str, **values: Any) -> None:
        self.records.append(json.loads(json.dumps({"kind": kind, **values})))


@functools.cache  # most nodes of a cluster, and of the next test's, have the same environment
def bound_rails(
    environment: tuple[tuple[str, str], ...], number: int, words: tuple[str, ...]
) -> list[str]:
    """What the installed rail-bind gives to a rank of a node."""
    done = subprocess.run(
        ["/bin/sh", str(FILES / "rail-bind"), *words, "printenv", "UCX_NET_DEVICES"],
        env={
            "PATH": "/usr/bin:/bin",
            **dict(environment),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().split(",")


class NodesInThreads:
    """Answers as ssh and mpirun would. `by_hand` is what somebody set on one node."""

    def __init__(
        self,
        monkeypatch: MonkeyPatch,
        environments: Mapping[str, Mapping[str, str]],
        algorithm: Algorithm,
        routed: bool,
    ) -> None:
        self.environments, self.algorithm, self.routed = environments, algorithm, routed
        self.by_hand: dict[str, dict[str, str]] = {}
        self.sent: dict[str, dict[str, int]] = {}
        self.lock = threading.Lock()
        self.runs: list[list[str]] = []
        mpi = type("MPI", (), {"COMM_WORLD": property(lambda _self: me.world)})()
        mpi.COMM_TYPE_SHARED = mpi.IN_PLACE = mpi.COMM_NULL = mpi.UNDEFINED = None
        mpi.SUM, mpi.MAX = numpy.add, numpy.maximum
        mpi.MIN, mpi.PROD = numpy.minimum, numpy.multiply
        mpi.Get_library_version = lambda: "threads, of Python"
        monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi, __version__="0"))
        self.program = programs.program(str(FILES / "allreduce.py"))
        nodes = self

        class Counted(self.program.Counted):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                self.interfaces = {
                    name: [sent, 0] for name, sent in (*nodes.sent[me.node].items(), ("mgmt0", 0))
                }
                self.rdma = {}

        monkeypatch.setattr(self.program, "Counted", Counted)
        monkeypatch.setattr(self.program, "host_name", lambda: me.node)

    def rails_of(self, node: Node, number: int, bound: bool, words: Sequence[str]) -> list[str]:
        """The devices of a rank, by the environment of its node and the installed rail-bind."""
        environment = {**self.environments[node.name], **self.by_hand.get(node.name, {})}
        if not bound:
            return environment["UCX_NET_DEVICES"].split(",")
        return bound_rails(tuple(sorted(environment.items())), number, tuple(words))

    def ssh(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        said = "mpi-ready program abc\nmpi-ready orted yes\nmpi-ready end\n"
        return Result(tuple(argv), 0, "killed 0 left 0\n" if stdin else said, "")

    def start(
        self, plan: Plan, hostfile: Path, run_id: str, limit_s: float, progress: Any
    ) -> Outcome:
        argv = command(plan, str(hostfile), run_id, limit_s)
        self.runs.append(argv)
        self.sent = {node.name: dict.fromkeys(node.rails, 0) for node in plan.nodes}
        launch = Launch(self, plan, argv)

        def rank(number: int) -> None:
            me.world = launch.world
            launch.rank(number, self.program)

        threads = [threading.Thread(target=rank, args=(n,)) for n in range(len(launch.ranks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if launch.failure is not None:
            raise launch.failure
        for record in launch.records:
            progress(record)
        return Outcome(0, False, 1.0, launch.records, "")
