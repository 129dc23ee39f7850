# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each combination that the table knows is found, once, and nothing is passed that it does not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.compatibility import (
    REFUSED,
    STATUSES,
    UNKNOWN,
    WARNED,
    Node,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.distribution import (
    distribution_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.software_set import (
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import (
    SOFTWARE,
    finish,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (
    RULES,
    judge,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.software_sets import value

UBUNTU = distribution_of("Ubuntu", "24.04")
JAMMY = distribution_of("Ubuntu", "22.04")
ROCKY = distribution_of("Rocky", "9.6")
DEBIAN = distribution_of("Debian", "12.11")


def unjudged(**changes: Any) -> SoftwareSet:
    """A set as it is written, also where a rule refuses it."""
    findings = Findings()
    checked = SOFTWARE.check(value(**changes), findings)
    assert not findings, [finding.text() for finding in findings.found]
    return finish(checked, findings, ())


def judged(node: Node, **changes: Any) -> set[tuple[str, str]]:
    return {(found.rule, found.status) for found in judge(unjudged(**changes), node)}


ANYWHERE = Node()
OLD_DOCA = {
    "rdma__version": "3.1.0",
    "repositories__doca__url": "https://mirror/{version}/{distribution}",
}
CASES: tuple[tuple[Node, dict[str, Any], set[tuple[str, str]]], ...] = (
    (ANYWHERE, {}, set()),
    (Node(UBUNTU, "6.8.0-79-generic"), {}, set()),
    (Node(ROCKY, "5.14.0-570.12.1.el9_6.x86_64"), {}, set()),
    (ANYWHERE, {"driver__modules": "proprietary"}, {("blackwell_proprietary", REFUSED)}),
    (
        ANYWHERE,
        {"driver__modules": "proprietary", "driver__gpu": "H200"},
        {("dma_buf_modules", WARNED)},
    ),
    (ANYWHERE, {"driver__version": "565.57.01", "cuda": ""}, {("blackwell_branch", REFUSED)}),
    (ANYWHERE, {"driver__version": "575.57.08", "cuda": "12.9"}, set()),
    (ANYWHERE, {"driver__version": "575.57.08"}, {("cuda_driver", REFUSED)}),
    (ANYWHERE, {"cuda": "13.1"}, {("cuda_minor", WARNED)}),
    (ANYWHERE, {"cuda": "13.1", "driver__version": "590.44.01"}, set()),
    (ANYWHERE, {"rdma": {"source": "none"}}, {("nvlink_rdma", REFUSED)}),
    (ANYWHERE, {"rdma": {"source": "none"}, "driver__gpu": "H200"}, set()),
    (Node(JAMMY), {}, {("doca_distribution", UNKNOWN)}),
    (Node(JAMMY), {"rdma": {"source": "inbox"}, "driver__gpu": "B200"}, set()),
    (Node(DEBIAN), {}, {("doca_debian", REFUSED), ("driver_distribution", REFUSED)}),
    (Node(ROCKY), {"rdma__version": "3.1.0"}, set()),
    (Node(ROCKY), OLD_DOCA, {("doca_before_dkms", REFUSED)}),
    (Node(UBUNTU), OLD_DOCA, set()),
    (Node(UBUNTU, "6.17.0-1014-nvidia"), {}, {("unknown_kernel", UNKNOWN)}),
    (
        ANYWHERE,
        {"kernel": "5.11.0-49-generic"},
        {("dma_buf_kernel", WARNED), ("unknown_kernel", UNKNOWN)},
    ),
)


@pytest.mark.parametrize(("node", "changes", "wanted"), CASES)
def test_combinations(node: Node, changes: dict[str, Any], wanted: set[tuple[str, str]]) -> None:
    assert judged(node, **changes) == wanted


def test_every_rule_is_met_by_a_combination() -> None:
    met = {rule for _node, _changes, wanted in CASES for rule, _status in wanted}
    assert met == {rule.name for rule in RULES}


def test_the_node_comes_before_the_set() -> None:
    """The kernel that runs there is judged, not the one that somebody wrote."""
    assert judged(Node(UBUNTU, "6.8.0-79-generic"), kernel="5.4.0-1-generic") == set()


def test_what_is_refused_comes_first_and_says_where_and_what_to_do() -> None:
    found = judge(unjudged(driver__modules="proprietary", cuda="14.0"))
    assert [one.status for one in found] == sorted(
        (one.status for one in found), key=STATUSES.index
    )
    assert (found[0].rule, found[0].key) == ("blackwell_proprietary", ("driver", "modules"))
    assert "software.driver.modules: proprietary (" in found[0].line()


def test_rules_have_names_of_their_own_and_keys_of_the_set() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        place: Any = value()
        for part in rule.key.split("."):
            assert part == "modules" or part in place, rule.name
            place = place.get(part, {})
        assert rule.status in STATUSES
        for text in (rule.when, rule.reason, rule.remedy, rule.source):
            assert text and not text.endswith(".")
