# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Vital product data: what tells a bridge to the NVSwitches from the NIC it is made of."""

from __future__ import annotations

from pathlib import Path

SWITCH_MANAGEMENT = b"SW_MNG"
"""In the vendor's field of the bridges' data, as `SMDL=SW_MNG`. Their device ID is a NIC's."""


def manages_switches(function: Path) -> bool:
    """Whether the function is a bridge to NVSwitches. Only root may read it; others see none."""
    try:
        return SWITCH_MANAGEMENT in (function / "vpd").read_bytes()
    except OSError:
        return False
