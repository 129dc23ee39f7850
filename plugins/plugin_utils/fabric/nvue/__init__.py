# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE, the configuration of Cumulus Linux 5: its objects, and switches over its REST interface.

docs/fabric.md lists the sources of every key.
"""

from __future__ import annotations

from ..aspects import HEADROOM
from ..base import HTTPS, PortNaming, System

SYSTEM = System(
    __name__,
    "NVUE",
    PortNaming("swp{}", start=1, step=1),
    largest_mtu=9216,  # NVUE Reference: nv set interface <interface-id> link mtu
    transport=HTTPS,
    # NVUE Reference, Set and Unset Commands, Adaptive Routing
    adaptive_routing="nv set router adaptive-routing state enabled (before 5.15: enable on), and "
    "the same on each uplink",
    one_cable_length=True,
    reports_rounded_thresholds=True,
    fixed={
        HEADROOM: "qos pfc port-buffer sets it, whatever the cable length: unset it, or write a "
        "shorter length in roce_qos.cable_metres"
    },
)
