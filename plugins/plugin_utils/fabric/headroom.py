# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a chip makes of sizes: headroom, and ECN thresholds that it rounds.

Headroom is the buffer of a lossless priority group, for what arrives after a pause was sent.

    xoff = fixed + occupancy * (frame + MAC and PHY + 64 * pause quanta + 2 * cable)
    cable = (metres + further metres) * bytes per second / speed of light in it

rounded up to KiB. A pause waits for the frame that is just being sent, takes its time on the cable,
and the peer its own until it stops: so much is still on its way, and then the cable's content. All
of it may come as the smallest packets, each of which takes a whole cell of the buffer.

Whole numbers and fractions alone: the figures are right to the byte.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from ...module_utils.core.dataclass import dataclass
from ..schema.findings import Finding
from .asics import ASICS, Asic, Formula
from .system import WantedError

PAUSE_QUANTA = {10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905}
"""By speed: how long a peer may take to stop, of 512 bits each (IEEE 802.3, 31B.3.7)."""
QUANTUM_BYTES = 64
SMALLEST_PACKET_BYTES = 64
METRES_PER_SECOND = 198_000_000
"""Of light in a fibre."""
MOST_METRES = 300
"""The longest cable that the formula was checked for."""
UNIT_BYTES = 1024


@dataclass(frozen=True)
class Headroom:
    size_bytes: int
    """Of the whole buffer: XON, room after XOFF, and what the chip needs besides."""
    xon_bytes: int
    xoff_bytes: int
    """Room after XOFF, which is what a pause that comes late fills."""


def headroom(asic: Asic, speed_gbps: int, cable_metres: int, mtu_frame: int) -> Headroom:
    """What a port needs to lose nothing. WantedError where it is not known.

    `mtu_frame`: the largest Ethernet frame. What the inventory says comes before the formula.
    """
    for value in asic.values:
        if (value.speed_gbps, value.cable_metres) == (speed_gbps, cable_metres):
            return Headroom(value.size_bytes, value.xon_bytes, value.xoff_bytes)
    formula = asic.formula
    if formula is None or speed_gbps not in formula.xon_bytes or cable_metres > MOST_METRES:
        raise WantedError([_missing(asic, speed_gbps, cable_metres)])
    before = _before_rounding(formula, speed_gbps, cable_metres, mtu_frame)
    xon = formula.xon_bytes[speed_gbps]
    further = formula.further_size_bytes.get(speed_gbps, 0)
    return Headroom(xon + _whole_units(before + further), xon, _whole_units(before))


def _before_rounding(formula: Formula, speed_gbps: int, metres: int, mtu_frame: int) -> Fraction:
    occupancy = Fraction(formula.cell_bytes, SMALLEST_PACKET_BYTES)
    bytes_per_second = Fraction(speed_gbps * 10**9, 8)
    cable = 2 * (metres + formula.further_metres) * bytes_per_second / METRES_PER_SECOND
    peer = QUANTUM_BYTES * PAUSE_QUANTA[speed_gbps]
    return formula.fixed_bytes + occupancy * (mtu_frame + formula.mac_phy_bytes + peer + cable)


def _whole_units(size: Fraction) -> int:
    return UNIT_BYTES * ceil(size / UNIT_BYTES)


def _missing(asic: Asic, speed_gbps: int, cable_metres: int) -> Finding:
    link = (speed_gbps, cable_metres)
    if not asic.name:
        return Finding(
            "fabric.headroom_of_no_chip",
            (),
            f"the headroom of a port at {speed_gbps}G over {cable_metres} m is not known, because "
            "nobody says which chip the switch has",
            "Write leaves.asic and spines.asic",
            value=link,
        )
    row = f"speed_gbps: {speed_gbps}, cable_metres: {cable_metres}"
    return Finding(
        "fabric.headroom_unknown",
        (),
        f"the headroom of {asic.name} at {speed_gbps}G over {cable_metres} m is not known here",
        f"Take it from the switch vendor and write it into the model: asics: {{{asic.name}: "
        f"{{headroom: [{{{row}, size_bytes: ..., xon_bytes: ..., xoff_bytes: ...}}]}}}}",
        value=link,
    )


# ECN thresholds that the hardware rounds.
#
# A Spectrum counts them in steps of 64 buffer cells and rounds up. 150000 bytes become 159744 on
# Spectrum-4 (13 steps of 64 cells of 192 bytes) and 156672 on Spectrum-2 and -3 (17 steps of 64
# cells of 144 bytes), as NVIDIA's documentation shows for both. Only the next step is tolerated.

STEP_CELLS = 64
_CELL_BYTES = {"spectrum": 96, "spectrum2": 144, "spectrum3": 144}
"""Of chips that have no headroom formula, which would say it."""


def _cells(asic: Asic) -> tuple[int, ...]:
    if asic.formula is not None:
        return (asic.formula.cell_bytes,)
    if asic.name in _CELL_BYTES:
        return (_CELL_BYTES[asic.name],)
    known = {chip.formula.cell_bytes for chip in ASICS.values() if chip.formula is not None}
    return tuple(sorted({*known, *_CELL_BYTES.values()}))


def rounded(asic: Asic, asked: int, found: int) -> bool:
    """Whether the chip makes `found` of `asked`."""
    steps = (STEP_CELLS * cell for cell in _cells(asic))
    return any(found == -(-asked // step) * step for step in steps)
