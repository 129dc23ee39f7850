"""The hostfile: what it says, in each syntax, whatever the cluster."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    FORMATS,
    ORDERS,
    compile_membership,
    is_host_name,
    parse,
    rail_name,
    render,
)
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden"


def node(name: str, index: int = 0, **changes: Any) -> dict[str, Any]:
    """One compute node of the directory: two rails, eight GPUs, racks of two nodes."""
    return {
        "name": name,
        "role": "compute",
        "management_address": f"10.10.0.{11 + index}",
        "rack": f"r{index // 2}",
        "slots": 8,
        "gpus": 8,
        "drained": False,
        "rails": [
            {
                "rail": rail,
                "plane": 0,
                "interface": f"rail{rail}",
                "address": f"10.20.{rail}.{11 + index}",
                "prefix": 24,
                "network": f"10.20.{rail}.0/24",
                "gpu": rail,
                "numa": rail,
            }
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
def test_a_group_stays_together_and_keeps_the_order_of_the_model(
    directory: list[dict[str, Any]], order: str
) -> None:
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


def test_names_of_a_rail_come_with_the_addresses_of_that_rail() -> None:
    membership = compile_membership(cluster({}, {}), names="rail1")
    assert membership.addresses() == {"node01-rail1": "10.20.1.11", "node02-rail1": "10.20.1.12"}


def test_management_names_come_with_management_addresses() -> None:
    assert compile_membership(cluster({})).addresses() == {"node01": "10.10.0.11"}


def test_rail_name_with_planes() -> None:
    assert rail_name("node01", "rail3p1") == "node01-rail3p1"


def test_racks_come_in_the_order_of_the_model_and_not_of_their_names() -> None:
    racks = [{"rack": rack} for rack in ("r2", "r10", "r2", "r1")]
    members = compile_membership(cluster(*racks), order="rack").members
    assert [member.host for member in members] == ["node01", "node03", "node02", "node04"]


def test_rail_groups_without_named_leaves_go_by_network() -> None:
    directory = cluster({}, {}, {})
    directory[1]["rails"] = [
        {**rail, "network": f"10.30.{rail['rail']}.0/24"} for rail in directory[1]["rails"]
    ]
    members = compile_membership(directory, order="rail_group").members
    assert [member.host for member in members] == ["node01", "node03", "node02"]


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ([{"drained": True}], {}, "no compute node is left"),
        ([], {}, "no compute node is left"),
        ([{"rack": ""}], {"order": "rack"}, "node01: has no rack"),
        ([{}], {"names": "rail7"}, "node01: has no rail 'rail7'"),
        ([{"rails": []}], {"order": "rail_group"}, "node01: its leaves are not known"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: list[dict[str, Any]], options: dict[str, str], told: str
) -> None:
    with pytest.raises(PlanError, match=told):
        compile_membership(cluster(*changes), **options)


def test_a_link_of_two_names_no_rail_group() -> None:
    directory = cluster({})
    for rail in directory[0]["rails"]:
        rail["prefix"] = 31
    with pytest.raises(PlanError, match="its leaves are not known"):
        compile_membership(directory, order="rail_group")


def test_of_many_findings_the_first_are_listed() -> None:
    with pytest.raises(PlanError) as caught:
        compile_membership(cluster(*[{"rack": ""}] * 30), order="rack")
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (21, "... and 10 more")


def test_a_drained_node_needs_no_slots() -> None:
    membership = compile_membership(cluster({}, {"drained": True, "slots": 0}))
    assert membership.drained == ("node02",)


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a_b", "node 1", "node;1", "a..b", "12", "a" * 64, "nöde", "a\n"]
)
def test_bad_names(name: str) -> None:
    assert not is_host_name(name)


@pytest.mark.parametrize("name", ["node01", "a", "A-1", "node01.hpc.example", "1a"])
def test_good_names(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("node01 slots=8\nnode01 slots=8\n", 2),
        ("node01 slots=eight\n", 1),
        ("# head\nnode01:8\n", 2),
    ],
)
def test_a_line_of_another_format_is_refused(text: str, line: int) -> None:
    with pytest.raises(ValueError, match=f"line {line}"):
        parse(text)


def test_an_operators_comments_and_empty_lines_are_skipped() -> None:
    assert parse("# mine\n\n  a slots=2 max_slots=2\n") == {"a": 2}
