# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA device of each rail, and every way in which it can be missing or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import (
    Gid,
    Machine,
    RdmaDevice,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.environment import (
    MpiRail,
    MpiSettings,
    environment,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.rdma import (
    contract_checks,
    cuda_check,
    effective,
    readback,
    with_ports,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import HostSettings

from tests.unit.qos_contracts import compiled

QOS = HostSettings.of(compiled())
RAILS = [MpiRail("rail0", 0, "10.100.0.11"), MpiRail("rail1", 1, "10.100.1.11")]


def gids(netdev: str, *addresses: str, first: int = 0) -> tuple[Gid, ...]:
    """A GID table of mlx5: each address as RoCE v1, then as RoCE v2."""
    return tuple(
        Gid(first + 2 * place + number, address, kind, netdev)
        for place, address in enumerate(addresses)
        for number, kind in enumerate(("IB/RoCE v1", "RoCE v2"))
    )


def device(number: int, *extra: str) -> RdmaDevice:
    netdev = f"rail{number}"
    table = gids(netdev, "fe80::1", *extra, f"::ffff:10.100.{number}.11")
    return RdmaDevice("rail", f"mlx5_{number}", netdev=netdev, port_state="ACTIVE", gids=table)


MACHINE = Machine((device(0), device(1)))


def statuses(checks: Sequence[Check]) -> dict[tuple[str, str], str]:
    return {(check.name, check.subject): check.status for check in checks}


def test_only_roce_v2_with_the_rails_address_is_accepted() -> None:
    table = (
        *gids("rail0", "::ffff:10.100.0.11")[:1],  # RoCE v1
        Gid(4, "::ffff:192.0.2.1", "RoCE v2", "rail0"),
        Gid(9, "::ffff:10.100.0.11", "RoCE v2", "rail0"),
    )
    machine = Machine((replace(device(0), gids=table), device(1)))
    rails, _lacking = with_ports(RAILS, machine)
    assert rails[0].rdma is not None
    assert rails[0].rdma.gid_index == 9
    _rails, lacking = with_ports(RAILS, Machine((replace(device(0), gids=table[:2]), device(1))))
    assert [(check.name, check.subject, check.status) for check in lacking] == [
        ("rdma_gid", "mlx5_0", "failed")
    ]
    assert lacking[0].wanted == "RoCE v2 10.100.0.11"
    assert "0: IB/RoCE v1 10.100.0.11, 4: RoCE v2 192.0.2.1" in lacking[0].reason


@pytest.mark.parametrize(
    "machine",
    [Machine((device(0),)), Machine((device(0), RdmaDevice("rail", netdev="rail1")))],
)
def test_a_rail_without_an_rdma_device_is_reported(machine: Machine) -> None:
    rails, lacking = with_ports(RAILS, machine)
    assert [rail.interface for rail in rails] == ["rail0"]
    assert statuses(lacking) == {("rdma_device", "rail1"): "failed"}
    assert "mpi_stack_transport to tcp" in lacking[0].reason
    _rails, lacking = with_ports(RAILS, machine, check_mode=True)
    assert statuses(lacking) == {("rdma_device", "rail1"): "pending"}


def variables(machine: Machine = MACHINE, slots: int = 2) -> dict[str, str]:
    rails, _lacking = with_ports(RAILS, machine)
    settings = MpiSettings("10.0.0.0/24", "rc", tuple(rails), slots, qos=QOS)
    return environment(settings)


def read(machine: Machine = MACHINE, **changes: str) -> dict[tuple[str, str], Check]:
    rails, _lacking = with_ports(RAILS, machine)
    values = {**variables(machine), **changes}
    return {(check.name, check.subject): check for check in readback(rails, machine, 2, values)}


def test_a_sound_host_reads_back_well() -> None:
    found = read()
    assert {check.status for check in found.values()} == {"ok"}
    ports = {(name, f"mlx5_{n}:1") for n in (0, 1) for name in ("rdma_port", "rdma_gid")}
    assert set(found) == {("rdma_device", "rail0"), ("rdma_device", "rail1"), *ports}


def test_a_port_that_is_down_or_an_index_of_another_gid_fails() -> None:
    found = read(Machine((device(0), replace(device(1), port_state="DOWN"))))
    assert (found["rdma_port", "mlx5_1:1"].status, found["rdma_port", "mlx5_1:1"].found) == (
        "failed",
        "DOWN",
    )
    assert found["rdma_port", "mlx5_0:1"].status == "ok"
    wrong = read(UCX_IB_GID_INDEX="1")["rdma_gid", "mlx5_0:1"]
    assert (wrong.status, wrong.found) == ("failed", "RoCE v2 fe80::1")
    assert "by index 1" in wrong.reason
    assert read(UCX_IB_GID_INDEX="77")["rdma_gid", "mlx5_1:1"].found == "no entry"


def test_indexes_of_bound_and_unbound_ranks_are_checked() -> None:
    # On rail 1 the second address precedes the rail's, so UCX would use it by default.
    second = Machine((device(0), device(1, "::ffff:192.0.2.7")))
    values = variables(second)
    assert values["MPI_ROCE_GID_INDEXES_BY_RANK"] == "3 5"
    found = read(second)
    assert found["rdma_gid", "mlx5_0:1"].status == "ok"
    assert found["rdma_gid", "mlx5_1:1"].status == "failed"
    assert found["rdma_gid", "mlx5_1:1"].found == "RoCE v2 192.0.2.7"
    assert found["rdma_gid", "mlx5_1:1"].reason.startswith("by UCX's own choice:")
    # An IPv6 address changes the table without harm.
    ipv6 = read(Machine((device(0), device(1, "fd00::7"))))
    assert {check.status for check in ipv6.values()} == {"ok"}
    assert ipv6["rdma_gid", "mlx5_1:1"].reason == "UCX's own choice, index 5 of rail-bind"


SETTINGS = {
    "UCX_IB_GID_INDEX": "3",
    "UCX_RC_VERBS_TRAFFIC_CLASS": "106",
    "UCX_UD_VERBS_TRAFFIC_CLASS": "106",
    "UCX_DC_MLX5_TRAFFIC_CLASS": "auto",
    "UCX_RC_VERBS_SL": "3",
}


def contract(**changes: Any) -> dict[str, Check]:
    rails, _lacking = with_ports(RAILS, MACHINE)
    settings = {**SETTINGS, **changes.pop("settings", {})}
    values = {**variables(), **changes}
    checks = contract_checks(QOS, rails, values, settings)
    return {check.subject: check for check in checks}


def test_the_contract_is_compared_with_what_ucx_itself_reads() -> None:
    found = contract()
    assert {check.status for check in found.values()} == {"ok"}
    assert {"UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL", "NCCL_IB_TC", "NCCL_IB_HCA"} <= set(found)
    found = contract(settings={"UCX_RC_VERBS_TRAFFIC_CLASS": "0"})
    check = found["UCX_IB_TRAFFIC_CLASS"]
    assert check.status == "failed"
    assert "UCX_RC_VERBS_TRAFFIC_CLASS=0" in check.found
    assert "roce_qos" in check.reason
    assert contract(NCCL_IB_TC="0")["NCCL_IB_TC"].status == "failed"
    assert effective({"UCX_TCP_TRAFFIC_CLASS": "1"}, "UCX_IB_TRAFFIC_CLASS") is None


def test_ways_to_gpu_memory() -> None:
    assert cuda_check(0, []) == []
    none = cuda_check(8, ())[0]
    assert none.status == "not_applicable"
    assert "built without CUDA" in none.reason
    some = cuda_check(8, ["cuda_copy", "cuda_ipc"])[0]
    assert (some.status, some.found) == ("ok", "cuda_copy, cuda_ipc")
    assert "gdr_copy" in some.reason
    assert cuda_check(8, None)[0].status == "failed"
    assert cuda_check(8, None, check_mode=True)[0].status == "pending"


def test_planes_with_one_device_appear_once() -> None:
    """Balanced in hardware: Mellanox/nic-configuration-operator 632f1295."""
    rails = [MpiRail(f"rail0p{n}", 0, f"10.100.{n}.11", number=0) for n in range(2)]
    pci, driver = "0000:11:00.0", "mlx5_core"
    first = replace(device(0), netdev="rail0p0", pci=pci, driver=driver)
    second = RdmaDevice("rail", netdev="rail0p1", pci="0000:11:00.1", driver=driver)
    found, lacking = with_ports(rails, Machine((first, second)))
    assert [rail.ucx_device for rail in found] == ["mlx5_0:1"] and lacking == []
    two_rails = [rails[0], replace(rails[1], number=1)]
    _found, lacking = with_ports(two_rails, Machine((first, second)))
    assert [(check.name, check.subject) for check in lacking] == [("rdma_device", "rail0p1")]
    other = replace(first, name="mlx5_3", netdev="rail1p1", pci="0000:2f:00.1")
    _found, lacking = with_ports(rails, Machine((first, second, other)))
    assert [check.subject for check in lacking] == ["rail0p1"], "others have their own"
