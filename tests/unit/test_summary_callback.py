# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary callback in real runs, over a connection that only claims to be remote."""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.baremetal.mpi_roce.plugins.callback import summary
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import look

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "summary_run"
TOP = HERE.parents[2]


def play(tmp_path: Path, *words: str, **environment: str) -> tuple[str, dict]:
    """Run the play. Return its output and the saved report, empty if there is none."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", HERE / "play.yml", *words],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connection_plugins"),
            "ANSIBLE_LIBRARY": str(HERE / "library"),
            "ANSIBLE_INVENTORY": str(HERE / "inventory.yml"),
            "BAREMETAL_MPI_ROCE_REPORTS": str(tmp_path / "reports"),
            **environment,
        },
        cwd=TOP,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    reports = list(tmp_path.glob("reports/looped/play-*Z.json"))
    assert [path.with_suffix(".html").is_file() for path in reports] in ([], [True])
    assert len(reports) <= 1
    assert not list(tmp_path.glob("reports/*/*.jsonl"))  # the report has its content
    assert {path.stat().st_mode & 0o777 for path in reports} <= {0o640}
    return done.stdout, json.loads(reports[0].read_text()) if reports else {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return play(tmp_path_factory.mktemp("run"), "--diff")


def test_modules_executed_on_nodes_are_counted(run):
    _printed, report = run
    assert report["remote_module_executions"]["hosts"] == {
        "login01": 3 + 1,  # three complete answers of speak, and the ping that node01 delegated
        "node01": 1,
        "node02": 1 + 2 + 1,  # speak, two pings of a loop, the command that failed
    }


def test_the_summary_is_printed_last(run):
    printed, _report = run
    messages = printed.partition("SUMMARY")[2]
    assert "os     2 of 3 compute, 1 launcher   3               3" in messages
    assert "3 not applicable, not here\\x1b[1A: os thp 3" in messages
    assert "failed: node02: Fail on one node: non-zero return code" in messages
    assert "unreachable: node03\n" in messages
    assert "remote module executions per compute node: 4 at most (node02), limit 60" in messages
    assert "report: " in messages and "page: " in messages


def test_no_answer_of_a_node_controls_the_terminal(run):
    printed, report = run
    plain = re.sub(r"\\+(x|u00)1b", r"\\x1b", printed)  # the same in JSON
    for text in (
        r"-spine01\x1b[2Jdiff\u202e",
        r"spine01\x1b[2Jraised",
        r"\x1b[2Jmodule xxx",
        r"\x1b[2Jobject",
    ):
        assert text in plain
    assert not {char for char in printed if not char.isprintable() and char != "\n"}
    assert "not here\\\\x1b[1A" in json.dumps(report)


def test_a_fact_of_a_node_sets_no_variable(run, tmp_path):
    assert "failed: node02" in run[0]
    printed, _report = play(tmp_path, ANSIBLE_INJECT_FACT_VARS="True")
    assert "failed: node02" not in printed, "facts now set variables"
    assert "inject_facts_as_vars is on" in printed


def test_an_answer_without_end_fails_its_host_and_does_not_fill_the_terminal(run):
    printed, _report = run
    assert "JSON of too many levels" in printed
    assert "xx ... and 80014 characters more" in printed
    assert max(map(len, printed.splitlines())) < 21_000


def test_nothing_replaces_methods_of_ansible():
    before = [Display.display, ActionBase._execute_module, ActionBase._low_level_execute_command]
    summary.CallbackModule()
    after = [Display.display, ActionBase._execute_module, ActionBase._low_level_execute_command]
    assert after == before and {method.__module__.split(".")[0] for method in after} == {"ansible"}


def test_a_worker_collects_garbage_seldom_and_the_main_process_as_before():
    before = gc.get_threshold()
    summary._spare_workers()
    read, write = os.pipe()
    if not (pid := os.fork()):
        os.write(write, str(gc.get_threshold()[0]).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 20) == str(summary.WORKER_THRESHOLD).encode()
    assert gc.get_threshold() == before
    os.close(read)
    os.close(write)


def test_a_failure_without_a_message():
    plugin = summary.CallbackModule()
    named = {"action": "ansible.builtin.user", "loop": None}
    task = argparse.Namespace(get_name=lambda: "Set the password", diff=False, **named)
    host = argparse.Namespace(get_name=lambda: "node01")
    fields = {"censored": "hidden by no_log", "failed": True}
    result = argparse.Namespace(_host=host, _task=task, _result=fields, _task_fields={})
    plugin._is_local = lambda _name, _result: True
    plugin.v2_runner_on_failed(result)
    assert plugin._summary.failed == {"node01": "Set the password"}


@pytest.mark.parametrize(("dark", "status"), [({}, 2), ({"node03": 1}, 4)])
def test_a_summary_that_cannot_be_shown_hides_no_difference(monkeypatch, dark, status):
    plugin = summary.CallbackModule()
    plugin._summary.expected = {"os": {"node01": "fan failed"}}
    monkeypatch.setattr(plugin, "_show", lambda _failed: 1 / 0)
    with pytest.raises(SystemExit) as ended:
        plugin.v2_playbook_on_stats(argparse.Namespace(failures={}, dark=dark, changed={}))
    assert ended.value.code == status


def test_only_reboots_of_the_controller_and_items_of_a_loop_are_taken():
    """A module cannot return a reboot plan, nor results of a loop."""
    plan = {"batches": [], "left": [], "nothing": ["node02"], "check_mode": False}
    item = {"layer": "os", "checks": [{"name": "swap", "status": "ok"}]}
    fields = {"reboot_plan": plan, "reboot_outcome": {"status": "verified"}, "results": [item, 7]}
    host = argparse.Namespace(get_name=lambda: "node01")
    for name, loop in (("os_baseline", None), ("os_baseline", [1, 2]), ("cluster_reboot", None)):
        plugin = summary.CallbackModule()
        task = argparse.Namespace(action=f"baremetal.mpi_roce.{name}", loop=loop)
        plugin._take(argparse.Namespace(_host=host, _task=task, _result=fields, _task_fields={}))
        ours = name == "cluster_reboot"
        assert (plugin._summary.reboot_plan == plan, bool(plugin._summary.layers)) == (
            ours,
            bool(loop),
        )
        assert bool(plugin._summary.reboot_outcomes) == ours


def test_a_look_counts_once_and_in_its_playbook(tmp_path, monkeypatch):
    monkeypatch.setattr(C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    look.keep("node01", {"os": {"layer": "os", "checks": [{"name": "swap", "status": "ok"}]}})
    plugin = summary.CallbackModule()
    plugin._idle = True
    monkeypatch.setattr(plugin, "get_option", lambda _name: str(tmp_path))
    host = argparse.Namespace(get_name=lambda: "node01")
    task = argparse.Namespace(action="baremetal.mpi_roce.cluster_look", loop=None)
    found = []
    for fields in ({"program": "p"}, {"unchanged": ["os"]}):
        result = argparse.Namespace(_host=host, _task=task, _result=fields, _task_fields={})
        plugin.v2_runner_on_skipped(result)
        plugin._take(result)
        found.append((list(plugin._summary.layers), plugin._idle))
    assert found == [([], True), (["os"], False)]
    plugin.v2_playbook_on_start(argparse.Namespace(_file_name="os.yml", get_plays=list))
    assert look.kept("node01") == {}


def test_an_answer_is_never_templated(run):
    """Neither the answer of a module nor text that an action read from a record."""
    printed, _report = run
    assert printed.count("{{ 1000 + 37 }}") >= 2 and "1037" not in printed


def test_the_reason_of_a_failure_is_bounded():
    assert summary._first_line({"msg": "banner \x9b2J\nmore"}) == "banner \\x9b2J"
    assert summary._first_line({"msg": "x" * 1007}).endswith("xx ... and 7 characters more")


def test_the_report_names_the_run(run):
    _printed, report = run
    assert report["playbook"] == "play.yml"
    assert report["cluster"] == "looped"
    assert report["check_mode"] is False
    assert set(report["unreachable"]) == {"node03"}
    assert report["layers"]["os"]["counts"]["not_applicable"] == 3


def test_a_report_that_cannot_be_saved_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    printed, report = play(
        tmp_path,
        "--limit=node01",
        BAREMETAL_MPI_ROCE_REPORTS=str(tmp_path / "file"),
    )
    assert report == {}
    assert "The report was not saved" in printed
    assert "failed=0" in printed and "os     1 of 3 compute" in printed


def test_no_summary_without_a_layer(tmp_path):
    printed, report = play(tmp_path, "--limit=node01", "--start-at-task=No module at all")
    assert "failed=0" in printed
    assert "SUMMARY" not in printed
    assert report == {}
