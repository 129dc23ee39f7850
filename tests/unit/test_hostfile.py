"""The hostfile: content and syntax for any cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import ranges
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    FORMATS,
    ORDERS,
    Membership,
    bind,
    compile_membership,
    cores_checks,
    logical_cores,
    parse,
    parse_cores,
    place,
    render,
    render_rankfile,
    render_rankmap,
)
from hypothesis import given
from hypothesis import strategies as st

from tests import chassis

GOLDEN = Path(__file__).parent / "golden"


def node(name: str, index: int = 0, **changes: Any) -> dict[str, Any]:
    """A compute node of the directory: two rails, eight GPUs, two nodes per rack."""
    return {
        "name": name,
        "role": "compute",
        "management_address": f"10.10.0.{11 + index}",
        "rack": f"r{index // 2}",
        "slots": 8,
        "gpus": 8,
        "drained": False,
        "rails": [
            {"interface": f"rail{rail}", "address": f"10.20.{rail}.{11 + index}"}
            for rail in range(2)
        ],
        **changes,
    }


def cluster(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    nodes = [{**node(f"node{index + 1:02d}", index), **each} for index, each in enumerate(changes)]
    launcher = node("launcher", 200, role="launcher", slots=0, gpus=0, rails=[], rack="")
    return [*nodes, launcher]


names = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,3})?", fullmatch=True).filter(
    lambda name: name not in {"boards", "cores", "count", "cpu", "port", "rank", "slot", "slots"}
)


@st.composite
def directories(draw: st.DrawFn) -> list[dict[str, Any]]:
    chosen = draw(st.lists(names, min_size=1, max_size=12, unique=True))
    nodes = [
        node(
            name,
            index,
            slots=draw(st.integers(1, 9)),
            rack=draw(st.sampled_from(["a", "b", "rack10"])),
            drained=draw(st.booleans()) if index else False,
        )
        for index, name in enumerate(chosen)
    ]
    for each in nodes:
        leaf = draw(st.sampled_from(["leaf1", "leaf2"]))
        each["rails"] = [{**rail, "leaf": leaf} for rail in each["rails"]]
    return nodes


@given(directories(), st.sampled_from(FORMATS), st.sampled_from(ORDERS), st.booleans())
def test_what_is_written_is_what_is_read(
    directory: list[dict[str, Any]], form: str, order: str, capped: bool
) -> None:
    membership = compile_membership(directory, order=order)
    text = render(membership, form, capped=capped)
    active = {each["name"]: each["slots"] for each in directory if not each["drained"]}
    assert membership.slots == sum(active.values())
    lines = [line for line in text.splitlines() if line[:1] != "#"]
    if form == "openmpi":
        assert parse(text) == active
        assert all(("max_slots" in line) is capped for line in lines)
    elif form == "plain":
        assert Counter(lines) == active
    else:
        assert dict(line.split(":") for line in lines) == {k: str(v) for k, v in active.items()}


@given(directories(), st.sampled_from(["rack", "rail_group"]))
def test_groups_stay_together_in_the_models_order(
    directory: list[dict[str, Any]], order: str
) -> None:
    """The model's order, in which rack10 may precede b."""

    def key(each: dict[str, Any]) -> str:
        return str(each["rack"] if order == "rack" else each["rails"][0]["leaf"])

    active = [each for each in directory if not each["drained"]]
    ordered = [member.node for member in compile_membership(directory, order=order).members]
    seen = list(dict.fromkeys(key(each) for each in active))
    assert ordered == sorted(active, key=lambda each: seen.index(key(each)))


@pytest.mark.parametrize("form", FORMATS)
def test_golden_file(form: str) -> None:
    membership = compile_membership(cluster({}, {"slots": 4}, {"drained": True}, {}))
    text = render(membership, form, capped=True)
    assert text == (GOLDEN / f"hostfile.{form}").read_text(encoding="utf-8")


def test_rail_groups_without_named_leaves_go_by_network() -> None:
    here, there = ([{"network": f"10.{net}.0.0/24", "prefix": 24}] for net in (20, 30))
    directory = cluster({"rails": here}, {"rails": there}, {"rails": here})
    members = compile_membership(directory, order="rail_group").members
    assert [member.host for member in members] == ["node01", "node03", "node02"]
    with pytest.raises(PlanError, match="node01: has no rail_group"):
        compile_membership(cluster({"rails": [{**here[0], "prefix": 31}]}), order="rail_group")


def test_names_of_a_rail_have_its_addresses() -> None:
    membership = compile_membership(cluster({}, {}), names="rail1")
    assert membership.addresses() == {"node01-rail1": "10.20.1.11", "node02-rail1": "10.20.1.12"}


