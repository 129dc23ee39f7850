"""/etc/hosts: the managed block, the operator's lines, and conflicts between the two."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import resolve
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result, run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.names import (
    BEGIN,
    END,
    HostsLine,
    Names,
    plan,
    wrong_names,
    zone_text,
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
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A file tree of this user, with cloud-init. The name of this machine is not changed."""
    monkeypatch.setattr(socket, "sethostname", lambda _name: None)
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


# Names by the site's resolver.


ESSENTIAL = [host("launcher", 5, "launcher", 0), host("storage", 6, "storage", 0)]
SERVED = facts.names([*CLUSTER[:2], *ESSENTIAL], "hpc.example")
LINES = {
    name: [tuple(line.split()) for line in SERVED[name].splitlines()]
    for name in ("table", "essential")
}


def resolved() -> Names:
    """node01, which looks up the names of node02."""
    return Names("node01", LINES["essential"], SERVED["own"]["node01"], SERVED["own"]["node02"])


class Site:
    """Programs of a node: getent without files, and systemctl with a running dnsmasq."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, argv: Sequence[str], **_options: Any) -> Result:
        self.calls.append(tuple(argv))
        if argv[0] == "systemctl":
            return Result(tuple(argv), 0, "ActiveState=active\n", "")
        assert tuple(argv[:4]) == ("getent", "-s", "hosts:dns", "ahosts")
        address = self.known.get(argv[4])
        text = f"{address}  STREAM {argv[4]}\n{address}  DGRAM\n" if address else ""
        return Result(tuple(argv), 0 if address else 2, text, "")


def test_one_node_more_changes_the_next_of_the_last_one() -> None:
    before = facts.names(CLUSTER, "")
    after = facts.names([*CLUSTER[:2], host("node03", 13), CLUSTER[2]], "")
    assert before["next"] == {"node01": "node02", "node02": "node01", "launcher": "node01"}
    assert after["next"] == {**before["next"], "node02": "node03", "node03": "node01"}
    assert after["essential"] == before["essential"] == "10.10.0.5 launcher\n"
    assert {name: after["own"][name] for name in before["own"]} == before["own"]


def test_without_compute_nodes_a_host_is_next_to_itself() -> None:
    assert facts.names(ESSENTIAL, "")["next"] == {"launcher": "launcher", "storage": "storage"}


def test_with_a_resolver_only_essential_and_own_lines(node: Node) -> None:
    site = replace(node, run=Site({}))
    settle([resolved()], site)
    block = (node.read("/etc/hosts") or "").partition(f"{BEGIN}\n")[2].partition(f"{END}\n")[0]
    assert block.splitlines() == [
        "10.10.0.5 launcher.hpc.example launcher",
        "10.10.0.6 storage.hpc.example storage",
        "10.10.0.11 node01.hpc.example node01",
        "10.20.0.11 node01-rail0",
        "10.20.1.11 node01-rail1",
    ]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"node02": "10.9.9.9"}, "dns of /etc/nsswitch.conf resolves node02: 10.9.9.9, not 10.10"),
        ({"node02-rail1": ""}, "dns of /etc/nsswitch.conf resolves node02-rail1: nothing, not"),
        ({}, ""),
    ],
    ids=["another address", "no answer", "right"],
)
def test_lines_stay_until_the_resolver_has_the_names(
    node: Node, edit: dict[str, str], message: str
) -> None:
    whole, _removed = plan(node.read("/etc/hosts") or "", LINES["table"], "node01")
    node.path("/etc/hosts").write_text(whole)
    site = replace(node, run=Site({**SERVED["own"]["node02"], **edit}))
    if message:
        with pytest.raises(PlanError, match=message):
            settle([resolved()], site)
        assert node.read("/etc/hosts") == whole
        return
    settle([resolved()], site)
    left = node.read("/etc/hosts") or ""
    assert "node02" not in left
    assert "10.10.0.11 node01.hpc.example node01" in left


def test_no_server_in_nsswitch_conf_answers_nothing(node: Node) -> None:
    whole, _removed = plan(node.read("/etc/hosts") or "", LINES["table"], "node01")
    node.path("/etc/hosts").write_text(whole)
    node.path("/etc/nsswitch.conf").write_text("hosts: files myhostname # dns\n")
    with pytest.raises(PlanError, match="no name server"):
        settle([resolved()], replace(node, run=Site({})))


@pytest.mark.parametrize("wrong", ["", "node02-rail0"])
def test_names_of_the_next_node_are_looked_up(
    node: Node, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    known = {**SERVED["own"]["node01"], **SERVED["own"]["node02"], "localhost": "127.0.0.1"}
    known.pop(wrong, None)

    def answer(name: str, *_words: Any, **_options: Any) -> list[Any]:
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (known[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    checks = {(check.name, check.subject): check for check in resolved().verify(node).checks}
    every = len(SERVED["own"]["node01"]) + len(SERVED["own"]["node02"])
    if wrong:
        assert checks["name_resolves", wrong].status == "failed"
        assert checks["name_resolves", wrong].wanted == "10.20.0.12"
    else:
        check = checks["names_resolve", ""]
        assert (check.status, check.found) == ("ok", f"{every} of {every}")


def test_the_names_are_records_of_a_zone(node: Node) -> None:
    table = [*LINES["table"], ("2001:db8::7", "node07"), ("10.0.0.8", "gw.other.example")]
    assert zone_text(table).splitlines()[1:] == [
        "node01 IN A 10.10.0.11",
        "node01-rail0 IN A 10.20.0.11",
        "node01-rail1 IN A 10.20.1.11",
        "node02 IN A 10.10.0.12",
        "node02-rail0 IN A 10.20.0.12",
        "node02-rail1 IN A 10.20.1.12",
        "launcher IN A 10.10.0.5",
        "storage IN A 10.10.0.6",
        "node07 IN AAAA 2001:db8::7",
        "gw.other.example. IN A 10.0.0.8",
    ]
    node.path("/etc/hosts").unlink()
    settle([Names("launcher", LINES["table"], {}, {}, "/etc/records")], node)
    assert node.read("/etc/records") == zone_text(LINES["table"])
    assert zone_text(LINES["table"]).startswith("; ")


def test_dnsmasq_reads_a_changed_file_again(node: Node) -> None:
    node.path("/etc/hosts").unlink()
    unit = node.path("/usr/lib/systemd/system/dnsmasq.service")
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    site = Site({})
    names = Names("launcher", LINES["table"], {})
    told = ("systemctl", "kill", "--signal=HUP", "dnsmasq.service")
    settle([names], replace(node, run=site))
    assert site.calls.count(told) == 1
    settle([names], replace(node, run=site))
    assert site.calls.count(told) == 1, "nothing changed"


@pytest.mark.parametrize(
    ("line", "sources"),
    [
        ("hosts: files dns", ["dns"]),
        (
            "hosts:  files mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] dns",
            ["mdns4_minimal", "resolve", "dns"],
        ),
        ("hosts: files # dns", []),
        ("passwd: sss", ["dns"]),
    ],
)
def test_sources_that_ask_a_server(tmp_path: Path, line: str, sources: list[str]) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nsswitch.conf").write_text(f"# comment\n{line}\n")
    assert resolve.servers(tmp_path) == sources
    assert resolve.servers(tmp_path / "none") == ["dns"]
