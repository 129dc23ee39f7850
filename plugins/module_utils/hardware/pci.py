# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""PCI addresses, the way from the root complex, and what a link can carry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from types import MappingProxyType
from typing import Optional

from .inventory import PcieLink

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) GT/s")

GENERATIONS: Mapping[float, int] = MappingProxyType(
    {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
)
"""PCIe generation by the GT/s of a lane."""


def way(path: PurePath) -> tuple[str, ...]:
    """The PCI functions on a path below /sys/devices, the root port first, itself last."""
    return tuple(part for part in path.parts if _ADDRESS.fullmatch(part))


def card_of(address: str) -> str:
    """The address without its function: all functions of a card have one link and one slot."""
    return address.rpartition(".")[0]


def bus_of(address: str) -> str:
    """Domain and bus: `0000:5d`."""
    return address.rpartition(":")[0]


def common(first: Sequence[str], second: Sequence[str]) -> int:
    """How many bridges two ways have in common, from the root port down."""
    count = 0
    for one, other in zip(first, second):
        if one != other:
            break
        count += 1
    return count


def parse_speed(text: str) -> Optional[float]:
    """GT/s of `64.0 GT/s PCIe`; None of `Unknown` and of nothing."""
    match = _SPEED.match(text)
    return float(match.group(1)) if match else None


def parse_width(text: str) -> Optional[int]:
    """Lanes of `16`; None where the kernel does not know."""
    return int(text) if text.isdigit() and text not in ("0", "255") else None


def capacity_gbps(speed_gts: float, width: int) -> float:
    """What a link carries one way, after its line code, before packet headers."""
    if speed_gts <= 5:
        code = 8 / 10
    elif speed_gts <= 32:
        code = 128 / 130
    else:
        code = 242 / 256  # FLITs of 256 bytes with 14 of check and correction
    return speed_gts * width * code


def describe(speed_gts: Optional[float], width: Optional[int]) -> str:
    """`64 GT/s x16`, in the words of lspci."""
    speed = "unknown speed" if speed_gts is None else f"{speed_gts:g} GT/s"
    return f"{speed} x{'?' if width is None else width}"


def best(device: PcieLink, port: Optional[PcieLink]) -> PcieLink:
    """What a link could be: the least of what the device and the port above it are made for."""
    ends = [device, port or PcieLink()]
    speeds = [each.max_speed_gts for each in ends if each.max_speed_gts is not None]
    widths = [each.max_width for each in ends if each.max_width is not None]
    return PcieLink(min(speeds, default=None), min(widths, default=None))
