# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rows of pg_profile_lookup.ini in every shape that vendors publish, with other figures.

The shapes are those of all 4,991 rows of the 285 files in sonic-net/sonic-buildimage 086b03bd,
device/. A row is `speed cable size xon xoff threshold [xon_offset]`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Shape:
    size: str
    """To the others: `0`, `sum`, `above sum`, `xon`, `below sum`, `below xon`."""
    xon: bool
    thresholds: tuple[int, ...]
    offset: bool


SHAPES = {
    "NVIDIA SN5600": Shape("sum", True, (0,), False),
    "NVIDIA SN5600 at 800G": Shape("above sum", True, (0,), False),
    "NVIDIA SN5640, shared headroom": Shape("xon", True, (0,), False),
    "Barefoot AS9516": Shape("sum", True, (7,), False),
    "Tomahawk 5 Z9864F": Shape("below sum", False, (0,), True),
    "Tomahawk 5 IXR7220-H5": Shape("below xon", True, (0, -3, -4), True),
    "Tomahawk 2 7260CX3": Shape("xon", True, (0, -2), True),
    "Tomahawk SNJ60D0": Shape("below sum", False, (-2,), True),
    "Teralynx 6512": Shape("below sum", False, (1,), True),
    "Trident 2": Shape("below sum", True, (-1, -3), True),
    "Jericho 7280R4": Shape("0", True, (-4, -5, -6), True),
    "Jericho NH-5010": Shape("0", False, (-6,), True),
    "Nephos AS7116, mode static": Shape("below xon", True, (36736, 82880), False),
}


@dataclass(frozen=True)
class Row:
    speed_gbps: int
    metres: int
    size: int
    xon: int
    xoff: int
    threshold: int
    offset: int | None

    @property
    def mode(self) -> str:
        """Mode of the pool to which such a threshold applies."""
        return "dynamic" if -8 <= self.threshold <= 8 else "static"

    @property
    def line(self) -> str:
        text = f"  {self.speed_gbps}000  {self.metres}m  {self.size} {self.xon}   {self.xoff}"
        return f"{text} {self.threshold}" + ("" if self.offset is None else f"\t{self.offset}")

    @property
    def keys(self) -> str:
        text = (
            f"{{speed_gbps: {self.speed_gbps}, cable_metres: {self.metres}, size_bytes: "
            f"{self.size}, xon_bytes: {self.xon}, xoff_bytes: {self.xoff}, threshold: "
            f"{self.threshold}"
        )
        return text + ("}" if self.offset is None else f", xon_offset_bytes: {self.offset}}}")

    @property
    def profile(self) -> dict[str, str]:
        """As buffermgrd writes it into BUFFER_PROFILE (sonic-swss, cfgmgr/buffermgr.cpp)."""
        profile = {
            "pool": "ingress_lossless_pool",
            "xon": str(self.xon),
            "xoff": str(self.xoff),
            "size": str(self.size),
            f"{self.mode}_th": str(self.threshold),
        }
        return profile if self.offset is None else {**profile, "xon_offset": str(self.offset)}


@st.composite
def rows(draw: st.DrawFn, speed_gbps: int = 800, metres: int = 50) -> Row:
    shape = draw(st.sampled_from(list(SHAPES.values())))
    xon = draw(st.integers(2, 80_000)) if shape.xon else 0
    xoff = draw(st.integers(60_000, 3_000_000))
    sizes = {
        "0": 0,
        "sum": xon + xoff,
        "above sum": xon + xoff + draw(st.integers(1, 20_000)),
        "xon": xon,
        "below sum": xon + draw(st.integers(1, xoff - 1)),
        "below xon": draw(st.integers(1, max(1, xon - 1))),
    }
    offset = draw(st.integers(0, 3_000_000)) if shape.offset else None
    threshold = draw(st.sampled_from(shape.thresholds))
    return Row(speed_gbps, metres, sizes[shape.size], xon, xoff, threshold, offset)
