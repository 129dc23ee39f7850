"""/etc/hosts: the managed block, the operator's lines, and conflicts between the two."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.names import (
    BEGIN,
    END,
    HostsLine,
    Names,
    plan,
    wrong_names,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden"
DEBIAN = """\
127.0.0.1\tlocalhost
127.0.1.1\tnode01.example node01

# The following lines are desirable for IPv6 capable hosts
::1     localhost ip6-localhost ip6-loopback
10.9.9.9 archive   # the operator's
"""


def host(name: str, index: int, role: str = "compute", rails: int = 2) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "management_address": f"10.10.0.{index}",
        "rails": [
            {"interface": f"rail{rail}", "address": f"10.20.{rail}.{index}"}
            for rail in range(rails)
        ],
    }


def entries(directory: list[dict[str, Any]], domain: str = "") -> list[tuple[str, ...]]:
    """The table, as the module receives it."""
    return [tuple(line.split()) for line in facts.names(directory, domain)["table"].splitlines()]


CLUSTER = [host("node01", 11), host("node02", 12), host("launcher", 5, "launcher", 0)]
TABLE = entries(CLUSTER)


def test_golden_file() -> None:
    after, removed = plan(DEBIAN, entries(CLUSTER, "hpc.example"), "node01")
    assert after == (GOLDEN / "hosts").read_text(encoding="utf-8")
    assert removed == ["line 2: 127.0.1.1\tnode01.example node01"]


def test_the_names_of_one_host() -> None:
    assert facts.names(CLUSTER, "x.y")["own"]["node02"] == {
        "node02.x.y": "10.10.0.12",
        "node02": "10.10.0.12",
        "node02-rail0": "10.20.0.12",
        "node02-rail1": "10.20.1.12",
    }


operator_lines = st.lists(
    st.one_of(
        st.from_regex(r"10\.9\.[0-9]\.[1-9] [a-m]{2,8}( [a-m]{2,8})?( #[ a-z]*)?", fullmatch=True),
        st.from_regex(r"#[ -~]*", fullmatch=True),
        st.just(""),
        st.just("127.0.0.1 localhost"),
    ).filter(lambda line: line not in (BEGIN, END)),
    max_size=8,
)


@given(operator_lines, operator_lines)
def test_the_operators_lines_survive(above: list[str], below: list[str]) -> None:
    text = "".join(f"{line}\n" for line in above)
    first = plan(text, TABLE, "node01")[0]
    assert first.splitlines()[: len(above)] == above
    edited = first + "".join(f"{line}\n" for line in below)
    second = plan(edited, TABLE, "node01")[0]
    kept = [line for line in second.splitlines() if line in below]
    assert kept[len(kept) - len(below) :] == below if below else True
    assert plan(second, TABLE, "node01")[0] == second


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("", ["127.0.0.1 localhost", "::1 localhost"]),
        ("127.0.0.1 localhost\n", ["::1 localhost"]),
        ("127.0.0.1 localhost\n::1 localhost\n", []),
        ("127.0.0.1 localhost.localdomain localhost\n::1 ip6-localhost localhost\n", []),
    ],
)
def test_localhost_is_added_where_it_is_missing(text: str, present: list[str]) -> None:
    block = plan(text, TABLE, "node01")[0].split(BEGIN)[1].splitlines()
    assert [line for line in block if "localhost" in line] == present


def test_without_ipv6_no_line_for_it() -> None:
    assert "::1" not in plan("", TABLE, "node01", ipv6=False)[0]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("127.0.1.1 node01", None),
        ("127.0.1.1 node01.old.example node01", None),
        ("127.0.0.1 localhost node01", "127.0.0.1 localhost"),
        ("127.0.0.1 localhost NODE01 # installer", "127.0.0.1 localhost # installer"),
        ("::1 node01 localhost", "::1 localhost"),
    ],
)
def test_the_own_name_leaves_loopback_lines(line: str, left: str | None) -> None:
    after, removed = plan(f"{line}\n10.9.9.9 other\n", TABLE, "node01")
    outside = after.split(BEGIN)[0].splitlines()
    assert outside == [*([left] if left else []), "10.9.9.9 other"]
    assert removed == [f"line 1: {line}"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("# x\n127.0.1.1 node02\n", "line 2: .*node02 to 127.0.1.1"),
        ("10.1.1.1 node01\n", "line 1: .*node01 to 10.1.1.1, .*10.10.0.11"),
        ("10.1.1.1 storage Node02-RAIL1\n", "Node02-RAIL1 to 10.1.1.1"),
        ("127.0.1.1 node01 node02\n", "maps node02"),
        ("10.1.1.1 localhost\n", "line 1: .*localhost"),
        (f"{BEGIN}\n10.1.1.1 a\n", "must occur once"),
        (f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", "must occur once"),
    ],
)
def test_other_conflicts_are_refused_with_their_line(text: str, messages: str) -> None:
    with pytest.raises(PlanError, match=messages):
        plan(text, TABLE, "node01")


def test_the_same_address_twice_is_no_conflict() -> None:
    text = "10.10.0.11 node01 head\n"
    after, _removed = plan(text, TABLE, "node01")
    assert after.startswith(text)
    assert wrong_names(after, {"node01": "10.10.0.11"}) == []


def test_lines_that_glibc_ignores() -> None:
    line = HostsLine.parse(1, "10.0.0.1 a # b c")
    assert (line.address, line.names) == ("10.0.0.1", ("a",))
    ignored = "nonsense\n10.0.0.1\n10.0.0.300 a\n # x\n"
    assert len(wrong_names(ignored, {"a": "10.0.0.1"})) == 1
    assert wrong_names("FE80:0:0::1 a\nfe80::1 a\n", {"a": "fe80::1"}) == []


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A file tree of this user, with cloud-init."""
    (tmp_path / "etc/cloud/cloud.cfg.d").mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text(DEBIAN)
    return Node("names", tmp_path, run, None, "b", uid=os.getuid(), gid=os.getgid())


