# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The runner of ./test: any failure counts, and a stage that could not run has failed."""

from __future__ import annotations

import argparse
import fcntl
import runpy
import sys
from pathlib import Path

import pytest

from tests import waiting
from tests.waiting import until
from tools import bed, run_tests

TOP = Path(__file__).resolve().parents[2]
MEMORY = "MemAvailable: 2048000 kB"


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "TOP", tmp_path)
    monkeypatch.setattr(run_tests, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(run_tests, "ON_NODES", tmp_path / "lock")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    for name, text in {"sys/fs/inotify/max_user_instances": "1024", "meminfo": MEMORY}.items():
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_text(f"{text}\n")
    monkeypatch.setenv(waiting.VARIABLE, "2")
    (tmp_path / "logs").mkdir()
    return run_tests


def run(runner, capsys, *stages) -> tuple[int, str]:
    outcomes: dict = {}
    runner.run(runner.lanes(stages), outcomes)
    return runner.close(outcomes, 1.0), capsys.readouterr().out


def pytest_stage(runner, tmp_path, text: str):
    file = tmp_path / "test_it.py"
    file.write_text(text)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    return runner.Stage("unit", argv, pytest=True)


def test_totals_and_the_output_of_a_failed_stage(runner, capsys, tmp_path):
    tests = "import pytest\n@pytest.fixture\ndef broken(): 1/0\n"
    tests += "def test_a(): assert False\ndef test_b(broken): pass\ndef test_c(): pass\n"
    tests += "@pytest.mark.skip(reason='r')\ndef test_d(): pass\n"
    lint = runner.Stage("lint", ["sh", "-c", "echo line 7 is wrong; exit 4"])
    types = runner.Stage("types", ["true"])
    status, out = run(runner, capsys, pytest_stage(runner, tmp_path, tests), lint, types)
    assert status == 1
    assert "| line 7 is wrong" in out and "exit status 4" in out
    assert out.splitlines()[-1] == "2 passed, 3 failed, 1 skipped"
    failed = [line.split(": ")[0] for line in out.splitlines() if "FAILED test_it::test_" in line]
    assert [line.split()[-1] for line in failed[:2]] == ["test_it::test_a", "test_it::test_b"]
    assert failed[2:]  # repeated below the table


def test_what_failed_in_a_play_is_printed_with_the_end_of_its_log(runner, capsys):
    play = "echo 'fatal: [node01]: FAILED! => 2 checks failed'; seq 100; exit 2"
    _status, out = run(runner, capsys, runner.Stage("molecule x", ["sh", "-c", play]))
    assert "| fatal: [node01]: FAILED! => 2 checks failed" in out
    assert "| 100" in out and "| 40\n" not in out


@pytest.mark.parametrize("text", ["", "syntax error"], ids=["no tests", "not collected"])
def test_a_run_of_no_tests_has_failed(runner, capsys, tmp_path, text):
    status, out = run(runner, capsys, pytest_stage(runner, tmp_path, text))
    assert status == 1
    assert out.splitlines()[-1].startswith("0 passed, 1 failed")


def test_what_could_not_run_has_failed(runner, capsys):
    images = runner.Stage("images", ["no-such-program"], nodes=True)
    nodes = runner.Stage("molecule x", ["true"], nodes=True, needs="images")
    status, out = run(runner, capsys, images, nodes, runner.Stage("lint", ["true"]))
    assert status == 1 and "no-such-program" in out and "molecule x: could not run" in out
    assert out.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"


def test_a_stage_without_resources_for_its_nodes_fails_early(runner, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests.os, "geteuid", lambda: 0)
    fds = tmp_path / "proc/7/fd"
    fds.mkdir(parents=True)
    (fds.parent / "status").write_text("Name:\tsystemd\nUid:\t0\t0\t0\t0\n")
    for number in range(1000):
        (fds / str(number)).symlink_to("anon_inode:inotify")
    began = tmp_path / "began"
    images = runner.Stage("images", ["true"], nodes=True)
    nodes = runner.Stage("integration", ["touch", str(began)], nodes=True, needs="images")
    machines = runner.Stage("machines", ["true"], nodes=True, machines=True, needs="images")
    status, out = run(runner, capsys, images, nodes, machines)
    assert status == 1 and not began.exists()
    assert out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"
    said = next(line for line in out.splitlines() if line.startswith("FAIL  integration"))
    assert "24 of 1024 free (needed: 90)" in said
    assert "sysctl -w fs.inotify.max_user_instances=" in said


def test_a_hanging_stage_is_terminated_with_its_children(runner, capsys, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {pid}; exec sleep 300' & wait"
    watch = runner.watch

    def later(running):
        """Let its time expire as soon as it has a child process."""
        if pid.exists() and pid.read_text().endswith("\n"):
            running.began -= 7200
        watch(running)

    monkeypatch.setattr(runner, "watch", later)
    status, out = run(runner, capsys, runner.Stage("hangs", ["sh", "-c", script], minutes=60))
    assert status == 1
    assert "its limit of 7200 s" in out, "60 minutes, on a machine of factor 2"
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    until(lambda: not alive(state), "what it started to be gone")


def test_a_second_run_waits_only_for_the_nodes(runner, capsys, tmp_path):
    stages = [runner.Stage("nodes", ["true"], nodes=True), runner.Stage("lint", ["true"])]
    with open(runner.ON_NODES, "w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        outcomes: dict = {}
        every = runner.lanes(stages)

        def lint_has_ended() -> bool:
            for lane in every:
                lane.next(outcomes)
                lane.poll(outcomes)
            return "lint" in outcomes

        until(lint_has_ended, "lint is finished")
        assert list(outcomes) == ["lint"]
        assert capsys.readouterr().out.count("Another ./test") == 1
    runner.run(every, outcomes)
    assert outcomes["nodes"].passed == 1


def test_stages_with_nodes_run_one_after_the_other(runner):
    every = [runner.Stage(name, ["true"], nodes=True) for name in ("a", "b")]
    machines = runner.Stage("machines", ["true"], nodes=True, machines=True)
    lint = [runner.Stage(name, ["true"]) for name in ("lint", "types")]
    first, second = runner.lanes([machines, *lint, *every])
    assert (first.queue, first.width, first.alone) == (every, 1, 1)
    assert (second.queue, second.width, second.alone) == ([*lint, machines], 1, runner.LANES)
    assert second.niceness == runner.GIVES_WAY
    (alone,) = runner.lanes(lint)
    assert (alone.queue, alone.alone, alone.niceness) == (lint, runner.LANES, 0)
    runner.run([alone], {})
    assert alone.width == runner.LANES


def alive(state: Path) -> bool:
    try:
        return state.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, "lint, images, integration"),
        ({"fast": True}, "lint"),
        ({"all": True}, "lint, images, integration, machine images, machine integration"),
        ({"only": ["lint"]}, "lint"),
        ({"only": ["integration"]}, "images, integration"),
        ({"only": ["integr"]}, "images, integration, machine images, machine integration"),
        ({"only": ["machine integration"]}, "machine images, machine integration"),
    ],
)
def test_stages_are_chosen_with_what_they_need(runner, options, names):
    """A full name selects that stage, a part of a name all matching stages."""
    every = [runner.Stage("lint", ["true"])]
    for kind, long in (("", False), ("machine ", True)):
        images, tests = f"{kind}images", f"{kind}integration"
        every.append(runner.Stage(images, ["true"], fast=False, long=long))
        every.append(runner.Stage(tests, ["true"], fast=False, long=long, needs=images))
    words = argparse.Namespace(**{"fast": False, "only": None, "all": False, **options})
    assert ", ".join(stage.name for stage in runner.chosen(every, words)) == names


