# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Environment variables of UCX and NCCL by the contract."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import qos

from tests.unit.qos_contracts import compiled

DEFAULT = qos.HostSettings.of(compiled())


def ports(*indexes: int) -> list[qos.RdmaPort]:
    return [
        qos.RdmaPort(f"mlx5_{number}", 1, index, f"rail{number}")
        for number, index in enumerate(indexes)
    ]


def test_all_that_a_job_is_told() -> None:
    assert qos.mpi_environment(DEFAULT, ports(3, 3)) == {
        "UCX_IB_TRAFFIC_CLASS": "106",
        "UCX_IB_SL": "3",
        "NCCL_IB_TC": "106",
        "NCCL_IB_SL": "3",
        # Without `=`, mlx5_1 would include mlx5_10 on a node with 16 devices.
        "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
        "UCX_IB_GID_INDEX": "3",
        "NCCL_IB_GID_INDEX": "3",
    }
    assert qos.mpi_environment(DEFAULT, []) == {}
    swapped = qos.mpi_environment(DEFAULT, ports(0, 0)[::-1])
    assert swapped["NCCL_IB_HCA"] == "=mlx5_1:1,mlx5_0:1" and swapped["UCX_IB_GID_INDEX"] == "0"


def test_another_contract_is_told_in_its_own_numbers() -> None:
    roce = {"dscp": 24, "priority": 5, "traffic_class": 4}
    contract = qos.HostSettings.of(compiled({"roce": roce}))
    environment = qos.mpi_environment(contract, ports(1))
    assert environment["UCX_IB_TRAFFIC_CLASS"] == environment["NCCL_IB_TC"] == "98"
    assert environment["UCX_IB_SL"] == environment["NCCL_IB_SL"] == "5"


def test_ports_that_differ_in_their_gid_choose_it_themselves() -> None:
    """One index for all would be RoCE v1, or no address at all, on some of them."""
    environment = qos.mpi_environment(DEFAULT, ports(3, 5))
    assert {key: value for key, value in environment.items() if "GID" in key or "ADDR" in key} == {
        "UCX_IB_GID_INDEX": "auto",
        "NCCL_IB_GID_INDEX": "-1",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
    }
    assert environment["NCCL_IB_ROCE_VERSION_NUM"] == "2"
