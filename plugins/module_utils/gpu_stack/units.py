# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The services of the stack. All have these names on both families and in every branch.

The unit of the fabric manager starts and stops NVLSM as well, where NVLink5 needs it.
"""

from __future__ import annotations

from ..node import systemd
from ..node.part import Node

PERSISTENCED = "nvidia-persistenced.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
DCGM = "nvidia-dcgm.service"

AT_BOOT = ("enabled", "static", "indirect", "generated", "alias", "enabled-runtime")
"""States of unit files that need no enabling, or cannot be enabled: somebody else starts them."""


def active(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["ActiveState"]).get("ActiveState") == "active"


def at_boot(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["UnitFileState"]).get("UnitFileState") in AT_BOOT
