# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The supported switch systems. Every package in this folder is one.

Its `__init__.py` describes the system (`SYSTEM`), its `switch.py` exports the `DRIVER` that
renders, compares, reads and applies. Nothing else in the collection names a system.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

from .base import System

SYSTEMS: dict[str, System] = {
    module.name: import_module(f"{__package__}.{module.name}").SYSTEM
    for module in sorted(
        pkgutil.iter_modules([str(Path(__file__).parent)]), key=lambda module: module.name
    )
    if module.ispkg
}
"""By the name that `leaves.system` and `spines.system` use, in alphabetical order."""

INFINIBAND_SYSTEMS = ("mlnxos", "nvos", "ufm", "opensm", "infiniband", "ib")
"""Words for systems of InfiniBand switches, without hyphens: MLNX-OS and NVOS."""
ETHERNET_SYSTEMS = {
    "onyx": "Onyx of NVIDIA",  # docs.nvidia.com/networking: Ethernet systems, apart from MLNX-OS
    "junos": "Junos of Juniper",
    "nxos": "NX-OS of Cisco",
    "iosxr": "IOS XR of Cisco",
    "iosxe": "IOS XE of Cisco",
    "sros": "SR OS of Nokia",
    "srlinux": "SR Linux of Nokia",
    "dnos": "DNOS of DriveNets",
    "os10": "SmartFabric OS10 of Dell",
    "cisco": "NX-OS or IOS XR of Cisco",
    "juniper": "Junos of Juniper",
    "nokia": "SR OS or SR Linux of Nokia",
    "huawei": "VRP of Huawei",
    "fboss": "FBOSS of Meta",
    "ocnos": "OcNOS of IP Infusion",
    "picos": "PicOS of Pica8",
    "vrp": "VRP of Huawei",
    "comware": "Comware of H3C",
    "aoscx": "AOS-CX of HPE Aruba",
    "exos": "EXOS of Extreme",
}
"""Ethernet systems that the collection does not configure, likewise, and their vendors."""
