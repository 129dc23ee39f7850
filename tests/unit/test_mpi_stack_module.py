# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the module of the layer writes, and what it leaves alone when a rail cannot do RDMA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import run
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node, PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import (
    Gid,
    Machine,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import (
    environment,
    stack,
    versions,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_stack as module

from tests.unit.qos_contracts import compiled

UCX = versions.Ucx(
    "1.19.0",
    {"mlx5_0:1": ["rc_mlx5"], "cuda": ["cuda_copy", "cuda_ipc"]},
    {"UCX_RC_MLX5_ROCE_REACHABILITY_MODE": "route"},
)
MACHINE = Machine(
    (
        RdmaDevice(
            "rail",
            "mlx5_0",
            netdev="rail0",
            port_state="ACTIVE",
            gids=(Gid(3, "::ffff:10.100.0.11", "RoCE v2", "rail0"),),
        ),
    )
)


def params(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "transport": "rc",
        "management": {"address": "10.10.1.1", "prefix": 22, "interface": "mgmt0"},
        "rails": [{"interface": "rail0", "gpu": 0, "rail": 0, "address": "10.100.0.11"}],
        "slots": 1,
        "gpus": 1,
        "qos": compiled(),
        "user": "nobody",
        "filesystems": [],
        "groups": ["compute"],
        "oversubscribe": False,
        "tree_spawn": False,
        "concurrent_launches": 128,
        "mca_file": str(tmp_path / "openmpi-mca-params.conf"),
        "bin_directory": "",
        "library_directory": "",
        "python_directory": "",
        "environment": {},
        "parameters": {},
        "profile": "# profile\n",
        "programs": {},
        **changes,
    }


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "survey", lambda: MACHINE)
    monkeypatch.setattr(versions, "read_ucx", lambda _run: UCX)


def planned(
    given: dict[str, Any], folder: Path, check_mode: bool = False
) -> tuple[dict[str, str], set[str]]:
    """The environment that results, and the files."""
    wanted = stack.Wanted(given["profile"], given["programs"], "python3", "nobody", given["gpus"])
    part = stack.Stack(module.wanted(given), wanted)
    plan = part.plan(Node("mpi", folder, run, None, "b", check_mode=check_mode))
    names = {f"/{each.path.relative_to(folder)}" for each in plan.files}
    return environment.environment(part.settings), names


def test_what_ucx_can_do_here_decides_its_environment(tmp_path: Path) -> None:
    found, names = planned(params(tmp_path), tmp_path)
    assert environment.ENVIRONMENT_FILE in names
    assert found["UCX_TLS"] == "rc,ud,sm,self,cuda_copy,cuda_ipc"
    assert found[environment.REACHABILITY] == "all"
    assert found["NCCL_SOCKET_IFNAME"] == "=mgmt0"
    assert planned(params(tmp_path, gpus=0), tmp_path)[0]["UCX_TLS"] == "rc,ud,sm,self"


def test_over_tcp_rdma_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "survey", lambda: pytest.fail("looked"))
    found, _names = planned(params(tmp_path, transport="tcp"), tmp_path)
    assert found["UCX_NET_DEVICES"] == "rail0"


def test_a_rail_without_rdma_is_refused_by_name(tmp_path: Path) -> None:
    rails = [
        {"interface": f"rail{k}", "gpu": k, "rail": k, "address": f"10.100.{k}.11"} for k in (0, 1)
    ]
    with pytest.raises(PlanError, match=r"^rdma_device rail1") as caught:
        planned(params(tmp_path, rails=rails, slots=2), tmp_path)
    assert [(check.name, check.subject) for check in caught.value.checks] == [
        ("rdma_device", "rail1")
    ]


def test_check_mode_on_a_fresh_host_waits_for_devices_and_shows_the_rest(tmp_path: Path) -> None:
    given = params(tmp_path, rails=[{"interface": "rail7", "address": "10.100.7.11"}])
    _found, names = planned(given, tmp_path, check_mode=True)
    assert environment.PROFILE_FILE in names
    assert environment.ENVIRONMENT_FILE not in names, "its content is not known yet"


def test_programs_find_checkpoints_and_datasets_where_they_are_mounted(tmp_path: Path) -> None:
    def entry(name: str, purpose: str, hosts: list[str]) -> dict[str, Any]:
        source, mount = f"10.10.2.1:/export/{name}", f"/mnt/{name}"
        one = {"name": name, "type": "nfs", "source": source, "mount": mount}
        return {**one, "purpose": purpose, "hosts": hosts}

    filesystems = [
        entry("checkpoints", "checkpoints", ["compute", "launcher"]),
        entry("data", "datasets", ["compute"]),
        entry("home", "home", ["compute"]),
    ]
    given = params(tmp_path, transport="tcp", filesystems=filesystems)
    found = planned(given, tmp_path)[0]
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert found["CLUSTER_DATASETS_DIR"] == "/mnt/data"
    assert not [value for value in found.values() if value == "/mnt/home"]
    found, _names = planned({**given, "groups": ["launcher"]}, tmp_path)
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert "CLUSTER_DATASETS_DIR" not in found
    own = {**given, "environment": {"CLUSTER_CHECKPOINT_DIR": "/mnt/other"}}
    found = planned(own, tmp_path)[0]
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/other"  # the operator's word is the last
