# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Controller side of benchmarks: jobs in sequence, and their report."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_bench as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import bench as table
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_bench import directory

OUTPUT = """\
[1,0]<stdout>:# OSU MPI Bandwidth Test v7.4
[1,0]<stdout>:# Size      Bandwidth (MB/s)
[1,0]<stdout>:65536               50000.00
"""


def options() -> dict[str, Any]:
    defaults = {name: of.get("default") for name, of in action.ARGUMENTS.items()}
    given = {"nodes": directory(), "user": "mpi", "program": "osu", "benchmarks": ["bw"]}
    return {**defaults, **given}


class Launcher:
    """The action, with a launcher on which each job prints the same output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **of_job: Any) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.shown: list[str] = []
        self.of_job = {"virtual": False, "directory": "/jobs/1", **of_job}
        monkeypatch.setattr(action.display, "display", self.shown.append)
        monkeypatch.setattr(table, "draw", lambda *_given: None)
        self.plugin = action.ActionModule.__new__(action.ActionModule)
        self.plugin._task = SimpleNamespace(check_mode=False)
        monkeypatch.setattr(self.plugin, "job", self.job, raising=False)
        monkeypatch.setattr(self.plugin, "_output", lambda _directory: OUTPUT, raising=False)

    def job(self, arguments: dict[str, Any], _task_vars: Any) -> dict[str, Any]:
        self.jobs.append(arguments)
        return dict(self.of_job)

    def run(self, **given: Any) -> dict[str, Any]:
        return self.plugin.measured({**options(), **given}, {})


def test_each_job_is_measured_and_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = Launcher(monkeypatch)
    given = {"parameters": {"pml": "ucx"}, "provider": "impi"}
    found = launcher.run(report_directory=str(tmp_path), **given)
    assert [job["places"] for job in launcher.jobs] == [{"node01": 2}, {"node01": 1, "node02": 1}]
    assert {job["parameters"]["pml"] for job in launcher.jobs} == {"ucx"}
    assert not [job for job in launcher.jobs if job["storage"]]
    assert {job["provider"] for job in launcher.jobs} == {"impi"}
    saved = json.loads((tmp_path / "bench-latest.json").read_text(encoding="utf-8"))
    assert saved["sweeps"] == found["sweeps"] and saved["program"] == "osu"
    assert [sweep["where"] for sweep in saved["sweeps"]] == [
        "node01:0 - node01:1",
        "node01:0 - node02:0",
    ]
    assert saved["sweeps"][1]["by_size"] == [{"bytes": 65536, "latency_us": None, "gbytes_s": 50.0}]
    assert not found["changed"] and "failed" not in found
    assert table.WITHOUT in launcher.shown


def test_kinds_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind takes part, except in nccl-tests those without GPUs."""
    kinds = {"node01": {"kind": "b300", "gpus": 2}, "node02": {"kind": "cpu", "gpus": 0}}
    nodes = [{**entry, **kinds.get(entry["name"], {})} for entry in directory()]
    nodes = [entry for entry in nodes if entry["name"] in kinds]

    def measured(**given: Any) -> tuple[Any, list[str]]:
        launcher = Launcher(monkeypatch)
        with contextlib.suppress(AnsibleActionFail):
            launcher.run(nodes=nodes, **given)
        return launcher.jobs[0]["kind"], [str(job.get("places")) for job in launcher.jobs]

    both = ["{'node01': 2}", "{'node01': 1, 'node02': 1}"]
    assert measured() == measured(kind=["all"]) == (["b300", "cpu"], both)
    assert measured(kind=["cpu"]) == (["cpu"], ["{'node02': 2}"])
    assert measured(program="nccl")[0] == ["b300"]
    assert measured(program="nccl", kind=["all"])[0] == ["b300", "cpu"]
    with pytest.raises(PlanError, match="h100: no such nodes"):
        Launcher(monkeypatch).run(nodes=nodes, kind=["h100"])


def test_nodes_without_rails_are_measured_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        str(rails): Launcher(monkeypatch).run(
            nodes=[{**entry, **rails} for entry in directory()], report_directory=None
        )["transport"]
        for rails in ({}, {"rails": []})
    }
    assert list(found.values()) == ["rc", "tcp"]


def test_a_figure_below_its_threshold_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Launcher(monkeypatch).run(min_share=0.6)
    assert found["failed"] and "bw node01:0 - node02:0" in found["msg"]
    assert "at least 60 GB/s" in found["msg"] and "node01:0 - node01:1" not in found["msg"]
    virtual = Launcher(monkeypatch, virtual=True).run(min_share=0.6)
    assert "failed" not in virtual and virtual["virtual"]


def test_a_job_that_failed_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(monkeypatch, failed=True, msg="job: nothing was started: x", checks=[])
    found = launcher.run()
    assert found["failed"] and found["msg"].endswith("x") and found["layer"] == "bench"
    assert len(launcher.jobs) == 1


def test_a_program_without_a_table_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(monkeypatch)
    with pytest.raises(AnsibleActionFail, match="1 of 3 tables are in the last 4 MiB"):
        launcher.run(program="mpi4py")
    monkeypatch.setattr(launcher.plugin, "_output", lambda _directory: "usage: osu_bw\n")
    with pytest.raises(AnsibleActionFail, match=r"0 of 1 tables .* of /jobs/1/output\.log"):
        launcher.run()


def test_check_mode_measures_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = Launcher(monkeypatch, command="mpirun")
    launcher.plugin._task.check_mode = True
    found = launcher.run(report_directory=str(tmp_path))
    assert "sweeps" not in found and not found["changed"] and list(tmp_path.iterdir()) == []


def test_a_pair_that_is_none_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(monkeypatch)
    with pytest.raises(PlanError, match="mpi_bench_pairs"):
        launcher.run(pairs=["node01:0 - node09:0"])
    assert launcher.jobs == []


def test_figures_are_shown_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher(monkeypatch)
    for line in [*OUTPUT.splitlines(), "[1,3]<stderr>: sweep: node02: no rank", "", "[0] 8  1.2"]:
        launcher.plugin.show(line)
    wanted = ["bench: OSU MPI Bandwidth Test v7.4", "bench: sweep: node02: no rank"]
    assert launcher.shown == wanted


@given(
    st.lists(
        st.one_of(
            st.text(),
            st.sampled_from(["# OSU MPI Bandwidth Test v7", "# OSU MPI ../x Test", "# Ranks: 0"]),
            st.sampled_from(["# Pair: node01:0 - node09:0", "1 " + "9" * 400, "9" * 5000 + " 1"]),
            st.sampled_from(["0 0", "65536 0.0", "65536 5e5", "# Ranks: " + "9" * 5000]),
        ),
        max_size=6,
    )
)
def test_malformed_figures_fail_the_launcher(printed: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        launcher = Launcher(patch)
        launcher.plugin._output = lambda _directory: OUTPUT + "\n".join(printed)
        launcher.plugin.validate_argument_spec = lambda **_given: ({}, options())
        try:
            found = launcher.plugin.act({})
        except AnsibleActionFail as error:
            assert str(error).startswith("bench: ")
            return
    assert {sweep["benchmark"] for sweep in found["sweeps"]} <= {"bw", "latency", "bibw"}
    assert len(found["sweeps"]) == 2
    json.dumps(found["sweeps"], allow_nan=False)
