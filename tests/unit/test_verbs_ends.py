# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends: filters of packets, the program of a serving node, and the clients."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import FAILED
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    Gid,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.port_settings import Ethtool
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import (
    ends,
    evaluation,
    exchanges,
    wire,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.endpoints import (
    NoEndpointError,
    SharedEndpointError,
    endpoint,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    EXCHANGES,
    Half,
    VerifyRequest,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import verbs as table
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.loopback import held_port, own_address
from tests.waiting import deadline, until

PYTHON = (sys.executable, "-I", "-S")
"""Listen immediately."""
SERVER = """
import socket, sys
one = socket.create_server(("127.0.0.1", int(sys.argv[1])))
one.accept()[0].close()
print("served")
"""
PEER = own_address()
SETTINGS = host_settings(read_contract({}))
Ports = Callable[[int], list[int]]
WATCH = {"kernel": True, "interface": "lo", "peer": PEER, "traffic_class": 106}


@pytest.fixture
def free_ports() -> Iterator[Ports]:
    """Unused ports for servers of the test."""
    held: list[socket.socket] = []

    def some(count: int) -> list[int]:
        held.extend(held_port() for _ in range(count))
        return [one.getsockname()[1] for one in held[-count:]]

    yield some
    for one in held:
        one.close()


def plan(ports: Sequence[int], argv: Optional[list[str]] = None) -> dict[str, Any]:
    servers = [
        {
            "exchange": f"exchange{place}",
            "port": port,
            "argv": argv or [*PYTHON, "-c", SERVER, str(port)],
            "env": {"MARK": "here"},
        }
        for place, port in enumerate(ports)
    ]
    watch = {**WATCH, "kernel": False}
    rail = {"rail": "rail0", "peer": "node01", "watch": watch, "servers": servers}
    return {"run_id": "run1", "rails": [rail]}


class Program:
    """Run the program like systemd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self, given: dict[str, Any]) -> dict[str, Any]:
        (self.directory / "plan.json").write_text(json.dumps(given))
        (self.directory / "serve.py").write_bytes(Path(wire.__file__).read_bytes())
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(self.directory / "serve.py"), str(self.directory)]
        )
        state = ends.wait(self.directory / wire.STATE, deadline(120))
        assert state is not None
        return state

    def children(self) -> list[int]:
        """Children of the program, except those whose exit it has seen."""
        assert self.process is not None
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, check=False
        )
        return [int(pid) for pid in listed.stdout.split()]

    def wait_for_servers(self, left: int) -> None:
        until(lambda: len(self.children()) <= left, f"all servers but {left} to end")

    def wait_for_counts(self) -> None:
        """Wait until the program has read every packet of its sockets."""
        until(lambda: self.unread() == 0, "the packets to be counted", every=0.02)

    def unread(self) -> int:
        """Bytes in its packet sockets."""
        assert self.process is not None
        mine = set()
        for handle in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                mine.add(str(handle.readlink()))
        rows = [line.split() for line in Path("/proc/net/packet").read_text().splitlines()[1:]]
        return sum(int(row[6]) for row in rows if f"socket:[{row[8]}]" in mine)

    def end(self, stop: bool = False) -> dict[str, Any]:
        assert self.process is not None
        if stop:
            self.process.terminate()
        self.process.wait(timeout=deadline(120))
        result: dict[str, Any] = json.loads((self.directory / wire.RESULT).read_text())
        return result


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    one = Program(tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.kill()
        one.process.wait()


def test_the_report_follows_the_servers(program: Program, free_ports: Ports) -> None:
    ports = free_ports(3)
    given = plan(ports)
    source = SERVER + "sys.exit('completion with error')"
    given["rails"][0]["servers"][2]["argv"] = [*PYTHON, "-c", source, str(ports[2])]
    assert program.start(given) == {"run_id": "run1", "problem": ""}
    for port in ports:
        socket.create_connection(("127.0.0.1", port), timeout=deadline(60)).close()
    result = program.end()["rails"]["rail0"]
    found = result["exchanges"]
    assert [found[f"exchange{place}"]["rc"] for place in range(3)] == [0, 0, 1]
    assert (result["peer"], found["exchange0"]["log"]) == ("node01", "")
    assert "completion with error" in found["exchange2"]["log"]


def test_sigterm_stops_the_servers_and_writes_the_report(
    program: Program, free_ports: Ports
) -> None:
    ports = free_ports(2)
    program.start(plan(ports))
    socket.create_connection(("127.0.0.1", ports[0]), timeout=deadline(60)).close()
    program.wait_for_servers(1)
    found = program.end(stop=True)["rails"]["rail0"]["exchanges"]
    assert found["exchange0"]["rc"] == 0
    assert found["exchange1"]["rc"] is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[1]), timeout=deadline(60))


def test_a_port_in_use_is_reported(program: Program, free_ports: Ports) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        state = program.start(plan([*free_ports(1), port]))
    assert state["problem"] == f"TCP port {port} is in use by another program"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([*PYTHON, "-c", "import sys; sys.exit('no port')"], "status 1: no port"),
        (["no-such-program"], "No such file or directory: no-such-program"),
    ],
)
def test_a_server_that_does_not_start_is_a_problem(
    program: Program, free_ports: Ports, argv: list[str], problem: str
) -> None:
    assert problem in program.start(plan(free_ports(1), argv))["problem"]


@pytest.fixture
def seen() -> Iterator[wire.Witness]:
    """Receives every packet after the program: the kernel serves the latest socket first."""
    try:
        first = wire.Witness(WATCH)
    except PermissionError:
        pytest.skip("raw sockets need root")
    yield first
    first.close()


def send(tos: int, count: int, seen: wire.Witness) -> None:
    """Return when all of them have arrived."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((PEER, 0))
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        for _ in range(count):
            one.sendto(bytes(61), (PEER, 4791))
    arrived = 0

    def all_of_them() -> bool:
        nonlocal arrived
        arrived += (seen.take() or {})["in"]["packets"]
        return arrived == count

    until(all_of_them, f"{count} packets", every=0.02)


def test_packets_are_counted_with_the_server_they_came_with(
    program: Program, free_ports: Ports, seen: wire.Witness
) -> None:
    ports = free_ports(2)
    given = plan(ports)
    given["rails"][0]["watch"]["kernel"] = True
    assert program.start(given)["problem"] == ""
    for place, port in enumerate(ports):
        send((106, 98)[place], 10 + place, seen)
        assert program.unread() > 0
        socket.create_connection(("127.0.0.1", port), timeout=deadline(60)).close()
        if place == 0:  # exits after the last one
            program.wait_for_counts()
    found = program.end()["rails"]["rail0"]["exchanges"]
    for way in ("in", "out"):  # every packet passes loopback in both directions
        first, second = (found[name]["wire"][way] for name in ("exchange0", "exchange1"))
        assert (first["packets"], first["wrong"]) == (10, 0)
        assert (second["packets"], second["wrong"]) == (11, 11)
        assert "TOS 98 (DSCP 24, ECT(0))" in second["first_wrong"]


def test_earlier_packets_do_not_count(
    program: Program, free_ports: Ports, seen: wire.Witness
) -> None:
    """Answers to its clients come from the same peer as requests to its servers."""
    (port,) = free_ports(1)
    given = plan([port])
    given["rails"][0]["watch"]["kernel"] = True
    program.start(given)
    assert program.process is not None
    send(106, 5, seen)
    assert program.unread() > 0
    program.process.send_signal(wire.FORGET)
    program.wait_for_counts()
    send(106, 3, seen)
    socket.create_connection(("127.0.0.1", port), timeout=deadline(60)).close()
    found = program.end()["rails"]["rail0"]["exchanges"]["exchange0"]
    assert found["wire"]["in"]["packets"] == 3


def test_only_mutual_peers_get_the_forget_signal(tmp_path: Path) -> None:
    asked = request(tmp_path)
    run = Recorded()
    ends.forget(asked, run)
    assert run.seen == []
    other_rail = tuple(replace(half, peer_address="10.9.0.1") for half in asked.serves)
    ends.forget(replace(asked, drives=other_rail), run)
    assert run.seen == []
    ends.forget(replace(asked, drives=asked.serves), run)
    (argv,) = run.seen
    assert argv[:3] == ("systemctl", "kill", "--signal=SIGUSR1")


# Serving


def machine(*gids: Gid, kind: str = "rail", state: str = "ACTIVE") -> Machine:
    device = RdmaDevice(kind, "mlx5_3", 1, "rail3", port_state=state, gids=gids, numa=1)
    return Machine(ports=(device,))


V1 = Gid(2, "::ffff:10.3.0.2", "IB/RoCE v1", "rail3")
V2 = Gid(3, "::ffff:10.3.0.2", "RoCE v2", "rail3")
OTHER = Gid(1, "fe80::1", "RoCE v2", "rail3")


def test_the_gid_has_the_rails_address() -> None:
    found = endpoint(machine(OTHER, V1, V2), "rail3", "10.3.0.2")
    assert (found.device, found.port, found.gid_index, found.software) == ("mlx5_3", 1, 3, False)
    assert endpoint(machine(V2, kind="software"), "rail3", "10.3.0.2").software


def test_a_plane_without_a_device_is_measured_by_the_first(tmp_path: Path) -> None:
    first = RdmaDevice("rail", "mlx5_3", netdev="rail2", pci="0000:5d:00.0", driver="mlx5_core")
    plane = replace(first, name="", netdev="rail3", pci="0000:5d:00.1")
    found = Machine(ports=(first, plane))
    with pytest.raises(SharedEndpointError, match="shares mlx5_3 of rail2"):
        endpoint(found, "rail3", "10.3.0.2")
    half = Half("rail3", "10.3.0.2", "node01", "10.3.0.1", 18515)
    asked = replace(request(tmp_path), drives=(half,))
    (pair,) = ends.drive(asked, found, Recorded())
    (check,) = evaluation.driven(asked, [pair])
    assert (check.name, check.status) == ("pair", "not_applicable")
    assert table.lines([pair], "")[2].split()[-1] == "shared"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Machine(), "rail3 has no RDMA device"),
        (machine(OTHER, V1), "10.3.0.2 (it has 1: fe80::1 RoCE v2, 2: ::ffff"),
        (machine(V2, state="DOWN"), "DOWN"),
    ],
)
def test_a_rail_without_endpoint_has_its_reason(found: Machine, reason: str) -> None:
    with pytest.raises(NoEndpointError) as error:
        endpoint(found, "rail3", "10.3.0.2")
    assert reason in str(error.value)


