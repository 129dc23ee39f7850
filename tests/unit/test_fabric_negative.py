# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mistakes in switches, NICs and cables, and how they are reported. The most frequent ones in
practice come first: those that a contract on both ends is meant to find."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import asics
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.cabling import LinkFinding
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic import reading
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    Completed,
    SwitchError,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

from tests.unit.findings import brief
from tests.unit.link_fabric import Fabric, mac
from tests.unit.negative_switches import intent_of, judged, planned

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


def refused(run: Callable[[], Any]) -> Messages:
    """Messages of a compiler or a system, before anything is changed."""

    def messages() -> list[str]:
        with pytest.raises((asics.WantedError, SwitchError)) as error:
            run()
        if isinstance(error.value, asics.WantedError):
            return brief(error.value.findings)
        return [str(error.value)]

    return messages


WHOLE = Fabric()
GROUPS = WHOLE.variables["leaf01"]["cluster_ports"]


def wanted(system: str, qos: dict[str, Any] | None = None, **changes: Any) -> Messages:
    fabric = {"qos": qos, "system": system, "asic": changes.pop("asic", "spectrum4")}
    return refused(lambda: SYSTEMS[system].driver.wanted(intent_of(Fabric(**fabric), **changes)))


def sonic(edit: Callable[[dict[str, Any]], Any]) -> Messages:
    """CONFIG_DB of a compliant leaf after a change."""

    def spoil(present: Any) -> None:
        edit(present.config)

    return lambda: listed(judged("sonic", spoil))


def unplannable(edit: Callable[[dict[str, Any]], Any]) -> Messages:
    """CONFIG_DB of a leaf that cannot implement the contract."""

    def spoil(present: Any) -> None:
        edit(present.config)

    return refused(lambda: planned("sonic", spoil))


def sonic_answers(stdout: str) -> Messages:
    return refused(lambda: reading.parsed(Completed(0, stdout, "")))


def eos(old: str, new: str) -> Messages:
    """The running-config of a compliant leaf with one line changed."""

    def spoil(present: Any) -> Any:
        assert old in present.running
        return replace(present, running=present.running.replace(old, new))

    return lambda: listed(judged("eos", spoil))


def nvue(edit: Callable[[Any], Any]) -> Messages:
    return lambda: listed(judged("nvue", edit))


def fabric(edit: Callable[[Fabric], Any]) -> Messages:
    """A compliant fabric with something removed."""

    def messages() -> list[str]:
        whole = copy.deepcopy(WHOLE)
        edit(whole)
        return listed(whole)

    return messages


# The mistakes

DEFAULT_OF_SONIC = {
    str(dscp): {3: "3", 4: "4", 46: "5", 48: "6"}.get(dscp, "0" if dscp == 8 else "1")
    for dscp in range(64)
}
"""DSCP_TO_TC_MAP|AZURE of upstream's qos_config.j2, reduced to the relevant part."""
ALL_IN_ZERO = "".join(f" {dscp}" for dscp in range(64) if dscp not in (26, 48))


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
        "EOS counts the IP packet, and 9214 of the frame was written",
        eos("mtu 9198", "mtu 9214"),
        "link_mtu leaf01: IP packets of 9214 bytes, not IP packets of 9198 bytes; IP packets "
        "of 9000 bytes",
    ),
    (
        "the host's MTU above the fabric's, on the node",
        fabric(lambda f: f.rail("node02", "rail0").update(mtu=9500)),
        "link_mtu node02: IP packets of 9500 bytes, not IP packets of 9198 bytes; IP packets "
        "of 9000 bytes",
    ),
    (
        "ports of another breakout",
        unplannable(lambda c: c["PORT"].pop("Ethernet8")),
        "the switch has no port Ethernet8",
    ),
    (
        "no SONiC at the other end of the login",
        sonic_answers("Welcome!\n"),
        "`sonic-cfggen -d --print-data` was not answered",
    ),
    (
        "an MTU above SONiC's largest",
        wanted("sonic", {"mtu": {"fabric": 10240}}),
        "sonic.mtu leaf01 10222",
    ),
    (
        "an MTU above NVUE's largest",
        wanted("nvue", {"mtu": {"fabric": 10240}}),
        "nvue.mtu leaf01 10222",
    ),
    (
        "a port that NVUE does not have",
        refused(lambda: planned("nvue", lambda p: p.ports.pop("swp2") and None)),
        "the switch has no port swp2",
    ),
    (
        "a switch that does not show how EOS calls its queues",
        refused(lambda: planned("eos", lambda p: replace(p, queue=""))),
        "Write asics: {tomahawk5: {eos_queue: tx-queue or uc-tx-queue}}",
    ),
    (
        "a port that EOS does not have",
        refused(lambda: planned("eos", lambda p: p.interfaces.pop("Ethernet2/1") and None)),
        "leaf01: the switch has no port Ethernet2/1",
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
    (
        "EOS's default map below DSCP 16",
        eos(f"qos map dscp{ALL_IN_ZERO} to traffic-class 0\n", ""),
        "link_dscp_map leaf01: DSCP 0-7 to TC 1, DSCP 16-23 to TC 2, DSCP 24-31 to TC 3, DSCP "
        "32-39 to TC 4, DSCP 40-47 to TC 5, DSCP 48-55 to TC 6, DSCP 56-63 to TC 7, not DSCP 26 to "
        "TC 3, DSCP 48 to TC 6",
    ),
    (
        "PFC off on EOS",
        eos("priority-flow-control on", "no priority-flow-control"),
        "link_pfc leaf01: PFC off, not PFC on 3",
    ),
    (
        "RoCE data strict in addition to CNP on NVUE",
        nvue(
            lambda p: p.filled_qos["egress-scheduler"]["default-global"]["traffic-class"][
                "3"
            ].update(mode="strict")
        ),
        "link_queues leaf01: TC 6 (CNP) strict, TC 3 (roce) strict too, not TC 6 (CNP) strict",
    ),
    (
        "a cable length on NVUE that is too short for one link",
        nvue(
            lambda p: (
                p.filled_qos["roce"].update({"cable-length": 40})
                or p.filled_qos["pfc"]["default-global"].update({"cable-length": 40})
            )
        ),
        "link_cable leaf01: 40 m, not 100 m",
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
        "link_neighbour leaf01: node01 rail1, not node01 rail0",
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
