# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Refused contracts: codes, paths below roce_qos, and values."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import rules as rules_module
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.findings import brief


def storage(**changes: Any) -> dict[str, Any]:
    entry = {"name": "storage", "dscps": [10], "priority": 2, "bandwidth_percent": 20}
    return {**entry, **changes}


LOSSLESS = storage(name="checkpoints", dscps=[20], priority=4, lossless=True)
CASES: tuple[tuple[Any, ...], ...] = (
    (
        {"cnp": {"priority": 3, "traffic_class": 6}},
        "qos.number_twice cnp.priority (3, 'roce_qos.roce')",
    ),
    ({"cnp": {"traffic_class": 3}}, "qos.number_twice cnp.traffic_class (3, 'roce_qos.roce')"),
    ({"cnp": {"strict": False}}, "model.unknown_key cnp.strict"),
    (
        {"classes": [storage(priority=3, traffic_class=2)]},
        "qos.number_twice classes[0].priority (3, 'roce_qos.roce')",
    ),
    (
        {"best_effort": {"priority": 6, "traffic_class": 0}},
        "qos.number_twice best_effort.priority (6, 'roce_qos.cnp')",
    ),
    (
        {"classes": [storage(traffic_class=0)]},
        "qos.number_twice classes[0].traffic_class (0, 'roce_qos.best_effort')",
    ),
    (
        {"roce": {"priority": 5}, "cnp": {"traffic_class": 5}},
        "qos.number_twice cnp.traffic_class (5, 'roce_qos.roce')",
    ),
    (
        {"roce": {"priority": 0, "traffic_class": 3}, "best_effort": {"priority": 1}},
        "qos.priority_zero roce.priority",
    ),
    ({"cnp": {"dscp": 26}}, "qos.dscp_twice cnp.dscp (26, 'roce_qos.roce.dscp')"),
    ({"roce": {"also_dscps": [48]}}, "qos.dscp_twice cnp.dscp (48, 'roce_qos.roce.also_dscps[0]')"),
    (
        {"roce": {"also_dscps": [24, 26]}},
        "qos.dscp_twice roce.also_dscps[1] (26, 'roce_qos.roce.dscp')",
    ),
    (
        {"classes": [storage(dscps=[10, 11, 10])]},
        "qos.dscp_twice classes[0].dscps[2] (10, 'roce_qos.classes[0].dscps[0]')",
    ),
    ({"roce": {"dscp": 0}}, "model.out_of_range roce.dscp (0, 1, 63)"),
    ({"classes": [storage(dscps=[])]}, "model.not_a_list classes[0].dscps list"),
    ({"classes": [storage(name="cnp")]}, "qos.class_twice classes[0].name 'cnp'"),
    (
        {"classes": [storage(), storage(dscps=[11], priority=1)]},
        "qos.class_twice classes[1].name 'storage'",
    ),
    (
        {"roce": {"bandwidth_percent": 70}, "best_effort": {"bandwidth_percent": 40}},
        "qos.shares best_effort.bandwidth_percent (70, 40)",
    ),
    (
        {"best_effort": {"bandwidth_percent": 20}, "classes": [storage()]},
        "qos.shares best_effort.bandwidth_percent (50, 20, 20)",
    ),
    (
        {"roce": {"bandwidth_percent": 80}, "classes": [storage()]},
        "qos.shares best_effort.bandwidth_percent (80, 0, 20)",
    ),
    ({"fabric_mode": "spectrumx"}, "model.not_a_choice fabric_mode 'spectrumx'"),
    ({"fabric_mode": "spectrum_x", "ecn": {"minimum_bytes": 2000000}}, "qos.not_in_spectrum_x ecn"),
    ({"fabric_mode": "spectrum_x", "roce": {"dscp": 26}}, "qos.spectrum_x_dscp roce.dscp 26"),
    (
        {"fabric_mode": "spectrum_x", "congestion_control": {"reaction_point": False}},
        "qos.not_in_spectrum_x congestion_control",
    ),
    (
        {"fabric_mode": "spectrum_x", "roce": {"lossless": False}},
        "qos.spectrum_x_lossless roce.lossless",
    ),
    (
        {"fabric_mode": "spectrum_x", "classes": [storage(), LOSSLESS]},
        "qos.spectrum_x_lossless classes[1].lossless",
    ),
    ({"roce": {"lossless": False}, "pfc": {"xoff_bytes": 3000000}}, "qos.no_pauses pfc"),
    (
        {"roce": {"lossless": False}, "pfc": {"watchdog": {"detection_ms": 300}}},
        "qos.no_pauses pfc",
    ),
    ({"ecn": {"minimum_bytes": 2000000}}, "qos.ecn_order ecn.minimum_bytes (2000000, 1500000)"),
    (
        {"ecn": {"maximum_bytes": 239616}, "pfc": {"xoff_bytes": 239616}},
        "qos.ecn_after_pfc ecn.maximum_bytes (239616, 239616)",
    ),
    (
        {"pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 399}}},
        "qos.watchdog_order pfc.watchdog.restoration_ms (399, 400)",
    ),
    (
        {"congestion_control": {"reaction_point": False}},
        "qos.half_congestion_control congestion_control",
    ),
    (
        {"congestion_control": {"notification_point": False}},
        "qos.half_congestion_control congestion_control",
    ),
    (
        {"mtu": {"fabric": 4209, "roce_path": 4096}},
        "qos.path_mtu_above_fabric mtu.roce_path (4096, 4191)",
    ),
    (
        {"mtu": {"fabric": 4191, "fabric_layer": "ip", "roce_path": 4096}},
        "qos.path_mtu_above_fabric mtu.roce_path (4096, 4191)",
    ),
    (
        {"classes": [{"name": "storage", "priority": 2}]},
        "model.missing_key classes[0].dscps",
        "model.missing_key classes[0].bandwidth_percent",
    ),
    ({"best_efort": {}}, "model.unknown_key best_efort"),
    (
        {"roce": {"priority": 6}, "ecn": {"minimum_bytes": 2000000}},
        "qos.number_twice cnp.priority (6, 'roce_qos.roce')",
        "qos.number_twice cnp.traffic_class (6, 'roce_qos.roce')",
        "qos.ecn_order ecn.minimum_bytes (2000000, 1500000)",
    ),
)


def refused(value: Any) -> list[str]:
    try:
        qos.read_contract(value)
    except qos.ContractError as error:
        return brief(error.findings, below=1)
    return []


@pytest.mark.parametrize("case", CASES)
def test_what_no_contract_can_say_is_refused(case: tuple[Any, ...]) -> None:
    value, *wanted = case
    assert refused(value) == wanted


def test_every_rule_is_broken_by_some_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """If any one rule is missing, a case above is refused differently or not at all."""
    rules = rules_module._RULES
    for number in range(len(rules)):
        without = rules[:number] + rules[number + 1 :]
        monkeypatch.setattr(rules_module, "_RULES", without)
        assert any(refused(value) != wanted for value, *wanted in CASES), rules[number].__name__


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"pfc": {"enabled": False}}, "roce.lossless"),
        ({"pfc": {"priorities": [3, 4]}}, "classes"),
        ({"roce": {"pfc": False}}, "lossless:"),
        ({"classes": [storage(pfc=True)]}, "lossless:"),
        ({"classes": [storage(ecn={})]}, "roce_qos.ecn"),
        ({"fabric_mode": "lossy"}, "{lossless:"),
    ],
)
def test_other_words_for_lossless_get_the_key(value: dict[str, Any], word: str) -> None:
    with pytest.raises(qos.ContractError) as caught:
        qos.read_contract(value)
    (finding,) = caught.value.findings
    assert word in finding.remedy


