# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE, the configuration of Cumulus Linux 5: its objects, and switches over its REST interface.

docs/fabric.md lists the sources of every key.
"""

from __future__ import annotations

from ....module_utils.software import floors
from ..aspects import HEADROOM
from ..base import HTTPS, System
from ..port_names import PortNaming

SYSTEM = System(
    __name__,
    "NVUE",
    PortNaming(
        "swp{}",
        start=1,
        step=1,
        # Cumulus Linux 5 User Guide, Switch Port Attributes: swp1 broken out is swp1s0, swp1s1, ...
        form=r"swp(?P<port>[1-9][0-9]{0,3})(?:s(?P<part>[0-7]))?",
        shown="swp1, or swp1s0 of a port that is broken out",
        parts="swp[1-64]s[0-1]",
    ),
    largest_mtu=9216,  # NVUE Reference: nv set interface <interface-id> link mtu
    transport=HTTPS,
    # NVIDIA, Hardware Compatibility List of Cumulus Linux 5: only switches with Spectrum
    families=("spectrum",),
    floor=floors.CUMULUS,
    also=("cumulus", "cumulus-linux", "cumulus_linux", "cumulus5"),
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
