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
    CUDA_URL,
    SoftwareSet,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software import finish
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_keys import SOFTWARE
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.software_rules import (
    RULES,
    judge,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.kinds import check

from tests.unit.software_sets import value

UBUNTU = distribution_of("Ubuntu", "24.04")
JAMMY = distribution_of("Ubuntu", "22.04")
ROCKY = distribution_of("Rocky", "9.6")
DEBIAN = distribution_of("Debian", "12.11")
ALWAYS = {("mft", UNKNOWN)}
"""What is said of the whole set of these tests: both DOCA and CUDA bring mft."""


def unjudged(**changes: Any) -> SoftwareSet:
    """A set as it is written, also where a rule refuses it."""
    findings = Findings()
    found = finish(check(SOFTWARE, value(**changes), findings), findings, ())
    assert found is not None, [finding.text() for finding in findings.found]
    return found


def said(node: Node, **changes: Any) -> set[tuple[str, str]]:
    return {(found.rule, found.status) for found in judge(unjudged(**changes), node)}


ANYWHERE = Node()
CASES: tuple[tuple[Node, dict[str, Any], set[tuple[str, str]]], ...] = (
    (ANYWHERE, {}, ALWAYS),
    (Node(UBUNTU, "6.8.0-79-generic"), {}, ALWAYS),
    (Node(ROCKY, "5.14.0-570.12.1.el9_6.x86_64"), {}, ALWAYS),
    (
        ANYWHERE,
        {"driver__modules": "proprietary"},
        {("blackwell_proprietary", REFUSED), *ALWAYS},
    ),
    (
        ANYWHERE,
        {"driver__modules": "proprietary", "driver__gpu": "B200"},
        {("blackwell_proprietary", REFUSED), *ALWAYS},
    ),
    (
        ANYWHERE,
        {"driver__modules": "proprietary", "driver__gpu": "H200"},
        {("dma_buf_modules", WARNED)},
    ),
    (
        ANYWHERE,
        {"driver__version": "565.57.01", "cuda": ""},
        {("blackwell_branch", REFUSED), *ALWAYS},
    ),
    (
        ANYWHERE,
        {"driver__version": "565.57.01", "driver__gpu": "H100", "cuda": ""},
        {("old_branch", REFUSED)},
    ),
    (
        ANYWHERE,
        {"driver__version": "575.57.08", "cuda": "12.9"},
        {("b300_early_branch", WARNED), *ALWAYS},
    ),
    (
        ANYWHERE,
        {"driver__version": "575.57.08", "driver__gpu": "B200", "cuda": "12.9"},
        ALWAYS,
    ),
    (ANYWHERE, {"driver__version": "610.43.02"}, {("unknown_branch", UNKNOWN), *ALWAYS}),
    (
        ANYWHERE,
        {"driver__version": "575.57.08"},
        {("b300_early_branch", WARNED), ("cuda_driver", REFUSED), *ALWAYS},
    ),
    (ANYWHERE, {"cuda": "13.1"}, {("cuda_minor", WARNED), *ALWAYS}),
    (ANYWHERE, {"cuda": "13.1", "driver__version": "590.44.01"}, ALWAYS),
    (ANYWHERE, {"cuda": "13.7"}, {("unknown_cuda", UNKNOWN), *ALWAYS}),
    (
        ANYWHERE,
        {"cuda": "14.0"},
        {
            ("unknown_cuda", UNKNOWN),
            ("dcgm_build", UNKNOWN),
            ("gdrcopy_build", UNKNOWN),
            ("nccl_build", UNKNOWN),
            *ALWAYS,
        },
    ),
    (ANYWHERE, {"cuda": "12.8"}, {("gpu_toolkit", WARNED), *ALWAYS}),
    (ANYWHERE, {"cuda": "12.8", "driver__gpu": "B200"}, ALWAYS),
    (
        ANYWHERE,
        {"dcgm": "3.3.9"},
        {("old_dcgm", REFUSED), ("dcgm_build", UNKNOWN), *ALWAYS},
    ),
    (
        ANYWHERE,
        {"dcgm": "5.0.0"},
        {("unknown_dcgm", UNKNOWN), ("dcgm_build", UNKNOWN), *ALWAYS},
    ),
    (ANYWHERE, {"dcgm": "4.2.3"}, {("dcgm_build", UNKNOWN), *ALWAYS}),
    (ANYWHERE, {"dcgm": "4.2.3", "cuda": "12.9"}, ALWAYS),
    (ANYWHERE, {"gdrcopy": "2.4.4"}, {("gdrcopy_build", UNKNOWN), *ALWAYS}),
    (ANYWHERE, {"nccl": "2.99.1"}, {("nccl_build", UNKNOWN), *ALWAYS}),
    (
        ANYWHERE,
        {"repositories__cuda__url": CUDA_URL},
        {("gdrcopy_repository", UNKNOWN), *ALWAYS},
    ),
    (ANYWHERE, {"repositories__cuda__url": CUDA_URL, "gdrcopy": ""}, ALWAYS),
    (ANYWHERE, {"rdma": {"source": "none"}}, {("nvlink_rdma", REFUSED)}),
    (ANYWHERE, {"rdma": {"source": "none"}, "driver__gpu": "H200"}, set()),
    (ANYWHERE, {"rdma": {"source": "inbox"}}, {("inbox_connectx8", UNKNOWN)}),
    (ANYWHERE, {"rdma__version": "4.0.0"}, {("unknown_doca", UNKNOWN), *ALWAYS}),
    (Node(JAMMY), {}, {("doca_distribution", UNKNOWN), *ALWAYS}),
    (Node(JAMMY), {"rdma": {"source": "inbox"}, "driver__gpu": "B200"}, set()),
    (
        Node(DEBIAN),
        {},
        {("doca_debian", REFUSED), ("driver_distribution", REFUSED), *ALWAYS},
    ),
    (
        Node(ROCKY),
        {"rdma__version": "3.1.0"},
        {("unknown_doca", UNKNOWN), *ALWAYS},
    ),
    (
        Node(ROCKY),
        {
            "rdma__version": "3.1.0",
            "repositories__doca__url": "https://mirror/{version}/{distribution}",
        },
        {("doca_before_dkms", REFUSED), ("unknown_doca", UNKNOWN), *ALWAYS},
    ),
    (
        Node(UBUNTU),
        {
            "rdma__version": "3.1.0",
            "repositories__doca__url": "https://mirror/{version}/{distribution}",
        },
        {("unknown_doca", UNKNOWN), *ALWAYS},
    ),
    (
        Node(UBUNTU, "6.17.0-1014-nvidia"),
        {},
        {("unknown_kernel", UNKNOWN), *ALWAYS},
    ),
    (ANYWHERE, {"kernel": "6.17.0-1014-nvidia"}, {("unknown_kernel", UNKNOWN), *ALWAYS}),
    (
        ANYWHERE,
        {"kernel": "5.11.0-49-generic"},
        {("dma_buf_kernel", WARNED), ("unknown_kernel", UNKNOWN), *ALWAYS},
    ),
)


@pytest.mark.parametrize(("node", "changes", "wanted"), CASES)
def test_combinations(node: Node, changes: dict[str, Any], wanted: set[tuple[str, str]]) -> None:
    assert said(node, **changes) == wanted


def test_every_rule_is_met_by_a_combination() -> None:
    met = {rule for _node, _changes, wanted in CASES for rule, _status in wanted}
    assert met == {rule.name for rule in RULES}


def test_the_node_comes_before_the_set() -> None:
    """The kernel that runs there is judged, not the one that somebody wrote."""
    assert said(Node(UBUNTU, "6.8.0-79-generic"), kernel="5.4.0-1-generic") == ALWAYS


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
