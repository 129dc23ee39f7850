# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run of acceptance on the controller: plan, jobs, interruptions, and the certificate."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import acceptance as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.modules import acceptance as module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import (
    certificate,
    pairs,
    plan,
    readings,
    state,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    Direction,
    Port,
    Probe,
    Topology,
    Uplink,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.authority import (
    AuthorityStore,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.journal import Journal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh.signer import Signer

from tests.unit.small_model import compiled, edited

NODES = [f"node{number:02d}" for number in range(1, 9)]
FREE = {
    "found": {
        "processes": [],
        "gpus": False,
        "versions": {"kernel": "6.8.0", "firmware": {"rail0": "48.1"}},
    }
}
LOAD = {"duration_s": 60.0, "precisions": ["fp32", "bf16", "fp8"], "diag_level": 3}
JOB = "/var/lib/baremetal-mpi-roce/jobs/1"


@cache
def cluster() -> dict[str, dict[str, Any]]:
    inventory = compiled(edited(f"nodes.count: {len(NODES)}"))
    return {host.name: inventory.merged(host) for host in inventory.hosts}


def required(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What the certificate does not have, although it was asked for."""
    return [each for each in found["not_measured"] if not each.get("partial")]


class HostVars(dict[str, Any]):
    raw_get = dict.__getitem__


Rate = Callable[[str, str, str], "float | str"]
"""Gb/s of a rail from the first node to the second, or an error."""


class Launcher:
    """The action, with a launcher that runs the program of pairs as `rate` says. `ends` may replace
    the result of a job by its number."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, folder: Path, rate: Rate = lambda *_given: 780.0
    ) -> None:
        self.monkeypatch, self.folder, self.rate = monkeypatch, folder, rate
        self.jobs: list[dict[str, Any]] = []
        self.shown: list[str] = []
        self.ends: dict[int, dict[str, Any] | BaseException] = {}
        self.cut: dict[int, int] = {}
        """Number of lines that a job prints."""
        self.output = ""
        self.virtual = False
        self.latency: Callable[[str, str], float] = lambda _a, _b: 2.5
        self.order = list(NODES)
        self.current: Any = None
        self.readings = 0
        product = {"name": "burn_products", "subject": "GPU 0", "status": "ok"}
        self.burned = {name: {"checks": [product]} for name in NODES}
        self.results: dict[str, dict[str, Any]] = {}
        """Registered variables by host."""
        self.counted: Callable[[int], dict[str, Any]] = lambda _number: {}
        """Result of `switch_qos_counters` by switch, at a reading."""
        self.looked = {name: dict(FREE) for name in NODES}
        monkeypatch.setattr(action.display, "display", self.shown.append)
        monkeypatch.setattr(action.display, "warning", self.shown.append)

    def plugin(self, check_mode: bool = False) -> action.ActionModule:
        plugin = action.ActionModule.__new__(action.ActionModule)
        plugin._task = SimpleNamespace(check_mode=check_mode)
        plugin._templar = SimpleNamespace(template=lambda value: value)
        for name, function in (
            ("_output", lambda _directory: self.output),
            ("measured", self.swept),
        ):
            self.monkeypatch.setattr(plugin, name, function, raising=False)
        self.monkeypatch.setattr(action.BenchAction, "job", lambda _plugin, *job: self.job(*job))
        return plugin

    def given(self, **options: Any) -> dict[str, Any]:
        defaults = {name: of.get("default") for name, of in action.ARGUMENTS.items()}
        return {
            **defaults,
            "nodes": facts.build(cluster()),
            "user": "mpi",
            "looked": "looked",
            "sweeps": ["mpi4py"],
            "report_directory": str(self.folder / "reports"),
            "ssh_directory": str(self.folder / "ssh"),
            "cluster": "small",
            "load": LOAD,
            **options,
        }

    def variables(self, limit: Any = NODES) -> dict[str, Any]:
        counters = self.counted(self.readings)
        hosts = {
            name: {
                **own,
                "looked": self.looked.get(name),
                "switch_qos_counters": counters.get(name),
                certificate.BURNED: self.burned.get(name),
                **self.results.get(name, {}),
            }
            for name, own in cluster().items()
        }
        groups: dict[str, list[str]] = {}
        for name, own in hosts.items():
            groups.setdefault(own["cluster_role"], []).append(name)
        return {
            "hostvars": HostVars(hosts),
            "groups": groups,
            "ansible_play_hosts_all": list(limit),
            "cluster_digest": "d1gest",
        }

    def measure(self, limit: Any = NODES, check_mode: bool = False, **options: Any) -> None:
        """As the play: measure, then search, with readings of counters in between."""
        given, variables = self.given(**options), self.variables(limit)
        self.plugin(check_mode).measured_all(given, variables)
        while not check_mode and self.plugin().searched(given, variables)["left"]:
            self.readings += 1
            variables = self.variables(limit)

    def later(self, seconds: float) -> None:
        """Another run, after those before took this time."""
        path = self.folder / "reports" / state.NAME
        known = json.loads(path.read_text())
        del known["steps"]["run"]
        path.write_text(json.dumps({**known, "seconds": seconds}))

    def certify(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self.readings += 1
        result = self.plugin().certified(self.given(**options), self.variables())
        return result, json.loads(Path(result["certificate"]).read_text(encoding="utf-8"))

    def job(self, arguments: dict[str, Any], _task_vars: Any) -> dict[str, Any]:
        self.jobs.append(arguments)
        argv = arguments["program"][2:]
        if "--rail" not in argv:
            return {}
        option = {name: argv[argv.index(name) + 1] for name in ("--rail", "--nodes")}
        names = option["--nodes"].split(",")
        assert sorted(arguments["places"]) == sorted(names)
        ranks = [name for name in self.order if name in names]
        number = len(self.jobs)
        end = self.ends.get(number, {})
        if isinstance(end, BaseException):
            raise end
        lines = []
        for turn, text in enumerate(argv[: argv.index("--rail")]):
            for pair in text.split(","):
                first, second = map(int, pair.split("-"))
                for a, b in ((first, second), (second, first)):
                    rate = self.rate(option["--rail"], names[a], names[b])
                    found = (
                        f"{rate} {self.latency(names[a], names[b])}"
                        if isinstance(rate, float)
                        else f"- - {rate}"
                    )
                    lines.append(f"[1,{a}]<stdout>:pairs-figure {turn} {a} {b} {found}")
        self.output = "\n".join(lines[: self.cut.get(number)] if ranks == names else [])
        return {"directory": JOB, "nodes": ranks, "virtual": self.virtual, **end}

    def swept(self, asked: dict[str, Any], _task_vars: Any) -> dict[str, Any]:
        self.jobs.append({"sweep": asked["program"]})
        return {"sweeps": [{"benchmark": "allreduce"}], "checks": []}


class Asking:
    """A search that asks for one probe with counters."""

    took: ClassVar[list[Any]] = []

    def __init__(self, *_given: Any) -> None:
        self.left = [Probe("rail0", (("node01", "node02"),), "", 1, True)]

    def next(self) -> list[Probe]:
        return self.left

    def take(self, figures: Any) -> None:
        self.took.append(list(figures))
        self.left = []

    def verdicts(self) -> list[Any]:
        return []


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launcher:
    return Launcher(monkeypatch, tmp_path)


def test_every_pair_of_every_rail_is_measured(launcher: Launcher) -> None:
    launcher.measure()
    result, found = launcher.certify()
    assert [job.get("sweep") for job in launcher.jobs] == [None, None, "mpi4py"]
    assert found["coverage"]["pairs"] == found["coverage"]["possible_pairs"] == 2 * 28
    assert found["verdict"] == "passed" and "failed" not in result
    assert found["model_digest"] == "d1gest"
    assert found["versions"] == {"kernel": {"6.8.0": NODES}, "firmware rail0": {"48.1": NODES}}
    rails = {each["rail"]: each for each in found["figures"]}
    assert rails["rail1"]["gbits_s"] == {"median": 780.0, "mad": 0.0, "min": 780.0}
    assert rails["rail1"]["pairs"] == 2 * 28 and rails["rail1"]["errors"] == 0
    assert len(found["worst"]) == 10 and required(found) == []
    assert [each["why"] for each in found["not_measured"]] == [
        plan.NOT_ASKED.format(option) for option in ("acceptance_cross_rail", "rdma_verify_incast")
    ]
    assert not (launcher.folder / "reports" / state.NAME).exists()


def test_a_job_only_needs_the_rail_that_it_measures(launcher: Launcher) -> None:
    launcher.measure()
    for job, rail in zip(launcher.jobs, ("rail0", "rail1")):
        used = {each["interface"] for node in job["nodes"] for each in node["rails"]}
        assert used == {rail} and job["mapping"] == "node" and not job["storage"]


def test_tcp_is_bound_to_the_rail(launcher: Launcher) -> None:
    """By Open MPI's transport, or Intel MPI's."""
    launcher.measure(transport="tcp", parameters={"x": "1"})
    assert launcher.jobs[0]["parameters"] == {"pml": "ob1", "btl": "tcp,self,vader", "x": "1"}
    launcher.measure(transport="tcp", provider="impi", resume="never")
    assert launcher.jobs[3]["parameters"] == {"FI_PROVIDER": "tcp"}
    launcher.measure(resume="never")
    assert launcher.jobs[6]["parameters"] == {}


def test_check_mode_starts_and_writes_nothing(launcher: Launcher) -> None:
    launcher.measure(check_mode=True)
    assert launcher.jobs == [] and list(launcher.folder.iterdir()) == []
    assert any("56 of 56 pairs" in line for line in launcher.shown)


def test_a_slow_rail_of_a_node_is_named(launcher: Launcher) -> None:
    launcher.rate = lambda rail, a, b: 80.0 if rail == "rail1" and "node03" in (a, b) else 780.0
    launcher.measure()
    result, found = launcher.certify()
    assert result["failed"] and found["verdict"] == "failed"
    parts = [each for each in found["checks"] if each["name"] == "acceptance_part"]
    assert [(each["subject"], each["found"]) for each in parts] == [("node03 rail1", "slow rail")]
    assert parts[0]["reason"].startswith("sends 80 Gb/s at best")  # the subject is not repeated
    assert [(each["kind"], each["subject"]) for each in found["verdicts"]] == [
        ("rail", "node03 rail1")
    ]
    assert found["worst"][0]["gbits_s"] == 80.0 and "node03" in found["worst"][0]["pair"]


def test_outliers_that_do_not_repeat_are_no_fault(launcher: Launcher) -> None:
    launcher.rate = lambda rail, a, b: (
        80.0 if len(launcher.jobs) < 3 and "node03" in (a, b) else 780.0
    )
    launcher.measure()
    result, found = launcher.certify()
    assert [each["kind"] for each in found["verdicts"]] == ["not_reproduced"]
    assert "failed" not in result and found["outliers"]


def test_latency_of_virtual_nodes_is_no_fault(launcher: Launcher) -> None:
    launcher.latency = lambda a, b: 50.0 if "node03" in (a, b) else 2.5
    launcher.measure()
    _result, found = launcher.certify()
    parts = [each["subject"] for each in found["checks"] if each["status"] == "failed"]
    # The search does not measure latency, so it does not clear a node of it.
    assert parts == ["node03"] and [each["kind"] for each in found["verdicts"]] == [
        "not_reproduced"
    ]
    launcher.virtual = True
    launcher.measure()
    _result, found = launcher.certify()
    assert found["outliers"] and not found["verdicts"] and found["verdict"] == "passed"


def test_pairs_across_spines_that_are_slower_are_traced(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of them are slow, so none is an outlier. A search without time raises no alarm."""

    class Searching(Asking):
        def verdicts(self) -> list[Verdict]:
            return [Verdict("cable", "a - b"), Verdict("unfinished", "everything")]

    monkeypatch.setattr(action, "Search", Searching)
    topology = Topology.of(cluster())
    ports = {
        name: {rail: Port(f"{port.leaf}-{index % 2}", 800.0) for rail, port in own.items()}
        for index, (name, own) in enumerate(topology.ports.items())
    }
    monkeypatch.setattr(
        action.ActionModule, "_topology", lambda *_given: replace(topology, ports=ports)
    )
    launcher.rate = lambda rail, a, b: (
        780.0 if (int(a[4:]) - int(b[4:])) % 2 == 0 else 300.0 + int(a[4:]) + int(b[4:])
    )
    launcher.measure()
    _result, found = launcher.certify(min_share=None)
    assert [each["kind"] for each in found["verdicts"]] == ["cable"]


def test_an_interrupted_search_continues(launcher: Launcher) -> None:
    launcher.rate = lambda rail, a, b: 80.0 if rail == "rail1" and "node03" in (a, b) else 780.0
    launcher.measure()
    whole = len(launcher.jobs)
    _result, expected = launcher.certify()
    launcher.jobs.clear()
    launcher.ends[whole] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure()
    launcher.measure()
    _result, found = launcher.certify()
    assert len(launcher.jobs) == whole + 1 > 4
    assert found["verdicts"] == expected["verdicts"]


def test_a_search_without_time_names_the_suspects(launcher: Launcher) -> None:
    launcher.rate = lambda rail, a, b: 80.0 if "node03" in (a, b) else 780.0
    launcher.ends[4] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure()
    launcher.later(3599)
    launcher.measure()
    _result, found = launcher.certify()
    assert [each["kind"] for each in found["verdicts"]] == ["unfinished"]
    assert "node03 rail0" in found["verdicts"][0]["candidates"] and len(launcher.jobs) == 4


def test_thresholds(launcher: Launcher) -> None:
    """All alike, below the expectation; on virtual nodes, the line rate is nominal."""
    launcher.rate = lambda *_given: 500.0

    def rails(**options: Any) -> set[str]:
        launcher.measure(resume="never")
        _result, found = launcher.certify(**options)
        return {each["status"] for each in found["checks"] if each["name"] == "acceptance_rail"}

    assert rails(min_share=0.85) == {"failed"} and rails(min_share=0.5) == {"ok"}
    assert rails(min_share=0.5, max_latency_us=2.0) == {"ok", "failed"}
    assert rails(min_share=0.85, transport="tcp") == {"not_applicable"}
    launcher.virtual = True
    assert rails(min_share=0.85, max_latency_us=2.0) == {"not_applicable"}


# Nodes and jobs that do not take part.


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ({"processes": [{"pid": 7, "user": "ann", "command": "mpirun train"}]}, "ann"),
        ({"slurm": {"state": "ALLOCATED", "busy": True}}, "ALLOCATED"),
        ({"gpu_processes": ["99, python3"]}, "99, python3"),
        ({"problems": ["scontrol: timeout"]}, "scontrol: timeout"),
    ],
)
def test_nothing_starts_next_to_a_job(
    found: dict[str, Any], named: str, launcher: Launcher
) -> None:
    launcher.looked["node05"] = {"found": {**FREE["found"], **found}}
    with pytest.raises(PlanError, match=rf"node05: .*{named}"):
        launcher.measure()
    assert launcher.jobs == []
    launcher.measure(limit=[name for name in NODES if name != "node05"])


def test_a_measurement_that_stops_ends_the_playbook() -> None:
    """The next plays load rails and GPUs, also of nodes with a job."""
    for name, step in (("main", "measure"), ("search", "search")):
        tasks = yaml.safe_load(Path(f"roles/acceptance/tasks/{name}.yml").read_text())
        tasks += [task for outer in tasks for task in outer.get("block", ())]
        (task,) = (
            task
            for task in tasks
            if task.get("baremetal.mpi_roce.acceptance", {}).get("step") == step
        )
        assert task["any_errors_fatal"] is True


def test_no_play_ends_the_run_before_the_certificate() -> None:
    """A play in which every host fails ends the run, so each has the launcher."""
    plays = yaml.safe_load(Path("playbooks/acceptance.yml").read_text())
    hosts = [play["hosts"].split(":") for play in plays if "hosts" in play]
    assert len(hosts) == 5
    assert all("launcher" in each for each in hosts)


def test_a_node_reports_jobs_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    output = {
        "scontrol": "NodeName=x State=ALLOCATED ThreadsPerCore=1\n",
        "nvidia-smi": "77, python3\n78, nvidia-cuda-mps-server\nNo devices\n",
    }

    def run(argv: Any, **_given: Any) -> SimpleNamespace:
        return SimpleNamespace(stdout=output[argv[0]], stderr="", rc=0)

    monkeypatch.setattr(module, "find_program", lambda name: name)
    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module.busy, "processes", lambda more: [])
    found = module.look({"commands": [], "rails": [{"interface": "rail0"}]})
    assert found["gpu_processes"] == ["77, python3"] and found["slurm"]["busy"]
    assert found["versions"]["firmware"] == {"rail0": ""} and found["problems"] == []
    assert plan.occupied({"node01": {"found": found}})
    output["scontrol"] = "slurm_load_node error"
    found = module.look({"commands": [], "rails": []})
    assert found["slurm"] is None and len(found["problems"]) == 1


def test_a_job_that_begins_meanwhile_stops_the_run(launcher: Launcher) -> None:
    reason = "another MPI job runs: 9 mpirun"
    launcher.ends[2] = {"failed": True, "directory": "", "missing": {"node02": reason}}
    with pytest.raises(PlanError, match="node02: another MPI job"):
        launcher.measure()
    launcher.measure()
    used = [job["program"][job["program"].index("--rail") + 1] for job in launcher.jobs[:3]]
    assert used == ["rail0", "rail1", "rail1"]


def test_sweeps_are_on_the_nodes_of_the_run(launcher: Launcher) -> None:
    plugin = launcher.plugin()
    launcher.measure(limit=NODES[:2], sweeps=["mpi4py"])
    plugin.begin(launcher.given(), launcher.variables(NODES[:2]))
    plugin._open(resume=True)
    plugin.job({"program": ["python3", "sweep.py"]}, {})
    assert launcher.jobs[-1]["places"] == {"node01": 2, "node02": 2}
    assert len(launcher.jobs[-1]["nodes"]) > len(NODES)


@pytest.mark.parametrize(("gpus", "swept"), [(0, ["mpi4py"]), (2, ["mpi4py", "nccl"])])
def test_nccl_needs_gpus(gpus: int, swept: list[str], launcher: Launcher) -> None:
    nodes = [{**node, "gpus": gpus} for node in facts.build(cluster())]
    launcher.measure(nodes=nodes, sweeps=["mpi4py", "nccl"])
    assert [job["sweep"] for job in launcher.jobs if "sweep" in job] == swept


def test_rails_that_were_not_chosen_are_in_the_certificate(launcher: Launcher) -> None:
    launcher.measure(only=["rail1"])
    _result, found = launcher.certify()
    assert required(found) == [{"what": "rail0", "why": plan.NOT_CHOSEN}]
    assert found["verdict"] == "incomplete" and found["coverage"]["rails"] == ["rail1"]


def test_the_limit_is_in_the_certificate(launcher: Launcher) -> None:
    launcher.looked["node02"] = {"unreachable": True}
    launcher.measure(limit=NODES[:4])
    _result, found = launcher.certify()
    assert found["coverage"]["nodes"] == ["node01", "node03", "node04"]
    missing = {each["what"]: each["why"] for each in required(found)}
    assert missing == {
        "node02": plan.SILENT,
        **dict.fromkeys(NODES[4:], plan.LIMITED),
    }
    assert found["verdict"] == "incomplete"


def test_a_node_without_the_rail_is_left_out_of_it(launcher: Launcher) -> None:
    launcher.ends[1] = {"failed": True, "directory": "", "missing": {"node04": "rail0 is down"}}
    launcher.measure()
    _result, found = launcher.certify()
    assert "node04" not in launcher.jobs[1]["places"] and "node04" in launcher.jobs[2]["places"]
    errors = {each["pair"]: each.get("error", "") for each in found["worst"]}
    assert all("node04" in pair and "rail0 is down" in error for pair, error in errors.items())


def test_a_process_that_fails_leaves_its_node_out(launcher: Launcher) -> None:
    """Figures that were printed before are kept."""
    launcher.cut[1] = 20
    line = "[1,2]<stderr>:pairs: node03: no RDMA device behind rail0"
    launcher.ends[1] = {"failed": True, "msg": "job failed", "failed_rank": 2, "lines": [line]}
    launcher.measure()
    rest = launcher.jobs[1]["program"]
    first = launcher.jobs[0]["program"]
    assert "node03" not in launcher.jobs[1]["places"]
    assert len(shlex.join(rest)) < len(shlex.join(first))
    _result, found = launcher.certify()
    assert "no RDMA device" in found["worst"][0]["error"]
    (rail,) = (each for each in found["figures"] if each["rail"] == "rail0")
    assert 0 < rail["errors"] < 14


def test_pairs_that_answer_but_carry_no_bandwidth_fail(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a small MTU on the path: 8 bytes pass, and large messages do not."""
    line = "pairs-figure {} {} {} - 2.5 too slow for a round"

    def job(arguments: dict[str, Any], _task_vars: Any) -> dict[str, Any]:
        argv = arguments["program"][2:]
        names = argv[argv.index("--nodes") + 1].split(",")
        rounds = [text.split(",") for text in argv[: argv.index("--rail")]]
        ends = [(turn, *pair.split("-")) for turn, each in enumerate(rounds) for pair in each]
        both = [way for turn, a, b in ends for way in ((turn, a, b), (turn, b, a))]
        launcher.output = "\n".join(line.format(*way) for way in both)
        return {"directory": JOB, "nodes": names}

    monkeypatch.setattr(launcher, "job", job)
    launcher.measure(sweeps=[])
    result, found = launcher.certify()
    assert found["verdict"] == "failed" and {each["errors"] for each in found["figures"]} == {56}
    failed = {check["subject"] for check in result["checks"] if check["status"] == "failed"}
    # Reports have one check of each name and subject.
    assert {"rail0", "rail0 pairs", "rail1", "rail1 pairs"} >= failed >= {"rail0 pairs"}


def test_a_job_that_hangs_keeps_its_figures(launcher: Launcher) -> None:
    launcher.cut[1] = 40
    launcher.ends[1] = {"failed": True, "msg": "stopped after 57 s"}
    launcher.measure()
    _result, found = launcher.certify()
    (rail,) = (each for each in found["figures"] if each["rail"] == "rail0")
    assert rail["errors"] == 56 - 40 and "sweep" in launcher.jobs[2]
    assert "stopped after 57 s" in found["worst"][0]["error"]


def test_another_order_of_ranks_is_taken_over(launcher: Launcher) -> None:
    launcher.order = NODES[::-1]
    launcher.measure()
    assert len(launcher.jobs) == 1 + 3
    assert launcher.certify()[1]["verdict"] == "passed"


def test_a_launcher_that_starts_nothing_ends_the_run(launcher: Launcher) -> None:
    launcher.ends[1] = {"failed": True, "directory": "", "msg": "job: nothing was started: x"}
    with pytest.raises(AnsibleActionFail, match="nothing was started"):
        launcher.measure()


# Interruptions.


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_run_continues(at: int, launcher: Launcher) -> None:
    launcher.ends[at] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure()
    with pytest.raises(PlanError):
        launcher.certify()
    launcher.measure()
    assert len(launcher.jobs) == 4
    assert launcher.certify()[1]["verdict"] == "passed"


@pytest.mark.parametrize(
    "options", [{"resume": "never"}, {"round_s": 2.0}, {"limit": NODES[:7]}, {"only": ["rail0"]}]
)
def test_another_run_starts_anew(options: dict[str, Any], launcher: Launcher) -> None:
    launcher.ends[2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure()
    launcher.measure(**options)
    first = launcher.jobs[2]["program"]
    assert first[first.index("--rail") + 1] == "rail0"


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"schema": 1, "key": 2}', '{"schema": 9}'])
def test_a_damaged_state_is_replaced(text: str, launcher: Launcher) -> None:
    path = launcher.folder / "reports" / state.NAME
    path.parent.mkdir()
    path.write_text(text)
    launcher.measure()
    assert launcher.certify()[1]["verdict"] == "passed"


@pytest.mark.parametrize(
    "damage",
    [
        {"pairs rail0": [["rail0", "node01"]]},
        {"pairs rail0": 5},
        {"pairs rail0": [["rail0", "node01", "spine01", "", 1, 1, "", None, None]]},
        {"search 1": {}},
        {"search 1": {"figures": [[[[[]]]]]}},
        {"sweeps mpi4py": ["x"]},
        {"verdicts": [{"subject": "x"}]},
        {"run": ["x", "y", "z"]},
        {"run": {}},
        {"last": "soon", "launch": -1},
        {"launch": float("nan")},
        {"reading": [1]},
        {"measured": [1]},
    ],
)
def test_a_state_of_another_form_is_replaced(damage: dict[str, Any], launcher: Launcher) -> None:
    launcher.measure()
    path = launcher.folder / "reports" / state.NAME
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "steps": {**known["steps"], **damage}}))
    jobs = len(launcher.jobs)
    launcher.measure()
    assert len(launcher.jobs) == 2 * jobs and launcher.certify()[1]["verdict"] == "passed"


