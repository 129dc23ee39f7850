# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What UCX and NCCL are told so that the packets of a job carry the contract's marks.

Checked against UCX 1.13 to 1.21 (`src/uct/ib/base/ib_iface.c`, `ib_device.c`) and NCCL 2.21 to 2.31
(`src/transport/net_ib`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.dataclass import dataclass
from .contract import Contract


@dataclass(frozen=True)
class RdmaPort:
    """One port that a job uses."""

    device: str
    """As the kernel calls it: `mlx5_0`."""
    port: int
    gid_index: int
    """The place of the RoCE v2 GID that has the rail's IPv4 address."""
    interface: str


def mpi_environment(contract: Contract, devices: Sequence[RdmaPort]) -> dict[str, str]:
    """Variables for UCX and NCCL, in the order they are written; without devices, none."""
    if not devices:
        return {}
    byte, priority = str(contract.traffic_class_byte), str(contract.roce.priority)
    return {
        # Left to itself, UCX marks with a traffic class of its own choice, whatever the contract.
        "UCX_IB_TRAFFIC_CLASS": byte,
        # On RoCE a service level is the priority of Ethernet; left to itself, 0.
        "UCX_IB_SL": priority,
        "NCCL_IB_TC": byte,
        "NCCL_IB_SL": priority,
        # `=` matches names whole: mlx5_1 would take mlx5_10 along.
        "NCCL_IB_HCA": "=" + ",".join(f"{port.device}:{port.port}" for port in devices),
        **_gid_index({port.gid_index for port in devices}),
    }


def _gid_index(indexes: set[int]) -> dict[str, str]:
    """Both libraries take one index for all ports, or choose on each port.

    Where ports differ they choose: the first GID that is RoCE v2 and IPv4. All of it is written
    out, so that nothing in a user's shell decides.
    """
    if len(indexes) == 1:
        index = str(*indexes)
        return {"UCX_IB_GID_INDEX": index, "NCCL_IB_GID_INDEX": index}
    return {
        "UCX_IB_GID_INDEX": "auto",
        "NCCL_IB_GID_INDEX": "-1",
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
    }
