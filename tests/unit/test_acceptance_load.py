# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The time budget of acceptance, and the load of GPUs: within it, kept, and not repeated."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import acceptance as action
from ansible_collections.baremetal.mpi_roce.plugins.action import gpu_burn
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.gpu import burn as on_node
from ansible_collections.baremetal.mpi_roce.plugins.modules import gpu_burn as module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import (
    burn,
    certificate,
    plan,
    state,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    Topology,
    Uplink,
)

from tests.unit.test_acceptance_run import FREE, LOAD, NODES, Launcher, cluster, required

EACH_S = 900 + 3 * 60 + burn.REST_S
"""Estimated seconds of a node with the options of LOAD."""
PRODUCT = {"name": "burn_products", "subject": "GPU 0 bf16", "status": "ok"}


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launcher:
    launcher = Launcher(monkeypatch, tmp_path)
    monkeypatch.setattr(gpu_burn.display, "display", launcher.shown.append)
    for name in NODES:
        found = {**FREE["found"], "gpus": True, "boot": f"boot-{name}"}
        launcher.looked[name] = {"found": found}
    return launcher


def chosen(launcher: Launcher, **options: Any) -> dict[str, Any]:
    """The step of the launcher after the measurements."""
    return launcher.plugin().loads(launcher.given(**options), launcher.variables())


class Nodes:
    """The nodes' steps in the next play. `answers` replace what modules return."""

    def __init__(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launcher, self.monkeypatch = launcher, monkeypatch
        self.sent: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, dict[str, Any]] = {}

    def load(self, run: Any, node: str, **options: Any) -> dict[str, Any]:
        plugin = gpu_burn.ActionModule.__new__(gpu_burn.ActionModule)
        args = {"step": "burn", "duration_s": 60, "run": run, **options}
        plugin._task = SimpleNamespace(args=args, check_mode=False)

        def execute(_name: str, module_args: Any, task_vars: Any) -> dict[str, Any]:
            self.sent[node] = dict(module_args)
            figures = {"gpus": [{"index": 0, "product": "B300"}]}
            default = {"checks": [dict(PRODUCT)], "figures": figures}
            return self.answers.get(node, default)

        self.monkeypatch.setattr(plugin, "_execute_module", execute, raising=False)
        variables = {"inventory_hostname": node, "looked": self.launcher.looked[node]}
        result: dict[str, Any] = plugin.act(variables)
        self.launcher.burned[node] = result
        return result


@pytest.fixture
def nodes(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(launcher, monkeypatch)


# The budget.


@pytest.mark.parametrize(
    ("options", "count", "forks", "expected"),
    [
        (LOAD, 8, 32, EACH_S),
        (LOAD, 33, 32, 2 * EACH_S),
        ({**LOAD, "diag_level": "0", "duration_s": "10", "precisions": "bf16,fp8"}, 1, 5, 320),
    ],
)
def test_the_estimate(options: Any, count: int, forks: int, expected: float) -> None:
    assert burn.seconds(options, count, forks) == expected


@pytest.mark.parametrize("wrong", [{"diag_level": 7}, {"duration_s": "soon"}, {"precisions": 3}])
def test_options_without_a_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        burn.seconds({**LOAD, **wrong}, 1, 5)


def test_the_load_is_in_the_plan_and_reduces_the_rounds(launcher: Launcher) -> None:
    launcher.measure(check_mode=True, budget_s=2100)
    planned = launcher.plugin()
    planned.begin(launcher.given(budget_s=2100), launcher.variables())
    assert planned.plan.later == {plan.BURN: EACH_S}
    assert planned.plan.seconds == 2 * 27 + plan.SWEEP_S + EACH_S
    planned.begin(launcher.given(budget_s=2066, round_s=3.0), launcher.variables())
    assert (
        planned.plan.later == {plan.BURN: EACH_S}
        and max(map(len, planned.plan.probes.values())) == 1
    )
    planned.begin(launcher.given(budget_s=2100, burn=False), launcher.variables())
    assert (planned.plan.later, planned.plan.late) == ({}, {})


def test_a_load_that_does_not_fit_is_omitted(launcher: Launcher) -> None:
    launcher.burned = {}
    launcher.measure(budget_s=1000)
    assert any("GPUs under load" in line and "not measured" in line for line in launcher.shown)
    assert chosen(launcher, budget_s=1000)["nodes"] == []
    _result, found = launcher.certify()
    assert {each["why"] for each in required(found)} == {plan.NO_TIME}
    assert found["verdict"] == "incomplete"


LATER = {"incasts": ["leaf"], "incast_s": 10, "filesystems": 2, "storage_alone": False}
INCAST = "congestion (leaf)"
INCAST_S, STORAGE_S = 30 + 2 * 11, 2 * 2 * 20  # in two batches


@pytest.mark.parametrize(
    ("budget_s", "planned", "spent_s", "measured"),
    [
        (7200, {INCAST, plan.STORAGE, plan.BURN}, 0, {INCAST, plan.STORAGE, plan.BURN}),
        (1000, {INCAST, plan.STORAGE}, 0, {INCAST, plan.STORAGE}),
        (7200, {INCAST, plan.STORAGE, plan.BURN}, 6000, {INCAST, plan.STORAGE}),
        (7200, {INCAST, plan.STORAGE, plan.BURN}, 7200 - INCAST_S - 30, {INCAST}),
        (7200, {INCAST, plan.STORAGE, plan.BURN}, 7200, set()),
    ],
)
def test_later_plays_are_in_the_budget(
    budget_s: float,
    planned: set[str],
    spent_s: float,
    measured: set[str],
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"forks": 4})
    launcher.burned = {}
    options = {"budget_s": budget_s, "later": LATER}
    launcher.measure(**options)
    plugin = launcher.plugin()
    plugin.begin(launcher.given(**options), launcher.variables())
    assert set(plugin.plan.later) == planned
    assert (plugin.plan.later[INCAST], plugin.plan.later[plan.STORAGE]) == (INCAST_S, STORAGE_S)
    launcher.later(spent_s)
    found = chosen(launcher, **options)
    assert found["incasts"] == ["leaf"] * (INCAST in measured)
    assert found["storage"] == (plan.STORAGE in measured)
    assert bool(found["nodes"]) == (plan.BURN in measured)
    _result, certificate = launcher.certify()
    late = {each["what"] for each in required(certificate) if each["why"] == plan.NO_TIME}
    assert (INCAST in late) == (INCAST not in measured)


