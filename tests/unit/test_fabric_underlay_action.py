# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps `underlay` and `counters`: they fail no play, and the layer links has the checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import fabric_links as links
from ansible_collections.baremetal.mpi_roce.plugins.action import switch_qos as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import results
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.counters import PortCounters
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.underlay import (
    BgpSession,
    Underlay,
    reading_of,
)

from tests.unit.link_fabric import Fabric
from tests.unit.test_fabric_links_action import Run
from tests.unit.test_fabric_underlay import hostvars, right, site


class Step:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, switch: str = "leaf01") -> None:
        self.groups, self.hostvars = hostvars()
        self.switch = switch
        self.read: list[Any] = []
        self.slept: list[float] = []
        driver = SimpleNamespace(connect=lambda _access: switch)
        driver.underlay = driver.counters = None
        self.driver = driver
        monkeypatch.setitem(action.DRIVERS, "sonic", driver)
        self._patch = monkeypatch

    def ran(self, name: str, answer: Optional[Callable[..., Any]]) -> dict[str, Any]:
        setattr(self.driver, name, answer)

        def until(done: Callable[[], bool], limit_s: float, _pause_s: float) -> None:
            self.slept.append(limit_s)
            while not done():
                pass

        self._patch.setattr(action, "until", until)
        this = SimpleNamespace(_templar=SimpleNamespace(template=lambda value: value))
        for own in ("_switch", "_counters_now"):
            setattr(this, own, getattr(action.ActionModule, own).__get__(this))
        variables = {**self.hostvars[self.switch], "inventory_hostname": self.switch}
        task_vars = {**variables, "groups": self.groups, "hostvars": self.hostvars}
        step = getattr(action.ActionModule, f"_{name}")
        found: dict[str, Any] = step(this, task_vars)
        assert "failed" not in found and found["changed"] is False
        return found


def test_a_switch_returns_its_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    step, right_one = Step(monkeypatch), right(site("leaf01"))
    found = step.ran("underlay", lambda _switch: right_one)
    assert found["problem"] == ""
    assert Underlay.of(json.loads(json.dumps(found["found"]))) == right_one
    empty = step.ran("underlay", lambda _switch: Underlay())["found"]
    assert Underlay.of(empty) == Underlay()


def test_a_switch_that_cannot_be_read_returns_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_switch: Any) -> Underlay:
        raise SwitchError("10.0.1.1: no answer")

    found = Step(monkeypatch).ran("underlay", refused)
    assert (found["found"], found["problem"]) == (None, "10.0.1.1: no answer")


@pytest.mark.parametrize("without", ["system", "reading", "need"])
def test_what_cannot_be_read_is_not_read(monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    step = Step(monkeypatch)
    if without == "system":
        step.hostvars["leaf01"]["cluster_system"] = ""
    if without == "need":
        del step.hostvars[step.groups["compute"][0]]["cluster_rail_networks"]
    read = None if without == "reading" else lambda _switch: pytest.fail("it was read")
    assert step.ran("underlay", read)["found"] is None


@pytest.mark.parametrize(("changed", "limit_s"), [("leaf01", 60), ("spine02", 15), ("", 0)])
def test_sessions_of_links_are_waited_for_after_a_change(
    monkeypatch: pytest.MonkeyPatch, changed: str, limit_s: int
) -> None:
    step = Step(monkeypatch)
    for name in step.hostvars:
        step.hostvars[name]["switch_qos_state"] = {"applied": name == changed}
    up = right(site("leaf01"))
    other = BgpSession("192.0.2.9", "idle")
    sessions = [*(up.sessions or ()), other]
    connecting = replace(up, sessions=[replace(sessions[0], state="connect"), *sessions[1:]])
    answers = [connecting, replace(up, sessions=sessions)]
    found = step.ran("underlay", lambda _switch: answers.pop(0))
    assert (answers, step.slept) == ([], [limit_s])
    assert Underlay.of(found["found"]).sessions == sessions


def test_counters_are_those_of_links_between_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counters(_switch: Any, ports: list[str]) -> dict[str, PortCounters]:
        asked.extend(ports)
        return {port: PortCounters(rx_bytes=len(asked)) for port in ports}

    step = Step(monkeypatch)
    links = [port.name for port in site("leaf01").own if port.kind == "uplink"]
    readings = []
    for _reading in range(3):
        found = step.hostvars["leaf01"]["switch_qos_counters"] = step.ran("counters", counters)
        readings.append(found["after"])
        assert found["before"] == (readings[0] if len(readings) > 1 else None)
    assert asked == 3 * links
    assert list(readings[0]["ports"]) == links
    assert [each["ports"][links[0]]["rx_bytes"] for each in readings] == [4, 8, 12]
    assert readings[0]["read_s"] > 0 and readings[0]["reason"] == ""


def test_counters_that_cannot_be_read_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_switch: Any, _ports: Any) -> Any:
        raise SwitchError("10.0.1.1: no answer")

    step = Step(monkeypatch)
    found = step.ran("counters", refused)["after"]
    assert (found["ports"], found["reason"]) == ({}, "10.0.1.1: no answer")
    assert "no system" in step.ran("counters", None)["after"]["reason"]
    step.hostvars["leaf01"]["cluster_ports"] = []
    assert "no link" in step.ran("counters", refused)["after"]["reason"]


