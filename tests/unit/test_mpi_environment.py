# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI settings of a host: environment file, parameters of Open MPI, and rails by rank."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import files
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.environment import (
    LAUNCH_AGENT,
    MpiRail,
    MpiSettings,
    environment,
    environment_text,
    foreign_parameters,
    parameters,
    parse_environment,
    rails_by_rank,
    rails_from_model,
    settings_in,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import HostSettings, RdmaPort
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.qos_contracts import compiled

ROLE_FILES = Path(__file__).parents[2] / "roles/mpi_stack/files"
RAILS = tuple(MpiRail(f"rail{number}", number) for number in range(8))
NODE = MpiSettings("10.10.0.0/22", rails=RAILS, slots=8)

DEBIAN_MCA_FILE = "mtl = ^ofi\nbtl = ^uct,openib,ofi\npml = ^ucx\nosc = ^ucx,pt2pt"
"""File of Debian 12, without a line feed at its end."""


def rdma_rails(indexes: Sequence[int], planes: int = 1) -> tuple[MpiRail, ...]:
    """Rails with RDMA whose addresses have these GID indexes, rail by rail and plane by plane."""
    return tuple(
        MpiRail(f"rail{k}", k // planes, rdma=RdmaPort(f"mlx5_{k}", 1, index, f"rail{k}"))
        for k, index in enumerate(indexes)
    )


def over_rdma(rails: Sequence[MpiRail], slots: int, **changes: object) -> dict[str, str]:
    qos = HostSettings.of(compiled())
    base = MpiSettings("10.10.0.0/22", "rc", tuple(rails), slots, qos=qos)
    return environment(replace(base, **changes))


def test_a_node_gets_its_transport_and_every_device_by_name() -> None:
    found = environment(NODE)
    assert found["UCX_NET_DEVICES"] == "rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7"
    assert found["MPI_ROCE_RAILS_BY_RANK"].split() == [rail.interface for rail in RAILS]
    assert found["UCX_TLS"] == "tcp,sm,self" and "UCX_IB_TRAFFIC_CLASS" not in found
    found = over_rdma(rdma_rails([3] * 8), 8)
    assert found["UCX_TLS"].split(",") == ["rc", "ud", "sm", "self"]
    assert found["UCX_NET_DEVICES"].startswith("mlx5_0:1,mlx5_1:1,")
    assert found["UCX_RC_MAX_NUM_EPS"] == "inf", "or UCX leaves rc for ud beyond 256 ranks"


def test_nccl_gets_several_queue_pairs_where_packets_cross_spines() -> None:
    name, contract = "NCCL_IB_QPS_PER_CONNECTION", HostSettings.of(compiled())
    several = replace(contract, queue_pairs=4)
    assert over_rdma(rdma_rails([3] * 8), 8, qos=several)[name] == "4"
    assert name not in over_rdma(rdma_rails([3] * 8), 8, qos=contract)
    assert name not in over_rdma((), 8, qos=several), "a launcher has no RDMA port"
    own = over_rdma(rdma_rails([3] * 8), 8, qos=several, extra_environment={name: "2"})
    assert own[name] == "2"


def test_gid_indexes_are_listed_by_rank() -> None:
    found = over_rdma(rdma_rails([3, 5]), 4)
    assert found["UCX_IB_GID_INDEX"] == "auto"
    assert found["MPI_ROCE_GID_INDEXES_BY_RANK"] == "3 5 3 5"
    alone = over_rdma(rdma_rails([3, 5]), 1)
    assert alone["MPI_ROCE_GID_INDEXES_BY_RANK"] == "3", "rail 1 has no rank, and still differs"


def test_planes_with_different_gid_indexes_are_refused() -> None:
    with pytest.raises(PlanError, match=r"local rank 1 .* \(3 on rail2, 5 on rail3\)"):
        over_rdma(rdma_rails([3, 3, 3, 5], planes=2), 2)


def test_large_messages_use_all_planes_of_a_rail() -> None:
    assert over_rdma(rdma_rails([3] * 8, planes=4), 2)["UCX_MAX_RNDV_RAILS"] == "4"
    assert "UCX_MAX_RNDV_RAILS" not in over_rdma(rdma_rails([3] * 4, planes=2), 2)


OF_PLANES = (
    *("UCX_IB_ROCE_REACHABILITY_MODE", "UCX_IB_ROCE_LOCAL_SUBNET"),
    *("UCX_IB_ROCE_SUBNET_PREFIX_LEN", "NCCL_CROSS_NIC"),
)


@pytest.mark.parametrize(
    ("entry", "since_1_19", "wanted"),
    [
        ({}, False, [None, None, None, None]),
        ({}, True, ["all", None, None, None]),
        ({"networks": []}, True, ["all", None, None, "0"]),
        ({"networks": []}, False, [None, None, None, "0"]),
        ({"networks": [], "plane_network": "/13"}, True, ["local_subnet", "y", "13", "0"]),
        ({"networks": [], "plane_network": "/13"}, False, [None, "y", "13", "0"]),
    ],
)
def test_devices_are_connected_within_their_plane(
    entry: dict[str, object], since_1_19: bool, wanted: list[str]
) -> None:
    given = [
        {"interface": f"rail0p{plane}", "rail": 0, "gpu": 0, "address": f"10.{8 * plane}.0.2"}
        for plane in range(2)
    ]
    planes = [{**rail, **entry} for rail in given]
    if "plane_network" in entry:
        planes = [{**each, "plane_network": f"10.{8 * n}.0.0/13"} for n, each in enumerate(planes)]
    rails = [
        replace(rail, rdma=port.rdma)
        for rail, port in zip(rails_from_model(planes), rdma_rails([3, 3], 2))
    ]
    found = over_rdma(rails, 1, reachability_mode=since_1_19)
    assert [found.get(name) for name in OF_PLANES] == wanted


def test_launching_is_on_management_and_data_on_rails() -> None:
    found = parameters(NODE)
    assert found["oob_tcp_if_include"] == "10.10.0.0/22"
    assert found["btl_tcp_if_include"] == "rail0,rail1,rail2,rail3,rail4,rail5,rail6,rail7"
    assert found["orte_launch_agent"] == LAUNCH_AGENT
    assert found["plm_rsh_no_tree_spawn"] == "1"
    assert "mpi_yield_when_idle" not in found
    shared = parameters(replace(NODE, oversubscribe=True))
    assert (shared["mpi_yield_when_idle"], shared["hwloc_base_binding_policy"]) == ("1", "none")


def test_the_operators_own_settings_win() -> None:
    settings = MpiSettings(
        "10.10.0.0/22",
        extra_environment={"UCX_TLS": "rc_x,self"},
        extra_parameters={"pml": "ob1"},
    )
    assert environment(settings)["UCX_TLS"] == "rc_x,self"
    assert parameters(settings)["pml"] == "ob1"


def test_the_block_wins_over_what_debian_ships() -> None:
    text = files.replace_block(
        DEBIAN_MCA_FILE, [f"{key} = {value}" for key, value in parameters(NODE).items()], "mpi"
    )
    assert {each.name: each.value for each in settings_in(DEBIAN_MCA_FILE)}["pml"] == "^ucx"
    found = {each.name: each.value for each in settings_in(text)}
    assert {name: found[name] for name in parameters(NODE)} == parameters(NODE)
    assert found["mtl"] == "^ofi"
    assert foreign_parameters(text, parameters(NODE)) == [], "Debian's own lines are no finding"


def names_by_rank(rails: Sequence[MpiRail], slots: int) -> list[list[str]]:
    return [[rail.interface for rail in own] for own in rails_by_rank(rails, slots)]


def test_a_rank_gets_the_rail_of_its_gpu() -> None:
    crossed = [MpiRail("rail0", 1), MpiRail("rail1", 0)]
    assert names_by_rank(crossed, 2) == [["rail1"], ["rail0"]]
    planes = [
        MpiRail("rail0p0", 0),
        MpiRail("rail0p1", 0),
        MpiRail("rail1p0", 1),
        MpiRail("rail1p1", 1),
    ]
    assert names_by_rank(planes, 4)[2] == ["rail0p0", "rail0p1"], "planes stay together"
    unpaired = [replace(rail, gpu=None, number=rail.gpu) for rail in planes]
    assert names_by_rank(unpaired, 2) == names_by_rank(planes, 2)
    assert names_by_rank(planes, 2) == [["rail0p0", "rail0p1"], ["rail1p0", "rail1p1"]]
    assert rails_by_rank([], 4) == []


@given(st.integers(1, 20), st.integers(1, 40), st.booleans())
def test_every_rank_has_a_rail_and_every_rail_a_rank(rails: int, slots: int, gpus: bool) -> None:
    found = names_by_rank([MpiRail(f"r{k}", k if gpus else None) for k in range(rails)], slots)
    assert len(found) == slots
    assert all(found)
    if slots >= rails or not gpus:
        used = {name for names in found for name in names}
        assert len(used) == (rails if slots >= rails or rails >= slots else slots)
    sizes = [len(names) for names in found]
    assert max(sizes) - min(sizes) <= 1


KEYS = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_the_environment_file_reads_back(values: dict[str, str]) -> None:
    assert parse_environment(files.with_header(environment_text(values))) == values


def sh(script: str, **variables: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def profile(tmp_path: Path, values: dict[str, str]) -> str:
    """Environment of a shell that reads the profile."""
    path = tmp_path / "mpi.env"
    path.write_text(environment_text(values))
    text = (ROLE_FILES / "profile.sh").read_text()
    return text.replace("/etc/baremetal-mpi-roce/mpi.env", str(path))


def test_a_shell_reads_awkward_values_as_they_are(tmp_path: Path) -> None:
    script = profile(tmp_path, {"UCX_X": "a b'c\"d$HOME"}) + "\nenv"
    assert "UCX_X=a b'c\"d$HOME\n" in sh(script, HOME="/root")


def test_the_profile_puts_directories_first_and_once(tmp_path: Path) -> None:
    values = {"MPI_ROCE_BIN": "/opt/bin", "MPI_ROCE_LIB": "/opt/lib", "MPI_ROCE_PYTHON": "/opt/py"}
    script = profile(tmp_path, values)
    found = sh(f'{script}\n{script}\necho "$PATH $LD_LIBRARY_PATH $PYTHONPATH"', PYTHONPATH="/own")
    assert found.split() == ["/opt/bin:/usr/bin:/bin", "/opt/lib", "/opt/py:/own"]


def bound(rank: int, values: dict[str, str], *words: str) -> dict[str, str]:
    """Variables of a program that the installed rail-bind started."""
    script = f"/bin/sh {ROLE_FILES}/rail-bind {' '.join(words)} env"
    found = sh(script, OMPI_COMM_WORLD_LOCAL_RANK=str(rank), **values)
    pairs = dict(line.split("=", 1) for line in found.splitlines())
    kinds = ("UCX_", "NCCL_", "OMPI_MCA_")
    return {key: value for key, value in pairs.items() if key.startswith(kinds)}


@pytest.mark.parametrize(("rank", "wanted"), [(0, "rail0"), (1, "rail1,rail2"), (2, "rail0")])
def test_rail_bind_gives_a_rank_its_own_rails(rank: int, wanted: str) -> None:
    values = {"MPI_ROCE_RAILS_BY_RANK": "rail0 rail1,rail2", "UCX_NET_DEVICES": "rail0,rail1,rail2"}
    devices = str(len(wanted.split(",")))
    assert bound(rank, values) == {"UCX_NET_DEVICES": wanted, "UCX_MAX_RNDV_RAILS": devices}
    kept = bound(rank, {**values, "UCX_MAX_RNDV_RAILS": "4"})
    assert kept["UCX_MAX_RNDV_RAILS"] == "4", "what the operator says stands"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"SLURM_LOCALID": "2"}, "rail2"),
        # The daemon of mpirun is the only task of its node in a Slurm job, and its ranks inherit
        # that.
        ({"SLURM_LOCALID": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "rail1"),
        ({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "3"}, "rail3"),
        ({}, "rail0"),
    ],
)
def test_rail_bind_reads_the_rank_of_any_launcher(given: dict[str, str], wanted: str) -> None:
    rails = {"MPI_ROCE_RAILS_BY_RANK": "rail0 rail1 rail2 rail3", "FI_PROVIDER": "tcp"}
    script = f"/bin/sh {ROLE_FILES}/rail-bind printenv UCX_NET_DEVICES FI_TCP_IFACE"
    assert sh(script, **rails, **given).split() == [wanted, wanted]


@pytest.mark.parametrize(("only", "wanted"), [(0, "rail1"), (1, "rail2"), (2, "rail1")])
def test_rail_bind_can_select_one_rail(only: int, wanted: str) -> None:
    values = {"MPI_ROCE_RAILS_BY_RANK": "rail0 rail1,rail2"}
    found = bound(1, values, "--only", str(only))
    assert found == {"UCX_NET_DEVICES": wanted, "UCX_MAX_RNDV_RAILS": "1"}
    own = bound(1, {**values, "OMPI_MCA_pml": "ob1"}, "--only", str(only))
    assert own == {**found, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_tcp_if_include": wanted}


def test_rail_bind_sets_the_gid_index_of_the_rail() -> None:
    values = over_rdma(rdma_rails([3, 5, 5, 3]), 4)
    for rank in range(6):
        found = bound(rank, values)
        assert found["UCX_IB_GID_INDEX"] == ["3", "5", "5", "3"][rank % 4]
        assert found["UCX_NET_DEVICES"] == f"mlx5_{rank % 4}:1"
        assert found["UCX_IB_TRAFFIC_CLASS"] == "106", "other variables stay"
