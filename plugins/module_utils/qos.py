# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node does to keep the QoS contract, compiled on the controller (`cluster_qos`).

Checked against UCX 1.13 to 1.21 (`src/uct/ib/base/ib_iface.c`, `ib_device.c`) and NCCL 2.21 to 2.31
(`src/transport/net_ib`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROCE, SPECTRUM_X = "roce", "spectrum_x"
"""Modes of a fabric (`fabric_mode`): DCQCN of NICs and switches here, or what NVIDIA's Spectrum-X
has instead, adaptive routing and a congestion control that is a program."""

IP_MTU_LIMITS = (1280, 9978)
"""What an interface of a node can be set to at all: from IPv6's least to a ConnectX's most."""


@dataclass(frozen=True)
class TrafficClass:
    """How one traffic class (0..7) of a port is served."""

    tsa: str
    """`strict` or `ets`, as IEEE 802.1Qaz names it."""
    percent: int
    """Share of the port's bandwidth; 0 for `strict`, and for classes that nothing is mapped to."""


@dataclass(frozen=True)
class HostSettings:
    fabric_mode: str
    """ROCE, or SPECTRUM_X: then nothing of DCQCN is set or compared."""
    trust: str
    """`dscp`: packets are sorted by DSCP and not by VLAN tag."""
    dscp_to_priority: dict[int, int]
    """All 64."""
    priority_to_tc: tuple[int, ...]
    """Place = priority, 8 of them."""
    ets: tuple[TrafficClass, ...]
    """Place = traffic class, 8 of them; percents sum to 100."""
    pfc_priorities: tuple[int, ...]
    traffic_class: int
    """The byte of the IP header (TOS), 0..255: DSCP << 2, and ECT(0) where switches mark."""
    service_level: int
    """The priority of RoCE data, as RDMA names it."""
    cnp_dscp: int
    cnp_priority: int
    ecn_priorities: tuple[int, ...]
    """Priorities on which NICs send notifications and react to them; empty: on none."""
    roce_mtu: int
    """The path MTU: what `active_mtu` of every RDMA port has to be."""
    cable_metres: int
    """The longest cable to a node: what its NIC computes its receive buffer for."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> HostSettings:
        """Of the variable `cluster_qos`: the model made it, so it is not checked again."""
        return cls(
            **{
                **value,
                "dscp_to_priority": dict(enumerate(value["dscp_to_priority"])),
                "priority_to_tc": tuple(value["priority_to_tc"]),
                "ets": tuple(TrafficClass(**each) for each in value["ets"]),
                "pfc_priorities": tuple(value["pfc_priorities"]),
                "ecn_priorities": tuple(value["ecn_priorities"]),
            }
        )

    def as_variable(self) -> dict[str, Any]:
        """Plain JSON for `of`. Keys of JSON are text: DSCPs are places of a list."""
        return {
            **{key: list(of) if isinstance(of, tuple) else of for key, of in vars(self).items()},
            "dscp_to_priority": [self.dscp_to_priority[dscp] for dscp in range(64)],
            "ets": [dict(vars(each)) for each in self.ets],
        }


@dataclass(frozen=True)
class RdmaPort:
    """One port that a job uses."""

    device: str
    """As the kernel calls it: `mlx5_0`."""
    port: int
    gid_index: int
    """The place of the RoCE v2 GID that has the rail's IPv4 address."""
    interface: str


def mpi_environment(qos: HostSettings, devices: Sequence[RdmaPort]) -> dict[str, str]:
    """Variables for UCX and NCCL, in the order they are written; without devices, none."""
    if not devices:
        return {}
    byte, priority = str(qos.traffic_class), str(qos.service_level)
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
