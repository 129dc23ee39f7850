# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches over HTTPS, from one state to another, with the faults that can occur on the way.

The simulations were written from the vendors' documents, independently of the drivers.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session, underlay
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos import (
    switch as eos_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.switch import (
    NvueSwitch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchLogin
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

from tests.bed.simulators.process import PASSWORD, USER, VirtualSwitch
from tests.unit import eos_intents, nvue_switch
from tests.unit.https_server import LOOPBACK, Authority
from tests.unit.test_fabric_underlay import site
from tests.waiting import until

pytestmark = pytest.mark.slow

OTHER = {**eos_intents.OTHER, "pfc": {}}
LONG_S = 3600
"""Longer than any test: the timer does not expire."""


class Simulated(ABC):
    """A simulated switch with configuration of an operator."""

    asic: str
    log_begin: str
    """Of the lines of the log for a change."""

    def __init__(self, folder: Path, authority: Authority, **how: Any) -> None:
        self.name = type(self).__name__.lower()
        description = {"name": "leaf01", "system": self.name, "asic": self.asic, **how}
        description["ports"] = [
            {
                "name": port.name,
                "speed_gbps": 800,
                "peer": port.peer,
                "peer_interface": port.peer_interface,
                "peer_mac": None,
            }
            for port in self.intent({}, 6).ports
        ]
        self.virtual = VirtualSwitch(folder / "leaf01", authority, description)
        ca_file = str(authority.ca_file)
        self.login = SwitchLogin(
            LOOPBACK, self.virtual.port, USER, PASSWORD, "", ca_file, timeout_s=LONG_S
        )
        self.operate()

    @abstractmethod
    def intent(self, contract: dict[str, Any], ports: int = 4) -> Any:
        """The contract on this many ports."""

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection of the driver."""

    @abstractmethod
    def operate(self) -> None:
        """Add configuration of an operator."""

    @abstractmethod
    def state(self) -> Any:
        """The running configuration."""

    @abstractmethod
    def operators(self) -> Any:
        """The operator's part of the running configuration."""

    def run(self, contract: dict[str, Any]) -> session.SessionOutcome:
        return session.run(
            SYSTEMS[self.name].driver,
            self.connect(),
            self.intent(contract),
            apply=True,
            confirm_s=LONG_S,
            clock=session.SessionClock(sleep=lambda _seconds: None),
        )

    def changes(self) -> int:
        return sum(line.startswith(self.log_begin) for line in self.virtual.log)


class Nvue(Simulated):
    asic, log_begin = "spectrum4", "revision "

    def intent(self, contract: dict[str, Any], ports: int = 4) -> Any:
        return nvue_switch.intent(contract, ports)

    def connect(self) -> Any:
        # Read again sooner than on a real switch.
        return NvueSwitch(self.login, sleep=lambda seconds: time.sleep(seconds / 50))

    def operate(self) -> None:
        theirs = {
            "interface": {
                "swp5": {"description": "spare", "link": {"mtu": 1500}},
                "swp1": {"description": "node01"},
            },
            "qos": {"mapping": {"mine": {"trust": "l2"}}},
        }
        with self.virtual.client() as client:
            (number,) = client.post("/nvue_v1/revision").json()
            answer = client.patch("/nvue_v1/", params={"rev": number}, json=theirs)
            assert answer.status_code == 200, answer.text
            path = f"/nvue_v1/revision/{number}"
            client.patch(path, json={"state": "apply", "auto-prompt": {"ays": "ays_yes"}})
            done = lambda: "applied" in client.get(path).json()["state"]  # noqa: E731
            until(done, f"{path} applied", every=0.01)

    def revision(self, name: str, path: str = "/") -> Any:
        with self.virtual.client() as client:
            query = {"rev": name, "filled": "false"}
            return client.get(f"/nvue_v1{path}", params=query).json()

    def state(self) -> Any:
        return (
            self.revision("applied"),
            self.revision("startup"),
            self.revision("operational", "/qos"),
        )

    def operators(self) -> Any:
        found = self.revision("applied")
        ports = found["interface"]
        return ports["swp5"], ports["swp1"]["description"], found["qos"]["mapping"]["mine"]


class Eos(Simulated):
    asic, log_begin = "tomahawk5", "session"

    def intent(self, contract: dict[str, Any], ports: int = 2) -> Any:
        return eos_intents.leaf(contract, ports)

    def connect(self) -> Any:
        return eos_switch.EosSwitch(self.login)

    def operate(self) -> None:
        with eos_switch.Eapi(self.login) as eapi:
            lines = ["qos profile OPS", "qos cos 5", "exit", "interface Ethernet3/1"]
            lines += ["description spare", "service-profile OPS", "exit"]
            eapi.texts(["configure", *lines, "interface Ethernet1/1", "no switchport"])

    def state(self) -> Any:
        with eos_switch.Eapi(self.login) as eapi:
            return eapi.texts(["show running-config"])[0]

    def operators(self) -> Any:
        text = self.state()
        return [line for line in text.splitlines() if "OPS" in line or "spare" in line]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def switch(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> Iterator[Simulated]:
    kind, how = request.param
    simulated = kind(tmp_path, authority, **how)
    yield simulated
    simulated.virtual.stop()


def of_nvue(release: str, **how: bool) -> tuple[type[Simulated], dict[str, Any]]:
    how = {"overlays": False, "ranges": False, **how}
    return Nvue, {"release": release, "step_s": 0.004, **how}


NVUE, EOS = of_nvue("5.13"), (Eos, {"release": "4.33.1F"})
RELEASES = [
    *(of_nvue("5.8"), of_nvue("5.13", ranges=True), of_nvue("5.13", overlays=True)),
    *(of_nvue("5.15", overlays=True, ranges=True), EOS, (Eos, {"release": "4.30.1F"})),
]


@pytest.mark.parametrize("switch", RELEASES, indirect=True)
def test_from_the_factory_to_one_contract_and_to_the_next(switch: Simulated) -> None:
    theirs = switch.operators()
    for contract in ({}, OTHER, eos_intents.QUIET, {}):
        changed = switch.run(contract)
        assert (changed.error, changed.changed) == ("", True)
        before = switch.changes()
        again = switch.run(contract)
        assert (again.error, again.changed) == ("", False)
        assert switch.changes() == before
        assert changed.report is not None
        assert "simulation" in changed.report.version.lower()
        port, fabric = changed.report.ports[0], switch.intent(contract).fabric
        assert port.mtu_ip == fabric.mtu_ip
        assert port.pfc_priorities == fabric.pfc_priorities
        assert port.dscp_to_traffic_class == fabric.dscp_to_traffic_class
        assert port.neighbour is not None
        assert (port.neighbour.system, port.neighbour.port) == ("node01", "rail0")
    assert switch.operators() == theirs
    switch.virtual.reboot()
    assert not switch.run({}).changed


@pytest.mark.parametrize("switch", [of_nvue("5.8"), NVUE, EOS], indirect=True)
def test_a_switch_that_does_not_route_is_not_applicable(switch: Simulated) -> None:
    driver = SYSTEMS[switch.name].driver
    assert driver.underlay is not None and driver.counters is not None
    (check,) = underlay.compare(site("leaf01"), driver.underlay(switch.connect()))
    assert (check.name, check.status) == ("underlay", "not_applicable")
    counters = driver.counters(switch.connect(), [port.name for port in switch.intent({}).ports])
    assert {each.rx_bytes for each in counters.values()} <= {None}


@pytest.mark.parametrize(
    ("switch", "fault", "words"),
    [
        (NVUE, {"apply": "rejected", "times": 1}, "hardware refused"),
        (NVUE, {"apply": "partial", "times": 1}, "does not have the change that it accepted"),
        (NVUE, {"apply": "disk_full", "times": 1}, "No space left on device"),
        (NVUE, {"confirm": "lost"}, "not have been kept"),
        (EOS, {"apply": "rejected", "times": 1}, "refused the configuration"),
        (EOS, {"apply": "partial", "times": 1}, "does not have the change that it accepted"),
        (EOS, {"apply": "cut", "seconds": 0.3, "times": 1}, "cut"),
        (EOS, {"apply": "disk_full", "times": 1}, "No space left on device"),
    ],
    indirect=["switch"],
)
def test_each_fault_leaves_the_former_state(
    switch: Simulated, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(eos_switch, "RETRY_S", 0.1)
    before = switch.state()
    switch.virtual.fault(**fault)
    outcome = switch.run({})
    assert words in outcome.error and outcome.restored
    switch.virtual.heal()
    assert switch.state() == before
    assert switch.run({}).error == ""