def test_the_next_run_in_a_container_has_the_same_process_number(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.ends[2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure(budget_s=600)
    path = launcher.folder / "reports" / state.NAME
    known = json.loads(path.read_text())
    known["steps"]["run"][1] -= 5000
    path.write_text(json.dumps(known))
    monkeypatch.setattr(state, "process", lambda number: [number, 2])
    launcher.measure(budget_s=600)
    assert launcher.certify()[1]["verdict"] == "passed"


def test_two_runs_do_not_share_a_state(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher.measure()
    jobs = len(launcher.jobs)
    monkeypatch.setattr(action.os, "getppid", lambda: 1)
    with pytest.raises(PlanError):
        launcher.measure(resume="never")
    assert len(launcher.jobs) == jobs


def test_measurements_of_another_model_are_not_certified(launcher: Launcher) -> None:
    launcher.measure()
    variables = {**launcher.variables(), "cluster_digest": "0ther"}
    with pytest.raises(PlanError):
        launcher.plugin().certified(launcher.given(), variables)


def test_the_budget_of_an_interrupted_run_counts(launcher: Launcher) -> None:
    launcher.ends[2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure(budget_s=600)
    launcher.later(590)
    launcher.measure(budget_s=600)
    assert len(launcher.jobs) == 2
    _result, found = launcher.certify()
    missing = {each["what"]: each["why"] for each in required(found)}
    assert set(missing) == {"pairs rail1", "sweeps mpi4py"} and found["verdict"] == "incomplete"


def test_a_small_budget_measures_fewer_rounds(launcher: Launcher) -> None:
    launcher.measure(budget_s=64 + 160, sweeps=["mpi4py"])
    _result, found = launcher.certify()
    assert found["coverage"]["rounds"] == {"rail0": 4, "rail1": 4}
    assert "24 pairs of nodes" in {each["what"] for each in found["not_measured"]}
    assert found["verdict"] == "passed"
    with pytest.raises(PlanError) as error:
        launcher.measure(budget_s=50, sweeps=[])
    assert error.value.args[0].code == "acceptance.budget"
    with pytest.raises(PlanError) as error:
        launcher.measure(limit=NODES[:1])
    assert error.value.args[0].code == "acceptance.no_pair"


@pytest.mark.parametrize(
    "option",
    [
        {"round_s": 0.0},
        {"round_s": -1.0},
        {"round_s": float("nan")},
        {"rounds": -3},
        {"budget_s": float("inf")},
        {"queue_pairs": 0},
        {"message_bytes": 1 << 40},
        {"min_share": 85.0},
        {"sweep_limit_s": 0.0},
    ],
)
def test_an_option_outside_its_limits_is_named(option: dict[str, Any], launcher: Launcher) -> None:
    with pytest.raises(PlanError) as error:
        launcher.measure(**option)
    assert error.value.args[0].code == "acceptance.option" and next(iter(option)) in str(
        error.value
    )
    assert launcher.jobs == []


@pytest.mark.parametrize("text", ["", "[]", '{"filesystems": 1}', '{"filesystems": {"x": 2}}'])
def test_a_damaged_report_of_storage_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "storage-latest.json").write_text(text)
    assert certificate.storage(tmp_path) == {}


def test_a_wrong_product_of_a_gpu_fails_the_certificate(launcher: Launcher) -> None:
    wrong = {"name": "burn_products", "subject": "GPU 1", "status": "failed"}
    launcher.burned["node04"]["checks"].append(wrong)
    launcher.measure()
    result, found = launcher.certify()
    (failed,) = (each for each in result["checks"] if each["status"] == "failed")
    assert (failed["name"], failed["subject"]) == ("burn_products", "node04 GPU 1")
    assert found["gpus"]["checks"] == 9


@pytest.mark.parametrize("name", certificate.INCASTS)
def test_an_incast_that_failed_fails_the_certificate(name: str, launcher: Launcher) -> None:
    paused = {"name": "incast_pauses", "subject": "rail0", "status": "failed"}
    launcher.results["node02"] = {name: {"checks": [paused, {**paused, "status": "ok"}]}}
    launcher.measure()
    result, found = launcher.certify()
    failed = [(each["name"], each["subject"]) for each in result["checks"]]
    assert ("incast_pauses", "node02 rail0") in failed and found["verdict"] == "failed"


def test_each_node_without_products_is_listed(launcher: Launcher) -> None:
    """Such as one that failed before its turn, or whose GPUs lack every precision."""
    del launcher.burned["node03"]
    launcher.burned["node05"] = {"checks": [{"name": "burn_idle", "status": "ok"}]}
    launcher.measure()
    _result, found = launcher.certify()
    (missing,) = required(found)
    assert [name for name in NODES if name in missing["what"]] == ["node03", "node05"]
    assert found["verdict"] == "incomplete" and found["gpus"]["checks"] == 7


def test_gpus_that_were_not_loaded_are_listed(launcher: Launcher) -> None:
    launcher.burned = {
        "node01": {"checks": [{"name": "burn_products", "status": "not_applicable", "reason": "x"}]}
    }
    launcher.measure()
    _result, found = launcher.certify()
    missing = {each["why"] for each in required(found)}
    assert missing == {"x", plan.NOT_BURNED} and found["gpus"] == {}


# Counters of switches.


def test_a_probe_is_between_two_readings_of_counters(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a run that was interrupted between them, which measures it again."""
    cable = Uplink("leaf01", "swp60", "spine01", "swp1")
    monkeypatch.setattr(action, "Search", Asking)
    monkeypatch.setattr(
        action.ActionModule, "_topology", lambda *_given: replace(topology, cables=(cable,))
    )
    topology = Topology.of(cluster())

    def counted(number: int) -> dict[str, Any]:
        ports = {"swp60": {"tx_bytes": 1000 * number, "tx_discards": number, "rx_bytes": 0}}
        return {"leaf01": {"after": {"ports": ports, "read_s": time.time()}}}

    launcher.counted = counted
    launcher.rate = lambda rail, a, b: 80.0 if "node03" in (a, b) else 780.0
    Asking.took.clear()
    launcher.measure()
    ((first, _back),) = Asking.took
    up = Direction(cable, True)
    assert (first.cables[up], first.drops[up]) == (1000, 1) and launcher.readings == 2
    whole = len(launcher.jobs)
    assert launcher.jobs[-1]["program"][-1] == "1"  # queue pair
    launcher.certify()

    Asking.took.clear()
    given = launcher.given()
    launcher.plugin().measured_all(given, launcher.variables())
    assert launcher.plugin().searched(given, launcher.variables())["left"]
    monkeypatch.setattr(state, "process", lambda number: [number, 2])
    launcher.measure()
    assert len(launcher.jobs) == 2 * whole + 1 and len(Asking.took) == 1


@pytest.mark.parametrize(("errors", "lossy"), [(20, True), (1, False)])
def test_the_search_knows_cables_that_lose_packets(
    errors: int, lossy: bool, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first reading after the pairs on, also after an interruption."""
    cable = Uplink("leaf01", "swp60", "spine01", "swp1")
    topology = replace(Topology.of(cluster()), cables=(cable,))
    monkeypatch.setattr(action.ActionModule, "_topology", lambda *_given: topology)
    given: list[Any] = []

    class Searching(Asking):
        def __init__(self, *known: Any) -> None:
            given.append(known[-1])
            super().__init__()

        def verdicts(self) -> list[Verdict]:
            return [Verdict("lossy", "")]

    def counted(number: int) -> dict[str, Any]:
        ports = {"swp60": {"rx_bytes": 1, "rx_packets": 5000, "rx_errors": errors}}
        if number == 0:
            ports = {"swp60": {"rx_bytes": 0, "rx_packets": 0, "rx_errors": 0}}
        return {"leaf01": {"after": {"ports": ports, "read_s": time.time()}}}

    monkeypatch.setattr(action, "Search", Searching)
    launcher.counted = counted
    launcher.rate = lambda rail, a, b: 80.0 if "node03" in (a, b) else 780.0
    launcher.measure()
    assert given[0] == [] and given[-1] == ([cable] if lossy else [])
    _result, found = launcher.certify()
    (part,) = (each for each in found["checks"] if each["name"] == "acceptance_part")
    assert (part["found"], part["status"]) == ("lossy", "ok")


def test_cables_are_in_the_certificate(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    cable = Uplink("leaf01", "swp60", "spine01", "swp1")
    other = Uplink("leaf02", "swp60", "spine01", "swp2")
    topology = replace(Topology.of(cluster()), cables=(cable, other))
    monkeypatch.setattr(action.ActionModule, "_topology", lambda *_given: topology)

    def counted(number: int) -> dict[str, Any]:
        ports = {"swp60": {"tx_bytes": 10**9 * number, "rx_bytes": 10**9 * number}}
        ports["swp60"]["tx_discards"] = 7 * number
        return {"leaf01": {"after": {"ports": ports, "read_s": time.time()}}}

    launcher.counted = counted
    launcher.measure()
    result, found = launcher.certify()
    assert {(each["kind"], each["cable"]) for each in found["cables"]} == {
        ("discards", str(Direction(cable, True))),
        *(("unread", str(Direction(other, up))) for up in (True, False)),
    }
    (failed,) = (each for each in result["checks"] if each["status"] == "failed")
    assert (failed["name"], failed["subject"]) == ("acceptance_cable", str(Direction(cable, True)))
    assert "counters of leaf02" in {each["what"] for each in found["not_measured"]}


def test_a_cable_that_is_down_fails_and_is_not_measured(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    cable, other = (Uplink("leaf01", f"swp6{port}", "spine01", "swp1") for port in (0, 1))
    topology = replace(Topology.of(cluster()), cables=(cable, other))
    check = Check("acceptance_cable", "BGP established", "down", "failed", str(cable), "idle")
    routing = readings.Routing({cable: "idle"}, [check], {"leaf02": "no answer"})
    monkeypatch.setattr(action.ActionModule, "_topology", lambda *_given: topology)
    monkeypatch.setattr(readings, "routing", lambda *_given: routing)
    launcher.measure()
    assert any(str(cable) in line for line in launcher.shown)
    result, found = launcher.certify()
    assert result["failed"] and found["verdict"] == "failed"
    assert [each["subject"] for each in found["checks"] if each["status"] == "failed"] == [
        str(cable)
    ]
    assert [(each["kind"], each["cable"]) for each in found["cables"]] == [("down", str(cable))]
    assert found["coverage"]["cable_directions"] == 2
    assert {"what": "routing of leaf02", "why": "no answer"} in found["not_measured"]


def test_figures_before_a_cable_was_repaired_do_not_count(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    cable = Uplink("leaf01", "swp60", "spine01", "swp1")
    down = readings.Routing({cable: "idle"})
    monkeypatch.setattr(readings, "routing", lambda *_given: down)
    launcher.measure()
    monkeypatch.setattr(readings, "routing", lambda *_given: readings.Routing())
    launcher.later(1.0)
    launcher.jobs.clear()
    launcher.measure()
    assert len(launcher.jobs) == 3


@pytest.mark.parametrize(
    ("first", "what"),
    [({}, "counters of leaf01"), ({"swp61": {"rx_bytes": 1}}, "leaf01 swp60 - spine01 swp1 (up)")],
)
def test_counters_without_a_first_reading_are_not_passed(
    first: dict[str, Any], what: str, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    cable = Uplink("leaf01", "swp60", "spine01", "swp1")
    topology = replace(Topology.of(cluster()), cables=(cable,))
    monkeypatch.setattr(action.ActionModule, "_topology", lambda *_given: topology)

    def counted(number: int) -> dict[str, Any]:
        last = {"swp60": {"tx_bytes": 1, "rx_bytes": 1}, **first}
        read = {"leaf01": first if number == 0 else last, "spine01": {"swp9": {"rx_bytes": 1}}}
        return {
            name: {"after": {"ports": ports, "read_s": 4e9 + number}}
            for name, ports in read.items()
        }

    launcher.counted = counted
    launcher.measure()
    _result, found = launcher.certify()
    assert any(each["what"].startswith(what) for each in found["not_measured"])
    assert found["verdict"] == "incomplete"


def test_a_large_cluster_measures_a_number_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_FIGURES", 5 * 8 * 2)
    topology = Topology.of(cluster())
    made = plan.made(topology, pairs.Way(), budget_s=3600)
    assert {len(probes) for probes in made.probes.values()} == {5}
    assert [each.what for each in made.missing if "pairs of nodes" in each.what] == [
        "16 pairs of nodes"
    ]


# The signature.


def verified(path: Path) -> bool:
    command = certificate.command(path, "acceptance@small")
    # A shell, as in the documented command with its redirection.
    return subprocess.run(command, shell=True, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("passphrase", ["", "two 'words'"])
def test_a_changed_byte_does_not_verify(passphrase: str, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    AuthorityStore(Journal(ssh), passphrase).prepare(["node01"], comment="x", now=1, write=True)
    signer = Signer("small", ssh, passphrase)
    path, reason = certificate.write(tmp_path / "reports", {"verdict": "passed"}, signer)
    assert reason == "" and verified(path)
    content = path.read_bytes()
    assert json.loads(content)["signature"]["namespace"] == certificate.NAMESPACE
    for place in (0, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert not verified(path)
    path.write_bytes(content)
    assert verified(path)


def test_without_an_authority_it_is_unsigned(tmp_path: Path) -> None:
    signer = Signer("small", tmp_path / "ssh")
    path, reason = certificate.write(tmp_path / "reports", {}, signer)
    found = json.loads(path.read_text())
    assert found["signature"] == "unsigned" and found["unsigned_because"] == reason != ""
    assert not Path(f"{path}.sig").exists()


def test_versions_from_nodes_are_words() -> None:
    hostile = {"kernel": "6.8\n{{ x }}", "firmware": {"rail0": ["x"], "{{ y }}": "1.2"}}
    looked = {"node01": {"found": {"versions": hostile}}, "node02": {"found": "x"}}
    assert certificate.versions(looked) == {"firmware ": {"1.2": ["node01"]}}
