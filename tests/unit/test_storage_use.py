# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rounds of storage_use on the controller: rings, arguments, figures and verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import storage_use as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import storage_use as table
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import spoilt

GOLDEN = Path(__file__).parent / "golden" / "storage_use.txt"
FS = FileSystem("checkpoints", "nfs", "store01:/export/a", "/mnt/checkpoints", "checkpoints")
SOFT = FileSystem(
    "software", "nfs", "10.10.2.1:/export/b", "/mnt/sw", "software", hosts=("compute",)
)
NODES = ["node01", "node02", "node03"]
WROTE = {"bytes": 1 << 20, "seconds": 0.5, "ended": 10.5}


# The action


def measured(name: str = "checkpoints", **changes: Any) -> dict[str, Any]:
    figures = {"wrote": WROTE, "read": WROTE, "own_address": "10.100.0.1", "served_here": False}
    return {"measured": {name: {**figures, **changes}}}


class Run:
    """Tasks of one play, with the results that earlier tasks registered."""

    def __init__(self, filesystems: list[FileSystem]) -> None:
        self.filesystems = [fs.as_variable() for fs in filesystems]
        self.hostvars: dict[str, dict[str, Any]] = {name: {} for name in [*NODES, "launch01"]}
        for number, name in enumerate(NODES):
            rail = {"interface": "rail0", "address": f"10.100.0.{number + 1}", "speed_gbps": 400}
            self.hostvars[name]["cluster_rails"] = [rail]
        self.playing = [*NODES, "launch01"]
        self.batch = list(self.playing)
        self.registered: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}

    def task(self, step: str, host: str = "node01", **arguments: Any) -> dict[str, Any]:
        module = object.__new__(action.ActionModule)
        given = {"round": step, "filesystems": self.filesystems, "cluster": "c", **arguments}
        module._task = SimpleNamespace(args=given, check_mode=False)
        self.sent = {}

        def execute(name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
            self.sent = module_args
            return {"changed": False}

        module._execute_module = execute
        task_vars = {
            "inventory_hostname": host,
            "group_names": ["launcher"] if host == "launch01" else ["compute"],
            "groups": {"compute": NODES, "launcher": ["launch01"], "all": self.batch},
            "ansible_play_batch": self.batch,
            "ansible_play_hosts": self.playing,
            "hostvars": self.hostvars,
            **{f"__shared_storage_{name}": result for name, result in self.registered.items()},
            **self.hostvars[host],
        }
        found: dict[str, Any] = module.act(task_vars)
        if step in ("plan", "report"):
            self.registered[step] = found
        return found

    def has(self, host: str, step: str, result: dict[str, Any]) -> None:
        self.hostvars[host][f"__shared_storage_{step}"] = result

    def failed(self) -> dict[str, str]:
        """The hosts that fail in the round `verdict`, with their messages."""
        self.task("report")
        every = {host: self.task("verdict", host) for host in self.playing}
        assert sum(len(found["checks"]) for found in every.values()) == 2
        return {host: found["msg"] for host, found in every.items() if found.get("failed")}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(action, "display", SimpleNamespace(display=lines.append))
    return lines


def test_rings_contain_the_hosts_of_the_play() -> None:
    run = Run([FS, SOFT])
    plan = run.task("plan")["plan"]
    assert plan["rings"] == {"checkpoints": [*NODES, "launch01"], "software": NODES}
    run.batch = ["node02", "launch01"]
    again = run.task("plan")["plan"]
    assert again["rings"]["software"] == ["node02"] and again["token"] != plan["token"]


def test_arguments_of_the_write_round() -> None:
    run = Run([FS, SOFT])
    plan = run.task("plan")["plan"]
    run.task("write", "launch01", size_mib=64, report_directory="/x")
    assert [fs["name"] for fs in run.sent["filesystems"]] == ["checkpoints"]
    assert run.sent["seats"] == {"checkpoints": {"writers": 4}}
    assert run.sent["token"] == plan["token"]
    assert (run.sent["host"], run.sent["groups"]) == ("launch01", ["launcher"])
    assert "report_directory" not in run.sent and run.sent["size_mib"] == 64
    json.dumps(run.sent)
    run = Run([SOFT])
    run.task("plan")
    assert run.task("write", "launch01")["checks"] == [] and run.sent == {}, "it mounts nothing"


def test_only_hosts_that_wrote_take_part_in_reading() -> None:
    run = Run([FS])
    run.task("plan")
    for name in run.hostvars:
        run.has(name, "write", measured())
    run.has("node02", "write", {**measured(), "failed": True})
    run.playing = ["node01", "launch01"]  # node03 failed while reading, before node01 reads
    run.task("read", "node01")
    assert run.sent["seats"] == {
        "checkpoints": {"writers": 4, "neighbour": "node03", "neighbour_bytes": 1 << 20}
    }
    run.has("node01", "write", measured(wrote=None))  # read-only, or check mode
    run.task("read", "node01")
    assert run.sent == {}


@pytest.mark.parametrize(
    "said",
    [{"bytes": "1; id"}, {"bytes": -1}, {"bytes": 10**5000}, {"bytes": True}, {}, [1], "x", 7],
    ids=lambda said: type(said).__name__,
)
def test_an_invalid_size_counts_as_not_written(said: Any) -> None:
    run = Run([FS])
    run.task("plan")
    for name in run.hostvars:
        run.has(name, "write", measured())
    for hostile in ({"measured": {"checkpoints": {"wrote": said}}}, {"measured": said}):
        run.has("node02", "write", hostile)
        run.task("read", "node01")
        seat = run.sent["seats"]["checkpoints"]
        assert (seat["neighbour"], seat["neighbour_bytes"]) == ("node03", 1 << 20)


def test_the_report_covers_all_hosts(shown: list[str], tmp_path: Path) -> None:
    run = Run([FS])
    run.task("plan")
    for number, name in enumerate(NODES):
        both = measured(own_address=f"10.100.0.{number + 1}")
        run.has(name, "write", {**both, "virtual": number == 0})
        run.has(name, "read", {"measured": {"checkpoints": {"read": WROTE}}})
    run.has("launch01", "read", {"measured": {"checkpoints": {"read": WROTE}}})
    found = run.task("report", report_directory=str(tmp_path))
    assert "launch01" not in found["figures"]["checkpoints"]["by_host"], "it did not write"
    assert "failed" not in found
    figures = found["figures"]["checkpoints"]
    assert (figures["hosts"], figures["write"]["bytes"]) == (4, 3 << 20)
    assert figures["line_rate_gb_s"] == 50
    assert any("nominal" in line for line in shown)
    assert json.loads((tmp_path / "storage-latest.json").read_text())["filesystems"]


def test_the_report_reads_the_variables_of_each_host_once(shown: list[str]) -> None:
    run = Run([FS, SOFT])
    run.task("plan")
    for name in NODES:
        both = {**measured()["measured"], **measured(SOFT.name)["measured"]}
        run.has(name, "write", {"measured": both})
    read: list[str] = []

    class HostVars(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            read.append(name)
            return super().__getitem__(name)

    run.hostvars = HostVars(run.hostvars)
    assert len(run.task("report")["figures"]) == 2
    read.remove("node01")  # read by `Run`
    assert set(NODES) <= set(read) and len(read) == len(set(read))


def test_a_slow_cluster_fails_on_one_host(shown: list[str]) -> None:
    run = Run([replace(FS, expect=Expectation(together_write_gb_s=100.0))])
    run.task("plan")
    run.has("node01", "write", measured())
    run.has("node02", "write", measured(wrote={**WROTE, "seconds": 0.6}))
    # The report never fails: a failed run_once task would end the play for every host.
    found = run.task("report")
    assert "failed" not in found and found["checks"] == []
    assert list(run.failed()) == ["node02"]  # the slowest: the server is external
    run.playing.remove("node02")
    assert list(run.failed()) == ["node01"]
    run.filesystems[0]["serve"] = {"host": "launch01"}
    assert list(run.failed()) == ["launch01"]


@given(spoilt(measured(own_address="10.100.0.2")))
def test_hostile_figures_do_not_affect_other_hosts(said: Any) -> None:
    run = Run([FS])
    run.task("plan")
    for name in NODES:
        run.has(name, "write", measured())
    if not isinstance(said, dict):
        said = {"measured": said}
    run.has("node02", "read", said)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(action, "display", SimpleNamespace(display=lambda line: None))
        figures = run.task("report")["figures"]["checkpoints"]
        run.failed()
    assert figures["by_host"]["node01"]["wrote"] == WROTE
    assert figures["write"]["nodes"] >= len(NODES) - 1


# The ring


@given(st.integers(1, 150), st.sets(st.integers(0, 149)))
def test_every_writer_has_one_reader(count: int, lost: set[int]) -> None:
    ring = [f"node{number:03d}" for number in range(count)]
    wrote = {host: 100 + n for n, host in enumerate(ring) if n not in lost}
    asked: list[str] = []
    found = [
        table.neighbour(ring, host, lambda name: asked.append(name) or wrote.get(name))  # type: ignore[func-returns-value]
        for host in wrote
    ]
    if not lost:
        assert len(asked) <= count, "of ten thousand hosts, only the next one is read"
    if len(wrote) > 1:
        assert dict(found) == wrote
    else:
        assert all(each == ("", 0) for each in found)


# Figures

INTERVALS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 50)).map(lambda each: (each[0], sum(each))),
    min_size=1,
    max_size=12,
)