class Recorded:
    """Fake programs with canned output."""

    def __init__(self, **printed: str) -> None:
        self.printed = printed
        self.seen: list[tuple[str, ...]] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.seen.append(tuple(argv))
        return Result(tuple(argv), 0, self.printed.get(argv[0], ""), "")


def request(tmp_path: Path, names: tuple[str, ...] = ("write_bw", "ucx")) -> VerifyRequest:
    file = tmp_path / "mpi.env"
    file.write_text("UCX_IB_TRAFFIC_CLASS=106\nUCX_NET_DEVICES=mlx5_0:1,mlx5_3:1\n")
    half = Half("rail3", "10.3.0.2", "node01", "10.3.0.1", 18515)
    return VerifyRequest(
        "run1", "node02", SETTINGS, serves=(half,), exchanges=names, environment_file=file
    )


def test_the_plan_of_the_program(tmp_path: Path) -> None:
    run = Recorded(ib_write_bw="--out_json_file --bind_source_ip")
    asked = request(tmp_path)
    found, problems = ends.endpoints_of(asked, machine(V2))
    (rail,) = ends.plan_of(asked, found, problems, machine(V2), run)["rails"]
    assert problems == {}
    assert rail["watch"]["kernel"] is False
    assert rail["watch"]["traffic_class"] == SETTINGS.traffic_class
    assert [one["port"] for one in rail["servers"]] == [18515, 18516]
    assert "--bind_source_ip=10.3.0.2" in rail["servers"][0]["argv"]
    assert rail["servers"][1]["env"]["UCX_IB_TRAFFIC_CLASS"] == "106"
    assert rail["servers"][1]["env"]["UCX_NET_DEVICES"] == "mlx5_3:1"
    found, problems = ends.endpoints_of(asked, machine(OTHER))
    assert (found, list(problems)) == ({}, ["rail3"])


