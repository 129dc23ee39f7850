# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mistakes in switches, NICs and cables, and how they are reported. The most frequent ones in
practice come first: those that a contract on both ends is meant to find."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import asics, system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import LinkFinding
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

from tests.unit import eos_intents, eos_switch, nvue_switch
from tests.unit.findings import brief
from tests.unit.link_fabric import Fabric, mac
from tests.unit.sonic_switch import after, new_switch, present, small
from tests.unit.test_fabric_eos_difference import present as eos_present

END = r"(?:; )?\b(?:leaf|spine|node)\d\d(?: [A-Za-z0-9/]+)?: "


def listed(whole: Fabric) -> list[str]:
    """Of each failed check: its name, the host at fault, the actual and the desired value.

    `link_pfc leaf01: PFC on 3 and 4, not PFC on 3`. Compliant ends are omitted.
    """
    return [_told(each) for each in whole.check().findings if each.check.status == "failed"]


def _told(finding: LinkFinding) -> str:
    check, at_fault = finding.check, "+".join(finding.hosts[: finding.at_fault])
    found, wanted = check.found, check.wanted
    if found is not None and check.name != "link_neighbour":
        parts = [part for part in re.split(END, wanted) if part]
        found = "; ".join(x for x in re.split(END, found) if x and x not in parts)
        wanted = "; ".join(parts)
    return f"{check.name} {at_fault}: {found}, not {wanted}"


Messages = Callable[[], list[str]]
WHOLE = Fabric()


@cache
def compliant() -> tuple[system.SwitchIntent, reading.Present]:
    ports = WHOLE.variables["leaf01"]["cluster_ports"]
    intent = system.compile_switch("leaf01", "sonic", "spectrum4", {}, ports, WHOLE.contract)
    config = new_switch()
    for row in config["PORT"].values():
        row["speed"] = "400000"
    driver = SYSTEMS["sonic"].driver
    steps = driver.difference(intent, driver.wanted(intent), present(config)).steps
    neighbours = {
        port.name: {
            "lldp_rem_sys_name": "" if port.kind == "host" else port.peer,
            "lldp_rem_port_id": mac(port.peer, port.peer_interface)
            if port.kind == "host"
            else port.peer_interface,
        }
        for port in intent.ports
    }
    up = {port.name: {"oper_status": "up", "speed": "400000"} for port in intent.ports}
    config = copy.deepcopy(after(config, steps))
    return intent, present(config, ports=up, neighbours=neighbours)


def sonic(edit: Callable[[dict[str, Any]], Any]) -> Messages:

    def messages() -> list[str]:
        whole = copy.deepcopy(WHOLE)
        intent, state = copy.deepcopy(compliant())
        edit(state.config)
        report = SYSTEMS["sonic"].driver.report(intent, state).as_dict()
        whole.change_switch("leaf01", report=json.loads(json.dumps(report)))
        return listed(whole)

    return messages


def fabric(edit: Callable[[Fabric], Any]) -> Messages:

    def messages() -> list[str]:
        whole = copy.deepcopy(WHOLE)
        edit(whole)
        return listed(whole)

    return messages


DEFAULT_OF_SONIC = {
    str(dscp): {3: "3", 4: "4", 46: "5", 48: "6"}.get(dscp, "0" if dscp == 8 else "1")
    for dscp in range(64)
}
"""DSCP_TO_TC_MAP|AZURE of upstream's qos_config.j2, reduced to the relevant part."""


def qos_map(config: dict[str, Any], **fields: Any) -> None:
    row = config["PORT_QOS_MAP"]["Ethernet8"]
    for name, value in fields.items():
        row.pop(name, None) if value is None else row.update({name: value})


def default_map(config: dict[str, Any]) -> None:
    config["DSCP_TO_TC_MAP"]["AZURE"] = DEFAULT_OF_SONIC
    qos_map(config, dscp_to_tc_map="AZURE")


def hear(name: str, system: str, port: str) -> Callable[[Fabric], None]:
    def edit(whole: Fabric) -> None:
        whole.port("leaf01", name)["neighbour"] = {"system": system, "port": port}

    return edit


def nic(name: str, found: Any, **more: Any) -> Callable[[Fabric], None]:
    def edit(whole: Fabric) -> None:
        whole.setting("node02", "rail0", name).update(found=found, **more)

    return edit


def port(**fields: Any) -> Callable[[Fabric], None]:
    return lambda whole: whole.port("leaf01", "Ethernet8").update(fields)


