# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The shell on a switch over Ansible: commands, time limits, retries, output."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.baremetal.mpi_roce.plugins.action import switch_qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import deadline as deadline_module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.deadline import TimeIsUpError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system

from tests.waiting import deadline


class Connection:
    def __init__(self) -> None:
        self._play_context = SimpleNamespace(no_log=False)
        self.options: dict[str, Any] = {"reconnection_retries": 3, "host": "10.0.0.1"}
        self.resets = 0

    def set_option(self, name: str, value: Any) -> None:
        self.options[name] = value

    def get_option(self, name: str) -> Any:
        return self.options[name]

    def reset(self) -> None:
        self.resets += 1
        raise AnsibleConnectionFailure("there is none")


class Action:
    """The part of an action plugin that the shell uses; `do` is the switch."""

    def __init__(self, do: Callable[[str, bytes], tuple[int, str, str]]) -> None:
        self._connection = Connection()
        self._do = do
        self.seen: list[tuple[str, bytes, bool, int]] = []

    def _low_level_execute_command(self, command: str, in_data: bytes) -> dict[str, Any]:
        connection = self._connection
        self.seen.append(
            (
                command,
                in_data,
                connection._play_context.no_log,
                connection.options["reconnection_retries"],
            )
        )
        rc, stdout, stderr = self._do(command, in_data)
        return {"rc": rc, "stdout": stdout, "stderr": stderr}


def shell_on(
    do: Callable[[str, bytes], tuple[int, str, str]],
) -> tuple[switch_qos.AnsibleShell, Action]:
    action = Action(do)
    return switch_qos.AnsibleShell(action, "leaf01"), action  # type: ignore[arg-type]


def test_a_command_runs_once_without_a_terminal() -> None:
    shell, action = shell_on(lambda _command, _stdin: (3, "out", "err"))
    assert shell.run("config 'save' -y") == system.Completed(3, "out", "err")
    ((command, sent, no_log, retries),) = action.seen
    assert command == "/bin/sh -c 'config '\"'\"'save'\"'\"' -y' </dev/null"
    assert sent, "no terminal"
    assert no_log is True and retries == 0
    assert action._connection._play_context.no_log is False


def test_what_goes_in_is_the_input_of_the_command() -> None:
    shell, action = shell_on(lambda _command, _stdin: (0, "", ""))
    shell.run("cat >file", stdin="a patch of any size")
    ((command, sent, _no_log, _retries),) = action.seen
    assert sent == b"a patch of any size" and "/dev/null" not in command


def test_a_lost_connection_names_the_switch_and_the_reason_in_one_line() -> None:
    def lost(_command: str, _stdin: bytes) -> tuple[int, str, str]:
        raise AnsibleConnectionFailure("Connection closed\r\nby peer")

    shell, action = shell_on(lost)
    with pytest.raises(system.SwitchError, match=r"^10\.0\.0\.1: lost over SSH: Connection"):
        shell.run("true")
    assert len(action.seen) == 1


def test_a_censored_reason_is_probed_by_a_harmless_command() -> None:
    def lost(command: str, _stdin: bytes) -> tuple[int, str, str]:
        if command != "exit 0":
            raise AnsibleConnectionFailure("<error censored due to no log>")
        raise AnsibleConnectionFailure("Permission denied (publickey)")

    shell, action = shell_on(lost)
    with pytest.raises(system.SwitchError, match="Permission denied"):
        shell.run("config apply-patch file")
    assert [command for command, *_rest in action.seen].count("exit 0") == 1
    assert len(action.seen) == 2


def test_a_silent_switch_is_abandoned_at_the_limit() -> None:
    def hang(_command: str, _stdin: bytes) -> tuple[int, str, str]:
        threading.Event().wait(deadline(60))
        return 0, "", ""

    shell, _action = shell_on(hang)
    with pytest.raises(system.SwitchError, match="within 1 s over SSH"):
        shell.run("true", timeout_s=1)


def test_a_time_limit_around_it_goes_on_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=iter([50.0, 80.5]).__next__)
    monkeypatch.setattr(deadline_module, "time", clock)
    former = signal.signal(signal.SIGALRM, lambda *_nothing: None)
    try:
        signal.alarm(10_000)
        with deadline_module.time_limit(500):
            pass
        assert 0 < signal.alarm(0) <= 9_970
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize(("outer_s", "raised"), [(0.05, InterruptedError), (60, TimeIsUpError)])
def test_the_shorter_of_two_time_limits_holds(outer_s: float, raised: type[BaseException]) -> None:
    def expire(_number: int, _frame: Any) -> None:
        raise InterruptedError

    former = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, outer_s)
    try:
        with pytest.raises(raised), deadline_module.time_limit(0.2):
            threading.Event().wait(deadline(60))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def test_a_connection_that_cannot_be_closed_is_no_fault() -> None:
    shell, action = shell_on(lambda _command, _stdin: (0, "", ""))
    shell.reconnect()
    assert action._connection.resets == 1


def test_ports_that_go_down_are_shown_in_their_order_on_the_switch() -> None:
    ports = tuple(SimpleNamespace(name=f"Ethernet{number}") for number in (0, 8, 24))
    intent: Any = SimpleNamespace(name="leaf01", system="sonic", ports=ports)
    for down, shown in (
        (("Ethernet24", "Ethernet100"), "Ethernet24-Ethernet100 (2 ports)"),
        (("Ethernet24", "Ethernet4"), "Ethernet4, Ethernet24 (2 ports)"),
    ):
        changes = (system.Change("a", 1, 2),)
        difference = system.Difference(changes, system.Impact(down), "", "", None)
        assert switch_qos._cost(intent, difference)[1].endswith(f"again: {shown}")