def test_the_host_name_is_set(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(socket, "sethostname", given.append)
    names = Names("node01", TABLE, {"node01": "10.10.0.11"})
    outcome = settle([names], node)
    assert given == ["node01"]
    assert node.read("/etc/hostname") == "node01\n"
    cloud = node.read("/etc/cloud/cloud.cfg.d/99-baremetal-mpi-roce.cfg") or ""
    assert "preserve_hostname: true\nmanage_etc_hosts: false\n" in cloud
    assert names.removed == ["line 2: 127.0.1.1\tnode01.example node01"]
    status = {check.name: check.status for check in outcome.checks}
    assert status["names_in_table"] == status["file"] == "ok"
    assert status["host_name"] == "failed", "this machine has another name"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (
            ("10.10.0.12 node02\n", "10.10.0.99 node02\n"),
            "node02 is 10.10.0.12, found line 10: '10.10.0.99 node02'",
        ),
        (("10.20.1.12 node02-rail1\n", ""), "node02-rail1 is 10.20.1.12, found no line"),
        (
            (END, f"10.9.0.1 launcher\n{END}"),
            "launcher is 10.10.0.5, found line 13: '10.10.0.5 launcher', "
            "line 14: '10.9.0.1 launcher'",
        ),
    ],
)
def test_a_wrong_line_of_the_block_is_named(node: Node, edit: tuple[str, str], reason: str) -> None:
    text = plan(DEBIAN, TABLE, "node01")[0]
    assert edit[0] in text
    node.path("/etc/hosts").write_text(text.replace(*edit))
    names = Names("node01", TABLE, {})
    (check,) = [each for each in names.verify(node).checks if each.name == "names_in_table"]
    assert (check.wanted, check.found, check.reason) == (7, 6, reason)


def test_no_lookup_before_the_name_source_is_corrected(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_words, **_options: pytest.fail("asked"))
    node.path("/etc/nsswitch.conf").write_text("hosts: dns files\n")
    status = {
        each.name: each for each in Names("node01", TABLE, {"node01": "x"}).verify(node).checks
    }
    assert status["names_source"].status == "failed"
    assert "/etc/nsswitch.conf:1" in status["names_source"].by_hand
    skipped = {status[name].status for name in ("names_resolve", "localhost_resolves")}
    assert skipped == {"not_applicable"}


def test_an_error_of_the_kernel(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "sethostname", refuse)
    (error,) = settle([Names("node01", TABLE, {})], node).errors
    assert "SYS_ADMIN" in error
