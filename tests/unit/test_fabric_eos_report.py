# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The report of an EOS switch in terms of the contract."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import (
    aspects,
    compare,
    system,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import (
    Present,
    abandoned_sessions,
    session_with_timer,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.switch import DRIVER
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos.compiled import PfcWatchdog

from tests.unit.eos_intents import OTHER, leaf
from tests.unit.eos_switch import empty, show, typed

UP = {"linkStatus": "connected", "bandwidth": 400 * 10**9}


def reported(contract: dict[str, Any], *lines: str, **more: Any) -> system.PortReport:
    """Port 1 of a switch that complies with the contract, after these lines."""
    intent = leaf(contract)
    wanted = DRIVER.wanted(intent)
    interfaces = {"Ethernet1/1": UP, "Ethernet2/1": {**UP, "linkStatus": "notconnect"}}
    bare = Present("x", show(empty()), "", interfaces, ())
    tree = typed(empty(), list(DRIVER.difference(intent, wanted, bare).steps))
    text = show(typed(tree, list(lines)))
    return DRIVER.report(intent, replace(bare, running=text, **more)).ports[0]


def test_a_switch_that_keeps_the_contract_reports_it() -> None:
    fabric = leaf(OTHER).fabric
    assert reported(OTHER) == system.PortReport(
        name="Ethernet1/1",
        present=True,
        up=True,
        speed_gbps=400,
        mtu_ip=9214,
        trust="dscp",
        dscp_to_traffic_class=fabric.dscp_to_traffic_class,
        pfc_priorities=(4,),
        lossless_priorities=(4,),
        strict_queues=(7,),
        weights={0: 25, 2: 15, 4: 60},
        ecn={4: system.EcnReport(166912, 239616, 5)},
        watchdog=fabric.watchdog,
    )


def test_a_switch_that_was_never_told_reports_the_defaults_of_eos() -> None:
    found = DRIVER.report(leaf(), Present("x", show(empty()), "", {"Ethernet1/1": UP}, ()))
    port, missing = found.ports
    assert (port.mtu_ip, port.trust, port.pfc_priorities) == (1500, "pcp", ())
    assert port.dscp_to_traffic_class is not None
    assert port.dscp_to_traffic_class[:9] == (1, 1, 1, 1, 1, 1, 1, 1, 0)
    assert port.strict_queues == (0, 3, 6)
    assert port.watchdog == PfcWatchdog(False, 0, 0, 0, "errdisable")
    assert missing == system.PortReport("Ethernet2/1", present=False)


def test_what_the_port_says_itself_comes_first() -> None:
    port = reported({}, "interface Ethernet1/1", "qos trust cos", "tx-queue 6", "no priority")
    assert (port.trust, port.strict_queues) == ("pcp", ())


def test_pfc_off_for_all_is_off() -> None:
    assert reported({}, "priority-flow-control all off").pfc_priorities == ()


@pytest.mark.parametrize("time", ("inf", "1e999", "nan", "9" * 900, ""))
def test_a_time_that_is_no_number_of_milliseconds_is_none(time: str) -> None:
    text = f"priority-flow-control pause watchdog default timeout {time}\n"
    found = DRIVER.report(leaf(), Present("x", text, "", {"Ethernet1/1": UP}, ()))
    watchdog = found.ports[0].watchdog
    assert watchdog is not None
    assert (watchdog.enabled, watchdog.detection_ms) == (False, 0)


def test_thresholds_in_segments_are_unknown_in_bytes() -> None:
    port = reported(
        {}, "interface Ethernet1/1", "tx-queue 3",
        "random-detect ecn minimum-threshold 2000 segments maximum-threshold 10000 segments "
        "max-mark-probability 20 weight 0",
    )  # fmt: skip
    assert port.ecn == {3: system.EcnReport(None, None, 20)}
    switch = compare.SwitchEnds("eos", leaf().asic, {"ports": [asdict(port)]}, leaf().fabric)
    wanted = switch.wanted("host", 400)
    found = switch.found("Ethernet1/1", wanted)[aspects.ECN]
    assert found != wanted[aspects.ECN]
    assert "not in bytes" in aspects.show(aspects.ECN, found)


def test_the_mtu_of_all_interfaces_is_that_of_a_port_without_one() -> None:
    lines = ["interface defaults", "mtu 9214", "interface Ethernet1/1", "no mtu"]
    assert reported({}, *lines).mtu_ip == 9214


def test_untrusted_and_routed_ports() -> None:
    at_port = "interface Ethernet1/1"
    assert reported({}, at_port, "no qos trust").trust == "none"
    alone = [at_port, "no service-profile", "no switchport"]
    assert reported({}, *alone).trust == "dscp"


def test_neighbours_by_name_or_by_address() -> None:
    heard = {"port": "Ethernet1/1", "neighborPort": "rail0", "neighborDevice": "node01"}
    assert reported({}, neighbours=(heard,)).neighbour == system.Neighbour("node01", "rail0")
    nic = {**heard, "neighborPort": "B8CE.F6AA.BB01", "neighborDevice": "b8ce.f6aa.bb01"}
    assert reported({}, neighbours=(nic,)).neighbour == system.Neighbour("", "b8:ce:f6:aa:bb:01")
    assert reported({}).neighbour is None


def test_whether_neighbours_could_be_read() -> None:
    bare = Present("DCS-7060X6 4.33.1F", show(empty()), "", {}, None)
    found = DRIVER.report(leaf(), bare)
    assert (found.lldp, found.version, found.system) == (False, "DCS-7060X6 4.33.1F", "eos")


def test_sessions_are_read_as_old_and_new_releases_say_them() -> None:
    new = {"sessions": {"a": {"state": "committed"}}, "commitTimerSessionName": "a"}
    old = {"sessions": {"b": {"state": "pendingCommitTimer"}}}
    none = {"sessions": {"a": {"state": "committed"}, "baremetal-1": {"state": "pending"}}}
    assert (session_with_timer(new), session_with_timer(old), session_with_timer(none)) == (
        "a",
        "b",
        "",
    )
    assert abandoned_sessions({**none, "x": 1}) == ["baremetal-1"]
    assert abandoned_sessions({"sessions": {"ops": {"state": "pending"}}}) == []


VLAN = ("interface Vlan100", "ip address 10.100.0.1/24", "exit")
ACCESS = ("interface Ethernet1/1", "switchport access vlan 100", "exit")


@pytest.mark.parametrize(
    ("lines", "mtu", "of"),
    [
        ((*VLAN, *ACCESS), 1500, "Vlan100"),
        ((*VLAN[:2], "mtu 9000", "exit", *ACCESS), 9000, "Vlan100"),
        ((*VLAN[:2], "mtu 9214", "exit", *ACCESS), 9214, ""),
        ((*VLAN[:1], "ip virtual-router address 10.100.0.1", "exit", *ACCESS), 1500, "Vlan100"),
        (("interface defaults", "mtu 9214", "exit", *VLAN, *ACCESS), 9214, ""),
        (("interface defaults", "mtu 4000", "exit", *VLAN, *ACCESS), 4000, "Vlan100"),
        (("interface Vlan100", "description no gateway", "exit", *ACCESS), 9214, ""),
        ((*VLAN, "interface Ethernet1/1", "exit"), 9214, ""),
        (("interface Vlan1", *VLAN[1:], "interface Ethernet1/1", "exit"), 1500, "Vlan1"),
        ((*VLAN, *ACCESS[:2], "no switchport", "exit"), 9214, ""),
        (
            (*VLAN, *ACCESS[:1], "switchport mode trunk", "switchport trunk native vlan 100"),
            1500,
            "Vlan100",
        ),
        ((*VLAN, *ACCESS[:2], "switchport mode trunk", "exit"), 9214, ""),
    ],
)
def test_the_gateway_limits_the_mtu_of_a_switched_port(
    lines: tuple[str, ...], mtu: int, of: str
) -> None:
    """A VLAN's interface has 1500 bytes unless set, or those of `interface defaults`.

    aristanetworks/avd 0875e971, j2templates/eos/interface-defaults.j2 and vlan-interfaces.j2.
    """
    port = reported(OTHER, *lines)
    assert (port.mtu_ip, port.mtu_of) == (mtu, of)


@pytest.mark.parametrize(("lines", "judged"), [(ACCESS, set()), ((), {OK})])
def test_the_layer_fabric_leaves_the_mtu_of_a_routed_interface_to_links(
    lines: tuple[str, ...], judged: set[str]
) -> None:
    """9000 bytes are enough for rails of 9000, and no line of the port is wrong."""
    intent = leaf(ports=1)
    port = reported({}, *VLAN[:2], "mtu 9000", "exit", *lines)
    found = system.SwitchReport("leaf01", "eos", "x", (port,), lldp=True)
    checks = compare.port_checks(intent, found, None, check_mode=False)
    assert {check.status for check in checks if check.name == "port_mtu"} == judged