def test_long_tests_and_scenarios_run_with_all(runner, monkeypatch):
    monkeypatch.setattr(runner, "TOP", TOP)

    def integration(whole: bool) -> str:
        return next(
            stage.argv[stage.argv.index("-m") + 1]
            for stage in runner.stages(whole=whole)
            if stage.name == "integration"
        )

    usual, whole = "nodes and not long", "nodes"
    assert (integration(whole=False), integration(whole=True)) == (usual, whole)
    scenarios = {stage.name: stage.long for stage in runner.stages() if "molecule" in stage.name}
    always = {name for name, is_long in scenarios.items() if not is_long}
    assert always == {f"molecule {name}" for name in runner.MACHINE_SCENARIOS}
    for path in runner.ON_THE_CLUSTER:
        assert list((TOP / path).glob("test_*.py")), path


@pytest.mark.parametrize(("whole", "differs", "runs"), [(0, 0, False), (0, 1, True), (1, 0, True)])
def test_tests_of_the_bed_run_when_it_changed_and_with_all(
    runner, monkeypatch, whole, differs, runs
):
    monkeypatch.setattr(runner, "TOP", TOP)
    words = argparse.Namespace(fast=False, only=None, all=bool(whole))
    queue = runner.chosen(runner.stages(whole=bool(whole), bed_differs=bool(differs)), words)
    names = {stage.name for stage in queue}
    assert set(runner.OF_BED) & names == (set(runner.OF_BED) if runs else set())
    of_bed = [stage for stage in queue if stage.name in runner.OF_BED]
    assert not [stage.name for stage in of_bed if "not long" in " ".join(stage.argv)]
    assert {stage.argv[-1] for stage in of_bed} <= {bed.UNIT_TESTS, bed.INTEGRATION_TESTS}


SCRIPTS = [*TOP.glob("tests/bench/*.py"), *TOP.glob("tests/gpu/test_*.py")]


@pytest.mark.parametrize("path", sorted(SCRIPTS), ids=lambda path: path.stem)
def test_programs_of_rare_stages_can_be_imported(path: Path) -> None:
    """Benchmarks and GPU tests run seldom, so a renamed function would be noticed late."""
    runpy.run_path(str(path), run_name="imported")
