"""Names, patterns and whom each node probes."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ssh_cluster import directory, entry


def test_a_node_has_every_name_it_is_called_by() -> None:
    assert publishing.names_of(entry("node01", "compute", 11), "example.org") == [
        "node01",
        "node01.example.org",
        "10.0.0.11",
        "node01-rail0",
        "node01-rail1",
    ]


def test_storage_takes_no_part() -> None:
    assert [each["name"] for each in publishing.members(directory(1))] == ["launcher", "node01"]


def test_patterns_are_stems_and_the_management_network() -> None:
    found = publishing.patterns_of(publishing.members(directory()))
    assert found == ["launcher*", "node*", "10.0.0.*"]


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [(8, "10.*"), (12, "10.*"), (16, "10.7.*"), (22, "10.7.*"), (24, "10.7.6.*"), (28, "10.7.6.*")],
)
def test_networks_that_end_between_octets(prefix: int, pattern: str) -> None:
    node = {**entry("n1", "compute", 1), "management_address": "10.7.6.9"}
    assert publishing.patterns_of([node], prefix) == ["n*", pattern]


ROLES = st.sampled_from(["compute", "launcher"])
STEMS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True)


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes of several stems, numbers of rails and management addresses."""
    entries = []
    for name in draw(st.lists(STEMS, min_size=1, max_size=6, unique=True)):
        node = entry(name, draw(ROLES), draw(st.integers(1, 250)), draw(st.integers(0, 3)))
        third, fourth = draw(st.integers(0, 255)), draw(st.integers(1, 254))
        node["management_address"] = f"10.9.{third}.{fourth}"
        entries.append(node)
    return entries


def covered(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@given(clusters(), st.sampled_from(["", "example.org"]), st.integers(8, 30))
def test_patterns_cover_every_name(entries: list[dict[str, Any]], domain: str, prefix: int) -> None:
    patterns = publishing.patterns_of(entries, prefix)
    for each in entries:
        for name in publishing.names_of(each, domain):
            assert covered(name, patterns), name


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_node_more_changes_no_pattern(few: int, more: int) -> None:
    """Not even the first one of another 256 of the management network."""
    entries = []
    for number in range(few + more):
        node = entry(f"node{number:03d}", "compute", 1)
        node["management_address"] = f"10.20.{number // 250}.{number % 250 + 1}"
        entries.append(node)
    assert publishing.patterns_of(entries, 16) == publishing.patterns_of(entries[:few], 16)


def test_names_of_digits_only_are_listed() -> None:
    assert publishing.patterns_of([entry("17", "compute", 1, rails=0)])[:3] == [
        "17",
        "17-*",
        "17.*",
    ]


def test_the_launcher_reaches_every_compute_node() -> None:
    probes = publishing.probes_of(publishing.members(directory(3)))
    assert [each["target"] for each in probes["launcher"]] == ["node01", "node02", "node03"]


def test_each_compute_node_reaches_the_next_by_both_paths() -> None:
    probes = publishing.probes_of(publishing.members(directory(2)))
    assert probes["node01"] == [
        {"host": "node02", "target": "node02"},
        {"host": "node02", "target": "node02-rail0"},
    ]
    assert [each["host"] for each in probes["node02"]] == ["node01", "node01"]


@given(st.integers(1, 40))
def test_the_ring_reaches_everybody_and_is_linear(count: int) -> None:
    probes = publishing.probes_of(publishing.members(directory(count)))
    ring = {name: probes[name][0]["host"] for name in probes if name != "launcher"}
    assert sorted(ring.values()) == sorted(ring)
    at, seen = "node01", set()
    while at not in seen:
        seen.add(at)
        at = ring[at]
    assert len(seen) == count
    assert sum(map(len, probes.values())) == 3 * count