def test_servers_of_another_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ends.ServingError, match="time limit of 600 s"):
        ends.collect(request(tmp_path), Recorded(), tmp_path)
    (tmp_path / wire.RESULT).write_text(json.dumps({"run_id": "other", "rails": {}}))
    (tmp_path / ends.COUNTERS).write_text("{}")
    with pytest.raises(ends.ServingError, match="another run"):
        ends.collect(request(tmp_path), Recorded(), tmp_path)


def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Machine, after: Mapping[str, int]
) -> Any:
    """Collected results with the counters COUNTED before, and `after` at the end."""
    answers = iter((COUNTED, after))
    monkeypatch.setattr(Ethtool, "statistics", lambda _self, _rail: next(answers))
    monkeypatch.setattr(ends, "wait", lambda _path: {"run_id": "run1", "problem": ""})
    more = {"health": LIMITS, "speeds_gbps": {"rail3": 800.0}}
    asked = replace(request(tmp_path), sys=tmp_path / "sys", **more)
    directory = tmp_path / "run"
    ends.start(asked, found, Recorded(), directory)
    rail = {"peer": "node01", "exchanges": {}}
    result = {"run_id": "run1", "rails": {"rail3": rail}}
    (directory / wire.RESULT).write_text(json.dumps(result))
    seen = ends.collect(asked, Recorded(), directory)
    return seen, evaluation.served(asked, seen)