def test_measurements_leave_the_load_its_time(launcher: Launcher) -> None:
    launcher.ends[1] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launcher.measure()
    launcher.later(3600 - EACH_S - 60)
    launcher.measure()
    assert [job.get("sweep") for job in launcher.jobs[1:]] == [None, None]
    assert chosen(launcher)["nodes"] == NODES


def test_nodes_without_a_driver_take_no_time(launcher: Launcher) -> None:
    for name in NODES[1:]:
        launcher.looked[name]["found"]["gpus"] = False
    planned = launcher.plugin()
    planned.begin(launcher.given(), launcher.variables())
    assert planned.plan.later == {plan.BURN: EACH_S}
    launcher.measure()
    assert chosen(launcher)["nodes"] == NODES


def test_a_node_loads_until_the_end_of_the_budget(launcher: Launcher, nodes: Nodes) -> None:
    launcher.measure()
    run = chosen(launcher)["run"]
    assert 3500 < run["until"] - time.time() <= 3600
    nodes.load(run, "node01")
    assert 3500 < nodes.sent["node01"]["limit_s"] <= 3600 and "run" not in nodes.sent["node01"]
    result = nodes.load({**run, "until": time.time() + 1}, "node02")
    assert "node02" not in nodes.sent
    assert [check["status"] for check in result["checks"]] == ["not_applicable"]


def test_check_mode_loads_nothing(launcher: Launcher) -> None:
    given, variables = launcher.given(), launcher.variables()
    assert launcher.plugin(check_mode=True).loads(given, variables)["nodes"] == []
    assert list(launcher.folder.iterdir()) == []


# Results that a run has.


def test_a_node_is_loaded_once_in_a_run(launcher: Launcher, nodes: Nodes) -> None:
    launcher.measure()
    run = chosen(launcher)["run"]
    wrong = {**PRODUCT, "status": "failed", "reason": "corrupt"}
    figures = {"gpus": [{"index": 0, "product": "B300"}]}
    nodes.answers["node02"] = {"checks": [wrong], "figures": figures, "failed": True, "msg": "x"}
    first = {name: nodes.load(run, name) for name in NODES}
    nodes.sent.clear()
    again = chosen(launcher)
    assert again["nodes"] == NODES
    for name in NODES:
        kept = nodes.load(again["run"], name)
        assert kept["figures"] == first[name]["figures"]
        assert [check["status"] for check in kept["checks"]] == [
            check["status"] for check in first[name]["checks"]
        ]
        assert bool(kept.get("failed")) == (name == "node02")
    assert nodes.sent == {}


