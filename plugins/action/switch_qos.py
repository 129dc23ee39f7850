# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans, orders and applies the QoS of switches, all on the controller.

A switch is configured as root over Ansible's own connection, or over HTTPS without such a
connection. Nothing is copied to it.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import FrameType
from typing import Any, Optional

from ansible.errors import AnsibleActionFail, AnsibleError

from ..module_utils.core.checks import STRICT, Check, as_dicts, failure_message, not_applicable
from ..module_utils.core.text import counted, natural
from ..module_utils.core.waiting import until
from ..module_utils.software import floors
from ..module_utils.software.software_set import SoftwareSet
from ..plugin_utils.deadline import TimeIsUpError, time_limit
from ..plugin_utils.fabric import session, underlay
from ..plugin_utils.fabric.aspects import ports_text
from ..plugin_utils.fabric.base import SSH
from ..plugin_utils.fabric.compare import port_checks
from ..plugin_utils.fabric.results import switch_result
from ..plugin_utils.fabric.system import (
    DOWNLINK,
    PEER,
    SPINE,
    UPLINK,
    Completed,
    Difference,
    SwitchConnection,
    SwitchError,
    SwitchIntent,
    SwitchLogin,
    SwitchReport,
    batches,
    compile_switch,
)
from ..plugin_utils.fabric.systems import SYSTEMS
from ..plugin_utils.qos import contract_of
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "fabric"
MODULE = "baremetal.mpi_roce.switch_qos"
DRIVERS = {name: system.driver for name, system in SYSTEMS.items()}
"""Loaded before Ansible forks a worker for each switch."""
CONFIRM_S = 300
PAUSE_S = 3
PROBE_S = 30
SESSIONS_S, OF_PEERS_S = 60, 15
"""Time for BGP sessions to come up after a change: retries of a connection are up to 30 s apart."""
CENSORED = "censored"
"""Text in Ansible's message if no_log hides the connection's."""
REMEDY = "Repair with: site.yml --tags fabric --limit {}"


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {
            "plan": self._plan,
            "verdict": self._verdict,
            "batches": self._batches,
            "apply": self._apply,
            "underlay": self._underlay,
            "counters": self._counters,
        }

    def _plan(self, task_vars: Any) -> dict[str, Any]:
        """Return a `problem` instead of failing, since other layers use the report."""
        variables = _Variables(self._templar, task_vars)
        if not variables.text("cluster_system"):
            key = "spines.system" if variables.text("cluster_role") == SPINE else "leaves.system"
            key += ", or that of its group under switches"
            return _not_planned(f"the model names no system for this switch: set {key}")
        ports = variables.value("cluster_ports", None)
        if ports is not None and all(group["kind"] == PEER for group in ports):
            return _not_planned("no port of this switch to nodes or another tier is in the model")
        intent = _intent(variables)
        former = (switch_result(task_vars).get("report") or {}).get("ports") or []
        up_before = {port["name"] for port in former if port.get("up")}
        outcome = session.SessionOutcome()

        def settled() -> bool:
            nonlocal outcome
            outcome = self._session(variables, intent, apply=False)
            return outcome.report is None or not _dark(outcome.report, up_before)

        until(settled, float(self._task.args.get("settle_s", 0)), PAUSE_S)
        if outcome.report is None or outcome.difference is None:
            reason = outcome.error.partition("\n")[0]
            check = Check("configuration", "0 values differ", None, "failed", "", reason)
            return _result([check], problem=outcome.error)
        # playbooks/verify.yml: pending counts as failed.
        strict = any(STRICT in (names or {}) for names in self._task.environment or [])
        installed = _installed(variables, outcome.report)
        checks = port_checks(intent, outcome.report, outcome.remaining, check_mode=not strict)
        checks = [*checks, *installed]
        wrong = failure_message(LAYER, checks, REMEDY.format(intent.name))
        problem = "\n".join(text for text in (outcome.error, wrong) if text)
        for line in _cost(intent, outcome.difference):
            display.display(line)
        differs = bool(outcome.difference)
        if differs and not problem and not self._task.check_mode:
            checks = installed  # the step `apply` returns the others
        return _result(
            checks,
            changed=differs and bool(self._task.check_mode),
            differs=differs,
            problem=problem,
            report=outcome.report.as_dict(),
            **_of(intent, outcome.difference),
        )

    def _verdict(self, task_vars: Any) -> dict[str, Any]:
        problem = switch_result(task_vars).get("problem")
        return {"failed": True, "msg": problem} if problem else {"changed": False}

    def _batches(self, task_vars: Any) -> dict[str, Any]:
        hosts, hostvars = task_vars["ansible_play_hosts"], task_vars["hostvars"]
        if self._task.check_mode:
            return {"changed": False, "batches": [], "turns": {}}
        lost = [name for name in task_vars["ansible_play_hosts_all"] if name not in hosts]
        if lost:
            without = ":".join(f"!{name}" for name in lost)
            raise AnsibleActionFail(
                f"{LAYER}: no switch was changed, because {len(lost)} of them failed above: "
                f"{', '.join(lost)}. Repair them, or exclude them: --limit 'all:{without}'"
            )
        switches = [
            (name, hostvars[name]["cluster_role"], hostvars[name].get("cluster_ports") or [])
            for name in hosts
            if switch_result(hostvars[name]).get("differs")
        ]
        ordered = batches(switches, int(self._task.args.get("at_once", 1)))
        turns = {name: turn for turn, batch in enumerate(ordered) for name in batch}
        return {"changed": False, "batches": ordered, "turns": turns}

    def _apply(self, task_vars: Any) -> dict[str, Any]:
        if self._task.check_mode:
            raise AnsibleActionFail(f"{LAYER}: step apply does not exist in check mode")
        host, order = task_vars["inventory_hostname"], self._task.args.get("order")
        _check_turn(host, order, task_vars["hostvars"])
        variables = _Variables(self._templar, task_vars)
        intent = _intent(variables)
        with _interruptible():
            outcome = self._session(variables, intent, apply=True)
        if outcome.report is None or outcome.difference is None:
            checks = [Check("configuration", "0 values differ", None, "failed")]
            return {
                **_result(checks, changed=outcome.changed),
                "failed": True,
                "msg": outcome.error,
            }
        checks = port_checks(intent, outcome.report, outcome.remaining, check_mode=False)
        message = outcome.error or failure_message(LAYER, checks, REMEDY.format(intent.name))
        result = _result(
            checks,
            changed=outcome.changed,
            differs=bool(outcome.remaining),
            applied=True,
            report=outcome.report.as_dict(),
            **_of(intent, outcome.difference),
        )
        if message:
            # Ansible prints a failed result in full.
            kept = ("layer", "checks", "changed", "impact")
            return {**{key: result[key] for key in kept}, "failed": True, "msg": message}
        return result

    def _underlay(self, task_vars: Any) -> dict[str, Any]:
        """Return the routing, which the layer links compares with the model, and do not fail.

        After a change in this run, wait for sessions of links; longer if this switch was changed.
        """
        variables, name = _Variables(self._templar, task_vars), task_vars["inventory_hostname"]
        system = variables.text("cluster_system")
        read = DRIVERS[system].underlay if system in DRIVERS else None
        result: dict[str, Any] = {"changed": False, "found": None, "problem": ""}
        if read is None or not underlay.needed(task_vars["groups"], task_vars["hostvars"]):
            return result
        connection = self._switch(variables, system)
        ports = tuple(underlay.ports_of(variables.value("cluster_ports", [])))
        site = underlay.Site(name, {name: ports})
        found = underlay.Underlay()

        def settled() -> bool:
            nonlocal found
            found = read(connection)
            checks = underlay.compare(site, found)
            return all(each.name != underlay.SESSION or each.status != "failed" for each in checks)

        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        changed = {
            switch
            for switch in (*groups.get("leaf", ()), *groups.get("spine", ()))
            if switch_result(hostvars.raw_get(switch)).get("applied")
        }
        try:
            limit_s = SESSIONS_S if name in changed else OF_PEERS_S if changed else 0
            until(settled, limit_s, PAUSE_S)
        except SwitchError as error:
            return {**result, "problem": str(error)}
        return {**result, "found": found.as_dict()}

    def _counters(self, task_vars: Any) -> dict[str, Any]:
        """Return this reading, and the first one of the run."""
        former = task_vars.get("switch_qos_counters") or {}
        now = self._counters_now(_Variables(self._templar, task_vars))
        return {
            "changed": False,
            "before": former.get("before") or former.get("after"),
            "after": now,
        }

    def _counters_now(self, variables: _Variables) -> dict[str, Any]:
        """Return the counters of links between switches, or the reason for their absence."""
        system = variables.text("cluster_system")
        read = DRIVERS[system].counters if system in DRIVERS else None
        ports = underlay.ports_of(variables.value("cluster_ports", []))
        names = [port.name for port in ports if port.kind in (UPLINK, DOWNLINK)]
        found: dict[str, Any] = {"ports": {}, "reason": "", "read_s": 0.0}
        if read is None:
            return {**found, "reason": "the model names no system whose counters are read"}
        if not names:
            return {**found, "reason": "no link to another switch is in the model"}
        try:
            counters = read(self._switch(variables, system), names)
        except SwitchError as error:
            return {**found, "reason": str(error)}
        read_ports = {name: each.as_dict() for name, each in counters.items()}
        return {**found, "ports": read_ports, "read_s": time.time()}

    def _switch(self, variables: _Variables, system: str) -> SwitchConnection:
        over_ssh = SYSTEMS[system].transport == SSH
        name = variables.text("inventory_hostname")
        access = AnsibleShell(self, name) if over_ssh else variables.login()
        return DRIVERS[system].connect(access)

    def _session(
        self, variables: _Variables, intent: SwitchIntent, *, apply: bool
    ) -> session.SessionOutcome:
        driver, arguments = DRIVERS[intent.system], self._task.args
        return session.run(
            driver,
            self._switch(variables, intent.system),
            intent,
            apply=apply,
            confirm_s=int(arguments.get("confirm_s", CONFIRM_S)),
            allowed=arguments.get("allowed_impact", "bounce"),
            display=display.display,
        )


