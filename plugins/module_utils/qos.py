# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""QoS settings of a node according to the contract, compiled on the controller (`cluster_qos`).

Verified against UCX 1.13 to 1.21 (`src/uct/ib/base/ib_iface.c`, `ib_device.c`) and NCCL 2.21 to
2.31 (`src/transport/net_ib`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROCE, SPECTRUM_X = "roce", "spectrum_x"
"""Modes of a fabric (`fabric_mode`): DCQCN of NICs and switches, or NVIDIA's Spectrum-X with
adaptive routing and programmable congestion control."""

RETRIES = (
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rx_icrc_encapsulated",
)
"""Counters of an RDMA device that grow at either end after a packet is lost or corrupted."""

QUEUE_PAIRS = 4
"""Queue pairs per connection where nodes communicate over spines. Switches hash a queue pair to one
path, so with NCCL's default of 1 fast connections share links. NVIDIA recommends several on
multi-level fabrics (NCCL user guide, NCCL_IB_QPS_PER_CONNECTION); Meta measured up to 40 % more for
allreduce with whole messages on alternating queue pairs ("RDMA over Ethernet for Distributed AI
Training at Meta Scale", SIGCOMM 2024), as NCCL sends them. The acceptance loads paths with the same
number (UCX_IB_NUM_PATHS)."""

IP_MTU_LIMITS = (1280, 9978)
"""Limits for the MTU of a node's interface: the minimum for IPv6 and the maximum of a ConnectX."""


@dataclass(frozen=True)
class TrafficClass:
    """Scheduling of one traffic class (0..7) of a port."""

    tsa: str
    """`strict` or `ets`, as IEEE 802.1Qaz names it."""
    percent: int
    """Share of the port's bandwidth; 0 for `strict`, and for unused classes."""


@dataclass(frozen=True)
class HostSettings:
    fabric_mode: str
    """ROCE, or SPECTRUM_X, with which DCQCN is neither configured nor compared."""
    trust: str
    """`dscp`: packets are classified by DSCP, not by VLAN tag."""
    dscp_to_priority: dict[int, int]
    """Priority of all 64 DSCPs."""
    priority_to_tc: tuple[int, ...]
    """Indexed by priority, 8 entries."""
    ets: tuple[TrafficClass, ...]
    """Indexed by traffic class, 8 entries; percentages add up to 100."""
    pfc_priorities: tuple[int, ...]
    traffic_class: int
    """TOS byte of the IP header, 0..255: DSCP << 2, with ECT(0) if switches mark."""
    service_level: int
    """Priority of RoCE data, in RDMA terms."""
    cnp_dscp: int
    cnp_priority: int
    ecn_priorities: tuple[int, ...]
    """Priorities on which NICs send and obey congestion notifications; empty for none."""
    roce_mtu: int
    """Path MTU, the required `active_mtu` of every RDMA port."""
    cable_metres: int
    """Length of the longest cable to a node, from which its NIC computes the receive buffer."""
    queue_pairs: int = 1
    """Queue pairs of NCCL per connection: several, if switches hash each to one of many paths."""

    @property
    def lossless(self) -> bool:
        """Whether RoCE data has PFC."""
        return self.service_level in self.pfc_priorities

    @property
    def dcqcn(self) -> bool:
        """Whether congestion is notified, and NICs obey."""
        return self.fabric_mode == ROCE and bool(self.ecn_priorities)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> HostSettings:
        """Parse the variable `cluster_qos`, which the model compiler has validated."""
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
        """JSON for `of`. As JSON keys are strings, DSCPs are indexes of a list."""
        return {
            **{key: list(of) if isinstance(of, tuple) else of for key, of in vars(self).items()},
            "dscp_to_priority": [self.dscp_to_priority[dscp] for dscp in range(64)],
            "ets": [dict(vars(each)) for each in self.ets],
        }


@dataclass(frozen=True)
class RdmaPort:
    device: str
    """Kernel name, such as `mlx5_0`."""
    port: int
    gid_index: int
    """Index of the RoCE v2 GID with the rail's IPv4 address."""
    interface: str


def mpi_environment(qos: HostSettings, devices: Sequence[RdmaPort]) -> dict[str, str]:
    """Environment variables for UCX and NCCL; empty without devices."""
    if not devices:
        return {}
    byte, priority = str(qos.traffic_class), str(qos.service_level)
    return {
        # By default UCX chooses a traffic class that ignores the contract.
        "UCX_IB_TRAFFIC_CLASS": byte,
        # With RoCE the service level is the Ethernet priority; the default is 0.
        "UCX_IB_SL": priority,
        "NCCL_IB_TC": byte,
        "NCCL_IB_SL": priority,
        # `=` matches whole names: otherwise mlx5_1 would include mlx5_10.
        "NCCL_IB_HCA": "=" + ",".join(f"{port.device}:{port.port}" for port in devices),
        **_gid_index({port.gid_index for port in devices}),
    }


def _gid_index(indexes: set[int]) -> dict[str, str]:
    """The GID index: the same for all ports, or chosen per port by both libraries.

    If ports differ, the libraries choose the first GID with RoCE v2 and IPv4. Every variable is set
    explicitly, so that a user's shell does not change the result.
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
