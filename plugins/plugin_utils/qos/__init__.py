# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One contract for RoCE traffic, and the settings of NICs, UCX, NCCL and switches that follow from
it.
"""

from __future__ import annotations

from .compiled import FabricIntent, fabric_intent, host_settings
from .contract import Contract, contract_of
from .rules import ContractError, read_contract

__all__ = [
    "Contract",
    "ContractError",
    "FabricIntent",
    "contract_of",
    "fabric_intent",
    "host_settings",
    "read_contract",
]
