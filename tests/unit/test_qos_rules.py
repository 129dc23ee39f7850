# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""What no contract can say: key, value, why and the way out, in these words."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import (
    ContractError,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import rules as rules_module
from hypothesis import given
from hypothesis import strategies as st


class Case(NamedTuple):
    name: str
    value: Any
    lines: list[str]


def storage(**changes: Any) -> dict[str, Any]:
    entry = {"name": "storage", "dscps": [10], "priority": 2, "bandwidth_percent": 20}
    return {**entry, **changes}


CASES = (
    Case(
        "CNP in the lossless class",
        {"cnp": {"priority": 3, "traffic_class": 6}},
        [
            "roce_qos.cnp.priority: 3 puts CNP into the lossless class, priority of roce_qos.roce: a pause would hold back the very packets that end the congestion. Give CNP a priority of its own."
        ],
    ),
    Case(
        "CNP in the lossless queue",
        {"cnp": {"traffic_class": 3}},
        [
            "roce_qos.cnp.traffic_class: 3 puts CNP into the lossless class, traffic class of roce_qos.roce: a pause would hold back the very packets that end the congestion. Give CNP a traffic class of its own."
        ],
    ),
    Case(
        "CNP not strict",
        {"cnp": {"strict": False}},
        [
            "roce_qos.cnp.strict: false lets CNP wait behind the queues that they are about, and senders slow down too late. Write true, or leave it out."
        ],
    ),
    Case(
        "two classes on one priority",
        {"classes": [storage(priority=3, traffic_class=2)]},
        [
            "roce_qos.classes[0].priority: 3 is also the priority of roce_qos.roce: a pause stops a priority as a whole. Give storage one of its own."
        ],
    ),
    Case(
        "best effort on the priority of CNP",
        {"best_effort": {"priority": 6, "traffic_class": 0}},
        [
            "roce_qos.best_effort.priority: 6 is also the priority of roce_qos.cnp: a pause stops a priority as a whole. Give best effort one of its own."
        ],
    ),
    Case(
        "two classes on one traffic class",
        {"classes": [storage(traffic_class=0)]},
        [
            "roce_qos.classes[0].traffic_class: 0 is also the traffic class of roce_qos.best_effort: one queue has one scheduler and one ECN profile. Give storage one of its own."
        ],
    ),
    Case(
        "a priority without a traffic class takes its number",
        {"roce": {"priority": 5}, "cnp": {"traffic_class": 5}},
        [
            "roce_qos.cnp.traffic_class: 5 puts CNP into the lossless class, traffic class of roce_qos.roce: a pause would hold back the very packets that end the congestion. Give CNP a traffic class of its own."
        ],
    ),
    Case(
        "RoCE data on the priority of ARP",
        {"roce": {"priority": 0, "traffic_class": 3}, "best_effort": {"priority": 1}},
        [
            "roce_qos.roce.priority: 0 is the priority of packets that have no DSCP, such as ARP and LLDP, and RoCE data would share it with them. Write one from 1 to 7."
        ],
    ),
    Case(
        "a DSCP mapped twice",
        {"cnp": {"dscp": 26}},
        [
            "roce_qos.cnp.dscp: 26 is mapped already, by roce_qos.roce.dscp: a DSCP leads to one class. Give one of them another DSCP."
        ],
    ),
    Case(
        "a DSCP mapped twice by one class",
        {"classes": [storage(dscps=[10, 11, 10])]},
        [
            "roce_qos.classes[0].dscps[2]: 10 is mapped already, by roce_qos.classes[0].dscps[0]: a DSCP leads to one class. Give one of them another DSCP."
        ],
    ),
    Case(
        "the DSCP of every other packet",
        {"roce": {"dscp": 0}},
        [
            "roce_qos.roce.dscp: 0 is the DSCP of every packet that nobody marked. Write one from 1 to 63; what has 0 is best effort."
        ],
    ),
    Case(
        "a class of no packet",
        {"classes": [storage(dscps=[])]},
        [
            "roce_qos.classes[0].dscps: the list is empty: no packet would be in storage. Write its DSCPs, or remove the class."
        ],
    ),
    Case(
        "a class named as one that is always there",
        {"classes": [storage(name="cnp")]},
        [
            "roce_qos.classes[0].name: 'cnp' is a class that every contract has. Change roce_qos.cnp, or choose another name."
        ],
    ),
    Case(
        "two classes of one name",
        {"classes": [storage(), storage(dscps=[11], priority=1)]},
        [
            "roce_qos.classes[1].name: 'storage' is also the name of roce_qos.classes[0]. Rename one of them."
        ],
    ),
    Case(
        "shares above the whole",
        {"roce": {"bandwidth_percent": 70}, "best_effort": {"bandwidth_percent": 40}},
        [
            "roce_qos.best_effort.bandwidth_percent: 40 with 70 (roce_qos.roce.bandwidth_percent) makes 110 percent of a port, not 100. Leave roce_qos.best_effort.bandwidth_percent out: it is what the others leave."
        ],
    ),
    Case(
        "shares below the whole",
        {"best_effort": {"bandwidth_percent": 20}, "classes": [storage()]},
        [
            "roce_qos.best_effort.bandwidth_percent: 20 with 50 (roce_qos.roce.bandwidth_percent) + 20 (roce_qos.classes[0].bandwidth_percent) makes 90 percent of a port, not 100. Leave roce_qos.best_effort.bandwidth_percent out: it is what the others leave."
        ],
    ),
    Case(
        "nothing left for the rest",
        {"roce": {"bandwidth_percent": 80}, "classes": [storage()]},
        [
            "roce_qos.best_effort.bandwidth_percent: nothing is left of 100 percent: 80 (roce_qos.roce.bandwidth_percent) + 20 (roce_qos.classes[0].bandwidth_percent). Leave at least 1 for best effort, which carries SSH, BGP and TCP."
        ],
    ),
    Case(
        "ECN minimum above maximum",
        {"ecn": {"minimum_bytes": 2000000}},
        [
            "roce_qos.ecn.minimum_bytes: 2000000 is above roce_qos.ecn.maximum_bytes, 1500000. Write at most that, or raise the maximum."
        ],
    ),
    Case(
        "ECN maximum at the PFC point",
        {"ecn": {"maximum_bytes": 239616}, "pfc": {"xoff_bytes": 239616}},
        [
            "roce_qos.ecn.maximum_bytes: 239616 is not below the PFC point, roce_qos.pfc.xoff_bytes 239616: links would be paused before senders are told to slow down. Write less than 239616, or raise the PFC point."
        ],
    ),
    Case(
        "restored before it is detected",
        {"pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 399}}},
        [
            "roce_qos.pfc.watchdog.restoration_ms: 399 is below detection_ms, 400: a queue would be served again before the watchdog could see that it is still stuck. Write at least 400."
        ],
    ),
    Case(
        "notifications that nobody heeds",
        {"congestion_control": {"reaction_point": False}},
        [
            "roce_qos.congestion_control.reaction_point: false, and notification_point is true: receivers would send CNP that no sender heeds. Set both to true, or both to false."
        ],
    ),
    Case(
        "reactions to nothing",
        {"congestion_control": {"notification_point": False}},
        [
            "roce_qos.congestion_control.notification_point: false, and reaction_point is true: senders would wait for CNP that nobody sends. Set both to true, or both to false."
        ],
    ),
    Case(
        "a path MTU that RDMA does not know",
        {"mtu": {"roce_path": 3000}},
        [
            "roce_qos.mtu.roce_path: 3000 is no path MTU: RDMA has 256, 512, 1024, 2048, 4096. Write 2048; the MTU of the rail's IP packets is rails.mtu."
        ],
    ),
    Case(
        "path MTU above the fabric's, counted as a frame",
        {"mtu": {"fabric": 4209, "roce_path": 4096}},
        [
            "roce_qos.mtu.roce_path: 4096 needs IP packets of 4192 bytes, and the fabric carries 4191 (roce_qos.mtu.fabric 4209 counts the frame, 18 more). Write 2048, or raise roce_qos.mtu.fabric."
        ],
    ),
    Case(
        "path MTU above the fabric's, counted as a packet",
        {"mtu": {"fabric": 4191, "fabric_layer": "ip", "roce_path": 4096}},
        [
            "roce_qos.mtu.roce_path: 4096 needs IP packets of 4192 bytes, and the fabric carries 4191 (roce_qos.mtu.fabric, layer ip). Write 2048, or raise roce_qos.mtu.fabric."
        ],
    ),
    Case(
        "a byte of the IP header for a DSCP",
        {"roce": {"dscp": 106}},
        [
            "roce_qos.roce.dscp: 106 is no DSCP. Write one from 0 to 63; as the byte of the IP header it is DSCP 26."
        ],
    ),
    Case(
        "a byte of the IP header for a traffic class",
        {"roce": {"traffic_class": 106}},
        [
            "roce_qos.roce.traffic_class: 106 is no traffic class of a port. Write one from 0 to 7; the byte of the IP header is computed from the DSCP."
        ],
    ),
    Case(
        "a DSCP below all",
        {"cnp": {"dscp": -1}},
        ["roce_qos.cnp.dscp: -1 is out of range. Write one from 0 to 63."],
    ),
    Case(
        "a priority above all",
        {"roce": {"priority": 8}},
        ["roce_qos.roce.priority: 8 is out of range. Write one from 0 to 7."],
    ),
    Case(
        "kilobytes for bytes",
        {"ecn": {"minimum_bytes": 150}},
        [
            "roce_qos.ecn.minimum_bytes: 150 is out of range. Write one from 1024 to 1073741824 (bytes)."
        ],
    ),
    Case(
        "a fabric of small packets",
        {"mtu": {"fabric": 576}},
        ["roce_qos.mtu.fabric: 576 is out of range. Write one from 1298 to 10240 (bytes)."],
    ),
    Case(
        "a layer that is none",
        {"mtu": {"fabric_layer": "l2"}},
        [
            "roce_qos.mtu.fabric_layer: 'l2' is not a choice. Known here: frame, ip.",
        ],
    ),
    Case(
        "text for a number",
        {"roce": {"dscp": "26"}},
        ["roce_qos.roce.dscp: '26' is text, not a number. Write 26 without quotes."],
    ),
    Case(
        "a truth for a number",
        {"roce": {"priority": True}},
        ["roce_qos.roce.priority: true is not a whole number. Write one from 0 to 7."],
    ),
    Case(
        "a fraction",
        {"cable_metres": {"to_nodes": 2.5}},
        [
            "roce_qos.cable_metres.to_nodes: 2.5 is not a whole number. Write one from 1 to 2000 (metres)."
        ],
    ),
    Case(
        "a number for a section",
        {"roce": 26},
        ["roce_qos.roce: 26 is not a mapping. Write keys below it."],
    ),
    Case(
        "an empty section",
        {"ecn": None},
        ["roce_qos.ecn: an empty value is not a mapping. Write keys below it."],
    ),
    Case(
        "a mapping for a list",
        {"classes": storage()},
        [
            "roce_qos.classes: a mapping is not a list. Write a list of a section with name, dscps, priority, bandwidth_percent."
        ],
    ),
    Case(
        "no contract at all",
        "lossless",
        ["roce_qos: 'lossless' is not a mapping. Write keys below it."],
    ),
    Case(
        "a class that lacks half",
        {"classes": [{"name": "storage", "priority": 2}]},
        [
            "roce_qos.classes[0].dscps: is missing. Add it: list of DSCPs.",
            "roce_qos.classes[0].bandwidth_percent: is missing. Add it: integer 1..100, percent.",
        ],
    ),
    Case(
        "a key misspelt",
        {"roce": {"priorty": 3}},
        [
            "roce_qos.roce.priorty: unknown key. Did you mean 'priority'? Known here: dscp, priority, traffic_class, bandwidth_percent."
        ],
    ),
    Case(
        "a section misspelt",
        {"best_efort": {}},
        [
            "roce_qos.best_efort: unknown key. Did you mean 'best_effort'? Known here: roce, cnp, best_effort, classes, ecn, pfc, mtu, cable_metres, congestion_control."
        ],
    ),
    Case(
        "a key in the wrong place",
        {"dscp": 24},
        ["roce_qos.dscp: unknown key. Write it under roce_qos.roce."],
    ),
    Case(
        "the field's other names",
        {
            "roce": {"tos": 106, "lossless": True},
            "ecn": {"kmin": 150000, "kmax": 1500000},
            "cnp": {"bandwidth_percent": 10},
        },
        [
            "roce_qos.roce.tos: unknown key. Write dscp; the byte of the IP header is computed from it.",
            "roce_qos.roce.lossless: unknown key. Leave it out: RoCE data is lossless, and nothing else.",
            "roce_qos.cnp.bandwidth_percent: unknown key. Leave it out: what is strict takes no share.",
            "roce_qos.ecn.kmin: unknown key. Write minimum_bytes.",
            "roce_qos.ecn.kmax: unknown key. Write maximum_bytes.",
        ],
    ),
    Case(
        "PFC on two priorities",
        {"pfc": {"priorities": [3, 4]}},
        [
            "roce_qos.pfc.priorities: unknown key. PFC is on for the priority of RoCE data alone, roce_qos.roce.priority."
        ],
    ),
    Case(
        "a second lossless class",
        {"classes": [storage(lossless=True)]},
        [
            "roce_qos.classes[0].lossless: unknown key. Leave it out: PFC is on for RoCE data alone, since a pause can spread."
        ],
    ),
    Case(
        "one mistake hides no other",
        {
            "roce": {"dscp": "26"},
            "ecn": {"minimum_bytes": 2000000},
            "congestion_control": {"reaction_point": False},
        },
        [
            "roce_qos.roce.dscp: '26' is text, not a number. Write 26 without quotes.",
            "roce_qos.ecn.minimum_bytes: 2000000 is above roce_qos.ecn.maximum_bytes, 1500000. Write at most that, or raise the maximum.",
            "roce_qos.congestion_control.reaction_point: false, and notification_point is true: receivers would send CNP that no sender heeds. Set both to true, or both to false.",
        ],
    ),
)


def refused(value: Any) -> list[str]:
    with pytest.raises(ContractError) as caught:
        read_contract(value)
    return [finding.text() for finding in caught.value.findings]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_in_these_words(case: Case) -> None:
    assert refused(case.value) == case.lines


def test_each_mistake_has_words_of_its_own() -> None:
    """Values and keys aside, no two contradictions are told alike unless they are the same one."""
    told = [re.sub(r"roce_qos[^ ]*|[0-9]+|'[^']*'", "_", case.lines[0]) for case in CASES]
    assert len(set(told)) >= 30


def test_every_rule_is_broken_by_some_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever rule goes, a case above is refused in other words or not at all."""
    rules = rules_module._RULES
    for number in range(len(rules)):
        without = rules[:number] + rules[number + 1 :]
        monkeypatch.setattr(rules_module, "_RULES", without)
        assert any(words(case.value) != case.lines for case in CASES), rules[number][1].__name__


def words(value: Any) -> list[str]:
    try:
        read_contract(value)
    except ContractError as error:
        return [finding.text() for finding in error.findings]
    return []


def test_the_error_tells_all_at_once() -> None:
    with pytest.raises(ContractError) as caught:
        read_contract({"roce": {"dscp": 99}, "cnp": {"strict": False}})
    assert str(caught.value).splitlines() == [
        "roce_qos cannot be kept, 2 errors:",
        *(f"  {finding.text()}" for finding in caught.value.findings),
    ]


def test_what_lies_on_the_border_is_kept() -> None:
    read_contract({"ecn": {"minimum_bytes": 200000, "maximum_bytes": 200000}})
    read_contract({"ecn": {"maximum_bytes": 239615}, "pfc": {"xoff_bytes": 239616}})
    read_contract({"pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 400}}})
    read_contract({"roce": {"bandwidth_percent": 99}})
    read_contract({"mtu": {"fabric": 4210, "roce_path": 4096}})
    read_contract({"mtu": {"fabric": 4192, "fabric_layer": "ip", "roce_path": 4096}})


@pytest.mark.parametrize(
    ("fabric", "layer", "path"),
    [
        (9216, "frame", 4096),
        (4210, "frame", 4096),
        (4209, "frame", 2048),
        (4191, "ip", 2048),
        (1500, "ip", 1024),
        (1298, "frame", 1024),
    ],
)
def test_a_path_mtu_that_nobody_wrote_is_what_the_fabric_carries(
    fabric: int, layer: str, path: int
) -> None:
    contract = read_contract({"mtu": {"fabric": fabric, "fabric_layer": layer}})
    assert contract.mtu.roce_path == path


_SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
_KEYS = st.sampled_from(["roce", "cnp", "classes", "dscp", "dscps", "ecn", "mtu", "x"])


@given(st.recursive(_SCALARS, lambda below: st.lists(below) | st.dictionaries(_KEYS, below)))
def test_whatever_is_written_is_read_or_refused(value: Any) -> None:
    """Never an exception that the operator would have to understand."""
    try:
        read_contract(value)
    except ContractError as error:
        assert error.findings
        assert all(finding.path[0] == "roce_qos" for finding in error.findings)
