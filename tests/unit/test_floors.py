# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Minimum versions: those below, those unknown, and those that a site accepts until a day."""

from __future__ import annotations

import datetime
import json
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import switch_qos
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software import floors
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.floors import (
    Accepted,
    check,
    numbers_of,
    verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    SwitchReport,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (
    evaluate,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.small_model import MODEL, doubts
from tests.unit.software_sets import software, value
from tests.unit.test_software_set import refused

VERSIONS = (
    ("driver", "580.95.05", "580.159.03"),
    ("driver", "580.159.02", "580.159.03"),
    ("driver", "580.159.03", ""),
    ("driver", "580.173.02", ""),
    ("driver", "575.57.08", "580.159.03"),  # a branch without a corrected version
    ("driver", "470.256.02", "535.309.01"),
    ("driver", "595.45.04", "595.71.05"),
    ("driver", "600.10.01", None),
    ("driver", "615.71.09", None),
    ("cuda", "12.9", "13.1"),
    ("cuda", "13.1", ""),
    ("cuda", "14.0", ""),
    ("dcgm", "4.4.1", "4.5.3"),
    ("dcgm", "4.10.0", ""),
    ("nccl", "2.27.7", ""),
    ("nccl", "2.28.3", "2.28.9"),
    ("nccl", "2.28.3-1+cuda13.0", "2.28.9"),
    ("nccl", "2.28.9", ""),
    ("container_toolkit", "1.19.0-1", "1.19.1"),
    ("runc", "1.2.9", "1.3.6"),
    ("runc", "1.3.10", ""),
    ("runc", "1.4.2", "1.4.3"),
    ("runc", "1.6.0", ""),
    ("nic_firmware", "44.1036", "46.3008"),
    ("nic_firmware", "43.8002", ""),
    ("nic_firmware", "46.1006", "46.3008"),
    ("nic_firmware", "47.1026", ""),
    ("nic_firmware", "unknown", ""),
    ("cumulus_linux", "5.9.4", "5.9.5"),
    ("cumulus_linux", "5.9.5", ""),
    ("cumulus_linux", "5.10.1", "5.11.5"),
    ("cumulus_linux", "5.11.4", "5.11.5"),
    ("cumulus_linux", "5.12.0", "5.16"),
    ("cumulus_linux", "5.16.0", ""),
    ("cumulus_linux", "5.17.1", ""),
)


@pytest.mark.parametrize(("component", "version", "first"), VERSIONS)
def test_versions(component: str, version: str, first: Optional[str]) -> None:
    found = verdict(component, version)
    assert (found and (found.status, found.first)) == {
        "": None,
        None: (floors.UNKNOWN, ""),
    }.get(first, (floors.BELOW, first))


def test_each_component_is_tried() -> None:
    assert {component for component, *_version in VERSIONS} == {*floors.FLOORS}
    for floor in floors.FLOORS.values():
        for line, (first, _source) in floor.lines.items():
            assert numbers_of(first)[: len(numbers_of(line))] == numbers_of(line)
        assert [*map(numbers_of, floor.lines)] == sorted(map(numbers_of, floor.lines))


@given(st.sampled_from([*floors.FLOORS]), st.lists(st.integers(0, 700), min_size=2, max_size=3))
def test_the_first_version_of_a_verdict_has_none(component: str, numbers: list[int]) -> None:
    found = verdict(component, ".".join(map(str, numbers)))
    if found and found.first:
        assert tuple(numbers) < numbers_of(found.first)
        assert verdict(component, found.first) is None


def day(days: int) -> str:
    return (datetime.date.today() + datetime.timedelta(days)).isoformat()


@pytest.mark.parametrize(
    ("version", "until", "status"),
    [
        ("580.95.05", None, "pending"),
        ("580.95.05", 0, "not_applicable"),
        ("580.95.05", -1, "pending"),
        ("580.82.07", 30, "pending"),  # another version is accepted
        ("580.159.03", None, "ok"),
        ("620.10.01", None, "not_applicable"),
    ],
)
def test_what_is_installed(version: str, until: Optional[int], status: str) -> None:
    accepted = [] if until is None else [Accepted("driver", "580.95.05", "vendor", day(until))]
    found = check("driver", version, accepted)
    assert (found.name, found.subject, found.found, found.status) == (
        *("floor", "NVIDIA driver", version),
        status,
    )
    assert ("vendor" in found.reason) is (until == 0)
    assert ("580.159.03" in found.by_hand) is (status == "pending")


EXCEPTION = {"component": "driver", "version": "580.95.05", "reason": "vendor's image"}


def floors_of(**changes: Any) -> list[str]:
    names = (rule.name for rule in evaluate(software(**changes)))
    return [name for name in names if name.endswith("_floor")]


@pytest.mark.parametrize("version", ["", "unknown", "N/A", "v1", "\u0663.1"])
def test_what_is_no_version_does_not_pass(version: str) -> None:
    assert check("driver", version, ()).status == "not_applicable"


def test_a_version_of_any_length_is_compared() -> None:
    assert check("driver", "9" * 5000, ()).status == "not_applicable"
    assert check("cuda", "1" + "." + "9" * 5000, ()).status == "pending"


def test_a_set_below_is_warned_of_unless_the_site_accepts_it() -> None:
    every = ["driver_floor", "cuda_floor", "dcgm_floor", "nccl_floor"]
    assert floors_of() == every
    good = {"driver__version": "595.71.05", "cuda": "13.2", "dcgm": "4.5.3", "nccl": "2.28.9"}
    assert floors_of(**good) == []
    assert floors_of(accepted=[{**EXCEPTION, "until": day(0)}]) == every[1:]
    assert floors_of(accepted=[{**EXCEPTION, "until": day(-1)}]) == every
    assert floors_of(accepted=[{**EXCEPTION, "version": "580.1.1", "until": day(1)}]) == every
    first, *_others = evaluate(software())
    assert first.problem(software()).split(": ")[0] == "580.95.05 is below 580.159.03"
    kept = software(accepted=[{**EXCEPTION, "until": "2027-01-31"}])
    assert type(kept).of(kept.as_variable()) == kept
    assert "accepted" not in software().as_variable()


def test_an_expired_exception_is_told() -> None:
    def told(until: str) -> list[str]:
        text = json.dumps(value(accepted=[{**EXCEPTION, "until": until}]))
        return [line for line in doubts(f"{MODEL}software: {text}\n") if "accepted" in line]

    assert told(day(0)) == []
    assert told(day(-1)) == [f"10 software.accepted_expired software.accepted[0].until {day(-1)!r}"]


@pytest.mark.parametrize(
    ("key", "wrong", "code"),
    [
        ("until", "2027-02-30", "software.accepted_until accepted[0].until '2027-02-30'"),
        ("until", "soon", "model.wrong_form accepted[0].until 'soon'"),
        ("component", "gpu", "model.not_a_choice accepted[0].component 'gpu'"),
        ("reason", "", "model.wrong_form accepted[0].reason ''"),
        ("reason", "{{ x }}", "model.template accepted[0].reason '{{ x }}'"),
    ],
)
def test_an_exception_needs_a_reason_and_a_day(key: str, wrong: str, code: str) -> None:
    given = {**EXCEPTION, "until": "2027-01-31", key: wrong}
    assert refused(value(accepted=[given])) == [code]


@pytest.mark.parametrize(
    ("system", "version", "statuses"),
    [
        ("nvue", "Cumulus Linux 5.12.0", ["pending"]),
        ("nvue", "Cumulus Linux 5.11.4", ["not_applicable"]),
        ("nvue", "Cumulus Linux 5.16.1 (simulation)", ["ok"]),
        ("nvue", "", ["not_applicable"]),
        ("sonic", "4.1.1", []),
        ("eos", "DCS-7060X6 4.34.0F", []),
    ],
)
def test_switches_of_which_a_minimum_is_known(
    system: str, version: str, statuses: list[str]
) -> None:
    accepted = {"component": "cumulus_linux", "version": "5.11.4"}
    accepted |= {"reason": "vendor", "until": day(0)}
    variables = switch_qos._Variables(
        SimpleNamespace(template=lambda value: value),
        {"cluster_software": {"accepted": [accepted]}},
    )
    report = SwitchReport("leaf01", system, version, (), True)
    found = switch_qos._installed(variables, report)
    assert [(each.name, each.status) for each in found] == [("floor", one) for one in statuses]
