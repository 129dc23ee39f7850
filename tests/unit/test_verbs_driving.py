# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The near end: one client after another, and what stops where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import Machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import (
    Gid,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import (
    driving,
    exchanges,
    judging,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import EXCHANGES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.request import Half, Request
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

DATA = Path(__file__).parent / "data/verbs"
HELP = "--out_json_file=<file> --source_ip"


def rail(number: int) -> RdmaDevice:
    gid = Gid(1, f"::ffff:10.{number}.0.1", "RoCE v2", f"rail{number}")
    return RdmaDevice("software", f"rxe{number}", 1, f"rail{number}", gids=(gid,))


MACHINE = Machine(ports=(rail(0), rail(1)))


def request(tmp_path: Path, exchanges: tuple[str, ...] = EXCHANGES) -> Request:
    file = tmp_path / "mpi.env"
    file.write_text("UCX_IB_TRAFFIC_CLASS=106\nUCX_TLS=rc,ud,sm,self\nNCCL_IB_TC=106\n")
    drives = tuple(
        Half(f"rail{number}", f"10.{number}.0.1", "node02", f"10.{number}.0.2", 18515 + 4 * number)
        for number in (0, 1)
    )
    return Request(
        "run1",
        "node01",
        host_settings(read_contract({})),
        drives=drives,
        exchanges=exchanges,
        environment_file=file,
        sys=tmp_path,
    )


def helps(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
    return Result(tuple(argv), 0, HELP, "")


class Watch:
    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        self.closed = False
        self.taken = 0

    def take(self) -> dict[str, Any]:
        self.taken += 1
        return {"out": {"packets": self.taken}, "in": {}}

    def close(self) -> None:
        self.closed = True


class Fake:
    """perftest and UCX as seen from here; `bad` has what becomes of the program of a port."""

    def __init__(self, bad: Optional[dict[str, Result]] = None) -> None:
        self.bad = bad or {}
        self.ran: list[tuple[str, str]] = []
        self.watches: list[Watch] = []

    def watch(self, told: Mapping[str, Any], _directory: Path) -> Watch:
        self.watches.append(Watch(told))
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


def drive(asked: Request, program: Fake, **more: Any) -> list[dict[str, Any]]:
    return driving.drive(asked, MACHINE, helps, program=program, watching=program.watch, **more)


def test_rails_take_turns_and_each_exchange_has_its_figures_and_packets(tmp_path: Path) -> None:
    fake = Fake()
    found = drive(request(tmp_path), fake)
    assert fake.ran == [
        (exchanges.PROGRAMS[name], str(18515 + 4 * number + place))
        for number in (0, 1)
        for place, name in enumerate(EXCHANGES)
    ]
    for one in found:
        assert list(one["exchanges"]) == list(EXCHANGES)
        assert [each["wire"]["out"]["packets"] for each in one["exchanges"].values()] == [
            1,
            2,
            3,
            4,
        ]
    assert found[0]["exchanges"]["write_bw"]["gbits_s"] == 0.63
    assert found[0]["exchanges"]["ucx"]["environment"] == {
        "UCX_IB_TRAFFIC_CLASS": "106",
        "UCX_TLS": "rc,ud,sm,self",
    }
    assert (found[1]["device"], found[1]["software"]) == ("rxe1", True)
    assert [one.told["peer"] for one in fake.watches] == ["10.0.0.2", "10.1.0.2"]
    assert all(one.closed for one in fake.watches)


def test_after_a_hang_the_rail_is_left_and_the_next_is_tried(tmp_path: Path) -> None:
    fake = Fake({"18516": Result((), 124, "", "")})
    found = drive(request(tmp_path), fake)
    assert [port for _program, port in fake.ran] == [
        "18515",
        "18516",
        "18519",
        "18520",
        "18521",
        "18522",
    ]
    assert found[0]["exchanges"]["write_lat"]["problem"] == "no end within 32 s"
    assert found[0]["exchanges"]["write_lat"]["hung"]
    assert "send_bw" not in found[0]["exchanges"]
    assert len(found[1]["exchanges"]) == len(EXCHANGES)


def test_the_figures_of_an_earlier_exchange_are_never_taken_for_a_later_one(tmp_path: Path) -> None:
    fake = Fake({"18516": Result((), 0, "", "")})
    found = drive(request(tmp_path, ("write_bw", "send_bw")), fake)
    assert "problem" in found[0]["exchanges"]["send_bw"]


def test_peers_that_are_gone_or_cannot_serve_are_not_waited_for(tmp_path: Path) -> None:
    fake = Fake()
    found = drive(request(tmp_path), fake, lost=["node02"])
    assert [one.get("lost") for one in found] == [True, True]
    found = drive(request(tmp_path), fake, unserved={"node02": {"rail1": "no device"}})
    assert found[1]["problem"] == "node02 cannot serve it: no device"
    assert "write_bw" in found[0]["exchanges"]
    assert {port for _program, port in fake.ran} == {"18515", "18516", "18517", "18518"}


def test_a_rail_without_gid_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    bare = RdmaDevice("software", "rxe0", 1, "rail0")
    fake = Fake()
    found = driving.drive(
        request(tmp_path), Machine(ports=(bare, rail(1))), helps, program=fake, watching=fake.watch
    )
    assert "no RoCE v2 GID with 10.0.0.1" in found[0]["problem"]
    assert len(found[1]["exchanges"]) == len(EXCHANGES)


def test_without_the_environment_of_mpi_only_ucx_fails(tmp_path: Path) -> None:
    for spoil in (lambda file: file.write_text("A='x\n"), lambda file: file.unlink()):
        asked = request(tmp_path)
        spoil(asked.environment_file)
        for one in drive(asked, Fake()):
            assert list(one["exchanges"]) == list(EXCHANGES)
            problems = {name: each.get("problem") for name, each in one["exchanges"].items()}
            told = problems.pop("ucx")
            assert set(problems.values()) == {None}
            assert str(asked.environment_file) in told
            assert told.endswith("--tags mpi --limit node01")


def test_an_exchange_that_the_peer_cannot_serve_is_not_tried(tmp_path: Path) -> None:
    fake = Fake()
    reason = "node02 has no MPI environment; write it with --tags mpi --limit node02"
    asked = request(tmp_path)
    found = drive(asked, fake, unserved={"node02": {"rail0 ucx": reason}})
    assert found[0]["exchanges"]["ucx"]["problem"] == f"node02 cannot serve it: {reason}"
    assert "problem" not in found[1]["exchanges"]["ucx"]
    assert [port for program, port in fake.ran if program == "ucx_perftest"] == ["18522"]
    found[0]["exchanges"] = {"ucx": found[0]["exchanges"]["ucx"]}
    told = judging.driven(replace(asked, exchanges=("ucx",)), found[:1])
    assert [one.reason for one in told] == [f"node02 cannot serve it: {reason}"], (
        "and nothing else is advised"
    )