@pytest.mark.parametrize("what", ["boot", "driver", "options", "run", "unknown boot", "damaged"])
def test_a_result_of_something_else_is_not_taken(
    what: str, launcher: Launcher, nodes: Nodes
) -> None:
    if what == "unknown boot":
        launcher.looked["node01"]["found"]["boot"] = ""
    launcher.measure()
    run = chosen(launcher)["run"]
    nodes.load(run, "node01")
    nodes.sent.clear()
    found = launcher.looked["node01"]["found"]
    options: dict[str, Any] = {}
    if what == "boot":
        found["boot"] = "another"
    elif what == "driver":
        found["versions"] = {**found["versions"], "gpu_driver": "590.1"}
    elif what == "options":
        options["duration_s"] = 600
    elif what == "run":
        launcher.measure(resume="never")
        run = chosen(launcher)["run"]
    elif what == "damaged":
        (path,) = (launcher.folder / "reports" / burn.FOLDER).glob("*.json")
        path.write_text("{")
    nodes.load(run, "node01", **options)
    assert set(nodes.sent) == {"node01"}


@pytest.mark.parametrize(
    "answer",
    [
        {"checks": [{"name": "burn_idle", "status": "failed"}], "figures": {}, "failed": True},
        {"failed": True, "msg": "burn: nvidia-smi"},
        {"unreachable": True},
    ],
)
def test_a_node_that_was_not_loaded_is_tried_again(
    answer: dict[str, Any], launcher: Launcher, nodes: Nodes
) -> None:
    launcher.measure()
    run = chosen(launcher)["run"]
    nodes.answers["node01"] = answer
    nodes.load(run, "node01")
    del nodes.answers["node01"]
    nodes.sent.clear()
    nodes.load(run, "node01")
    assert set(nodes.sent) == {"node01"}