@given(INTERVALS)
def test_busy_time_and_concurrency(intervals: list[tuple[int, int]]) -> None:
    seconds = {second for begin, end in intervals for second in range(begin, end)}
    assert table.busy_seconds(intervals) == len(seconds)
    most = max(sum(b <= second < e for b, e in intervals) for second in seconds)
    assert table.most_at_once(intervals) == most


@given(INTERVALS)
def test_the_total_rate_is_at_most_the_sum(intervals: list[tuple[int, int]]) -> None:
    measured = {
        f"node{n}": {"bytes": 10**9, "seconds": float(end - begin), "ended": float(end)}
        for n, (begin, end) in enumerate(intervals)
    }
    found = table.figure(measured)
    assert found is not None
    total = sum(1 / each["seconds"] for each in measured.values())
    assert 0 < found.together <= total * (1 + 1e-9)
    assert found.slowest <= found.median <= found.fastest


# The table


def took(seconds: float, ended: float, size: int = 64 << 20) -> dict[str, Any]:
    return {"bytes": size, "seconds": seconds, "ended": ended}


def used(**changes: Any) -> table.Used:
    hosts = ("node01", "node02", "node03", "launch01")
    found = {
        host: {"wrote": took(0.05 + n / 100, 10.1), "read": took(0.02 + n / 100, 20.1)}
        for n, host in enumerate(hosts)
    }
    links = {host: table.ServerLink("rail0", 800.0) for host in hosts[:3]}
    links["node02"] = table.ServerLink("rail3", 400.0)
    base = table.Used(FS, hosts, found, {**links, "launch01": None})
    return replace(base, **changes)


