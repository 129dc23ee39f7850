# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An EOS switch over HTTPS, from one state to another, with every fault that can occur on the way.

The simulation was written from the vendor's documents, independently of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import session
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos import (
    switch as eos_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import (
    DRIVER,
    Eapi,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.session import (
    SessionOutcome,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import SwitchLogin

from tests.bed.simulators.process import PASSWORD, USER, VirtualSwitch
from tests.unit.eos_intents import OTHER, QUIET, leaf
from tests.unit.https_server import LOOPBACK, Authority

pytestmark = pytest.mark.slow

PORTS = [
    {
        "name": f"Ethernet{number}/1",
        "speed_gbps": 800,
        "peer": f"node{number:02}",
        "peer_interface": "rail0",
        "peer_mac": None,
    }
    for number in (1, 2, 3)
]
LONG_S = 3600
"""Longer than any test: the timer does not expire."""
OPERATORS = [
    "qos profile OPS", "qos cos 5", "exit",
    "interface Ethernet3/1", "description spare", "service-profile OPS", "exit",
    "interface Ethernet1/1", "description node01", "no switchport",
]  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def release() -> str:
    return "4.33.1F"


@pytest.fixture
def virtual(release: str, tmp_path: Path, authority: Authority) -> Iterator[VirtualSwitch]:
    description: dict[str, Any] = {"name": "leaf01", "system": "eos", "asic": "tomahawk5"}
    switch = VirtualSwitch(
        tmp_path / "leaf01", authority, {**description, "release": release, "ports": PORTS}
    )
    yield switch
    switch.stop()


def login(virtual: VirtualSwitch, authority: Authority) -> SwitchLogin:
    return SwitchLogin(LOOPBACK, virtual.port, USER, PASSWORD, "", str(authority.ca_file), LONG_S)


def typed(virtual: VirtualSwitch, authority: Authority, *lines: str) -> None:
    with Eapi(login(virtual, authority)) as eapi:
        eapi.texts(["configure", *lines])


def running(virtual: VirtualSwitch, authority: Authority) -> str:
    with Eapi(login(virtual, authority)) as eapi:
        return eapi.texts(["show running-config"])[0]


def run(
    virtual: VirtualSwitch, authority: Authority, contract: Any = None, confirm_s: int = LONG_S
) -> SessionOutcome:
    return session.run(
        DRIVER,
        DRIVER.connect(login(virtual, authority)),
        leaf(contract),
        apply=True,
        confirm_s=confirm_s,
    )


@pytest.mark.parametrize("release", ["4.33.1F", "4.30.1F"])
def test_from_the_factory_to_one_contract_and_to_the_next(
    virtual: VirtualSwitch, authority: Authority
) -> None:
    typed(virtual, authority, *OPERATORS)
    for contract in ({}, OTHER, {}, QUIET, OTHER):
        changed = run(virtual, authority, contract)
        assert (changed.error, changed.changed) == ("", True)
        before = len(virtual.log)
        again = run(virtual, authority, contract)
        assert (again.error, again.changed) == ("", False)
        assert not any(line.startswith("session") for line in virtual.log[before:])
        assert changed.report is not None
        assert "simulation" in changed.report.version.lower()
        port = changed.report.ports[0]
        fabric = leaf(contract).fabric
        assert port.mtu_ip == fabric.mtu_ip
        assert port.pfc_priorities == fabric.pfc_priorities
        assert port.dscp_to_traffic_class == fabric.dscp_to_traffic_class
        assert port.trust == "dscp"
        assert port.neighbour is not None
        assert port.neighbour.system == "node01"
    text = running(virtual, authority)
    assert "   description spare\n" in text
    assert "   service-profile OPS\n" in text
    virtual.reboot()
    assert not run(virtual, authority, OTHER).changed


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"apply": "rejected"}, "refused the configuration"),
        ({"apply": "partial"}, "does not have the change that it accepted"),
        ({"apply": "cut", "seconds": 0.3}, "cut"),
        ({"apply": "disk_full"}, "No space left on device"),
    ],
    ids=["rejected", "partial", "cut", "disk full"],
)
def test_each_fault_leaves_the_former_state(
    virtual: VirtualSwitch,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.setattr(eos_switch, "RETRY_S", 0.1)
    typed(virtual, authority, *OPERATORS)
    before = running(virtual, authority)
    virtual.fault(**fault, times=1)
    outcome = run(virtual, authority)
    assert words in outcome.error
    assert outcome.restored
    assert running(virtual, authority) == before
    virtual.heal()
    assert run(virtual, authority).error == ""