LIMITS = {
    **dict.fromkeys(("effective_ber", "module_celsius", "power_margin_db")),
    "new_errors": 0,
    "raw_ber": 2.4e-4,
}
COUNTED = {
    "rx_prio3_bytes": 5,
    "rx_prio3_discards": 0,
    "link_down_events_phy": 3,
    "rx_pcs_symbol_err_phy": 386,
    "rx_corrected_bits_phy": 17750739,
    "rx_packets": 1,
}


def test_port_health_is_measured_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = {"rx_pcs_symbol_err_phy": 390, "rx_prio3_bytes": 9, "rx_prio3_discards": 2}
    worse = {**COUNTED, **grown, "rx_packets": 2}
    seen, checks = served(tmp_path, monkeypatch, machine(V2), worse)
    assert seen["rail3"]["growth"] == {
        **{"rx_prio3_bytes": 4, "rx_prio3_discards": 2},
        "rx_pcs_symbol_err_phy": 4,
    }
    json.dumps(seen)
    (check,) = (check for check in checks if check.name == "rail_health")
    assert (check.subject, check.status) == ("rail3", FAILED)
    assert "rx_pcs_symbol_err_phy 4" in check.reason and check.found["effective_ber"] > 4 / (
        800e9 * 600
    )
    assert "discards" not in check.reason, "rail_losses reports them"
    assert "rx_prio3_bytes" not in check.found
    _seen, checks = served(tmp_path, monkeypatch, machine(V2), {})
    (check,) = (check for check in checks if check.name == "rail_health")
    assert check.status == FAILED and "dmesg" in check.reason
    assert served(tmp_path, monkeypatch, machine(V2, kind="software"), {})[1] == []