EXPECTED = replace(FS, expect=Expectation(1.0, 2.0, 8.0, 9.0))


def cases() -> dict[str, table.Used]:
    served = used()
    by_host = {host: dict(each) for host, each in served.figures.items()}
    by_host["launch01"]["served_here"] = True
    one = used(hosts=("launch01", "node01"))
    two = {host: by_host[host] for host in one.hosts}
    small = {host: {"wrote": took(1.0, 5.0 + n, 3 << 19)} for n, host in enumerate(by_host)}
    return {
        "as it is": used(),
        "expected": used(fs=EXPECTED),
        "virtual": used(virtual=True, links={}),
        "alone": used(alone=True),
        "served by one of them": used(figures=by_host),
        "served by one of two": replace(one, figures=two),
        "one after another, and small": used(figures=small),
        "nothing": used(figures={}),
    }


def test_the_table() -> None:
    shown = "".join(
        f"# {name}\n" + "".join(f"{line}\n" for line in table.lines(each))
        for name, each in cases().items()
    )
    assert shown == GOLDEN.read_text(encoding="utf-8")


def test_the_serving_host_is_left_out() -> None:
    found = cases()["served by one of them"].of("wrote")
    assert found is not None and found.bytes == 3 * (64 << 20)


@pytest.mark.parametrize(
    ("given", "statuses"),
    [
        (used(), ["not_applicable"] * 2),
        (used(fs=EXPECTED), ["failed", "failed"]),
        (used(fs=replace(FS, expect=Expectation(0, 0, 0.5, 0.5))), ["ok", "ok"]),
        (used(fs=EXPECTED, alone=True), ["not_applicable"] * 2),
        (used(fs=EXPECTED, figures={}), ["not_applicable"] * 2),
    ],
)
def test_the_total_rate_is_compared(given: table.Used, statuses: list[str]) -> None:
    assert [check.status for check in table.together(given)] == statuses


def test_the_server_is_not_blamed_for_too_few_forks() -> None:
    late = {host: {"wrote": took(1.0, 5.0 + 2 * n)} for n, host in enumerate(used().hosts)}
    check = table.together(used(fs=EXPECTED, figures=late))[0]
    assert "1 of 4 nodes" in check.reason and "-f 4" in check.reason
