# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each combination that the table knows is found, once, and nothing is passed that it does not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (
    SOFTWARE,
    finish,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (
    RULES,
    STATUSES,
    judge,
    older,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.software_sets import value


def unjudged(**changes: Any) -> SoftwareSet:
    """A set as it is written, also where a rule refuses it."""
    findings = Findings()
    checked = SOFTWARE.check(value(**changes), findings)
    assert not findings, [finding.text() for finding in findings.found]
    return finish(checked, findings, ())


CASES: tuple[tuple[dict[str, Any], list[str]], ...] = (
    ({}, []),
    ({"kernel": "5.14.0-570.12.1.el9_6.x86_64"}, []),
    ({"driver__modules": "proprietary"}, ["blackwell_proprietary"]),
    ({"driver__modules": "proprietary", "driver__gpu": "H200"}, ["dma_buf_modules"]),
    ({"driver__version": "565.57.01", "cuda": ""}, ["blackwell_branch"]),
    ({"driver__version": "575.57.08", "cuda": "12.9"}, []),
    ({"driver__version": "575.57.08"}, ["cuda_driver"]),
    ({"cuda": "13.1"}, ["cuda_minor"]),
    ({"cuda": "13.1", "driver__version": "590.44.01"}, []),
    ({"rdma": {"source": "none"}}, ["nvlink_rdma"]),
    ({"rdma": {"source": "none"}, "driver__gpu": "H200"}, []),
    ({"kernel": "6.17.0-1014-nvidia"}, ["unknown_kernel"]),
    ({"kernel": "6.17.0-1014-nvidia", "rdma": {"source": "inbox"}}, []),
    ({"kernel": "5.11.0-49-generic"}, ["dma_buf_kernel", "unknown_kernel"]),
)


@pytest.mark.parametrize(("changes", "wanted"), CASES)
def test_combinations(changes: dict[str, Any], wanted: list[str]) -> None:
    assert [rule.name for rule in judge(unjudged(**changes))] == wanted


def test_every_rule_is_met_by_a_combination_and_is_about_a_key_of_the_set() -> None:
    met = {rule for _changes, wanted in CASES for rule in wanted}
    assert sorted(met) == sorted(rule.name for rule in RULES)
    for rule in RULES:
        place: Any = value()
        for part in rule.key.split("."):
            assert part == "modules" or part in place, rule.name
            place = place.get(part, {})


def test_what_is_refused_comes_first_and_names_key_and_value() -> None:
    software = unjudged(driver__modules="proprietary", kernel="6.17.0-1014-nvidia")
    found = judge(software)
    statuses = [rule.status for rule in found]
    assert statuses == sorted(statuses, key=STATUSES.index)
    assert "software.driver.modules: proprietary (" in found[0].line(software)


@pytest.mark.parametrize(
    ("one", "other"),
    [("580.95.05", "580.105.08"), ("9", "10"), ("12.9", "12.10"), ("570.211.01", "580.65.06")],
)
def test_numbers_are_not_text(one: str, other: str) -> None:
    assert older(one, other)
    assert not older(other, one)
    assert not older(one, f"{one}.0") and not older(f"{one}.0", one)
