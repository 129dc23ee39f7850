# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rail as the kernel has it: what the other end of its cable is compared with."""

from __future__ import annotations

from typing import Any

from ..hardware.ports import interface_speed
from .survey import Survey


def running(survey: Survey) -> dict[str, dict[str, Any]]:
    """By rail: what it is called now, its MAC address, MTU, carrier and speed."""
    found = {}
    for name, interface in survey.present.items():
        link = survey.state.links[interface]
        entry = survey.host.root / "sys/class/net" / interface
        found[name] = {
            "interface": interface,
            "mac": link.mac,
            "mtu": link.mtu,
            "up": link.up,
            "carrier": link.carrier,
            "speed_gbps": interface_speed(entry) if link.carrier else None,
        }
    return found
