# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary callback in real runs, over a connection that is remote by name."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.baremetal.mpi_roce.plugins.callback import summary

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "summary_run"
TOP = HERE.parents[2]
CLOSED = "Shared connection to 192.0.2.1 closed.\n"


def play(tmp_path: Path, *words: str, **environment: str) -> tuple[str, dict]:
    """Run the play; what it printed, and the report it saved (empty when there is none)."""
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
    assert len(reports) <= 1
    assert {path.stat().st_mode & 0o777 for path in reports} <= {0o640}
    return done.stdout, json.loads(reports[0].read_text()) if reports else {}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return play(tmp_path_factory.mktemp("run"), "--diff")


def test_exactly_the_modules_run_on_nodes_are_counted(run):
    _printed, report = run
    assert report["remote_module_executions"]["hosts"] == {
        "login01": 3 + 1,  # speak three times, and the ping that node01 delegated
        "node01": 1,
        "node02": 1 + 2 + 1,  # speak, two pings of a loop, the command that failed
    }


def test_the_summary_ends_the_run(run):
    printed, _report = run
    messages = printed.partition("SUMMARY")[2]
    assert "os     2 of 3 compute, 1 launcher   3               3" in messages
    assert "3 not applicable, not here\\x1b[1A: os thp 3" in messages
    assert "failed: node02: Fail on one node: non-zero return code" in messages
    assert "unreachable: node03\n" in messages
    assert "remote module executions per compute node: 4 at most (node02), limit 60" in messages
    assert "report: " in messages


def test_no_answer_of_a_node_controls_the_terminal(run):
    printed, report = run
    plain = re.sub(r"\\+(x|u00)1b", r"\\x1b", printed)  # the same in JSON
    for said in (
        r"\x1b[2Jwell",  # an error of a command
        r"192.0.2.1 is for\x1b[2J documentation",  # of the connection
        r"-spine01\x1b[2Jdiff\u202e",  # what an action on the controller returned
        r"spine01\x1b[2Jraised",
        r"\x1b[2Jmodule xxx",
    ):
        assert said in plain
    assert not {each for each in printed if not each.isprintable() and each != "\n"}
    assert "not here\\\\x1b[1A" in json.dumps(report)


def test_a_fact_of_a_node_sets_no_variable(run, tmp_path):
    assert "failed: node02" in run[0]
    printed, _report = play(tmp_path, ANSIBLE_INJECT_FACT_VARS="True")
    assert "failed: node02" not in printed, "what the setting is for"
    assert "inject_facts_as_vars is on" in printed


def test_an_answer_without_end_fails_its_host_and_does_not_fill_the_terminal(run, monkeypatch):
    printed, _report = run
    assert "JSON of too many levels" in printed
    assert "xx ... and 80014 characters more" in printed
    assert max(map(len, printed.splitlines())) < 21_000
    monkeypatch.setattr(summary, "MOST_BYTES", 1 << 20)
    for size in (1 << 19, (1 << 19) + 1):
        answer = {"stdout": "x" * (1 << 19), "stderr": "y" * size}
        with contextlib.nullcontext() if size == 1 << 19 else pytest.raises(AnsibleError) as caught:
            assert summary._command(lambda given: given, answer) is answer
    assert "more than 1 MiB are not taken" in str(caught.value)


@pytest.mark.parametrize("colour", [True, False])
def test_only_the_colours_of_ansible_itself_reach_the_terminal(colour, monkeypatch):
    monkeypatch.setattr(summary.terminal, "ANSIBLE_COLOR", colour)
    shown = []
    long = "\x1b[0;31m" + "x" * (2 << 20)
    for line in ("\x1b[0;31m-leaf\x1b[8m\x1b[2J\x1b[0m\n", long):
        summary._display(lambda _display, line: shown.append(line), None, line)
    assert shown[0].startswith("\x1b[0;31m" if colour else "\\x1b[0;31m")
    assert r"-leaf\x1b[8m\x1b[2J" in shown[0]
    assert len(shown[1]) < summary.MOST_SHOWN + 100
    assert "\x1b" not in shown[1], "its end, with the colour before, is left out"


def test_a_long_text_is_cut_once_and_that_for_a_program_not_at_all(monkeypatch):
    shown = []
    worker = argparse.Namespace(_final_q="a queue to the main process")
    for display in (worker, None):
        long = shown[-1] if shown else "x" * (summary.MOST_SHOWN + 12)
        summary._display(lambda _display, line: shown.append(line), display, long)
    assert shown[-1].endswith("xxx ... and 12 characters more")
    monkeypatch.setattr(summary.C, "DEFAULT_STDOUT_CALLBACK", "ansible.posix.json")
    summary._display(lambda _display, line: shown.append(line), None, long)
    assert shown[-1] == long