def test_what_lies_on_the_border_is_kept() -> None:
    qos.read_contract({"ecn": {"minimum_bytes": 200000, "maximum_bytes": 200000}})
    qos.read_contract({"ecn": {"maximum_bytes": 239615}, "pfc": {"xoff_bytes": 239616}})
    qos.read_contract({"pfc": {"watchdog": {"detection_ms": 400, "restoration_ms": 400}}})
    qos.read_contract({"roce": {"bandwidth_percent": 99}})
    qos.read_contract({"mtu": {"fabric": 4210, "roce_path": 4096}})
    qos.read_contract({"mtu": {"fabric": 4192, "fabric_layer": "ip", "roce_path": 4096}})


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
    contract = qos.read_contract({"mtu": {"fabric": fabric, "fabric_layer": layer}})
    assert contract.mtu.roce_path == path


_SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
_KEYS = st.sampled_from(["roce", "cnp", "classes", "dscp", "dscps", "ecn", "mtu", "x"])


@given(st.recursive(_SCALARS, lambda below: st.lists(below) | st.dictionaries(_KEYS, below)))
def test_whatever_is_written_is_read_or_refused(value: Any) -> None:
    """Never another exception."""
    try:
        qos.read_contract(value)
    except qos.ContractError as error:
        assert error.findings
        assert all(finding.path[0] == "roce_qos" for finding in error.findings)
