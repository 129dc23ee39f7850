# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""The ways in which a fabric goes wrong, each with its own message, through the code that says it.

What the field gets wrong comes first: the mistakes that a contract on both ends is there to find.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.cluster_model import (
    ModelError,
    compile_model,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.compiler import (
    fabric_findings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.eos import SYSTEM as EOS
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.nvue import SYSTEM as NVUE
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.shell import Completed
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.sonic import (
    SYSTEM as SONIC,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.sonic.reading import parsed
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.system import (
    SwitchError,
    WantedError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import (
    ContractError,
    FabricIntent,
    fabric_intent,
    read_contract,
)

from tests.unit.link_fabric import Fabric, mac
from tests.unit.negative_switches import intent_of, judged, planned


class Row(NamedTuple):
    what: str
    """What is wrong."""
    where: str
    """Who finds it: contract, model, compiler, the system, or the check of the links."""
    words: str
    """The essential words of the message."""
    messages: Callable[[], list[str]]


def contract(value: dict[str, Any]) -> Callable[[], list[str]]:
    def messages() -> list[str]:
        with pytest.raises(ContractError) as refused:
            read_contract(value)
        return [finding.text() for finding in refused.value.findings]

    return messages


MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11, slots: 8}
rails: {count: 2, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 2, ports: 64, management_first: 10.0.0.101, system: sonic, asic: spectrum4}
spines: {count: 2, ports: 64, management_first: 10.0.0.121, system: sonic, asic: spectrum4}
launcher: {name: launcher01, management: 10.0.0.10}
"""


def model(old: str, new: str) -> Callable[[], list[str]]:
    def messages() -> list[str]:
        assert old in MODEL
        with pytest.raises(ModelError) as refused:
            compile_model(read("cluster.yml", MODEL.replace(old, new, 1)))
        return [finding.text() for finding in refused.value.findings]

    return messages


def refused(run: Callable[[], Any]) -> Callable[[], list[str]]:
    """By a compiler or a system, before anything is changed."""

    def messages() -> list[str]:
        with pytest.raises((WantedError, SwitchError)) as error:
            run()
        return str(error.value).splitlines()

    return messages


WHOLE = Fabric()
GROUPS = WHOLE.variables["leaf01"]["cluster_ports"]


def compiled(**changes: Any) -> Callable[[], list[str]]:
    return refused(lambda: intent_of(WHOLE, **changes))


def ports(**changes: Any) -> Callable[[], list[str]]:
    """Variables written by hand, which no model has checked."""
    return compiled(ports=[{**GROUPS[0], **changes}, *GROUPS[1:]])


def intent(spoil: Callable[[FabricIntent], FabricIntent]) -> Callable[[], list[str]]:
    """What an intent may not say, whoever made it: switches accept it and lose packets."""
    return lambda: [
        finding.text() for finding in fabric_findings(spoil(fabric_intent(read_contract({}))))
    ]


def queue(name: str, **changes: Any) -> Callable[[], list[str]]:
    return intent(
        lambda fabric: replace(
            fabric,
            queues=tuple(
                replace(each, **changes) if each.name == name else each for each in fabric.queues
            ),
        )
    )


def wanted(
    system: Any, qos: dict[str, Any] | None = None, **changes: Any
) -> Callable[[], list[str]]:
    fabric = {"qos": qos, "system": system.name, "asic": changes.pop("asic", "spectrum4")}
    if "asic_of_leaf" in changes:
        changes["asic"] = changes.pop("asic_of_leaf")
    return refused(lambda: system.wanted(intent_of(Fabric(**fabric), **changes)))


def sonic(edit: Callable[[dict[str, Any]], Any]) -> Callable[[], list[str]]:
    """CONFIG_DB of a leaf that keeps the contract, after somebody changed it."""

    def spoil(present: Any) -> None:
        edit(present.config)

    return lambda: judged("sonic", spoil)


def unplannable(edit: Callable[[dict[str, Any]], Any]) -> Callable[[], list[str]]:
    """CONFIG_DB of a leaf that cannot have what it shall."""

    def spoil(present: Any) -> None:
        edit(present.config)

    return refused(lambda: planned("sonic", spoil))


def sonic_answers(stdout: str) -> Callable[[], list[str]]:
    return refused(lambda: parsed(Completed(0, stdout, "")))


def eos(old: str, new: str) -> Callable[[], list[str]]:
    """The running-config of a leaf that keeps the contract, with one line changed."""

    def spoil(present: Any) -> Any:
        assert old in present.running
        return replace(present, running=present.running.replace(old, new))

    return lambda: judged("eos", spoil)


def nvue(edit: Callable[[Any], Any]) -> Callable[[], list[str]]:
    return lambda: judged("nvue", edit)


def fabric(edit: Callable[[Fabric], Any]) -> Callable[[], list[str]]:
    """A fabric that keeps the contract, after something was taken from it."""

    def messages() -> list[str]:
        whole = copy.deepcopy(WHOLE)
        edit(whole)
        return [check.line() for check in whole.failed()]

    return messages


# What is done to them

DEFAULT_OF_SONIC = {
    str(dscp): {3: "3", 4: "4", 46: "5", 48: "6"}.get(dscp, "0" if dscp == 8 else "1")
    for dscp in range(64)
}
"""DSCP_TO_TC_MAP|AZURE of upstream's qos_config.j2, as far as it matters here."""
ALL_IN_ZERO = "".join(f" {dscp}" for dscp in range(64) if dscp not in (26, 48))


def qos_map(config: dict[str, Any], **fields: Any) -> None:
    row = config["PORT_QOS_MAP"]["Ethernet8"]
    for name, value in fields.items():
        row.pop(name, None) if value is None else row.update({name: value})


def default_map(config: dict[str, Any]) -> None:
    config["DSCP_TO_TC_MAP"]["AZURE"] = DEFAULT_OF_SONIC
    qos_map(config, dscp_to_tc_map="AZURE")


def swap(whole: Fabric) -> None:
    one, other = whole.port("leaf01", "Ethernet0"), whole.port("leaf01", "Ethernet8")
    one["neighbour"], other["neighbour"] = other["neighbour"], one["neighbour"]


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


def both_on_24(whole: Fabric) -> None:
    table = [0] * 64
    table[24], table[48] = 3, 6
    port(dscp_to_traffic_class=tuple(table))(whole)
    nic("dscp_to_priority", "0-23:0 24:3 25-47:0 48:6 49-63:0")(whole)


def silent_uplink(whole: Fabric) -> None:
    for each in whole.switches["leaf01"].report["ports"][-1:]:
        each["neighbour"] = None


CONTRACT, MODELLED, COMPILER, SYSTEM, LINKS = "contract", "model", "compiler", "system", "links"
ROWS = (
    # The mistakes of the field, as switches and NICs show them
    Row(
        "DSCP left on SONiC's default map, which sends 26 to a lossy class",
        LINKS,
        "link_roce_dscp leaf01 Ethernet8 - node02 rail0: wanted 'DSCP 26 to TC 3', found 'leaf01 Ethernet8: DSCP 26 to TC 1, DSCP 3 to TC 3; node02 rail0: DSCP 26 to TC 3' (leaf01 is wrong: RoCE data is not in the lossless class.",
        sonic(default_map),
    ),
    Row(
        "48 in a queue that shares, as SONiC's default has it",
        LINKS,
        "found 'leaf01 Ethernet8: TC 6 (CNP) not strict; node02 rail0: TC 6 (CNP) strict' (leaf01 is wrong: CNP have to be served before",
        sonic(lambda c: c["QUEUE"]["Ethernet8|6"].update(scheduler="scheduler.0")),
    ),
    Row(
        "24 on the NIC and 26 on the switch",
        LINKS,
        "found 'leaf01 Ethernet8: DSCP 26 to TC 3; node02 rail0: DSCP 26 to TC 0, DSCP 24 to TC 3' (node02 is wrong",
        fabric(nic("dscp_to_priority", "0-23:0 24:3 25-47:0 48:6 49-63:0")),
    ),
    Row(
        "the NIC sends 24, whatever it trusts",
        LINKS,
        "link_marking leaf01 Ethernet8 - node02 rail0: wanted 'sends DSCP 26', found 'node02 rail0: sends DSCP 26 by default, sends DSCP 24 in fact'",
        fabric(nic("traffic_class", 24 << 2 | 2)),
    ),
    Row(
        "24 on both sides and 26 in the contract",
        LINKS,
        "(both ends agree with each other and not with the contract: RoCE data is not in the lossless class. Repair: ansible-playbook site.yml --tags fabric --limit leaf01; ansible-playbook site.yml --tags rails --limit node02)",
        fabric(both_on_24),
    ),
    Row(
        "PFC left on 3 and 4",
        LINKS,
        "found 'leaf01 Ethernet8: PFC on 3 and 4; node02 rail0: PFC on 3' (leaf01 is wrong",
        sonic(lambda c: qos_map(c, pfc_enable="3,4")),
    ),
    Row(
        "PFC of a priority without a lossless priority group",
        LINKS,
        "link_lossless leaf01 Ethernet8 - node02 rail0: wanted 'a lossless buffer for priority 3', found 'leaf01 Ethernet8: no lossless buffer' (leaf01 is wrong: PFC without a lossless buffer behind it loses",
        sonic(lambda c: c["BUFFER_PG"].pop("Ethernet8|3")),
    ),
    Row(
        "cable length left at SONiC's default",
        LINKS,
        "link_cable leaf01 Ethernet8 - node02 rail0: wanted '50 m', found 'leaf01 Ethernet8: 5 m'",
        sonic(lambda c: c["CABLE_LENGTH"]["AZURE"].update(Ethernet8="5m")),
    ),
    Row(
        "EOS counts the IP packet, and 9214 of the frame was written",
        LINKS,
        "link_mtu leaf01 Ethernet1/1 - node01 rail0: wanted 'leaf01: IP packets of 9198 bytes; node01: IP packets of 9000 bytes', found 'leaf01 Ethernet1/1: IP packets of 9214 bytes;",
        eos("mtu 9198", "mtu 9214"),
    ),
    Row(
        "SONiC's own MTU, 9100",
        LINKS,
        "found 'leaf01 Ethernet8: IP packets of 9100 bytes; node02 rail0: IP packets of 9000 bytes'",
        sonic(lambda c: c["PORT"]["Ethernet8"].update(mtu="9100")),
    ),
    Row(
        "the host's MTU above the fabric's, in the model",
        MODELLED,
        "rails.mtu: 9216 is above the fabric's: a node would send IP packets of 9216 bytes, and the fabric carries 9198",
        model("speed_gbps: 800}", "speed_gbps: 800, mtu: 9216}"),
    ),
    Row(
        "the host's MTU above the fabric's, on the node",
        LINKS,
        "node02 rail0: IP packets of 9500 bytes' (node02 is wrong: packets that one end sends whole vanish at the other",
        fabric(lambda f: f.rail("node02", "rail0").update(mtu=9500)),
    ),
    # What a contract cannot say
    Row(
        "the byte of the IP header for a DSCP",
        CONTRACT,
        "roce_qos.roce.dscp: 106 is no DSCP",
        contract({"roce": {"dscp": 106}}),
    ),
    Row(
        "no byte either",
        CONTRACT,
        "roce_qos.cnp.dscp: 300 is out of range",
        contract({"cnp": {"dscp": 300}}),
    ),
    Row(
        "CNP on the lossless priority",
        CONTRACT,
        "roce_qos.cnp.priority: 3 puts CNP into the lossless class",
        contract({"cnp": {"priority": 3, "traffic_class": 6}}),
    ),
    Row(
        "CNP not strict",
        CONTRACT,
        "roce_qos.cnp.strict: false lets CNP wait",
        contract({"cnp": {"strict": False}}),
    ),
    Row(
        "ECN's maximum above the PFC point",
        CONTRACT,
        "roce_qos.ecn.maximum_bytes: 1500000 is not below the PFC point, roce_qos.pfc.xoff_bytes 300000",
        contract({"pfc": {"xoff_bytes": 300000}}),
    ),
    Row(
        "ECN's minimum above its maximum",
        CONTRACT,
        "roce_qos.ecn.minimum_bytes: 2000000 is above roce_qos.ecn.maximum_bytes",
        contract({"ecn": {"minimum_bytes": 2000000}}),
    ),
    Row(
        "a key for PFC on more priorities",
        CONTRACT,
        "PFC is on for the priority of RoCE data alone",
        contract({"pfc": {"priorities": [3, 4]}}),
    ),
    Row(
        "a further lossless class",
        CONTRACT,
        "roce_qos.classes[0].lossless: unknown key",
        contract(
            {
                "classes": [
                    {
                        "name": "storage",
                        "dscps": [10],
                        "priority": 2,
                        "bandwidth_percent": 20,
                        "lossless": True,
                    }
                ]
            }
        ),
    ),
    Row(
        "a traffic class above 7",
        CONTRACT,
        "roce_qos.roce.traffic_class: 8 is no traffic class of a port",
        contract({"roce": {"traffic_class": 8}}),
    ),
    Row(
        "a DSCP in two classes",
        CONTRACT,
        "roce_qos.cnp.dscp: 26 is mapped already, by roce_qos.roce.dscp",
        contract({"cnp": {"dscp": 26}}),
    ),
    Row(
        "a watchdog that restores before it can detect",
        CONTRACT,
        "roce_qos.pfc.watchdog.restoration_ms: 200 is below detection_ms, 400",
        contract({"pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 200}}}),
    ),
    Row(
        "a path MTU that the fabric does not carry",
        CONTRACT,
        "roce_qos.mtu.roce_path: 4096 needs IP packets of 4192 bytes",
        contract({"mtu": {"fabric": 1518, "roce_path": 4096}}),
    ),
    Row(
        "marks that no sender heeds",
        CONTRACT,
        "receivers would send CNP that no sender heeds",
        contract({"congestion_control": {"reaction_point": False}}),
    ),
    # What a model cannot say
    Row(
        "a system that nobody speaks",
        MODELLED,
        "leaves.system: 'cumulus' is not a choice",
        model("system: sonic", "system: cumulus"),
    ),
    Row(
        "systems for fewer leaves than there are",
        MODELLED,
        "leaves.system: 1 entry for 2 leaves",
        model("system: sonic", "system: [sonic]"),
    ),
    Row(
        "a chip that nobody knows",
        MODELLED,
        "leaves.asic: 'spectrum9'",
        model("asic: spectrum4", "asic: spectrum9"),
    ),
    Row(
        "spines with too few ports",
        MODELLED,
        "spines.ports: 2 leaves with 1 link each need 2 ports on every spine, it has 1",
        model("spines: {count: 2, ports: 64", "spines: {count: 2, ports: 1"),
    ),
    # Inventories written by hand
    Row(
        "two cables in one port",
        COMPILER,
        "leaf01 Ethernet0: two cables are plugged in, from node01 rail0 and from node01 rail0",
        compiled(ports=[*GROUPS, GROUPS[0]]),
    ),
    Row(
        "a speed that Ethernet does not have",
        COMPILER,
        "spectrum4 has no port of 300G",
        ports(speed_gbps=300),
    ),
    Row(
        "a speed that the chip does not have",
        COMPILER,
        "spectrum3 has no port of 800G",
        compiled(asic="spectrum3", ports=[{**GROUPS[0], "speed_gbps": 800}]),
    ),
    Row(
        "peers that send more than the fabric carries",
        COMPILER,
        "what is plugged in sends IP packets of 9216 bytes",
        ports(mtu=9216),
    ),
    Row(
        "a switch without ports",
        COMPILER,
        "leaf01.cluster_ports: it has no ports",
        compiled(ports=[]),
    ),
    Row(
        "a kind of port that there is not",
        COMPILER,
        "leaf01.cluster_ports[0].kind: 'server' is not a choice",
        ports(kind="server"),
    ),
    Row(
        "priority groups that overlap",
        COMPILER,
        "its priority group 3 is the lossless one of roce",
        queue("best_effort", priority_group=3),
    ),
    Row(
        "PFC in an intent for a priority that is not lossless",
        COMPILER,
        "PFC is on for priority 4, which has no lossless priority group",
        intent(lambda f: replace(f, pfc_priorities=(3, 4))),
    ),
    Row(
        "a CNP queue in an intent that shares",
        COMPILER,
        "class cnp: its queue is not strict, so that it waits",
        queue("cnp", strict=False),
    ),
    Row(
        "a traffic class in an intent that no switch has",
        COMPILER,
        "class cnp: there is no traffic class 9",
        queue("cnp", traffic_class=9),
    ),
    # What a system or a chip cannot do
    Row(
        "no headroom known for a chip",
        SYSTEM,
        "the headroom of tomahawk5 at 400G over 50 m is not known here",
        wanted(SONIC, asic="tomahawk5"),
    ),
    Row(
        "nobody says which chip it is",
        SYSTEM,
        "because nobody says which chip the switch has",
        wanted(SONIC, asic_of_leaf=""),
    ),
    Row(
        "a switch without a lossless pool",
        SYSTEM,
        "BUFFER_POOL has no ingress_lossless_pool",
        unplannable(lambda c: c["BUFFER_POOL"].pop("ingress_lossless_pool")),
    ),
    Row(
        "a lossless pool with fixed limits",
        SYSTEM,
        "BUFFER_POOL|ingress_lossless_pool has mode static",
        unplannable(lambda c: c["BUFFER_POOL"]["ingress_lossless_pool"].update(mode="static")),
    ),
    Row(
        "ports of another breakout",
        SYSTEM,
        "the switch has no port Ethernet8",
        unplannable(lambda c: c["PORT"].pop("Ethernet8")),
    ),
    Row(
        "less headroom in the platform's own table",
        SYSTEM,
        "the switch itself gives 1024 bytes after XOFF to 50m of cable",
        refused(lambda: planned("sonic", small_lookup)),
    ),
    Row(
        "no SONiC at the other end of the login",
        SYSTEM,
        "`sonic-cfggen -d --print-data` was not answered",
        sonic_answers("Welcome!\n"),
    ),
    Row(
        "a watchdog action that NVUE does not have",
        SYSTEM,
        "NVUE's PFC watchdog drops the packets of a stuck queue and can do nothing else",
        wanted(NVUE, {"pfc": {"watchdog": {"action": "forward"}}}),
    ),
    Row(
        "SONiC's port names on NVUE",
        SYSTEM,
        "port 'Ethernet0': NVUE calls its ports swp1",
        wanted(NVUE, ports=GROUPS),
    ),
    Row(
        "a port that NVUE does not have",
        SYSTEM,
        "the switch has no port swp2, which the model plugs something into",
        refused(lambda: planned("nvue", lambda p: p.ports.pop("swp2") and None)),
    ),
    Row(
        "a chip whose queues EOS calls nobody knows how",
        SYSTEM,
        "how EOS calls the queues of spectrum4 is not known",
        wanted(EOS),
    ),
    Row(
        "a CNP queue below a shared one, which EOS serves in turn",
        SYSTEM,
        "cannot be strict below queue 3",
        wanted(EOS, {"cnp": {"priority": 2}}, asic="tomahawk5"),
    ),
    Row(
        "an MTU above EOS's largest",
        SYSTEM,
        "are above EOS's",
        wanted(EOS, {"mtu": {"fabric": 10240}}, asic="tomahawk5"),
    ),
    Row(
        "a port that EOS does not have",
        SYSTEM,
        "leaf01 has no port Ethernet2/1",
        refused(lambda: planned("eos", lambda p: p.interfaces.pop("Ethernet2/1") and None)),
    ),
    # What a switch does that it should not
    Row(
        "the watchdog off",
        LINKS,
        "link_watchdog leaf01 Ethernet8 - node02 rail0: wanted 'drop after 200 ms, back after 400 ms', found 'leaf01 Ethernet8: off'",
        sonic(lambda c: c["PFC_WD"].pop("Ethernet8")),
    ),
    Row(
        "no marking in the RoCE queue",
        LINKS,
        "found 'leaf01 Ethernet8: TC 3 does not mark'",
        sonic(lambda c: c["QUEUE"]["Ethernet8|3"].pop("wred_profile")),
    ),
    Row(
        "SONiC's own thresholds",
        LINKS,
        "found 'leaf01 Ethernet8: TC 3 marks from 1048576 to 2097152 bytes, 5 %'",
        sonic(
            lambda c: (
                c["WRED_PROFILE"].update(
                    OWN={
                        "ecn": "ecn_all",
                        "green_min_threshold": "1048576",
                        "green_max_threshold": "2097152",
                        "green_drop_probability": "5",
                    }
                )
                or c["QUEUE"]["Ethernet8|3"].update(wred_profile="OWN")
            )
        ),
    ),
    Row(
        "less headroom than the cable needs",
        LINKS,
        "link_headroom leaf01 Ethernet8 - node02 rail0: wanted '299008 bytes', found 'leaf01 Ethernet8: 100000 bytes'",
        sonic(
            lambda c: (
                c["BUFFER_PROFILE"].update(OWN={"xoff": "100000", "size": "1"})
                or c["BUFFER_PG"]["Ethernet8|3"].update(profile="OWN")
            )
        ),
    ),
    Row(
        "no DSCP map at all",
        LINKS,
        "found 'leaf01 Ethernet8: it has no DSCP map; node02 rail0: DSCP 48 to TC 6'",
        sonic(lambda c: qos_map(c, dscp_to_tc_map=None)),
    ),
    Row(
        "sorted by VLAN tag",
        LINKS,
        "link_trust leaf01 Ethernet1/1 - node01 rail0: wanted 'dscp', found 'leaf01 Ethernet1/1: pcp",
        eos("qos trust dscp", "qos trust cos"),
    ),
    Row(
        "EOS's default map below DSCP 16",
        LINKS,
        "link_other_dscps leaf01 Ethernet1/1 - node01 rail0: wanted 'as the contract', found 'leaf01 Ethernet1/1: DSCP 0-7 to TC 1, DSCP 16-23 to TC 2",
        eos(f"qos map dscp{ALL_IN_ZERO} to traffic-class 0\n", ""),
    ),
    Row(
        "PFC off on EOS",
        LINKS,
        "found 'leaf01 Ethernet1/1: PFC off; node01 rail0: PFC on 3' (leaf01 is wrong",
        eos("priority-flow-control on", "no priority-flow-control"),
    ),
    Row(
        "RoCE data strict beside CNP on NVUE",
        LINKS,
        "found 'leaf01 swp1: TC 6 (CNP) strict, TC 3 (roce) strict as well;",
        nvue(
            lambda p: p.filled_qos["egress-scheduler"]["default-global"]["traffic-class"][
                "3"
            ].update(mode="strict")
        ),
    ),
    Row(
        "a cable length on NVUE that is too short for one link",
        LINKS,
        "link_cable leaf01 swp63 - spine01 swp1: wanted '100 m', found 'leaf01 swp63: 40 m; spine01 swp1: 100 m'",
        nvue(
            lambda p: (
                p.filled_qos["roce"].update({"cable-length": 40})
                or p.filled_qos["pfc"]["default-global"].update({"cable-length": 40})
            )
        ),
    ),
    # What a NIC does that it should not
    Row(
        "PFC off on a NIC",
        LINKS,
        "found 'leaf01 Ethernet8: PFC on 3; node02 rail0: PFC off' (node02 is wrong",
        fabric(nic("pfc", [])),
    ),
    Row(
        "a NIC that trusts VLAN tags",
        LINKS,
        "found 'leaf01 Ethernet8: dscp; node02 rail0: pcp' (node02 is wrong: packets are not sorted by DSCP",
        fabric(nic("trust", "pcp")),
    ),
    Row(
        "CNP that no switch knows",
        LINKS,
        "link_cnp_marking leaf01 Ethernet8 - node02 rail0: wanted 'CNP with DSCP 48 in priority 6', found 'node02 rail0: CNP with DSCP 46 in priority 6'",
        fabric(nic("cnp_dscp", 46)),
    ),
    Row(
        "a NIC that does not slow down",
        LINKS,
        "found 'node02 rail0: notification on for 3, reaction on for none'",
        fabric(nic("ecn_rp", [])),
    ),
    Row(
        "a NIC without ECT",
        LINKS,
        "sends DSCP 26 and does not let switches mark",
        fabric(lambda f: (nic("cma_roce_tos", 26 << 2)(f), nic("traffic_class", 26 << 2)(f))),
    ),
    Row(
        "a NIC that answers nothing",
        LINKS,
        "node02 rail0: dcb: no answer within 10 s' (node02 is wrong",
        fabric(nic("pfc", None, status="failed", reason="dcb: no answer within 10 s")),
    ),
    # Links and cables
    Row(
        "a link at another speed",
        LINKS,
        "link_speed leaf01 Ethernet8 - node02 rail0: wanted '400 Gb/s', found 'leaf01 Ethernet8: 200 Gb/s; node02 rail0: 400 Gb/s' (leaf01 is wrong",
        fabric(port(speed_gbps=200)),
    ),
    Row(
        "a link that is down",
        LINKS,
        "link_up leaf01 Ethernet8 - node02 rail0: wanted 'up', found 'leaf01 Ethernet8: down; node02 rail0: up'",
        fabric(port(up=False)),
    ),
    Row(
        "a port that is not there",
        LINKS,
        "found 'leaf01 Ethernet8: the switch has no such port; node02 rail0: there'",
        fabric(port(present=False)),
    ),
    Row(
        "swapped cables",
        LINKS,
        "the cables of leaf01 Ethernet0 and Ethernet8 are swapped: swap them, or correct the model",
        fabric(swap),
    ),
    Row(
        "a rail in another leaf",
        LINKS,
        "the cable of node01 rail1 belongs in leaf02 Ethernet0",
        fabric(hear("Ethernet0", "", mac("node01", "rail1"))),
    ),
    Row(
        "a neighbour that nobody knows",
        LINKS,
        "leaf01 Ethernet0 hears a neighbour that is not in the model, core1 Eth7",
        fabric(hear("Ethernet0", "core1", "Eth7")),
    ),
    Row(
        "a spine that says nothing",
        LINKS,
        "leaf01 hears nobody. Switch LLDP on at spine02",
        fabric(silent_uplink),
    ),
    Row(
        "a switch without LLDP",
        LINKS,
        "the switch gives no LLDP neighbours: its LLDP is off",
        fabric(lambda f: f.switches["leaf01"].report.update(lldp=False)),
    ),
    Row(
        "a switch that gave no report",
        LINKS,
        "link_report leaf01: wanted 'a report of its ports', found None (leaf01: Connection refused.",
        fabric(lambda f: f.change_switch("leaf01", report=None, why="leaf01: Connection refused")),
    ),
    Row(
        "a node that gave no report",
        LINKS,
        "link_report node02: wanted 'the state of its rails', found None (node02 said nothing in this run.",
        fabric(lambda f: f.change_node("node02", state=None)),
    ),
    Row(
        "variables with different cables at both ends",
        LINKS,
        "node02 rail0 has leaf01 Ethernet16: correct cluster_ports or cluster_rails",
        fabric(lambda f: f.variables["node02"]["cluster_rails"][0].update(leaf_port="Ethernet16")),
    ),
)


def small_lookup(present: Any) -> Any:
    present.config["DEVICE_METADATA"]["localhost"]["buffer_model"] = "traditional"
    return replace(present, lookup={("400000", "50m"): 1024})


said: dict[str, list[str]] = {}


def messages_of(row: Row) -> list[str]:
    """Each made once: they are looked at in two ways."""
    if row.what not in said:
        said[row.what] = row.messages()
    return said[row.what]


@pytest.mark.parametrize("row", ROWS, ids=[row.what for row in ROWS])
def test_each_has_its_message(row: Row) -> None:
    messages = messages_of(row)
    assert any(row.words in message for message in messages), "\n".join(messages)


def test_no_two_have_the_same_message() -> None:
    """A message that two rows share says too little of one of them."""
    whose: dict[str, str] = {}
    for row in ROWS:
        message = next((each for each in messages_of(row) if row.words in each), row.what)
        assert message not in whose, f"{row.what}: {whose.get(message)}: {message}"
        whose[message] = row.what
        others = [other.what for other in ROWS if other is not row and other.words in message]
        assert others == [], f"{row.what} is told in the words of {others}: {message}"


def test_the_table_has_every_place_and_enough_of_each() -> None:
    places = [row.where for row in ROWS]
    assert {place: places.count(place) >= 3 for place in places} == dict.fromkeys(
        (LINKS, CONTRACT, MODELLED, COMPILER, SYSTEM), True
    )
    assert len({row.what for row in ROWS}) == len(ROWS) >= 30