def test_plugins_print_by_nothing_else():
    """What is on the terminal by `Display.display` has passed by what the callback puts there."""
    others = []
    for folder in ("action", "callback", "inventory", "lookup", "plugin_utils"):
        for path in (TOP / "plugins" / folder).rglob("*.py"):
            for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = getattr(each, "id", "")
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                    name = f"{each.value.id}.{each.attr}"
                if name in ("print", "sys.stdout", "sys.stderr"):
                    others.append(f"{path}:{each.lineno}")
    assert others == []


def test_a_failure_without_a_message_is_named_by_its_task():
    plugin = summary.CallbackModule()
    named = {"action": "ansible.builtin.user", "loop": None}
    task = argparse.Namespace(get_name=lambda: "Set the password", diff=False, **named)
    host = argparse.Namespace(get_name=lambda: "node01")
    fields = {"censored": "hidden by no_log", "failed": True}
    plugin.v2_runner_on_failed(argparse.Namespace(_host=host, _task=task, _result=fields))
    assert plugin._summary.failed == {"node01": "Set the password"}


@pytest.mark.parametrize(
    ("said", "why", "status"),
    [
        (
            {"module_stderr": "We trust you\n\nadmin is not in the sudoers file.\n"},
            "admin is not",
            "",
        ),
        ({"module_stdout": "\r\nsudo: no tty\r\n", "module_stderr": CLOSED}, "sudo: no tty", ""),
        (
            {"module_stderr": "Traceback:\n  File\nOSError: [Errno 28] No space\n"},
            "OSError: [Err",
            "",
        ),
        ({"module_stderr": "\x1b[2Jkilled"}, "\\x1b[2Jkilled", ""),
        (
            {"module_stderr": "sudo: no tty\ndebug2: Received exit status from master 1"},
            "sudo: no",
            "",
        ),
        ({"module_stderr": "welcome\n", "rc": 137}, "welcome", " with exit status 137"),
        ({"rc": 137}, "it printed nothing", " with exit status 137"),
        ({"rc": None}, "it printed nothing", " with exit status None"),
    ],
)
def test_a_module_without_a_result_fails_with_what_the_host_printed(said, why, status):
    """Ansible says that the result was no JSON, and leaves the cause to who looks for it."""
    result = {"failed": True, "msg": "Module result deserialization failed", "module_stdout": ""}
    result["rc"] = 1
    connection = argparse.Namespace(transport="local")
    action = argparse.Namespace(_connection=connection)
    found = summary.ExecutionCount()._counted(lambda _action: {**result, **said}, action)
    assert found["msg"].startswith(f"the module ended without a result{status}: {why}")
    assert "\n" not in summary._first_line(found)
    former = {"failed": True, "msg": "the module's own"}
    assert summary.ExecutionCount()._counted(lambda _action: former, action) == former


def test_only_reboots_of_the_controller_and_items_of_a_loop_are_taken():
    """A module that answers a plan of reboots, or as a loop does, counts for no host."""
    plan = {"batches": [], "left": [], "nothing": ["node02"], "check_mode": False}
    item = {"layer": "os", "checks": [{"name": "swap", "status": "ok"}]}
    fields = {"reboot_plan": plan, "reboot_outcome": {"status": "verified"}, "results": [item, 7]}
    host = argparse.Namespace(get_name=lambda: "node01")
    for name, loop in (("os_baseline", None), ("os_baseline", [1, 2]), ("cluster_reboot", None)):
        plugin = summary.CallbackModule()
        task = argparse.Namespace(action=f"baremetal.mpi_roce.{name}", loop=loop)
        plugin._take(argparse.Namespace(_host=host, _task=task, _result=fields))
        ours = name == "cluster_reboot"
        assert (plugin._summary.reboot_plan == plan, bool(plugin._summary.layers)) == (
            ours,
            bool(loop),
        )
        assert bool(plugin._summary.reboot_outcomes) == ours


def test_an_answer_is_never_templated(run):
    """Neither one of a module nor one that an action has read from a record."""
    printed, _report = run
    assert printed.count("{{ 1000 + 37 }}") >= 2 and "1037" not in printed


def test_why_a_host_is_unreachable_only_prints():
    assert summary._first_line({"msg": "banner \x9b2J\nmore"}) == "banner \\x9b2J"
    assert summary._first_line({"msg": "x" * 1007}).endswith("xx ... and 7 characters more")


def test_the_report_names_the_run(run):
    _printed, report = run
    assert report["playbook"] == "play.yml"
    assert report["cluster"] == "looped"
    assert report["check_mode"] is False
    assert set(report["unreachable"]) == {"node03"}
    assert report["layers"]["os"]["counts"]["not_applicable"] == 3


def test_an_unwritable_report_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    printed, report = play(
        tmp_path,
        "--limit=node01",
        BAREMETAL_MPI_ROCE_REPORTS=str(tmp_path / "file"),
    )
    assert report == {}
    assert "The report was not saved" in printed
    assert "failed=0" in printed and "os     1 of 3 compute" in printed


def test_nothing_is_said_when_no_layer_spoke(tmp_path):
    printed, report = play(tmp_path, "--limit=node01", "--start-at-task=No module at all")
    assert "failed=0" in printed
    assert "SUMMARY" not in printed
    assert report == {}
