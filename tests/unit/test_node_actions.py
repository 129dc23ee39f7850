# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers of hosts leave an action printable and bounded, and every action is such an action."""

from __future__ import annotations

import ast
import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.mpi_roce.plugins.action.os_baseline import ActionModule
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.messages import message
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import actions, terminal
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.actions import (
    EXECUTIONS,
    NodeAction,
)

from tests.unit.action_plays import ROOT

PLUGINS = ROOT / "plugins"
CLOSED = "Shared connection to 192.0.2.1 closed.\n"


class Node:
    """The input that Ansible receives from a host: an answer, or an exception."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: Any = {}
        self.given: dict[str, Any] = {}
        self.async_s = 0
        self.args: dict[str, Any] = {}
        self.until: list[str] = []
        self.transport = "ssh"
        monkeypatch.setattr(ActionBase, "run", lambda *_given: {})
        for name in ("_execute_module", "_low_level_execute_command"):
            monkeypatch.setattr(ActionBase, name, self._answer)

    def _answer(self, *_given: Any, **named: Any) -> Any:
        self.given = named
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def run(self, act: Any = None) -> dict[str, Any]:
        """The result of an action; by default one that executes a module."""
        action: Any = object.__new__(ActionModule)
        action._connection = SimpleNamespace(transport=self.transport, has_native_async=False)
        action._task = self.task = SimpleNamespace(
            async_val=self.async_s, args=dict(self.args), until=self.until, retries=None
        )
        if act is not None:
            action.act = lambda task_vars: act(action)
        result: dict[str, Any] = action.run(task_vars={})
        return result


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(monkeypatch)


def test_long_arguments_are_not_sent_back_with_the_result(node: Node) -> None:
    node.args = {"table": "x" * 5000, "own": ["y" * 5000], "name": "node01"}
    seen: list[int] = []
    node.run(lambda action: seen.append(len(action._task.args["table"])) or {})
    assert seen == [5000]
    assert len(node.task.args["table"]) < 1100 and node.task.args["name"] == "node01"
    assert node.task.args["own"] == node.args["own"]
    node.until = ["said is not failed"]
    node.run(lambda _action: {})
    assert node.task.args == node.args  # the next attempt needs them


@pytest.mark.parametrize("error", [AnsibleActionFail("leaf01\x1b[2J"), ValueError("leaf01\x1b[2J")])
def test_no_exception_carries_text_of_a_host_to_the_terminal(node: Node, error: Exception) -> None:
    """ansible-core 2.18 shows the traceback of the exception that is handled meanwhile."""

    def act(_action: Any) -> Any:
        raise error

    with pytest.raises(AnsibleActionFail) as raised:
        node.run(act)
    assert str(raised.value) == "leaf01\\x1b[2J"
    assert raised.value.__context__ is None


def test_every_module_has_an_action_that_bounds_its_answer() -> None:
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))
    routed = runtime["plugin_routing"]["modules"]
    for name in sorted(path.stem for path in (PLUGINS / "modules").glob("*.py")):
        action = routed.get(name, {"action_plugin": f"baremetal.mpi_roce.{name}"})["action_plugin"]
        module = importlib.import_module(
            f"ansible_collections.baremetal.mpi_roce.plugins.action.{action.rpartition('.')[2]}"
        )
        assert issubclass(module.ActionModule, NodeAction), name
        assert module.ActionModule.run is NodeAction.run, name


def test_plugins_print_only_by_the_terminal() -> None:
    direct = []
    for folder in ("action", "callback", "inventory", "lookup", "plugin_utils"):
        for path in (PLUGINS / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = getattr(node, "id", "")
                if isinstance(node, ast.Attribute):
                    name = ast.unparse(node)
                if name in ("print", "sys.stdout", "sys.stderr", "self._display.display"):
                    direct.append(f"{path.relative_to(PLUGINS)}:{node.lineno}")
    assert {line.partition(":")[0] for line in direct} == {"plugin_utils/terminal.py"}


def test_results_and_errors_are_printable(node: Node) -> None:
    node.answer = {"msg": "\x1b[2J", "checks": [{"name": "a\u202e"}]}
    assert node.run() == {
        "msg": "\\x1b[2J",
        "checks": [{"name": "a\\u202e"}],
        EXECUTIONS: 1,
    }
    assert node.run(lambda _action: {"diff": {"after": "\x1b[2J"}}) == {
        "diff": {"after": "\\x1b[2J"}
    }
    node.answer = AnsibleConnectionFailure("banner \x1b[2J")
    for act in (None, lambda action: action._low_level_execute_command("true")):
        with pytest.raises(AnsibleConnectionFailure) as error:
            node.run(act)
        assert "banner \\x1b[2J" in str(error.value)
    node.answer = AnsibleActionFail("plain")
    with pytest.raises(AnsibleActionFail) as same:
        node.run()
    assert same.value is node.answer


def test_messages_become_plain_text(node: Node) -> None:
    """ansible-core 2.19 registers no variable with another type."""
    sentence = message("a.code", "{name} is full", name="disk")
    checks = [{"reason": sentence}, {"reason": f"{sentence}\x1b"}]
    result = node.run(lambda action: {"msg": sentence, "checks": checks})
    assert type(result["msg"]) is type(result["checks"][0]["reason"]) is str
    assert result["msg"] == "disk is full"


def test_executions_over_a_connection_are_counted(node: Node) -> None:
    """A host cannot report another number."""
    node.answer = {EXECUTIONS: 99}
    assert (
        node.run(lambda action: [action._execute_module() for _ in range(3)][-1])[EXECUTIONS] == 3
    )
    node.transport = "ansible.builtin.local"
    assert EXECUTIONS not in node.run()


def test_a_task_may_run_its_module_in_the_background(node: Node) -> None:
    node.run()
    assert ActionModule._supports_async and not node.given["wrap_async"]
    node.async_s = 60
    node.run()
    assert node.given["wrap_async"]


def test_large_answers_are_refused_or_cut(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_OUTPUT_BYTES", 100)
    monkeypatch.setattr(actions, "MAX_FAILED_BYTES", 100)

    def command(action: Any) -> Any:
        return action._low_level_execute_command("cat")

    def refuse(action: Any) -> Any:
        raise AnsibleActionFail(action._execute_module()["msg"])

    node.answer = {"stdout": "x" * 50, "stderr": "y" * 50}
    assert node.run(command) == node.answer
    node.answer = {"stdout": "x" * 50, "stderr": "y" * 51}
    with pytest.raises(AnsibleActionFail, match="101 B"):
        node.run(command)
    node.answer = {"failed": True, "msg": "no", "layer": "os", "diff": "x" * 200}
    cut = node.run()
    assert set(cut) == {"failed", "msg", "layer", EXECUTIONS} and cut["msg"].startswith("no (")
    node.answer = {"changed": True, "diff": "x" * 200}
    assert node.run()["diff"] == "x" * 200
    node.answer = {"msg": "x" * (actions.MAX_MESSAGE_CHARACTERS + 7), "exception": "x"}
    cut = node.run()
    assert cut["msg"].endswith("xx ... and 7 characters more") and "exception" not in cut
    with pytest.raises(AnsibleActionFail, match=r"xx \.\.\. and 7 characters more$"):
        node.run(refuse)
    node.answer = {
        "msg": "no",
        "warnings": ["x" * actions.MAX_MESSAGE_CHARACTERS],
        "exception": "x",
    }
    assert set(node.run()) == {"msg", "exception", EXECUTIONS}


def test_answers_of_too_many_levels_are_refused(node: Node) -> None:
    node.answer = deep = []
    for _ in range(100_000):
        deep.append([])
        deep = deep[0]
    node.answer = {"deep": node.answer}
    result = node.run()
    assert "levels" in str(result)
    node.answer = RecursionError()
    with pytest.raises(AnsibleActionFail, match="levels"):
        node.run()


@pytest.mark.parametrize(
    ("answer", "reason", "status"),
    [
        ({"module_stderr": "We trust you\n\nadmin is not in sudoers.\n"}, "admin is not", ""),
        ({"module_stdout": "\r\nsudo: no tty\r\n", "module_stderr": CLOSED}, "sudo: no tty", ""),
        ({"module_stderr": "Traceback:\n  File\nOSError: [Errno 28]\n"}, "OSError: [Err", ""),
        ({"module_stderr": "\x1b[2Jkilled"}, "\\x1b[2Jkilled", ""),
        ({"module_stderr": "sudo: no tty\ndebug2: Received exit status"}, "sudo: no tty", ""),
        ({"module_stderr": "welcome\n", "rc": 137}, "welcome", " with exit status 137"),
        ({"rc": 137}, "it printed nothing", " with exit status 137"),
        ({"rc": None}, "it printed nothing", " with exit status None"),
    ],
)
def test_a_module_without_a_result_fails_with_what_the_host_printed(
    node: Node, answer: dict[str, Any], reason: str, status: str
) -> None:
    """Ansible itself only reports that the output was not JSON."""
    node.answer = {"failed": True, "msg": "no JSON", "module_stdout": "", "rc": 1, **answer}
    message = node.run()["msg"]
    assert message.startswith(f"the module returned no result{status}: {reason}")
    assert "\n" not in message


def test_the_terminal_shows_printable_lines_of_bounded_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    show = SimpleNamespace(
        display=lambda line, color=None: lines.append(line),
        warning=lines.append,
        error=lambda line, wrap_text: lines.append(line),
    )
    display = terminal.Terminal()
    monkeypatch.setattr(display, "_display", show)
    for method in (display.display, display.warning, display.error):
        method("leaf\x1b[8m" + "x" * terminal.MAX_LINE_CHARACTERS)
    assert len(set(lines)) == 1
    assert lines[0].startswith("leaf\\x1b[8mxx") and lines[0].endswith("8 characters more")
