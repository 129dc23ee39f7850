# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the module of the layer writes, and what it leaves alone when a rail cannot do RDMA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import (
    Gid,
    Machine,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import (
    environment as mpi_environment,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import versions as mpi_versions
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_stack as module

from tests.unit.qos_contracts import compiled

UCX = mpi_versions.Ucx(
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
    monkeypatch.setattr(module, "survey", lambda: MACHINE)
    monkeypatch.setattr(mpi_versions, "read_ucx", lambda _run: UCX)


def settled(
    given: dict[str, Any], check_mode: bool = False
) -> tuple[mpi_environment.Settings, module.Rdma]:
    return module.with_rdma(module.wanted(given), given, check_mode)


def test_what_ucx_can_do_here_decides_what_it_is_told(tmp_path: Path) -> None:
    settings, rdma = settled(params(tmp_path))
    found = mpi_environment.environment(settings)
    assert rdma.lacking == ()
    assert found["UCX_TLS"] == "rc,ud,sm,self,cuda_copy,cuda_ipc"
    assert found[mpi_environment.REACHABILITY] == "all"
    assert found["NCCL_SOCKET_IFNAME"] == "=mgmt0"
    without, _rdma = settled(params(tmp_path, gpus=0))
    assert mpi_environment.environment(without)["UCX_TLS"] == "rc,ud,sm,self"


def test_over_tcp_nobody_looks_for_rdma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "survey", lambda: pytest.fail("looked"))
    settings, rdma = settled(params(tmp_path, transport="tcp"))
    assert rdma == module.Rdma()
    assert mpi_environment.environment(settings)["UCX_NET_DEVICES"] == "rail0"


class Refused(Exception):
    pass


class Module:
    def fail_json(self, **result: Any) -> None:
        raise Refused(result["msg"])


def test_a_rail_without_rdma_is_refused_by_name_before_anything_is_written(tmp_path: Path) -> None:
    rails = [
        {"interface": f"rail{k}", "gpu": k, "rail": k, "address": f"10.100.{k}.11"} for k in (0, 1)
    ]
    _settings, rdma = settled(params(tmp_path, rails=rails, slots=2))
    assert [check.subject for check in checks.failures(rdma.lacking)] == ["rail1"]
    with pytest.raises(Refused, match=r"nothing was written: 1 rail.*\n  rdma_device rail1"):
        module.refuse(Module(), rdma.lacking)


def test_check_mode_on_a_fresh_host_waits_for_devices_and_shows_the_rest(tmp_path: Path) -> None:
    given = params(tmp_path, rails=[{"interface": "rail7", "address": "10.100.7.11"}])
    settings, rdma = settled(given, check_mode=True)
    assert checks.failures(rdma.lacking) == []
    planned = {str(one.path) for one in module.plan(settings, rdma, given)}
    assert mpi_environment.PROFILE_FILE in planned
    assert mpi_environment.ENVIRONMENT_FILE not in planned, "it is not known yet what it will say"
    settings, rdma = settled(params(tmp_path))
    planned = {str(one.path) for one in module.plan(settings, rdma, given)}
    assert mpi_environment.ENVIRONMENT_FILE in planned


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
    found = mpi_environment.environment(settled(given)[0])
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert found["CLUSTER_DATASETS_DIR"] == "/mnt/data"
    assert not [value for value in found.values() if value == "/mnt/home"]
    elsewhere = settled({**given, "groups": ["launcher"]})[0]
    found = mpi_environment.environment(elsewhere)
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/checkpoints"
    assert "CLUSTER_DATASETS_DIR" not in found
    own = {**given, "environment": {"CLUSTER_CHECKPOINT_DIR": "/mnt/other"}}
    found = mpi_environment.environment(settled(own)[0])
    assert found["CLUSTER_CHECKPOINT_DIR"] == "/mnt/other"  # the operator's word is the last
