"""The hostfile: what it says, in each syntax, whatever the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    FORMATS,
    ORDERS,
    Entry,
    Hostfile,
    HostfileError,
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
    hostfile = membership.hostfile(capped and form == "openmpi")
    text = render(hostfile, form)
    assert parse(text, form) == hostfile

    active = [each for each in directory if not each["drained"]]
    hosts = [entry.host for entry in hostfile.entries]
    assert hostfile.slots == sum(each["slots"] for each in active)
    assert sorted(hosts) == sorted(each["name"] for each in active)
    listed = {line.split()[0].split(":")[0] for line in text.splitlines() if line[:1] != "#"}
    assert not listed & {each["name"] for each in directory if each["drained"]}


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
    text = render(membership.hostfile(form == "openmpi"), form)
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
        ([{"slots": 0}], {}, "node01: has 0 slots"),
        ([{"slots": -1}], {}, "node01: has -1 slots"),
        ([{"slots": True}], {}, "node01: has True slots"),
        ([{"slots": None}], {}, "node01: has None slots"),
        ([{}, {"name": "node01"}], {}, "node01: listed twice"),
        ([{"name": "a b"}], {}, "'a b': not a host name"),
        ([{"name": "slots"}], {}, "slots: a keyword"),
        ([{"rack": ""}], {"order": "rack"}, "node01: has no rack"),
        ([{}], {"names": "rail7"}, "node01: has no rail 'rail7'"),
        ([{"rails": []}], {"order": "rail_group"}, "node01: its leaves are not known"),
    ],
)
def test_what_cannot_be_is_refused(
    changes: list[dict[str, Any]], options: dict[str, str], told: str
) -> None:
    with pytest.raises(HostfileError, match=told):
        compile_membership(cluster(*changes), **options)


def test_a_link_of_two_names_no_rail_group() -> None:
    directory = cluster({})
    for rail in directory[0]["rails"]:
        rail["prefix"] = 31
    with pytest.raises(HostfileError, match="its leaves are not known"):
        compile_membership(directory, order="rail_group")


def test_every_finding_is_told_at_once() -> None:
    with pytest.raises(HostfileError) as caught:
        compile_membership(cluster({"slots": 0}, {"name": "9"}))
    assert len(caught.value.findings) == 2


def test_of_very_many_findings_the_first_are_told() -> None:
    with pytest.raises(HostfileError) as caught:
        compile_membership(cluster(*[{"slots": 0}] * 30))
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1].strip()) == (21, "... and 10 more")


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
    ("text", "form", "told"),
    [
        ("node01 slots=8\nnode01 slots=8\n", "openmpi", "line 2: node01 is listed twice"),
        ("node01 slots=eight\n", "openmpi", "line 1"),
        ("node01:8\n", "openmpi", "line 1"),
        ("# head\nnode01 slots=8\n", "mpich", "line 2"),
        ("node01\nnode02\nnode01\n", "plain", "line 3: node01 is listed twice"),
        ("node01:8\n", "plain", "line 1"),
    ],
)
def test_a_file_of_another_format_is_refused_by_line(text: str, form: str, told: str) -> None:
    with pytest.raises(HostfileError, match=told):
        parse(text, form)


def test_a_missing_cap_on_one_line_is_no_cap() -> None:
    assert not parse("a slots=1 max_slots=1\nb slots=1\n", "openmpi").capped


def test_an_operators_comments_and_empty_lines_are_skipped() -> None:
    assert parse("# mine\n\n  a slots=2\n", "openmpi") == Hostfile((Entry("a", 2),))
