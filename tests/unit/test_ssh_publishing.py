"""Names, host patterns, principals, ports and probes of the cluster's hosts."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ssh_cluster import directory, entry


@pytest.mark.parametrize(
    ("prefix", "pattern"),
    [(8, "10.*"), (12, "10.*"), (16, "10.7.*"), (22, "10.7.*"), (24, "10.7.6.*"), (28, "10.7.6.*")],
)
def test_patterns_of_networks(prefix: int, pattern: str) -> None:
    node = {**entry("n1", "compute", 1), "management_address": "10.7.6.9"}
    assert publishing.patterns_of([node], prefix) == ["n*", pattern]


def test_admitted_principals() -> None:
    launcher, node = directory(1)[:2]
    found = publishing.logins_of(node, "mpi@c", ["10.9.0.0/16"], between_compute=True)
    assert found == {
        "principal": "mpi@c/compute",
        "admits": ["mpi@c/launcher", "mpi@c/compute"],
        "sources": ["10.0.0.11", "10.1.0.11", "10.1.1.11", "10.9.0.0/16"],
    }
    closed = publishing.logins_of(node, "mpi@c", ["10.9.0.0/16"], False)["admits"]
    itself = ",".join(str(each) for each in found["sources"][:-1])
    assert closed == ["mpi@c/launcher", f'from="{itself}" mpi@c/compute'], "from itself only"
    assert publishing.logins_of(launcher, "mpi@c", [], True)["admits"] == ["mpi@c/launcher"]


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


def test_each_compute_node_reaches_the_next_by_both_paths() -> None:
    probes = publishing.probes_of(publishing.members(directory(2)))
    assert probes["node01"] == [
        {"host": "node02", "target": "node02"},
        {"host": "node02", "target": "node02-rail0"},
        {"host": "node02", "target": "node02-rail0", "rail": "rail0"},
        {"host": "node02", "target": "node02-rail1", "rail": "rail1"},
    ]
    assert {each["host"] for each in probes["node02"]} == {"node01"}
    assert [each["target"] for each in probes["launcher"]] == ["node01", "node02"]
    closed = publishing.probes_of(directory(2), between_compute=False)
    assert closed["launcher"] == probes["launcher"]
    assert all("rail" in probe for probe in closed["node01"])


def test_each_rail_is_probed_towards_the_next_node() -> None:
    entries = [
        entry(f"node{number:02d}", "compute", number, rails)
        for number, rails in enumerate((2, 1, 3, 2))
    ]
    tried = [
        f"{here} {probe['rail']} {probe['host']} {probe.get('witness', '-')}"
        for here, probes in publishing.probes_of(entries).items()
        for probe in probes
        if "rail" in probe
    ]
    assert tried == [
        "node00 rail0 node01 node02-rail0",
        "node00 rail1 node02 node03-rail1",
        "node01 rail0 node02 node03-rail0",
        "node02 rail0 node03 node00-rail0",
        "node02 rail1 node03 node00-rail1",
        "node03 rail0 node00 node01-rail0",
        "node03 rail1 node00 node02-rail1",
    ]


def test_ports() -> None:
    entries = publishing.members(directory(3))
    assert publishing.ports_of(entries) == {"port": 22, "other_ports": {}}
    entries[2] = {**entries[2], "ssh_port": 2022}
    names = ["node02", "node02.x", "10.0.0.12", "node02-rail0", "node02-rail1"]
    assert publishing.ports_of(entries, "x") == {"port": 22, "other_ports": {"2022": names}}
    every = [{**each, "ssh_port": 2222} for each in entries]
    every[0] = {**every[0], "ssh_port": 22}
    found = publishing.ports_of(every)
    assert (found["port"], list(found["other_ports"])) == (2222, ["22"])
    assert found["other_ports"]["22"] == ["launcher", "10.0.0.10"]
    probes = publishing.probes_of(entries)
    assert [each.get("port") for each in probes["launcher"]] == [None, 2022, None]
