"""Rank placement: cores, GPU and rail of each rank, or a refusal that says what to set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    Membership,
    compile_membership,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.rankfile import (
    bind,
    format_cores,
    parse_cores,
    place,
    render_rankfile,
    render_rankmap,
)
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden"
NUMA = {"0": "0-55", "1": "56-111"}


def membership(
    nodes: int = 2, gpus: int = 8, planes: int = 1, drained: int = -1, **rail: Any
) -> Membership:
    """Nodes with one rail per GPU; the first half of the GPUs on NUMA node 0."""
    return compile_membership(
        [
            {
                "name": f"node{index + 1:02d}",
                "role": "compute",
                "management_address": f"10.10.0.{11 + index}",
                "rack": "r1",
                "slots": gpus,
                "gpus": gpus,
                "drained": index == drained,
                "rails": [
                    {
                        "rail": gpu,
                        "plane": plane,
                        "interface": f"rail{gpu}" + (f"p{plane}" if planes > 1 else ""),
                        "address": f"10.{20 + plane}.{gpu}.{11 + index}",
                        "prefix": 24,
                        "network": f"10.{20 + plane}.{gpu}.0/24",
                        "gpu": gpu,
                        "numa": gpu * 2 // gpus,
                        **rail,
                    }
                    for gpu in range(gpus)
                    for plane in range(planes)
                ],
            }
            for index in range(nodes)
        ]
    )


cores = st.lists(st.integers(0, 300), min_size=1, unique=True).map(lambda got: tuple(sorted(got)))


@given(cores)
def test_cores_survive_their_text(given_cores: tuple[int, ...]) -> None:
    assert parse_cores(format_cores(given_cores)) == given_cores


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "0-3,2", "-1", "1-"])
def test_what_is_no_list_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match=r"core|range"):
        parse_cores(text)


def test_golden_rankfile_and_rankmap() -> None:
    members = membership(drained=0)
    assert render_rankfile(bind(members, NUMA)) == (GOLDEN / "rankfile").read_text("utf-8")
    planes = membership(nodes=1, planes=2)
    assert render_rankmap(place(planes)) == (GOLDEN / "rankmap").read_text("utf-8")


@given(st.integers(1, 4), st.integers(1, 8), st.integers(8, 64))
def test_divided_cores_are_disjoint_near_and_complete(nodes: int, gpus: int, each: int) -> None:
    numa = {"0": f"0-{each - 1}", "1": f"{each}-{2 * each - 1}"}
    members = membership(nodes, gpus)
    bindings = bind(members, numa)
    assert [binding.rank for binding in bindings] == list(range(nodes * gpus))
    assert len(bindings) == members.slots
    for start in range(0, len(bindings), gpus):
        used = [core for binding in bindings[start : start + gpus] for core in binding.cores]
        assert len(used) == len(set(used))
        wanted = {core for gpu in range(gpus) for core in parse_cores(numa[str(gpu * 2 // gpus)])}
        assert set(used) == wanted
        for gpu, binding in enumerate(bindings[start : start + gpus]):
            assert set(binding.cores) <= set(parse_cores(numa[str(gpu * 2 // gpus)]))


def test_all_cores_of_the_numa_node_when_they_are_shared() -> None:
    bindings = bind(membership(1), NUMA, divided=False)
    assert {binding.cores for binding in bindings[:4]} == {tuple(range(56))}


def test_keys_of_the_numa_nodes_may_be_numbers_or_text() -> None:
    assert bind(membership(), {0: "0-55", 1: "56-111"}) == bind(membership(), NUMA)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("numa", "changes", "told"),
    [
        ({}, {}, "cores of NUMA node 0 are not known: set cluster_numa_cores"),
        ({"0": "0-55"}, {}, "cores of NUMA node 1 are not known"),
        (
            NUMA,
            {"numa": None},
            "the NUMA node of GPU 0, 1, 2, 3, 4, 5, 6, 7 is not known: set gpus.numa",
        ),
        (NUMA, {"gpu": None}, "no rail belongs to GPU 0: set gpu"),
        ({"0": "0-2", "1": "3-9"}, {}, "NUMA node 0 has 3 cores for 4 ranks"),
        ({"0": "0-x"}, {}, "cluster_numa_cores, NUMA node 0: '0-x' is not a list of cores"),
    ],
)
def test_what_is_not_known_is_refused_with_what_to_set(
    numa: dict[str, str], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(PlanError, match=told):
        bind(membership(**changes), numa)


def test_cores_that_are_missing_everywhere_are_told_once() -> None:
    with pytest.raises(PlanError) as caught:
        bind(membership(nodes=50), {})
    assert [line[:40] for line in str(caught.value).splitlines()] == [
        "node01: the cores of NUMA node 0 are not",
        "node01: the cores of NUMA node 1 are not",
    ]


def test_an_unknown_numa_node_is_told_once_for_a_node() -> None:
    with pytest.raises(PlanError) as caught:
        bind(membership(nodes=1, numa=None), NUMA)
    assert len(str(caught.value).splitlines()) == 1


def test_more_slots_than_gpus_have_no_placement() -> None:
    members = membership(1)
    node = {**members.members[0].node, "slots": 9}
    with pytest.raises(PlanError, match="node01: 9 slots and 8 GPUs"):
        place(compile_membership([node]))
