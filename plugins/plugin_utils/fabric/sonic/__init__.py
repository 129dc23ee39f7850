# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC: objects of CONFIG_DB, changed by patches (RFC 6902) that the switch itself validates.

docs/fabric.md lists the settings, their impact, and the sources.
"""

from __future__ import annotations

from ..base import SSH, System
from ..port_names import PortNaming

SYSTEM = System(
    __name__,
    "SONiC",
    PortNaming(
        "Ethernet{}",
        start=0,
        step=None,
        # front_panel_prefix(): sonic-buildimage, src/sonic-py-common, interface.py
        form=r"Ethernet(?P<lane>0|[1-9][0-9]{0,4})",
        shown="Ethernet0, Ethernet8",
    ),
    largest_mtu=9216,  # PORT mtu: sonic-buildimage, sonic-port.yang
    transport=SSH,
    also=("sonic-os", "sonicos", "enterprise-sonic", "dell-sonic"),
)