ROWS: tuple[tuple[str, Messages, str], ...] = (
    (
        "DSCP left on SONiC's default map, which sends 26 to a lossy class",
        sonic(default_map),
        "link_dscp_map leaf01: DSCP 0-2, 5-7, 9-45, 47, 49-63 to TC 1, DSCP 3 to TC 3, DSCP 4 to "
        "TC 4, DSCP 46 to TC 5, DSCP 48 to TC 6, not DSCP 26 to TC 3, DSCP 48 to TC 6",
    ),
    (
        "48 in a queue that shares, as SONiC's default has it",
        sonic(lambda c: c["QUEUE"]["Ethernet8|6"].update(scheduler="scheduler.0")),
        "link_queues leaf01: TC 6 (CNP) not strict, not TC 6 (CNP) strict",
    ),
    (
        "24 on the NIC and 26 on the switch",
        fabric(nic("dscp_to_priority", "0-23:0 24:3 25-47:0 48:6 49-63:0")),
        "link_dscp_to_priority node02: 0-23:0 24:3 25-47:0 48:6 49-63:0, not 0-25:0 26:3 27-47:0 "
        "48:6 49-63:0",
    ),
    (
        "the NIC sends 24, whatever it trusts",
        fabric(nic("traffic_class", 24 << 2 | 2)),
        "link_traffic_class node02: 98, not 106",
    ),
    (
        "PFC left on 3 and 4",
        sonic(lambda c: qos_map(c, pfc_enable="3,4")),
        "link_pfc leaf01: PFC on 3 and 4, not PFC on 3",
    ),
    (
        "PFC of a priority without a lossless priority group",
        sonic(lambda c: c["BUFFER_PG"].pop("Ethernet8|3")),
        "link_lossless leaf01: no lossless buffer, not a lossless buffer for priority 3",
    ),
    (
        "cable length left at SONiC's default",
        sonic(lambda c: c["CABLE_LENGTH"]["AZURE"].update(Ethernet8="5m")),
        "link_cable leaf01: 5 m, not 50 m",
    ),
    (
        "the host's MTU above the fabric's, on the node",
        fabric(lambda f: f.rail("node02", "rail0").update(mtu=9500)),
        "link_mtu node02: IP packets of 9500 bytes, not IP packets of 9198 bytes; IP packets "
        "of 9000 bytes",
    ),
    (
        "the watchdog off",
        sonic(lambda c: c["PFC_WD"].pop("Ethernet8")),
        "link_watchdog leaf01: off, not drop after 200 ms, back after 400 ms",
    ),
    (
        "no marking in the RoCE queue",
        sonic(lambda c: c["QUEUE"]["Ethernet8|3"].pop("wred_profile")),
        "link_ecn leaf01: TC 3 does not mark, not TC 3 marks from 150000 to 1500000 bytes, 100 %",
    ),
    (
        "less headroom than the cable needs",
        sonic(
            lambda c: (
                c["BUFFER_PROFILE"].update(OWN={"xoff": "100000", "size": "1"})
                or c["BUFFER_PG"]["Ethernet8|3"].update(profile="OWN")
            )
        ),
        "link_headroom leaf01: 100000 bytes, not 299008 bytes",
    ),
    (
        "no DSCP map at all",
        sonic(lambda c: qos_map(c, dscp_to_tc_map=None)),
        "link_dscp_map leaf01: the switch does not report it, not DSCP 26 to TC 3, DSCP 48 to TC 6",
    ),
    ("a NIC that does not slow down", fabric(nic("ecn_rp", [])), "link_ecn_rp node02: none, not 3"),
    (
        "a NIC that answers nothing",
        fabric(nic("pfc", None, status="failed", reason="dcb: no answer within 10 s")),
        "link_pfc node02: dcb: no answer within 10 s, not PFC on 3",
    ),
    (
        "a link at another speed",
        fabric(port(speed_gbps=200)),
        "link_speed leaf01: 200 Gb/s, not 400 Gb/s",
    ),
    (
        "a rail in another leaf",
        fabric(hear("Ethernet0", "", mac("node01", "rail1"))),
        "link_neighbour leaf01+leaf02: node01 rail1, not node01 rail0",
    ),
    (
        "a switch without LLDP",
        fabric(lambda f: f.switches["leaf01"].report.update(lldp=False)),
        "link_neighbour leaf01: None, not the neighbours of every port",
    ),
)


@pytest.mark.parametrize(("_what", "messages", "wanted_text"), ROWS, ids=[row[0] for row in ROWS])
def test_each_is_reported_as_what_it_is(_what: str, messages: Messages, wanted_text: str) -> None:
    assert any(wanted_text in message for message in messages()), "\n".join(messages())


PRESENT: dict[str, tuple[system.SwitchIntent, Any]] = {
    "sonic": (small(), present(new_switch(2))),
    "nvue": (nvue_switch.intent(), nvue_switch.present({})),
    "eos": (eos_intents.leaf(), eos_present(eos_switch.empty())),
}


@pytest.mark.parametrize("name", PRESENT)
def test_what_no_switch_of_a_system_can_have(name: str) -> None:
    """A port that is not there (another breakout), and an MTU above the largest."""
    intent, state = PRESENT[name]
    driver = SYSTEMS[name].driver
    missing = replace(intent, ports=(replace(intent.ports[0], name="Ethernet9999"),))
    with pytest.raises(system.SwitchError, match="no port Ethernet9999"):
        driver.difference(missing, driver.wanted(missing), state)
    larger = replace(intent, fabric=replace(intent.fabric, mtu_ip=10222))
    with pytest.raises(asics.WantedError) as error:
        driver.wanted(larger)
    assert brief(error.value.findings) == [f"{name}.mtu leaf01 10222"]


def test_a_switch_that_does_not_show_how_eos_calls_its_queues() -> None:
    intent, state = PRESENT["eos"]
    intent, driver = replace(intent, asic=asics.Asic("tomahawk5")), SYSTEMS["eos"].driver
    with pytest.raises(system.SwitchError, match="eos_queue: tx-queue"):
        driver.difference(intent, driver.wanted(intent), state)


def test_no_sonic_at_the_other_end_of_the_login() -> None:
    with pytest.raises(system.SwitchError, match="--print-data` was not"):
        reading.parsed(system.Completed(0, "Welcome!\n", ""))
