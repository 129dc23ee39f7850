# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measured times and rates as text."""

from __future__ import annotations


def time_text(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.1f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1e6:.2f} s"


def rate_text(gbytes_s: float) -> str:
    """A rate in decimal units, which are customary for bandwidth."""
    for unit, scale in (("GB/s", 1.0), ("MB/s", 1e3)):
        if gbytes_s * scale >= 1:
            return f"{gbytes_s * scale:.2f} {unit}"
    return f"{gbytes_s * 1e6:.2f} kB/s"
