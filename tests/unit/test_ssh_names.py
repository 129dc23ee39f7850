"""Names, patterns and whom each node probes."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh_trust import names
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ssh_cluster import directory, entry


def test_a_node_has_every_name_it_is_called_by() -> None:
    assert names.names_of(entry("node01", "compute", 11), "example.org") == [
        "node01",
        "node01.example.org",
        "10.0.0.11",
        "node01-rail0",
        "10.1.0.11",
        "node01-rail1",
        "10.1.1.11",
    ]


def test_storage_takes_no_part() -> None:
    assert [each["name"] for each in names.members(directory(1))] == ["launcher", "node01"]


def test_patterns_are_stems_and_networks() -> None:
    assert names.patterns_of(names.members(directory())) == [
        "launcher*",
        "node*",
        "10.0.0.*",
        "10.1.0.*",
        "10.1.1.*",
    ]


@pytest.mark.parametrize(
    ("network", "address", "pattern"),
    [
        ("10.1.0.0/16", "10.1.7.9", "10.1.*"),
        ("10.0.0.0/8", "10.7.7.9", "10.*"),
        ("10.1.4.0/22", "10.1.6.9", "10.1.*"),
        ("10.1.4.128/25", "10.1.4.129", "10.1.*"),
        ("10.1.4.0/31", "10.1.4.1", "10.1.*"),
    ],
)
def test_networks_that_end_between_octets(network: str, address: str, pattern: str) -> None:
    node = entry("n1", "compute", 1, rails=1)
    node["rails"][0].update(network=network, address=address)
    assert pattern in names.patterns_of([node])


ROLES = st.sampled_from(["compute", "launcher"])
STEMS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True)


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes of several stems, domains, networks and numbers of rails."""
    entries = []
    for name in draw(st.lists(STEMS, min_size=1, max_size=6, unique=True)):
        node = entry(name, draw(ROLES), draw(st.integers(1, 250)), draw(st.integers(0, 3)))
        for rail in node["rails"]:
            third, length = draw(st.integers(0, 255)), draw(st.sampled_from([16, 20, 24, 31]))
            block = {16: 0, 20: third & 0xF0, 24: third, 31: third}[length]
            last = 0 if length != 31 else draw(st.integers(0, 127)) * 2
            rail["network"] = f"10.9.{block}.{last}/{length}"
            rail["address"] = f"10.9.{third}.{last + 1}"
        entries.append(node)
    return entries


def covered(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@given(clusters(), st.sampled_from(["", "example.org"]))
def test_patterns_cover_every_name(entries: list[dict[str, Any]], domain: str) -> None:
    patterns = names.patterns_of(entries)
    for each in entries:
        for name in names.names_of(each, domain):
            assert covered(name, patterns), name


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_node_more_changes_no_pattern(few: int, more: int) -> None:
    before = names.patterns_of(names.members(directory(few)))
    assert names.patterns_of(names.members(directory(few + more))) == before


def test_ten_thousand_links_of_two_addresses_stay_a_few_patterns() -> None:
    entries = []
    for number in range(10_000):
        node = entry(f"node{number:05d}", "compute", 1, rails=1)
        third, last = divmod(number * 2, 256)
        node["rails"][0]["network"] = f"100.{64 + third // 256}.{third % 256}.{last}/31"
        node["management_address"] = f"10.20.{number // 250}.{number % 250 + 1}"
        entries.append(node)
    assert len(names.patterns_of(entries)) <= names.PATTERNS_AT_MOST + 2


def test_names_of_digits_only_are_listed() -> None:
    assert names.patterns_of([entry("17", "compute", 1, rails=0)])[:3] == ["17", "17-*", "17.*"]


def test_the_launcher_reaches_every_compute_node() -> None:
    probes = names.probes_of(names.members(directory(3)))
    assert [each["target"] for each in probes["launcher"]] == ["node01", "node02", "node03"]


def test_each_compute_node_reaches_the_next_by_both_paths() -> None:
    probes = names.probes_of(names.members(directory(2)))
    assert probes["node01"] == [
        {"host": "node02", "target": "node02"},
        {"host": "node02", "target": "node02-rail0"},
    ]
    assert [each["host"] for each in probes["node02"]] == ["node01", "node01"]


@given(st.integers(1, 40))
def test_the_ring_reaches_everybody_and_is_linear(count: int) -> None:
    probes = names.probes_of(names.members(directory(count)))
    ring = {name: probes[name][0]["host"] for name in probes if name != "launcher"}
    assert sorted(ring.values()) == sorted(ring)
    at, seen = "node01", set()
    while at not in seen:
        seen.add(at)
        at = ring[at]
    assert len(seen) == count
    assert sum(map(len, probes.values())) == 3 * count