def test_servers_that_do_not_start_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not collected."""
    problem = {"run_id": "run1", "problem": "TCP port 18515 is in use by another program"}
    for state in (problem, None):
        monkeypatch.setattr(ends, "wait", lambda _path, state=state: state)
        run = Recorded()
        with pytest.raises(ends.ServingError):
            ends.start(request(tmp_path), machine(V2), run, tmp_path / "run")
        assert run.seen[-2][0] == "systemd-run"
        assert run.seen[-1][:2] == ("systemctl", "stop")


# Driving

DATA = Path(__file__).parent / "data/verbs"
HELP = "--out_json_file=<file> --source_ip"


def soft_rail(number: int) -> RdmaDevice:
    gid = Gid(1, f"::ffff:10.{number}.0.1", "RoCE v2", f"rail{number}")
    return RdmaDevice("software", f"rxe{number}", 1, f"rail{number}", gids=(gid,))


SOFT = Machine(ports=(soft_rail(0), soft_rail(1)))


def driven(tmp_path: Path, names: tuple[str, ...] = EXCHANGES) -> VerifyRequest:
    file = tmp_path / "mpi.env"
    file.write_text("UCX_IB_TRAFFIC_CLASS=106\nUCX_TLS=rc,ud,sm,self\nNCCL_IB_TC=106\n")
    drives = tuple(
        Half(f"rail{number}", f"10.{number}.0.1", "node02", f"10.{number}.0.2", 18515 + 5 * number)
        for number in (0, 1)
    )
    return VerifyRequest(
        "run1",
        "node01",
        SETTINGS,
        drives=drives,
        exchanges=names,
        environment_file=file,
        sys=tmp_path,
    )


def helps(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
    return Result(tuple(argv), 0, HELP, "")


class Watch:
    def __init__(self, how: Mapping[str, Any]) -> None:
        self.how = how
        self.closed = False
        self.taken = 0

    def take(self) -> dict[str, Any]:
        self.taken += 1
        return {"out": {"packets": self.taken}, "in": {}}

    def close(self) -> None:
        self.closed = True


class Fake:
    """Fake perftest and UCX; `bad` is the outcome of the program of a port."""

    def __init__(self, bad: Optional[dict[str, Result]] = None) -> None:
        self.bad = bad or {}
        self.ran: list[tuple[str, str]] = []
        self.watches: list[Watch] = []

    def watch(self, how: Mapping[str, Any]) -> Watch:
        self.watches.append(Watch(how))
        return self.watches[-1]

    def __call__(self, argv: tuple[str, ...], *, env: Mapping[str, str], limit_s: float) -> Result:
        port = argv[argv.index("-p") + 1]
        program = next(word for word in argv if word in exchanges.PROGRAMS.values())
        self.ran.append((program, port))
        if port in self.bad:
            return self.bad[port]
        name = "ucx.csv"
        if program != exchanges.UCX_PERFTEST:
            name = "write_lat.txt" if program.endswith("lat") else "write_bw.txt"
        return Result(argv, 0, (DATA / name).read_text(), "")


def drive(asked: VerifyRequest, fake: Fake, machine: Machine = SOFT) -> list[dict[str, Any]]:
    return ends.drive(asked, machine, helps, client=fake, watching=fake.watch)


def test_exchanges_have_figures_and_packets(tmp_path: Path) -> None:
    fake = Fake()
    found = drive(driven(tmp_path), fake)
    assert fake.ran == [
        (exchanges.PROGRAMS[name], str(18515 + 5 * number + place))
        for number in (0, 1)
        for place, name in enumerate(EXCHANGES)
        if name != exchanges.GPU
    ]
    for one in found:
        reason = f"{one['rail']} has no GPU at both ends in the model"
        assert one["exchanges"].pop("gpu_write_bw") == {"skipped": reason}
        measured = one["exchanges"].values()
        assert [each["wire"]["out"]["packets"] for each in measured] == [1, 2, 3, 4]
    assert found[0]["exchanges"]["write_bw"]["gbits_s"] == 0.63
    assert found[0]["exchanges"]["ucx"]["bytes"] == 65536
    assert found[0]["exchanges"]["ucx"]["environment"] == {
        "UCX_IB_TRAFFIC_CLASS": "106",
        "UCX_TLS": "rc,ud,sm,self",
    }
    assert (found[1]["device"], found[1]["software"]) == ("rxe1", True)
    assert [one.how["peer"] for one in fake.watches] == ["10.0.0.2", "10.1.0.2"]
    assert all(one.closed for one in fake.watches)


def test_after_a_hang_the_next_rail_is_measured(tmp_path: Path) -> None:
    fake = Fake({"18516": Result((), 124, "", "")})
    found = drive(driven(tmp_path), fake)
    ports = [int(port) for _program, port in fake.ran]
    assert ports == [18515, 18516, 18520, 18521, 18522, 18523]
    assert found[0]["exchanges"]["write_lat"]["problem"] == "not finished within 32 s"
    assert "send_bw" not in found[0]["exchanges"]
    assert len(found[1]["exchanges"]) == len(EXCHANGES)


def test_lost_peers_are_skipped(tmp_path: Path) -> None:
    fake = Fake()
    asked = driven(tmp_path)
    slower = replace(asked.drives[0], peer_gbps=400.0)
    slow = replace(asked, drives=(slower,), speeds_gbps={slower.rail: 800.0})
    assert [one["line_rate_gbits_s"] for one in drive(slow, fake)] == [400.0]
    found = drive(replace(asked, lost=("node02",)), fake)
    assert [one.get("lost") for one in found] == [True, True]
    found = drive(replace(asked, unserved={"node02": {"rail1": "no device"}}), fake)
    assert found[1]["problem"] == "node02 cannot serve it: no device"
    assert "write_bw" in found[0]["exchanges"]
    assert {port for _program, port in fake.ran} == {"18515", "18516", "18517", "18518"}


THERE, HERE = "10.0.0.2", "10.0.0.1"
bytes_of_8 = st.integers(0, 255)


def ipv4(
    tos: int,
    source: str = HERE,
    destination: str = THERE,
    port: int = wire.PORT,
    options: int = 0,
    protocol: int = wire.UDP,
) -> bytes:
    udp = struct.pack("!HHHH", 49152, port, 20, 0) + bytes(12)
    length = 20 + 4 * options + len(udp)
    head = struct.pack("!BBHHHBBH", 0x45 + options, tos, length, 0, 0, 64, protocol, 0)
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    return head + ends + bytes(4 * options) + udp


class Interpreter:
    """Interpreter for the instructions of classic BPF that are used."""

    def __init__(self, code: list[tuple[int, int, int, int]]) -> None:
        self.code = code

    def run(self, data: bytes, ethertype: int, outgoing: bool) -> int:
        a = x = place = 0
        while True:
            operation, yes, no, k = self.code[place]
            place += 1
            if operation == wire.RETURN:
                return k
            if operation == wire.LOAD_WORD and k == wire.PROTOCOL:
                a = ethertype
            elif operation == wire.LOAD_WORD and k == wire.KIND:
                a = wire.OUTGOING if outgoing else wire.TO_THIS_HOST
            elif operation in (wire.LOAD_WORD, wire.LOAD_BYTE, wire.LOAD_HALF_AT_X):
                size = {wire.LOAD_WORD: 4, wire.LOAD_BYTE: 1, wire.LOAD_HALF_AT_X: 2}[operation]
                at = k + (x if operation == wire.LOAD_HALF_AT_X else 0)
                if at + size > len(data):
                    return 0
                a = int.from_bytes(data[at : at + size], "big")
            elif operation == wire.HEADER_LENGTH_TO_X:
                x = 4 * (data[k] & 0x0F)
            else:
                assert operation == wire.IF_EQUAL
                place += yes if a == k else no


def passed(
    data: bytes, outgoing: bool, ethertype: int = wire.IPV4, contract: int = 106
) -> list[tuple[str, bool]]:
    """Filters that accept a packet: direction, and whether they are for right ones."""
    return [
        (way, kind)
        for way in (wire.OUT, wire.IN)
        for kind in (True, False)
        if Interpreter(wire.program(THERE, contract, way, kind)).run(data, ethertype, outgoing)
    ]


@given(tos=bytes_of_8, arrives=st.booleans(), options=st.integers(0, 10), near=st.booleans())
def test_the_kernel_judges_by_the_contract(
    tos: int, arrives: bool, options: int, near: bool
) -> None:
    # Half of the examples are close to the contract, where mistakes are likely.
    tos = (106 & ~3 | tos & 3) if near else tos
    source, destination = (THERE, HERE) if arrives else (HERE, THERE)
    right = tos == 106 or (arrives and tos == 106 | wire.CE)
    way = wire.IN if arrives else wire.OUT
    data = ipv4(tos, source, destination, options=options)
    assert passed(data, not arrives) == [(way, right)]


@pytest.mark.parametrize(("contract", "right"), [(106, True), (96, False)])
def test_only_ecn_capable_packets_may_be_marked(contract: int, right: bool) -> None:
    marked = ipv4(contract | wire.CE, THERE, HERE)
    assert passed(marked, False, contract=contract) == [(wire.IN, right)]
    plain = ipv4(contract, THERE, HERE)
    assert passed(plain, False, contract=contract) == [(wire.IN, True)]


def test_packets_of_others_are_not_counted() -> None:
    for data in (
        ipv4(106, HERE, "10.0.0.3"),
        ipv4(106, port=53),
        ipv4(106, protocol=6),
        ipv4(106)[:22],
    ):
        assert passed(data, True) == []
    assert passed(bytes(60), True, 0x0806) == []