def test_links_compares_each_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Fabric(), monkeypatch)
    groups, variables = hostvars()
    names = ("leaf01", "leaf02", "leaf03")
    lost = replace(right(site("leaf02")), routes={})
    answers = [
        {"found": right(site("leaf01")).as_dict(), "problem": ""},
        {"found": lost.as_dict(), "problem": ""},
        {"found": None, "problem": "no answer"},
    ]
    for name, answer in zip(names, answers):
        variables[name]["switch_qos_underlay"] = answer
    found = [
        (finding.check.subject.partition(" ")[0], finding.check.name, finding.check.status)
        for finding in links._underlay(reading_of(groups, variables, names), {})
    ]
    parts = ("underlay_gateway", "underlay_session", "underlay_paths")
    assert found == [
        *(("leaf01", part, "ok") for part in parts),
        *(("leaf02", part, "ok") for part in parts[:2]),
        ("leaf02", "underlay_paths", "failed"),
        ("leaf03", "underlay", "failed"),
    ]
    assert reading_of(run.groups, run.hostvars, run.here) is None


def test_a_state_of_ten_megabytes_is_shortened() -> None:
    groups, variables = hostvars()
    wordy = right(site("leaf01"))
    sessions = [replace(each, state="x\x1b[2J" * 2**20) for each in wordy.sessions or ()]
    found = replace(wordy, sessions=sessions).as_dict()
    variables["leaf01"][results.UNDERLAY] = {"found": found, "problem": ""}
    routing = reading_of(groups, variables, ["leaf01"])
    failed = [one.check for one in links._underlay(routing, {})]
    failed = [check for check in failed if check.status == "failed"]
    assert {check.name for check in failed} == {"underlay_session"}
    assert all(len(check.line()) < 9000 and check.line().isprintable() for check in failed)


@pytest.mark.parametrize(
    ("system", "asic", "routed", "read", "names"),
    [
        ("eos", "tomahawk5", True, True, ["underlay_gateway"]),
        ("eos", "tomahawk5", True, False, ["link_mtu"] * 3),
        ("eos", "tomahawk5", False, True, ["link_mtu"] * 3),
        ("sonic", "spectrum4", False, True, ["link_mtu"] * 3),
    ],
)
def test_a_small_mtu_is_one_finding(
    system: str,
    asic: str,
    routed: bool,
    read: bool,
    names: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the routed interface, with all of its rails; otherwise of each link."""
    fabric = Fabric(system=system, asic=asic, nodes=3, rails=1)
    run = Run(fabric, monkeypatch)
    run.hostvars["node01"]["cluster_rail_networks"] = ["10.128.0.0/9"]
    interfaces: dict[str, Any] = {}
    (group,) = (each for each in fabric.switches["leaf01"].ports if each["kind"] == "host")
    group["prefix"] = 31
    group["addresses"] = {}
    for number, port in enumerate(group["peers"]):
        fabric.port("leaf01", port).update(mtu_ip=1500, mtu_of="Vlan100" if routed else "")
        address = "10.128.0.1" if routed else f"10.128.0.{2 * number}"
        group["addresses"][port] = address
        name = "Vlan100" if routed else port
        interfaces[name] = [[f"{address}/31"], 1500, "default"]
    found = {"interfaces": interfaces, "sessions": None, "routes": None}
    if read:
        run.hostvars["leaf01"][results.UNDERLAY] = {"found": found, "problem": ""}
    failed = [
        check["name"]
        for own in run.compare()["by_host"].values()
        for check in own
        if check["status"] == "failed"
    ]
    assert failed == names