def test_the_time_of_an_interrupted_load_counts(
    launcher: Launcher, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.measure()
    nodes.load(chosen(launcher)["run"], "node01")
    path = launcher.folder / "reports" / state.NAME
    known = json.loads(path.read_text())
    known["steps"]["load"]["began"] -= 1000  # as if it had taken this time
    path.write_text(json.dumps(known))
    monkeypatch.setattr(state, "process", lambda number: [number, 2])
    launcher.measure()
    run = chosen(launcher)["run"]
    assert 2400 < run["until"] - time.time() <= 2600
    nodes.sent.clear()
    nodes.load(run, "node01")
    assert nodes.sent == {}


def test_the_certificate_ends_the_run(launcher: Launcher, nodes: Nodes) -> None:
    launcher.measure()
    run = chosen(launcher)["run"]
    for name in NODES:
        nodes.load(run, name)
    _result, found = launcher.certify()
    assert found["gpus"]["checks"] == len(NODES) and required(found) == []
    assert not (launcher.folder / "reports" / burn.FOLDER).exists()
    assert certificate.BURNED == "__gpu_burn_burned"


# On the node.


def test_programs_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Diagnostics leave the products their time, and do not fail for what the limit ends."""
    limits: dict[str, float] = {}

    def run(argv: Any, *, timeout_s: float, **_given: Any) -> Any:
        limits[argv[0]] = timeout_s
        raise on_node.NoAnswerError(argv[0], timeout_s)

    gpus = [on_node.Gpu(index, "", f"GPU-{index}", "", "B300") for index in range(2)]
    monkeypatch.setattr(on_node, "run", run)
    monkeypatch.setattr(on_node, "gpus", lambda _run: gpus)
    monkeypatch.setattr(on_node, "find_program", lambda name: name)
    options = on_node.Options(limit_s=1000.0, seconds=60.0)
    checks, _figures = on_node.measure(options, run, Path("/nonexistent"))
    reserved = 3 * 60 + on_node.MARGIN_S
    assert 690 < limits["dcgmi"] <= 1000 - reserved
    assert limits["nvbandwidth"] <= 1000 - reserved and limits["all_reduce_perf"] <= 350
    statuses = {check.name: check.status for check in checks}
    assert statuses["burn_diag"] == statuses["burn_copies"] == "not_applicable"
    assert statuses["burn_products"] == "failed"
    checks, _figures = on_node.measure(on_node.Options(), run, Path("/nonexistent"))
    assert {check.status for check in checks} == {"failed"}
    assert limits["dcgmi"] == 3600


def test_the_action_and_the_node_agree_on_names() -> None:
    assert set(LOAD) <= set(module.ARGUMENTS) and "load" in action.ARGUMENTS


# Rails within the budget.


@pytest.mark.parametrize("late", [False, True])
def test_a_rail_that_loses_nodes_keeps_the_budget(late: bool, launcher: Launcher) -> None:
    """Jobs without the lost nodes start only while there is time for them."""

    def job(arguments: dict[str, Any], _task_vars: Any) -> dict[str, Any]:
        launcher.jobs.append(arguments)
        lost = sorted(arguments["places"])[0]
        if late:
            known = launcher.current.state.steps["run"]
            known[1] -= 60.0  # as if each job had taken this time
        return {"failed": True, "directory": "", "missing": {lost: "rail0 is down"}}

    class Plugin(action.ActionModule):
        def _open(self, resume: bool, tell: bool = False) -> None:
            super()._open(resume, tell)
            launcher.current = self

    launcher.job = job  # type: ignore[method-assign]
    options: dict[str, Any] = {"budget_s": 120, "sweeps": [], "only": ["rail0"], "burn": False}
    plugin = launcher.plugin()
    plugin.__class__ = Plugin
    plugin.measured_all(launcher.given(**options), launcher.variables())
    assert len(launcher.jobs) == (2 if late else action.LAUNCHES)
    assert all(each["time_limit_s"] <= 120 for each in launcher.jobs)
    if late:
        (figures,) = (v for k, v in plugin.state.steps.items() if k.startswith(state.PAIRS))
        assert plan.NO_TIME in {row[6] for row in figures}


def test_a_job_ends_with_the_budget(launcher: Launcher) -> None:
    """But has the time of its rounds."""
    launcher.measure(budget_s=60, only=["rail0"], sweeps=[], burn=False)
    (job,) = launcher.jobs
    rounds = len(job["program"][2 : job["program"].index("--rail")])
    assert 20 + rounds <= job["time_limit_s"] <= 60


# Pairs of different rails.


@pytest.fixture
def spine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one, the rails of the small cluster do not reach each other."""
    topology = Topology.of(cluster())
    cables = tuple(Uplink(leaf, "swp60", "spine01", leaf) for leaf in ("leaf01", "leaf02"))
    monkeypatch.setattr(
        action.ActionModule, "_topology", lambda *_given: replace(topology, cables=cables)
    )


def planned(launcher: Launcher, **options: Any) -> plan.Plan:
    plugin = launcher.plugin()
    plugin.begin(launcher.given(burn=False, **options), launcher.variables())
    return plugin.plan


@pytest.mark.usefixtures("spine")
def test_pairs_of_different_rails_on_request(launcher: Launcher) -> None:
    launcher.measure(cross_rail=True, burn=False)
    programs = [job.get("program", []) for job in launcher.jobs]
    crossing = [argv for argv in programs if "--second-rail" in argv]
    assert [argv[argv.index("--rail") + 1] for argv in crossing] == ["rail0", "rail1"]
    assert [argv[argv.index("--second-rail") + 1] for argv in crossing] == ["rail1", "rail0"]
    assert any("between rails" in line for line in launcher.shown)
    _result, found = launcher.certify()
    assert found["coverage"]["cross_rail_pairs"] == {"rail0 - rail1": 4, "rail1 - rail0": 4}
    assert found["coverage"]["pairs"] == found["coverage"]["possible_pairs"] == 2 * 28
    assert [each["why"] for each in found["not_measured"] if "acceptance" in each["why"]] == []
    far = {(each["rail"], each.get("far_rail")) for each in found["figures"]}
    assert {("rail0", "rail1"), ("rail1", "rail0")} <= far


@pytest.mark.usefixtures("spine")
def test_pairs_of_different_rails_are_in_the_budget(launcher: Launcher) -> None:
    less, more = planned(launcher), planned(launcher, cross_rail=True)
    assert more.seconds == less.seconds + 2 * (20 + 1)
    tight = planned(launcher, cross_rail=True, budget_s=300)
    assert tight.seconds <= 300 * (1 - plan.SEARCH_SHARE)
    only = planned(launcher, cross_rail=True, only=["rail1"])
    assert only.cross_rail == {} and list(only.probes) == ["rail1"]


@pytest.mark.usefixtures("spine")
def test_another_choice_of_pairs_starts_anew(launcher: Launcher) -> None:
    launcher.measure(burn=False)
    jobs = len(launcher.jobs)
    launcher.measure(cross_rail=True, burn=False)
    assert len(launcher.jobs) > 2 * jobs


def test_rails_without_a_path_to_each_other_are_listed(launcher: Launcher) -> None:
    found = planned(launcher, cross_rail=True)
    assert found.cross_rail == {}
    assert [(each.why, each.partial) for each in found.missing] == [(plan.NO_PATH, True)]