def _intent(variables: _Variables) -> SwitchIntent:
    return compile_switch(
        variables.text("inventory_hostname"),
        variables.text("cluster_system"),
        variables.text("cluster_asic"),
        variables.value("cluster_asics", {}),
        variables.value("cluster_ports", []),
        contract_of(variables.value("roce_qos", None)),
        int(variables.value("cluster_port_step", 0)),
        variables.value("cluster_port_ranges", []),
    )


def _installed(variables: _Variables, report: SwitchReport) -> list[Check]:
    """The version against its minimum, where one is published."""
    floor = SYSTEMS[report.system].floor
    if not floor:
        return []
    found = re.search(r"\d+\.\d+(\.\d+)*", report.version, re.ASCII)
    accepted = SoftwareSet.of(variables.value("cluster_software", {})).accepted
    return [floors.check(floor, found[0] if found else report.version, accepted)]


class _Variables:
    """Templated variables of the host, with secrets: Ansible prints arguments of a task."""

    def __init__(self, templar: Any, task_vars: Mapping[str, Any]) -> None:
        self._templar = templar
        self._variables = task_vars

    def value(self, name: str, default: Any) -> Any:
        value = self._templar.template(self._variables.get(name))
        return default if value is None else value

    def text(self, name: str) -> str:
        return str(self.value(name, ""))

    def login(self) -> SwitchLogin:
        return SwitchLogin(
            address=self.text("ansible_host") or self.text("inventory_hostname"),
            port=int(self.value("switch_qos_port", 0) or 0) or None,
            user=self.text("switch_qos_user"),
            password=self.text("switch_qos_password"),
            token=self.text("switch_qos_token"),
            ca_file=self.text("switch_qos_ca_file"),
            timeout_s=int(self.value("switch_qos_timeout_s", 0)) or SwitchLogin.timeout_s,
        )


