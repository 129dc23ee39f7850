# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's side: who takes part, what a host is sent, what is made of all answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import storage_use as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
)

FS = FileSystem("checkpoints", "nfs", "10.10.2.1:/export/a", "/mnt/checkpoints", "checkpoints")
SOFT = FileSystem(
    "software", "nfs", "10.10.2.1:/export/b", "/mnt/sw", "software", hosts=("compute",)
)
NODES = ["node01", "node02", "node03"]
WROTE = {"bytes": 1 << 20, "seconds": 0.5, "began": 10.0, "ended": 10.5}


def held(name: str = "checkpoints", **changes: Any) -> dict[str, Any]:
    figures = {"wrote": WROTE, "read": WROTE, "own_address": "10.100.0.1", "served_here": False}
    return {name: {"checks": [], "stopped": "", "figures": figures, **changes}}


class Run:
    """One task on one host, with what the tasks before it have registered."""

    def __init__(self, filesystems: list[FileSystem]) -> None:
        self.filesystems = [fs.as_variable() for fs in filesystems]
        self.hostvars: dict[str, dict[str, Any]] = {name: {} for name in [*NODES, "launch01"]}
        for number, name in enumerate(NODES):
            rail = {"interface": "rail0", "address": f"10.100.0.{number + 1}", "speed_gbps": 400}
            self.hostvars[name]["cluster_rails"] = [rail]
        self.playing = [*NODES, "launch01"]
        self.batch = list(self.playing)
        self.plan: dict[str, Any] = {}
        self.reported: dict[str, Any] = {}
        self.met: dict[str, Any] = {}
        self.sent: dict[str, Any] = {}

    def task(self, step: str, host: str = "node01", **arguments: Any) -> dict[str, Any]:
        module = object.__new__(action.ActionModule)
        given = {"round": step, "filesystems": self.filesystems, **arguments}
        given.update(plan="planned", written="written", met="met", used="used", cluster="c")
        module._task = SimpleNamespace(args=given, check_mode=False)

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
            "planned": self.plan,
            "reported": self.reported,
            "met": self.met,
        }
        done = action.ActionBase.run
        action.ActionBase.run = lambda *_rest: {}
        try:
            return module.run(None, task_vars)
        finally:
            action.ActionBase.run = done

    def concerned(self, reported: dict[str, Any]) -> dict[str, str]:
        """The hosts that fail by what was reported, with what they say."""
        self.reported = reported
        every = {host: self.task("verdict", host, reported="reported") for host in self.playing}
        assert sum(len(found["checks"]) for found in every.values()) == 2
        return {host: found["msg"] for host, found in every.items() if found.get("failed")}

    def planned(self) -> dict[str, Any]:
        self.plan = self.task("plan")
        return self.plan["plan"]


def test_the_ring_is_of_the_hosts_of_the_play_that_mount_it() -> None:
    run = Run([FS, SOFT])
    plan = run.planned()
    assert plan["rings"] == {"checkpoints": [*NODES, "launch01"], "software": NODES}
    assert run.planned()["token"] != plan["token"]
    run.batch = ["node02", "launch01"]
    assert run.planned()["rings"]["software"] == ["node02"]


def test_a_host_that_mounts_nothing_is_not_touched() -> None:
    run = Run([SOFT])
    run.planned()
    assert run.task("write", "launch01")["held"] == {}
    assert run.sent == {}


def test_what_a_host_is_sent_to_write() -> None:
    run = Run([FS, SOFT])
    run.planned()
    run.task("write", "launch01", size_mib=64)
    assert [fs["name"] for fs in run.sent["filesystems"]] == ["checkpoints"]
    assert run.sent["seats"] == {"checkpoints": {"writers": 4}}
    assert run.sent["token"] == run.plan["plan"]["token"]
    assert (run.sent["host"], run.sent["groups"]) == ("launch01", ["launcher"])
    assert "written" not in run.sent and run.sent["size_mib"] == 64
    json.dumps(run.sent)


def test_only_who_wrote_well_and_is_still_there_is_read() -> None:
    run = Run([FS])
    run.planned()
    for name in run.hostvars:
        run.hostvars[name]["written"] = {"held": held()}
    run.hostvars["node02"]["written"] = {"held": held(stopped="storage_answers")}
    run.playing = ["node01", "node02", "launch01"]
    run.met = run.task("meet")
    assert run.met["met"] == {"checkpoints": {"node01": 1 << 20, "launch01": 1 << 20}}
    run.hostvars = {"node01": run.hostvars["node01"]}  # nobody asks for the others once more
    run.task("read", "node01")
    seat = run.sent["seats"]["checkpoints"]
    assert (seat["neighbour"], seat["neighbour_bytes"]) == ("launch01", 1 << 20)
    assert seat["peers"] == ("launch01",)
    assert run.sent["held"] == held()
    run.hostvars = {name: {} for name in run.batch}
    run.task("read", "node02")
    assert run.sent["seats"] == {}


def report(run: Run, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Any, list[str]]:
    shown: list[str] = []
    monkeypatch.setattr(action, "display", SimpleNamespace(display=shown.append))
    return run.task("report", **more), shown


def test_the_report_is_of_all_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = Run([FS])
    run.planned()
    for number, name in enumerate(NODES):
        run.hostvars[name]["used"] = {"held": held(), "virtual": number == 0}
        run.hostvars[name]["used"]["held"]["checkpoints"]["figures"]["own_address"] = (
            f"10.100.0.{number + 1}"
        )
    found, shown = report(run, monkeypatch, report_directory=str(tmp_path))
    assert "failed" not in found
    figures = found["figures"]["checkpoints"]
    assert (figures["hosts"], figures["write"]["bytes"]) == (4, 3 << 20)
    assert figures["line_rate_gb_s"] == 50
    assert any("nominal" in line for line in shown)
    assert json.loads((tmp_path / "storage-latest.json").read_text())["filesystems"]
    run.hostvars["node01"]["used"] = {}  # the second round failed: the first is shown
    run.hostvars["node01"]["written"] = {"held": held()}
    assert report(run, monkeypatch)[0]["figures"]["checkpoints"]["write"]["bytes"] == 3 << 20


def test_too_slow_together_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    expect = Expectation(together_write_gb_s=100.0)
    run = Run([FileSystem(**{**vars(FS), "expect": expect})])
    run.planned()
    run.hostvars["node01"]["used"] = {"held": held()}
    run.hostvars["node02"]["used"] = {"held": held()}
    run.hostvars["node02"]["used"]["held"]["checkpoints"]["figures"]["wrote"] = {
        **WROTE,
        "seconds": 0.6,
    }
    # A task that runs once and fails ends the play for every host: the report itself never does.
    found, _shown = report(run, monkeypatch)
    assert "failed" not in found and found["checks"] == []
    assert list(run.concerned(found)) == ["node02"]  # the slowest: the server is somebody else's
    run.playing.remove("node02")
    assert list(run.concerned(report(run, monkeypatch)[0])) == ["node01"]
    run.filesystems[0]["serve"] = {"host": "launch01"}
    assert list(run.concerned(report(run, monkeypatch)[0])) == ["launch01"]
