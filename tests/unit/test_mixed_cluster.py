# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One cluster with B300, slower H100 and nodes without GPUs, and two launchers, through what the
layers compute from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action.mpi_allreduce import needed
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import environment, hostfile
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.gpu import of_gpus
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import RunPlan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job import plan as job
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (
    nodes_of,
    with_rails,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce, mpi_stack
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import rail_pairs
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import cabling, system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import facts
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi import bench
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.ssh import publishing

from tests.unit.small_model import compiled

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: mixed
management: {subnet: 10.0.0.0/24}
kinds:
  h100: {rails: {speed_gbps: 400}}
  cpu: {gpus: {count: 0}, rails: {count: 1, speed_gbps: 200}, slots: 6}
nodes:
  - {count: 3, name: "b{:02d}", management_first: 10.0.0.11}
  - {count: 3, name: "h{:02d}", management_first: 10.0.0.21, kind: h100}
  - {count: 1, name: "c{:02d}", management_first: 10.0.0.31, kind: cpu}
gpus: {count: 4, numa: [0, 0, 1, 1]}
rails: {count: 4, speed_gbps: 800}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 4, ports: 64, management_first: 10.0.0.101, system: sonic, asic: spectrum4}
spines: {count: 2, ports: 64, management_first: 10.0.0.111, links_per_leaf: 8}
launchers: [{name: login01, management: 10.0.0.9}, {name: login02, management: 10.0.0.10}]
"""
VARIABLES = {host.name: compiled(MODEL).merged(host) for host in compiled(MODEL).hosts}
DIRECTORY = facts.build(VARIABLES)
COMPUTE = [entry for entry in DIRECTORY if entry["role"] == "compute"]
NODES = nodes_of([needed(entry) for entry in DIRECTORY])


def test_the_hostfile_has_the_slots_of_each_kind() -> None:
    members = hostfile.compile_membership(DIRECTORY)
    text = hostfile.render(members, "openmpi")
    assert hostfile.parse(text) == {
        **{f"b{number:02d}": 4 for number in (1, 2, 3)},
        **{f"h{number:02d}": 4 for number in (1, 2, 3)},
        "c01": 6,
    }
    by_leaves = hostfile.compile_membership(DIRECTORY, order="rail_group")
    assert [member.host for member in by_leaves.members][-1] == "c01"


def test_the_rankmap_says_which_ranks_have_a_rail() -> None:
    members = hostfile.compile_membership(DIRECTORY)
    lines = hostfile.render_rankmap(hostfile.place(members)).splitlines()
    assert [line for line in lines if line.endswith(" rail0")] == [
        *(f"{4 * number} {host} 0 0 rail0" for number, host in enumerate(members.addresses()))
    ][:6] + [f"{24 + local} c01 {local} - rail0" for local in range(6)]


def test_ranks_without_a_gpu_are_bound_near_their_rail() -> None:
    cores = {"0": "0-11", "1": "12-23"}
    entries = [dict(entry, drained=entry["name"] not in ("b01", "c01")) for entry in COMPUTE]
    with pytest.raises(
        PlanError, match=r"c01: the NUMA node of rank 0 is unknown: set rails\.numa"
    ):
        hostfile.bind(hostfile.compile_membership(entries), cores)
    rails = [{**rail, "numa": 1} for rail in entries[-1]["rails"]]
    entries[-1] = {**entries[-1], "rails": rails}
    bound = hostfile.bind(hostfile.compile_membership(entries), cores)
    assert [each.cores[0] for each in bound] == [0, 6, 12, 18, *range(12, 24, 2)]


def test_a_rail_for_names_must_be_one_of_every_node() -> None:
    with pytest.raises(PlanError, match=r"^c01: has no rail 'rail3'"):
        hostfile.compile_membership(DIRECTORY, names="rail3")


def test_ranks_have_the_rails_of_their_node() -> None:
    rails = {node.name: [",".join(own) for own in node.by_rank] for node in NODES}
    assert rails["b01"] == rails["h01"] == ["rail0", "rail1", "rail2", "rail3"]
    assert rails["c01"] == ["rail0"] * 6
    settings = [
        environment.MpiSettings(
            management_network="10.0.0.0/24",
            rails=tuple(environment.rails_from_model(VARIABLES[name]["cluster_rails"])),
            slots=VARIABLES[name]["cluster_slots"],
        )
        for name in ("h01", "c01", "login02")
        if "cluster_rails" in VARIABLES[name]
    ]
    devices = [environment.environment(each)["UCX_NET_DEVICES"] for each in settings]
    assert devices == ["rail0,rail1,rail2,rail3", "rail0"]


def test_the_smoke_test_expects_of_each_node_what_it_has() -> None:
    plan = RunPlan(NODES, "rc")
    assert plan.ranks == 30
    assert [plan.provable(node) for node in (NODES[0], NODES[-1])] == [
        ("rail0", "rail1", "rail2", "rail3"),
        ("rail0",),
    ]
    assert min(node.line_rate_gbytes_s for node in plan.nodes) == 25
    gpus = of_gpus(plan)
    assert [node.kind for node in gpus.nodes] == ["default"] * 3 + ["h100"] * 3
    assert min(node.line_rate_gbytes_s for node in gpus.nodes) == 200


def test_ranks_of_one_number_on_several_rails_have_a_run_that_binds() -> None:
    """Over TCP, the node sends by the rail in whose network the peer is."""
    b300, cpu = NODES[:3], NODES[-1:]
    assert not RunPlan(b300, "tcp").rail_runs
    (only,) = RunPlan((*b300, *cpu), "tcp").rail_runs
    assert only.unbound and not RunPlan((*b300, *cpu), "rc").rail_runs
    alike = tuple(replace(node, slots=1, by_rank=node.by_rank[:1]) for node in (*b300, *cpu))
    assert not RunPlan(alike, "tcp").rail_runs


def test_pairs_of_ranks_have_the_slower_rate() -> None:
    ranks = {rank.place: rank for rank in bench.ranks_of(DIRECTORY)}
    rates = {
        (one, other): bench.Pair(ranks[one], ranks[other]).rate_gbytes_s
        for one, other in (("b01:0", "b02:0"), ("b01:0", "h01:0"), ("h01:3", "c01:5"))
    }
    assert list(rates.values()) == [100, 50, 25]
    pairs = [pair.name for pair in bench.pairs_of(list(ranks.values()), ())]
    assert pairs == [
        "b01:0 - b01:1",
        *("b01:0 - c01:0", "b01:0 - b02:0", "b01:0 - h01:0"),
        *("b01:0 - b02:1", "b01:0 - h01:1"),
    ]
    assert ranks["b01:2"].leaves.isdisjoint(ranks["c01:2"].leaves)
    assert not ranks["b01:0"].leaves.isdisjoint(ranks["c01:2"].leaves)


def test_rails_are_measured_between_nodes_that_have_them() -> None:
    names = [entry["name"] for entry in COMPUTE]
    parts = rail_pairs.parts(DIRECTORY, names, 18515)
    peers = {
        (name, half.rail): (half.peer, half.gpu, half.peer_gbps)
        for name, part in parts.items()
        for half in part.drives
    }
    assert peers["b01", "rail3"] == ("b02", 3, None)
    assert peers["b03", "rail3"] == ("b01", 3, None)
    assert peers["h03", "rail0"] == ("h01", 0, None)
    # The only node of its kind.
    assert peers["b03", "rail0"] == ("c01", None, 200)
    assert peers["c01", "rail0"] == ("b01", None, None)
    assert {rail for name, rail in peers if name == "c01"} == {"rail0"}
    assert not any(part.alone for part in parts.values())


def test_each_launcher_reaches_every_node() -> None:
    entries = publishing.members(DIRECTORY)
    probes = publishing.probes_of(entries)
    assert [probe["host"] for probe in probes["login02"]] == [entry["name"] for entry in COMPUTE]
    assert probes["login01"] == probes["login02"]
    rails: dict[str, set[str]] = {}
    for probe in (probe for own in probes.values() for probe in own if "rail" in probe):
        rails.setdefault(probe["rail"], set()).add(probe["host"])
    assert rails["rail0"] - rails["rail1"] == {"c01"}


def test_ports_have_the_speed_of_their_node() -> None:
    own: Mapping[str, Any] = VARIABLES["leaf01"]
    contract = read_contract(own["roce_qos"])
    intent = system.compile_switch(
        "leaf01", "sonic", "spectrum4", {}, own["cluster_ports"], contract
    )
    speeds = {port.peer: port.speed_gbps for port in intent.ports if port.kind == "host"}
    assert speeds == {
        entry["name"]: {"b": 800, "h": 400, "c": 200}[entry["name"][0]] for entry in COMPUTE
    }
    entry = cabling.SwitchEntry("leaf01", own["cluster_ports"])
    cables = [cable for cable in cabling.cables_of([entry]) if cable.kind == "host"]
    assert {(cable.second.host, cable.speed_gbps) for cable in cables} == set(speeds.items())


# Nodes without rails

SERVICE = MODEL.replace(
    "nodes:\n",
    "  tcp: {gpus: {count: 0}, rails: {count: 0}, slots: 5}\n"
    "  login: {gpus: {count: 0}, rails: {count: 0}}\n"
    "nodes:\n",
).replace(
    "gpus: {count: 4",
    '  - {count: 2, name: "t{:02d}", management_first: 10.0.0.41, kind: tcp, position: 900}\n'
    '  - {count: 1, name: "s{:02d}", management_first: 10.0.0.51, kind: login}\n'
    "gpus: {count: 4",
)


def with_service_nodes() -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    variables = {host.name: compiled(SERVICE).merged(host) for host in compiled(SERVICE).hosts}
    return variables, facts.build(variables)


def test_nodes_without_rails_take_no_port_and_change_no_other_host() -> None:
    variables, _directory = with_service_nodes()
    own = {name: variables.pop(name) for name in ("t01", "t02", "s01")}
    assert variables == VARIABLES
    assert [(each["cluster_slots"], each["cluster_rails"]) for each in own.values()] == [
        *((5, []), (5, [])),
        (0, []),
    ]
    assert "cluster_set" not in own["t01"]


def test_a_node_without_rails_is_in_no_leaf_set() -> None:
    text = SERVICE.replace("leaves: {count: 4", "leaves: {nodes_per_set: 4, count: 8")
    text = text.replace("kind: tcp, position: 900", "kind: tcp, position: 7")
    text = text.replace(
        "ports: 64, management_first: 10.0.0.111", "ports: 128, management_first: 10.0.0.111"
    )
    text = text.replace("kind: login}", "kind: login, position: 12}")
    sets = {
        host.name: compiled(text).merged(host).get("cluster_set") for host in compiled(text).hosts
    }
    assert [sets[name] for name in ("b01", "h02", "c01", "t01", "s01")] == [1, 2, 2, None, None]


def test_nodes_without_rails_are_in_no_hostfile_and_no_smoke_test() -> None:
    _variables, directory = with_service_nodes()
    text = hostfile.render(hostfile.compile_membership(directory), "openmpi")
    expected = hostfile.render(hostfile.compile_membership(DIRECTORY), "openmpi")
    named = [line for line in text.splitlines() if line not in expected.splitlines()]
    assert named == [f"# without rails: {name}" for name in ("t01", "t02", "s01")]
    nodes = nodes_of([needed(entry) for entry in directory])
    assert with_rails(nodes) == NODES
    assert [node.name for node in nodes if node not in NODES] == ["t01", "t02"]
    assert bench.ranks_of(directory) == bench.ranks_of(DIRECTORY)
    assert bench.kinds_of(directory, ["all"], "mpi4py") == ["default", "h100", "cpu"]


def test_a_cluster_whose_nodes_with_rails_are_drained_has_those_without() -> None:
    _variables, directory = with_service_nodes()
    entries = [dict(entry, drained=entry["kind"] != "tcp") for entry in directory[:10]]
    found = hostfile.parse(hostfile.render(hostfile.compile_membership(entries), "openmpi"))
    assert found == {"t01": 5, "t02": 5}


@pytest.mark.parametrize(
    ("kind", "transport"), [(("tcp",), "tcp"), (("cpu",), "rc"), (("h100", "default"), "rc")]
)
def test_a_job_on_nodes_without_rails_uses_tcp(kind: tuple[str, ...], transport: str) -> None:
    nodes = nodes_of([needed(entry) for entry in with_service_nodes()[1]])
    asked = job.Job(nodes, ("a.out",), "mpi", "x", Path(), Path(), kind=kind, transport="rc")
    assert job.transport_of(asked, job.chosen(asked, nodes)) == transport


@pytest.mark.parametrize("given", [{"kind": ("all",)}, {"places": {"b01": 1, "t01": 1}}])
def test_a_job_on_nodes_with_and_without_rails_is_refused(given: dict[str, Any]) -> None:
    nodes = nodes_of([needed(entry) for entry in with_service_nodes()[1]])
    with pytest.raises(PlanError, match=r"^t01.*: no rails in the model"):
        job.chosen(job.Job(nodes, ("a.out",), "mpi", "x", Path(), Path(), **given), nodes)


def test_nodes_without_rails_communicate_on_management() -> None:
    given = {name: option.get("default") for name, option in mpi_stack.ARGUMENTS.items()}
    host = {"address": "10.0.0.41", "prefix": 24, "interface": "eno1"}
    found = {
        slots: environment.environment(
            mpi_stack.wanted({**given, "management": host, "rails": [], "slots": slots})
        )
        for slots in (0, 5)
    }
    assert (found[5]["UCX_TLS"], found[5]["UCX_NET_DEVICES"]) == ("tcp,sm,self", "eno1")
    assert "UCX_NET_DEVICES" not in found[0], "a launcher"


def test_the_smoke_test_says_which_nodes_it_leaves_out() -> None:
    given = {name: option.get("default") for name, option in mpi_allreduce.ARGUMENTS.items()}
    entries = [needed(entry) for entry in with_service_nodes()[1]]
    test = mpi_allreduce.smoke_test({**given, "nodes": entries, "user": "mpi", "run_id": "x"})
    assert test.plan.nodes == NODES and test.without_rails == ("t01", "t02")
