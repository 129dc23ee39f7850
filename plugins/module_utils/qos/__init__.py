# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One contract for RoCE traffic, and what NICs, UCX, NCCL and switches are set to because of it.

`read_contract` takes the variable `roce_qos`; `host_settings`, `mpi_environment` and
`fabric_intent` compile it. Nobody else in the collection knows a DSCP, a priority or a threshold.
"""

from __future__ import annotations

from .contract import Contract
from .environment import RdmaPort, mpi_environment
from .fabric import FabricIntent, fabric_intent
from .host import HostSettings, TrafficClass, host_settings
from .reading import ContractError, read_contract

__all__ = [
    "Contract",
    "ContractError",
    "FabricIntent",
    "HostSettings",
    "RdmaPort",
    "TrafficClass",
    "fabric_intent",
    "host_settings",
    "mpi_environment",
    "read_contract",
]
