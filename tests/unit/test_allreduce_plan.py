# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan of a run: sizes, command line, and deviations of the hostfile."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import (
    PlanError,
    RunPlan,
    command,
    sizes,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (
    LaunchNode,
    as_listed,
    nodes_of,
)
from hypothesis import given
from hypothesis import strategies as st

NODES = (LaunchNode("node01", 8, ("rail0", "rail1")), LaunchNode("node02", 4, ("rail0", "rail1")))


@given(st.integers(4, 1 << 30), st.integers(2, 64))
def test_sizes_go_from_four_bytes_to_the_largest(largest: int, step: int) -> None:
    found = sizes(largest, step)
    assert found[0] == 4
    assert found[-1] == largest - largest % 4
    assert found == sorted(set(found))
    assert all(size % 4 == 0 for size in found)


def test_the_command_has_all_options_and_the_run_id() -> None:
    plan = RunPlan(NODES, "tcp", parameters=(("btl_base_verbose", "10"),))
    argv = command(plan, "/etc/hosts.mpi", "abc123", 60)
    text = " ".join(argv)
    assert argv[0] == "mpirun"
    assert "--mca baremetal_run_id abc123" in text
    assert "--mca btl_base_verbose 10" in text
    assert "--hostfile /etc/hosts.mpi -np 12 --map-by slot --bind-to none" in text
    assert "rail-bind /usr/bin/python3" in text
    assert argv[argv.index("--run-id") + 1] == "abc123"
    assert json.loads(argv[-1])["time_limit_s"] == 60


@pytest.mark.parametrize(
    ("gpus", "wanted"), [(4, (0, None, 1, None)), (0, (0, 1, 0))], ids=["by GPU", "by rail"]
)
def test_a_rank_has_the_numa_node_of_its_gpu_or_rail(
    gpus: int, wanted: tuple[int | None, ...]
) -> None:
    common = {"address": "", "speed_gbps": 800, "network": ""}
    rails: list[dict] = [
        {**common, "interface": f"rail{n}", "rail": n, "gpu": 2 * n if gpus else None, "numa": n}
        for n in (0, 1)
    ]
    entry = {"name": "node01", "role": "compute", "drained": False, "slots": 3, "rails": rails}
    [found] = nodes_of([{**entry, "gpus": gpus}])
    assert found.numa == wanted


def test_rankfile_and_unbound_rails() -> None:
    plan = RunPlan(NODES, "tcp", rankfile="/etc/rankfile", bind_rails=False)
    text = " ".join(command(plan, "h", "id", 60))
    assert "--rankfile /etc/rankfile" in text
    assert "--map-by" not in text
    assert "rail-bind" not in text
    text = " ".join(command(RunPlan(NODES, "tcp", rankfile="/etc/rankfile"), "h", "id", 60))
    assert "rail-bind --keep-cpus /usr/bin/python3" in text


def test_a_subset_is_a_short_run() -> None:
    plan = RunPlan(NODES, "tcp", max_bytes=1 << 20, rankfile="/etc/rankfile")
    part = plan.subset(["node02"])
    assert [node.name for node in part.nodes] == ["node02"] and part.ranks == 4
    assert part.sizes[-1] == plan.sizes[-1] and len(part.sizes) < len(plan.sizes)
    assert (part.rankfile, part.hostfile()) == ("", "node02 slots=4\n")


def test_a_plan_without_nodes_is_refused() -> None:
    with pytest.raises(PlanError, match="no compute node"):
        RunPlan((), "tcp")


def test_the_hostfile_decides_order_and_names(tmp_path: Path) -> None:
    path = tmp_path / "hostfile"
    path.write_text("# comment\nnode02-rail0 slots=4 max_slots=4\nnode01 slots=8\n")
    nodes, differences = as_listed(NODES, path)
    assert differences == []
    assert [(node.name, node.host) for node in nodes] == [
        ("node02", "node02-rail0"),
        ("node01", "node01"),
    ]


