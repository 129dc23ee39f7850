# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An NVUE switch over HTTPS, from one state to another, with every fault that can occur on the way.

The simulation was written from the vendor's documents, independently of the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.switch import (
    DRIVER,
    NvueSwitch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.session import (
    SessionClock,
    SessionOutcome,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchLogin

from tests.bed.simulators.process import PASSWORD, USER, VirtualSwitch
from tests.unit.https_server import LOOPBACK, Authority
from tests.unit.nvue_switch import intent
from tests.waiting import until

pytestmark = pytest.mark.slow

PORTS = [
    {
        "name": f"swp{number}",
        "speed_gbps": 800,
        "peer": f"node{number:02}" if number < 3 else f"spine{number - 2:02}",
        "peer_interface": "rail0" if number < 3 else f"swp{number}",
        "peer_mac": None,
    }
    for number in (1, 2, 3, 4, 5)
]
OPERATORS = {
    "interface": {
        "swp5": {"description": "spare", "link": {"mtu": 1500}},
        "swp1": {"description": "node01"},
    },
    "system": {"timezone": "Etc/UTC"},
    "qos": {"mapping": {"mine": {"trust": "l2"}}},
}
OTHER: dict[str, Any] = {
    "roce": {"dscp": 24, "priority": 4, "bandwidth_percent": 60},
    "cnp": {"dscp": 46, "priority": 7},
    "classes": [{"name": "storage", "dscps": [10, 12], "priority": 2, "bandwidth_percent": 15}],
    "ecn": {"minimum_bytes": 166912, "maximum_bytes": 239616, "probability_percent": 5},
    "mtu": {"fabric": 9000, "fabric_layer": "ip"},
}
QUIET: dict[str, Any] = {"pfc": {"watchdog": {"enabled": False}}}
STEP_S = 0.004
LONG_S = 3600
"""Longer than any test: the timer does not expire."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def release() -> str:
    return "5.13"


@pytest.fixture
def overlays() -> bool:
    return False


@pytest.fixture
def ranges() -> bool:
    return False


@pytest.fixture
def virtual(
    release: str, overlays: bool, ranges: bool, tmp_path: Path, authority: Authority
) -> Iterator[VirtualSwitch]:
    description: dict[str, Any] = {"name": "leaf01", "system": "nvue", "asic": "spectrum4"}
    description["ports"] = PORTS
    description.update(release=release, overlays=overlays, ranges=ranges, step_s=STEP_S)
    switch = VirtualSwitch(tmp_path / "leaf01", authority, description)
    yield switch
    switch.stop()


def login(virtual: VirtualSwitch, authority: Authority) -> SwitchLogin:
    return SwitchLogin(LOOPBACK, virtual.port, USER, PASSWORD, "", str(authority.ca_file), LONG_S)


def soon(seconds: float) -> None:
    """Read again sooner than on a real switch."""
    time.sleep(seconds / 50)


def connect(
    virtual: VirtualSwitch, authority: Authority, sleep: Callable[[float], None] = soon
) -> NvueSwitch:
    return NvueSwitch(login(virtual, authority), sleep=sleep)


def typed(virtual: VirtualSwitch, patch: dict[str, Any]) -> None:
    """Configure the switch as an operator would."""
    with virtual.client() as client:
        (number,) = client.post("/nvue_v1/revision").json()
        answer = client.patch("/nvue_v1/", params={"rev": number}, json=patch)
        assert answer.status_code == 200, answer.text
        output = {"state": "apply", "auto-prompt": {"ays": "ays_yes"}}
        client.patch(f"/nvue_v1/revision/{number}", json=output)
        path = f"/nvue_v1/revision/{number}"
        until(lambda: "applied" in client.get(path).json()["state"], f"{path} applied", every=0.01)


def applied(virtual: VirtualSwitch, rev: str = "applied", path: str = "/") -> Any:
    with virtual.client() as client:
        return client.get(f"/nvue_v1{path}", params={"rev": rev, "filled": "false"}).json()


def run(
    virtual: VirtualSwitch,
    authority: Authority,
    contract: Any = None,
    confirm_s: int = LONG_S,
    sleep: Callable[[float], None] = soon,
) -> SessionOutcome:
    return session.run(
        DRIVER,
        connect(virtual, authority, sleep),
        intent(contract),
        apply=True,
        confirm_s=confirm_s,
        clock=SessionClock(sleep=lambda _seconds: None),
    )


@pytest.mark.parametrize(
    ("release", "overlays", "ranges"),
    [("5.8", False, False), ("5.13", False, True), ("5.13", True, False), ("5.15", True, True)],
    ids=["5.8", "5.13, ranges", "5.13, lists add up", "5.15, lists add up, ranges"],
)
def test_from_the_factory_to_one_contract_and_to_the_next(
    virtual: VirtualSwitch, authority: Authority, ranges: bool
) -> None:
    typed(virtual, OPERATORS)
    for contract in ({}, OTHER, QUIET, {}):
        changed = run(virtual, authority, contract)
        assert (changed.error, changed.changed) == ("", True)
        revisions = sum(line.startswith("revision ") for line in virtual.log)
        again = run(virtual, authority, contract)
        assert (again.error, again.changed) == ("", False)
        assert sum(line.startswith("revision ") for line in virtual.log) == revisions
        assert changed.report is not None
        assert "simulation" in changed.report.version.lower()
        port = changed.report.ports[0]
        fabric = intent(contract).fabric
        assert port.mtu_ip == fabric.mtu_ip
        assert port.pfc_priorities == fabric.pfc_priorities
        assert port.dscp_to_traffic_class == fabric.dscp_to_traffic_class
        assert port.neighbour is not None
        assert (port.neighbour.system, port.neighbour.port) == ("node01", "rail0")
    config = applied(virtual)
    assert ("swp2-4" in config["interface"]) == ranges
    assert config["interface"]["swp5"] == OPERATORS["interface"]["swp5"]
    assert config["interface"]["swp1"]["description"] == "node01"
    assert config["qos"]["mapping"]["mine"] == {"trust": "l2"}
    virtual.reboot()
    assert not run(virtual, authority).changed


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"apply": "rejected", "times": 1}, "hardware refused"),
        ({"apply": "partial", "times": 1}, "does not have the change that it accepted"),
        ({"apply": "disk_full", "times": 1}, "No space left on device"),
        ({"confirm": "lost"}, "not have been kept"),
    ],
    ids=["rejected", "partial", "disk full", "confirmation lost"],
)
def test_each_fault_leaves_the_former_state(
    virtual: VirtualSwitch, authority: Authority, fault: dict[str, Any], words: str
) -> None:
    typed(virtual, OPERATORS)
    before = applied(virtual), applied(virtual, "startup"), applied(virtual, "operational", "/qos")
    virtual.fault(**fault)
    outcome = run(virtual, authority)
    assert words in outcome.error
    assert outcome.restored
    virtual.heal()
    now = applied(virtual), applied(virtual, "startup"), applied(virtual, "operational", "/qos")
    assert now == before
    assert run(virtual, authority).error == ""