@pytest.mark.parametrize(
    ("changes", "options", "reason"),
    [
        ([{"drained": True}], {}, "no compute node is left"),
        ([], {}, "no compute node is left"),
        ([{"rack": ""}], {"order": "rack"}, "node01: has no rack: choose"),
        ([{}], {"names": "rail7"}, "node01: has no rail 'rail7'"),
        ([{"rails": []}], {"order": "rail_group"}, "node01: has no rail_group"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: list[dict[str, Any]], options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason):
        compile_membership(cluster(*changes), **options)


# Rank placement.

NUMA = {"0": "0-55", "1": "56-111"}
LSCPU = {"0": "0-55,112-167", "1": "56-111,168-223"}


def membership(
    nodes: int = 2, gpus: int = 8, planes: int = 1, drained: int = -1, **rail: Any
) -> Membership:
    """Nodes with one rail per GPU; the first half of the GPUs on NUMA node 0."""
    directory = []
    for index in range(nodes):
        rails = [
            {
                "interface": f"rail{gpu}" + (f"p{plane}" if planes > 1 else ""),
                "address": f"10.{20 + plane}.{gpu}.{11 + index}",
                "gpu": gpu,
                "numa": gpu * 2 // gpus,
                **rail,
            }
            for gpu in range(gpus)
            for plane in range(planes)
        ]
        of_node = {"slots": gpus, "gpus": gpus, "drained": index == drained, "rails": rails}
        directory.append(node(f"node{index + 1:02d}", index, **of_node))
    return compile_membership(directory)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1-"])
def test_what_is_no_list_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match="list of cores"):
        parse_cores(text)


def test_golden_rankfile_and_rankmap() -> None:
    members = membership(drained=0)
    assert render_rankfile(bind(members, LSCPU)) == render_rankfile(bind(members, NUMA))
    shared = bind(members, NUMA, divided=False)
    assert {binding.cores for binding in shared[:4]} == {tuple(range(56))}
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


@pytest.mark.parametrize(
    ("given_cpus", "wanted"),
    [
        (("0-55", "56-111"), ("0-55", "56-111")),
        (("0-55,112-167", "56-111,168-223"), ("0-55", "56-111")),
        (("2-55,114-167", "58-111,170-223"), ("2-55", "58-111")),
        (("0-111", "112-223"), ("0-111", "112-223")),
        (("0,2,4", "1,3,5"), ("0-2", "3-5")),
        (("0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"), ("0-3", "4-7")),
        (("56-111,168-223", "0-55,112-167"), ("56-111", "0-55")),
        (("0-3", "4"), ("0-3", "4")),
        (("0-27,56-83",), ("0-27",)),
        (("0-55",), ("0-55",)),
    ],
)
def test_cpus_of_the_kernel_become_cores_of_hwloc(
    given_cpus: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    found = logical_cores(dict(enumerate(given_cpus)))
    assert tuple(ranges(found[numa]) for numa in range(len(wanted))) == wanted


@pytest.mark.parametrize(
    ("numa_cores", "subjects"),
    [
        ({}, []),
        (LSCPU, []),
        (NUMA, []),
        ({0: "4-55", 1: "60-111"}, []),
        ({0: "0-111", 1: "112-223"}, ["NUMA node 0", "NUMA node 1"]),
        ({1: "0-55,112-167", 0: "56-111,168-223"}, ["NUMA node 0", "NUMA node 1"]),
        ({0: "0-55", 1: "56-112", 2: "113"}, ["NUMA node 1", "NUMA node 2"]),
        ({0: "0-x"}, [""]),
    ],
)
def test_a_node_compares_cores_with_its_own(
    tmp_path: Path, numa_cores: dict[Any, str], subjects: list[str]
) -> None:
    chassis.build(tmp_path)
    here = Node("mpi", tmp_path, run, None, "b")
    checks = cores_checks(here, numa_cores)
    failed = [check for check in checks if check.status == "failed"]
    assert [check.subject for check in failed] == subjects
    assert len(checks) == len(numa_cores)
    for check in failed if subjects != [""] else []:
        assert "{0: '0-55', 1: '56-111'}" in check.by_hand
    [inside] = cores_checks(replace(here, container="podman"), LSCPU)
    assert inside.status == "not_applicable"


BY_KIND = {"h100": {"0": "0-27", "1": "28-55"}, "default": NUMA}


def test_kinds_of_nodes_have_separate_tables_of_cores(tmp_path: Path) -> None:
    nodes = [
        {**member.node, "name": name, "kind": kind}
        for member, (name, kind) in zip(
            membership(2).members, (("b01", "default"), ("h01", "h100"))
        )
    ]
    bound = bind(compile_membership(nodes), BY_KIND)
    assert [ranges(bound[rank].cores) for rank in (0, 7, 8, 15)] == [
        *("0-13", "98-111"),
        *("0-6", "49-55"),
    ]
    with pytest.raises(PlanError, match="below h100:"):
        bind(compile_membership(nodes), {"default": NUMA})
    with pytest.raises(PlanError, match="either NUMA nodes,"):
        bind(compile_membership(nodes), {**BY_KIND, "1": "0-55"})
    with pytest.raises(PlanError, match="cluster_numa_cores: 'h100'"):
        bind(compile_membership(nodes), {"h100": "0-27"})
    chassis.build(tmp_path)
    here = Node("mpi", tmp_path, run, None, "b")
    found = {kind: cores_checks(here, BY_KIND, kind) for kind in ("default", "h100", "cpu")}
    assert [check.status for check in found["default"]] == ["ok", "ok"]
    assert [check.status for check in found["h100"]] == ["ok", "failed"]
    assert "below h100:" in found["h100"][1].by_hand and found["cpu"] == []


@pytest.mark.parametrize(
    ("numa", "changes", "reason"),
    [
        ({}, {}, "cores of NUMA node 0"),
        ({"0": "0-55"}, {}, "cores of NUMA node 1"),
        (NUMA, {"numa": None}, "the NUMA node of GPU 0"),
        (NUMA, {"gpu": None}, "no rail belongs to GPU 0: set gpu"),
        ({"0": "0-2", "1": "3-9"}, {}, "NUMA node 0 has 3 cores for 4 ranks"),
        ({"0": "0-x"}, {}, "cluster_numa_cores: '0-x' is not a list of cores"),
    ],
)
def test_missing_values_are_refused_with_the_option(
    numa: dict[str, str], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PlanError, match=reason) as refused:
        bind(membership(**changes), numa)
    lines = str(refused.value).splitlines()
    assert len(lines) == len(set(lines))


def test_more_slots_than_gpus_have_no_placement() -> None:
    members = membership(1)
    node = {**members.members[0].node, "slots": 9}
    with pytest.raises(PlanError, match="node01: 9 slots and 8 GPUs"):
        place(compile_membership([node]))