@pytest.mark.parametrize(
    ("text", "difference"),
    [
        ("node01 slots=8\n", "node02: in the model"),
        ("node01 slots=8\nnode02 slots=8\n", "node02: 4 slots, 8 in the hostfile"),
        ("node01 slots=8\nnode02 slots=4\nnode03 slots=1\n", "node03: in the hostfile"),
        ("# head\nnode01:8\n", "line 2: 'node01:8' is not of the format openmpi"),
        ("node01 slots=8\nnode01 slots=8\n", "line 2: "),
        ("", "node01: in the model"),
        (None, "No such file"),
    ],
)
def test_deviations_of_the_hostfile_are_listed(
    tmp_path: Path, text: str | None, difference: str
) -> None:
    path = tmp_path / "hostfile"
    if text is not None:
        path.write_text(text)
    _nodes, differences = as_listed(NODES, path)
    assert any(difference in line for line in differences)


def shaped(*by_rank: tuple[str, ...], name: str = "node01", network: str = "a") -> LaunchNode:
    rails = tuple(rail for own in by_rank for rail in own)
    return LaunchNode(name, len(by_rank), rails, networks=(network,) * len(rails), by_rank=by_rank)


def test_a_rank_without_a_peer_proves_no_rail() -> None:
    wide, narrow = shaped(("rail0",), ("rail1",)), shaped(("rail0",), name="node02")
    assert RunPlan((wide, narrow), "tcp").provable(wide) == ("rail0",)
    assert RunPlan((wide,), "tcp").provable(wide) == ()
    assert RunPlan((wide, wide), "tcp", bind_rails=False).provable(wide) == ()


@pytest.mark.parametrize(
    ("by_rank", "network", "transport", "runs"),
    [
        ((("rail0",), ("rail1",)), "a", "tcp", []),
        ((("rail0p0", "rail0p1"),), "a", "rc", [0, 1]),
        ((("rail0",), ("rail1",)), "b", "tcp", [0]),
        ((("rail0",), ("rail1",)), "b", "rc", []),
    ],
    ids=["a rail a rank", "planes", "routed", "routed over RDMA"],
)
def test_short_runs_are_for_ranks_with_a_choice(
    by_rank: tuple[tuple[str, ...], ...], network: str, transport: str, runs: list[int]
) -> None:
    nodes = (shaped(*by_rank), shaped(*by_rank, name="node02", network=network))
    found = RunPlan(nodes, transport).rail_runs
    assert [plan.only for plan in found] == runs
    for plan in found:
        argv = command(plan, "h", "id", 60)
        assert argv[argv.index("--only") + 1] == str(plan.only)
        assert ("ob1" in argv) is (network == "b")
        assert json.loads(argv[-1])["sizes"] == []


PLANES = LaunchNode(
    "node01",
    2,
    ("rail0p0", "rail0p1", "rail1p0", "rail1p1"),
    (400.0,) * 4,
    networks=("a", "b", "c", "d"),
    by_rank=(("rail0p0", "rail0p1"), ("rail1p0", "rail1p1")),
    numbers=(0, 0, 1, 1),
)


def test_planes_with_one_device_are_one_rail() -> None:
    """Balanced in hardware: Mellanox/nic-configuration-operator 632f1295."""
    first = [("mlx5_0:1", "rail0p0"), ("mlx5_1:1", "rail1p0")]
    one = PLANES.of_devices(first)
    assert (one.rails, one.speeds) == (("rail0p0", "rail1p0"), (800.0, 800.0))
    assert (one.networks, one.given) == (("a", "c"), one.rails)
    assert one.line_rate_gbytes_s == PLANES.line_rate_gbytes_s
    assert one.devices == tuple(first)


@pytest.mark.parametrize(
    "interfaces",
    [
        ("rail0p0", "rail0p1", "rail1p0", "rail1p1"),
        ("rail0p0", "rail1p0", "rail1p1"),
        ("rail0p0",),
        (),
    ],
)
def test_separate_planes_are_separate_rails(interfaces: tuple[str, ...]) -> None:
    devices = [(f"mlx5_{number}:1", name) for number, name in enumerate(interfaces)]
    assert PLANES.of_devices(devices).rails == PLANES.rails
    single = dataclasses.replace(PLANES, numbers=(0, 1, 2, 3))
    assert single.of_devices([("mlx5_0:1", "rail0p0")]).rails == PLANES.rails
