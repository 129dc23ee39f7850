# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A minimal switch system, copied into a collection by test_fabric_systems.py."""

from __future__ import annotations

from ..base import SSH, System
from ..port_names import PortNaming

SYSTEM = System(__name__, "Tiny OS", PortNaming("port{}", 1, 2), largest_mtu=9100, transport=SSH)