class AnsibleShell:
    def __init__(self, action: ActionModule, name: str) -> None:
        self._action = action
        self._name = name

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        # With input, Ansible requests no terminal. A terminal would alter the output, and end the
        # command when the connection is lost.
        whole = f"/bin/sh -c {shlex.quote(command)}" + ("" if stdin else " </dev/null")
        with self._quiet():
            done, problem = self._try(whole, stdin or "\n", timeout_s)
        if CENSORED in problem:
            _done, problem = self._try("exit 0", "\n", PROBE_S)
            problem = problem or "the SSH connection was lost, and works again"
        if problem or done is None:
            host = self._action._connection.get_option("host")
            raise SwitchError(f"{host or 'switch'}: {problem}")
        return Completed(int(done["rc"]), done["stdout"], done["stderr"])

    def _try(
        self, command: str, stdin: str, timeout_s: int
    ) -> tuple[Optional[dict[str, Any]], str]:
        """Return the answer, or the reason for its absence."""
        try:
            with time_limit(timeout_s):
                done: dict[str, Any] = self._action._low_level_execute_command(
                    command, in_data=stdin.encode("utf-8")
                )
        except TimeIsUpError:
            return None, f"it did not answer within {timeout_s} s over SSH"
        except AnsibleError as error:
            return None, f"lost over SSH: {' '.join(str(error).split())}"
        return done, ""

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Hide answers, which contain secrets, and keep Ansible from repeating commands."""
        connection = self._action._connection
        with contextlib.suppress(KeyError):  # a connection that has no such option
            connection.set_option("reconnection_retries", 0)
        context = connection._play_context
        former = context.no_log
        context.no_log = True
        try:
            yield
        finally:
            context.no_log = former

    def reconnect(self) -> None:
        with contextlib.suppress(AnsibleError, OSError):  # it is already gone
            self._action._connection.reset()

    def say(self, line: str) -> None:
        with contextlib.suppress(Exception):  # continue even if nothing can be printed
            display.display(f"{self._name}: {line}")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Raise Interrupted on the first Ctrl-C or SIGTERM, so that the session undoes its change."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(_number: int, _frame: Optional[FrameType]) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise session.Interrupted

    former = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _dark(report: SwitchReport, up_before: set[str]) -> bool:
    return any(port.name in up_before and port.up is False for port in report.ports)


def _result(checks: list[Check], **more: Any) -> dict[str, Any]:
    return {
        "changed": False,
        "differs": False,
        "problem": "",
        "report": None,
        "impact": {"level": "none", "ports_down": [], "losses": []},
        **more,
        "layer": LAYER,
        "checks": as_dicts(checks),
    }


def _not_planned(reason: str) -> dict[str, Any]:
    return _result([not_applicable("configuration", "0 values differ", reason)])


def _of(intent: SwitchIntent, difference: Difference) -> dict[str, Any]:
    header = f"{intent.name} ({intent.system})"
    diff = dict.fromkeys(("before_header", "after_header"), header)
    diff |= {"before": difference.before, "after": difference.after}
    impact = {"level": difference.impact.level, **asdict(difference.impact)}
    return {"diff": [diff] if difference else [], "impact": impact}


def _cost(intent: SwitchIntent, difference: Difference) -> list[str]:
    """Lines for the operator before a change: the number of values and the impact."""
    if not difference:
        return []
    impact = difference.impact
    head = f"{intent.name} ({intent.system}): {counted(len(difference.changes), 'value')} to change"
    if difference.expected_s:
        head += f", which takes about {-(-difference.expected_s // 60)} min"
    if impact.level == "none":
        return [f"{head}; no link goes down and nothing is lost"]
    lines = [head]
    if impact.ports_down:
        every = sorted({*(port.name for port in intent.ports), *impact.ports_down}, key=natural)
        ports = ports_text(impact.ports_down, every)
        lines.append(f"{intent.name}: go down and come up again: {ports}")
    return [*lines, *(f"{intent.name}: {loss}" for loss in impact.losses)]


def _check_turn(host: str, plan: Any, hostvars: Any) -> None:
    """Fail unless all switches of earlier batches were changed, whatever the play's strategy."""
    turns = (plan or {}).get("turns") or {}
    earlier = [name for name, turn in turns.items() if turn < turns.get(host, 0)]
    undone = [name for name in earlier if not switch_result(hostvars[name]).get("applied")]
    if undone or host not in turns:
        reason = f"{', '.join(undone)} come before it" if undone else "it is in none of the batches"
        raise AnsibleActionFail(
            f"{LAYER}: it is not the turn of {host}: {reason}. The play needs the strategy linear, "
            "as in playbooks/fabric.yml"
        )
