# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Environment variables of UCX and NCCL by the contract."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import (
    HostSettings,
    RdmaPort,
    mpi_environment,
)

from tests.unit.qos_contracts import compiled

DEFAULT = HostSettings.of(compiled())


def ports(*indexes: int) -> list[RdmaPort]:
    return [
        RdmaPort(f"mlx5_{number}", 1, index, f"rail{number}")
        for number, index in enumerate(indexes)
    ]


def test_all_that_a_job_is_told() -> None:
    assert mpi_environment(DEFAULT, ports(3, 3)) == {
        "UCX_IB_TRAFFIC_CLASS": "106",
        "UCX_IB_SL": "3",
        "NCCL_IB_TC": "106",
        "NCCL_IB_SL": "3",
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "UCX_IB_GID_INDEX": "3",
        "NCCL_IB_GID_INDEX": "3",
    }


def test_another_contract_is_told_in_its_own_numbers() -> None:
    contract = HostSettings.of(compiled({"roce": {"dscp": 24, "priority": 5}}))
    environment = mpi_environment(contract, ports(1))
    assert environment["UCX_IB_TRAFFIC_CLASS"] == environment["NCCL_IB_TC"] == "98"
    assert environment["UCX_IB_SL"] == environment["NCCL_IB_SL"] == "5"


def test_a_service_level_is_the_priority_and_not_the_traffic_class() -> None:
    contract = HostSettings.of(compiled({"roce": {"priority": 4, "traffic_class": 5}}))
    assert mpi_environment(contract, ports(3))["UCX_IB_SL"] == "4"


def test_without_rdma_devices_nothing_is_said() -> None:
    assert mpi_environment(DEFAULT, []) == {}


def test_devices_are_matched_by_their_whole_name() -> None:
    """Without `=`, mlx5_1 would include mlx5_10 on a node with 16 devices."""
    value = mpi_environment(DEFAULT, ports(*[3] * 16))["NCCL_IB_HCA"]
    assert value.startswith("=mlx5_0:1,mlx5_1:1,")
    assert value.endswith(",mlx5_15:1")
    assert value.count("=") == 1


def test_ports_keep_the_order_of_the_rails() -> None:
    swapped = list(reversed(ports(3, 3)))
    assert mpi_environment(DEFAULT, swapped)["NCCL_IB_HCA"] == "=mlx5_1:1,mlx5_0:1"


def test_ports_that_differ_in_their_gid_choose_it_themselves() -> None:
    """One index for all would be RoCE v1, or no address at all, on some of them."""
    environment = mpi_environment(DEFAULT, ports(3, 5))
    assert {key: value for key, value in environment.items() if "GID" in key or "ADDR" in key} == {
        "UCX_IB_GID_INDEX": "auto",
        "NCCL_IB_GID_INDEX": "-1",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
    }
    assert environment["NCCL_IB_ROCE_VERSION_NUM"] == "2"


def test_the_first_gid_of_a_table_is_an_index_as_well() -> None:
    assert mpi_environment(DEFAULT, ports(0))["UCX_IB_GID_INDEX"] == "0"
