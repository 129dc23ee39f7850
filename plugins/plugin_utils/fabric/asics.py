# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switch chips: ports, headroom, and rounding of ECN thresholds. Each value has a published source.

Headroom is the buffer of a lossless priority group for data in flight after a pause is sent. For
Spectrum it follows NVIDIA's formula, which also runs on SONiC switches (sonic-swss e6b0c5b5,
cfgmgr/buffer_headroom_mellanox.lua), with the constants of each chip (sonic-buildimage 086b03bd,
platform/mellanox/asic_table.j2):

    xoff = lossless MTU + occupancy * (frame + MAC and PHY + 64 * pause quanta + tile + 2 * cable)

rounded up to KiB. Everything that the peer sends until it stops, plus the contents of the cable,
must fit, even in the smallest packets, each of which occupies whole cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Optional

from ..schema.findings import Finding

ETHERNET_GBPS = (1, 10, 25, 40, 50, 100, 200, 400, 800, 1600)

MAX_LANES = 8
"""Lanes of a QSFP-DD or OSFP port."""


@dataclass(frozen=True)
class Formula:
    """Constants of NVIDIA's formula, for one chip.

    Only packets of the smallest size are assumed: a switch that computes its own headroom assumes
    50 per cent and reserves less, but the contract must hold for any traffic.
    """

    cell_bytes: int
    pipeline_kib: int = 19
    """XON. A port of eight lanes has two buffers, and therefore twice this value."""
    tile_ns: int = 0
    further_bytes: int = 0

    @property
    def occupancy(self) -> int:
        """Bytes of buffer occupied per byte received."""
        return ceil(self.cell_bytes / SMALLEST_PACKET_BYTES)

    def headroom(
        self, speed_gbps: int, cable_metres: int, mtu_frame: int, eight_lanes: bool
    ) -> Headroom:
        bytes_per_second = Fraction(speed_gbps * 10**9, 8)
        peer = QUANTUM_BYTES * PAUSE_QUANTA[speed_gbps]
        tile = self.tile_ns * bytes_per_second / 10**9
        cable = 2 * cable_metres * bytes_per_second / METRES_PER_SECOND
        waiting = mtu_frame + MAC_PHY_BYTES + peer + tile + cable
        needed = LOSSLESS_MTU_BYTES + self.occupancy * waiting
        xoff = _whole_units(needed) + self.further_bytes
        xon = self.pipeline_kib * UNIT_BYTES * (2 if eight_lanes else 1)
        size = xon + xoff + (mtu_frame if eight_lanes else 0)
        return Headroom(_whole_units(Fraction(size)), xon, xoff)


@dataclass(frozen=True)
class Headroom:
    """A row of pg_profile_lookup.ini. XON and size may be 0, and headroom may be part of the size
    or of the pool, depending on the vendor."""

    size_bytes: int
    """NVIDIA: XON plus headroom; only XON if ports share headroom."""
    xon_bytes: int
    xoff_bytes: int
    """Headroom after XOFF, which fills until a pause takes effect."""
    threshold: Optional[int] = None
    """Share of the buffer: a power of two in a pool of mode dynamic, otherwise bytes."""
    xon_offset_bytes: Optional[int] = None
    """The pause also ends this far below XOFF."""


@dataclass(frozen=True)
class Asic:
    name: str
    """`spectrum4`, `tomahawk5`, ..., or a name of the inventory. Empty: unknown."""
    lanes: Optional[int] = None
    lane_gbps: Optional[int] = None
    formula: Optional[Formula] = None
    values: Mapping[tuple[int, int], Headroom] = field(default_factory=dict, hash=False)
    """Rows of the inventory by speed and cable length. They take precedence over the formula."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Values of `System.chip_keys`, if set."""
    fronts: int = 0
    """Most ports on the front of a switch with it; 0: unknown."""
    fixed: bool = False
    """Whether no switch with line cards has it."""
    widest: int = MAX_LANES
    """Lanes of the widest of them, as published, unless a speed needs more."""

    @property
    def family(self) -> str:
        """`spectrum` of spectrum4; empty if unknown."""
        return next((family for family in FAMILIES if self.name.startswith(family)), "")

    @property
    def front_ports(self) -> int:
        """As `fronts`. No published switch has a fast port with fewer than two lanes."""
        return self.fronts or (self.lanes or 0) // 2 + 4

    def has_port(self, speed_gbps: int) -> bool:
        fastest = self.lane_gbps * MAX_LANES if self.lane_gbps else ETHERNET_GBPS[-1]
        return speed_gbps in ETHERNET_GBPS and speed_gbps <= fastest

    def fewest_lanes(self, speed_gbps: int) -> int:
        """Lanes that a port of this speed needs: one, two, four or eight."""
        lanes = 1
        while self.lane_gbps and lanes < MAX_LANES and lanes * self.lane_gbps < speed_gbps:
            lanes *= 2
        return lanes

    def lanes_of_port(self, ports: int, speed_gbps: int) -> Optional[int]:
        """Lanes of each of `ports` equal ports: as many as fit, since cages are wired to all. None
        if unknown, or if the ports do not fit."""
        if self.lanes is None:
            return None
        widest = max(self.widest, self.fewest_lanes(speed_gbps))
        widths = (lanes for lanes in (1, 2, 4, MAX_LANES) if lanes <= widest)
        fits = [lanes for lanes in widths if lanes * ports <= self.lanes]
        return fits[-1] if fits and fits[-1] >= self.fewest_lanes(speed_gbps) else None


SPECTRUM = "spectrum"
FAMILIES = (SPECTRUM, "tomahawk", "trident", "jericho")
"""First parts of names of chips: NVIDIA's, and three of Broadcom."""
INFINIBAND = ("quantum", "switchib", "switch-ib", "switchx")
"""Likewise, of chips for InfiniBand."""

ASICS = {
    asic.name: asic
    for asic in (
        Asic("spectrum", lanes=128, lane_gbps=25, formula=Formula(96), fronts=56, widest=4),
        Asic("spectrum2", lanes=128, lane_gbps=50, formula=Formula(144), fronts=64, widest=4),
        Asic("spectrum3", lanes=256, lane_gbps=50, formula=Formula(144), fronts=64),
        Asic("spectrum4", lanes=512, lane_gbps=100, formula=Formula(192, tile_ns=120), fronts=66),
        Asic("spectrum5", lanes=512, lane_gbps=100, formula=Formula(192, tile_ns=120), fronts=66),
        Asic(
            "spectrum6",
            lanes=512,
            lane_gbps=200,
            formula=Formula(256, pipeline_kib=42, further_bytes=18 * 1024),
            fronts=68,
            widest=4,
        ),
        Asic("tomahawk3", lanes=256, lane_gbps=50),
        Asic("tomahawk4", lanes=512, lane_gbps=50),
        Asic("tomahawk5", lanes=512, lane_gbps=100, fixed=True),  # Arista: 7060X6 only
        Asic("tomahawk6", lanes=512, lane_gbps=200, fixed=True),
        Asic("tomahawk6-100g", lanes=1024, lane_gbps=100),
    )
}
"""Chips by name. For those without a formula, only the ports are known. Lanes, and ports on the
front: sonic-buildimage 086b03bd, port_config.ini of each chip's platforms (Tomahawk 6 is BCM78914
in NH-4220 and Nokia-IXR7220-H6-64, and BCM78910 in NH-4210-F-P128 and Nokia-IXR7220-H6-P128)."""
SPECTRUM4 = ASICS["spectrum4"]

BUFFER_BYTES = {
    "spectrum": 14_024_599,
    "spectrum2": 34_287_552,
    "spectrum3": 60_817_392,
    "spectrum4": 158_229_504,
    "tomahawk3": 64_000_000,
    "tomahawk4": 113_660_000,
    "tomahawk5": 165_200_000,
}
"""Packet buffer that queues share. Spectrum: egress_lossless_pool_size of SN2700, SN3700, SN4700
and SN5600 in sonic-buildimage (device/mellanox/*/*/buffers_defaults_t0.j2 and _objects.j2), which
is the whole of it. Tomahawk: switches with these chips (Arista 7060X4; fs.com N9510-64D and
N9600-64OD, as collected in buraglio/port-buffers, content/concepts). Others are not published."""
LARGEST_BUFFER_BYTES = 1 << 28
"""Of a switch without external packet memory: Cisco N9364E-SG2 (Silicon One G200)."""


LINK = ("speed_gbps", "cable_metres")


def asic_named(name: str, asics: Mapping[str, Mapping[str, Any]]) -> Optional[Asic]:
    """The chip with its entry in `asics` (`cluster_asics`); None if unknown to both."""
    if name not in ASICS and name not in asics:
        return None if name else Asic("")
    chip, entry = ASICS.get(name, Asic(name)), asics.get(name, {})
    return replace(
        chip,
        values={
            (row["speed_gbps"], row["cable_metres"]): Headroom(
                **{key: value for key, value in row.items() if key not in LINK}
            )
            for row in entry.get("headroom", ())
        },
        options={key: value for key, value in entry.items() if key != "headroom" and value},
    )


class WantedError(Exception):
    """The system or the chip cannot implement the intent. `findings` lists every reason."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text() for finding in self.findings))


PAUSE_QUANTA = {10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905}
"""Time that a peer may take to stop, by speed, in quanta of 512 bits (IEEE 802.3, 31B.3.7)."""
QUANTUM_BYTES = 64
SMALLEST_PACKET_BYTES = 64
LOSSLESS_MTU_BYTES = 1024
MAC_PHY_BYTES = Fraction(8 * 1024, 10)
METRES_PER_SECOND = 198_000_000
MOST_METRES = 300
"""Longest cable for which the formula was verified."""
UNIT_BYTES = 1024


def headroom(
    asic: Asic, speed_gbps: int, cable_metres: int, mtu_frame: int, lanes: Optional[int] = None
) -> Headroom:
    """Headroom of a port for lossless operation. Raises WantedError if it is unknown.

    `mtu_frame`: the largest Ethernet frame in bytes. `lanes`: those of the port; None for the
    fewest that its speed needs.
    """
    given = asic.values.get((speed_gbps, cable_metres))
    if given is not None:
        return given
    known = asic.has_port(speed_gbps) and speed_gbps in PAUSE_QUANTA
    if asic.formula is None or not known or cable_metres > MOST_METRES:
        raise WantedError([_missing(asic, speed_gbps, cable_metres)])
    eight = (asic.fewest_lanes(speed_gbps) if lanes is None else lanes) == MAX_LANES
    return asic.formula.headroom(speed_gbps, cable_metres, mtu_frame, eight)


def in_flight(speed_gbps: int, cable_metres: int) -> int:
    """Bytes that a cable holds in both directions: the lower bound of headroom on any chip."""
    return 2 * cable_metres * speed_gbps * 10**9 // (8 * METRES_PER_SECOND)


def _whole_units(size: Fraction) -> int:
    return UNIT_BYTES * ceil(size / UNIT_BYTES)


def _missing(asic: Asic, speed_gbps: int, cable_metres: int) -> Finding:
    chip = asic.name or "CHIP"
    row = f"speed_gbps: {speed_gbps}, cable_metres: {cable_metres}"
    return Finding(
        "fabric.headroom_unknown",
        (),
        f"the headroom of {chip} at {speed_gbps}G over {cable_metres} m is unknown",
        f"{'' if asic.name else 'Write leaves.asic and spines.asic. Or: '}"
        f"Take it from the switch vendor and write it into the model: asics: {{{chip}: "
        f"{{headroom: [{{{row}, size_bytes: ..., xon_bytes: ..., xoff_bytes: ...}}]}}}}",
        value=(speed_gbps, cable_metres),
    )


STEP_CELLS = 64
"""Spectrum rounds ECN thresholds up to steps of 64 cells: 150000 bytes become 159744 on
Spectrum-4 (cells of 192 bytes), and 156672 on Spectrum-2 and -3 (144), as NVIDIA documents."""


def rounded(asic: Asic, asked: int, found: int) -> bool:
    formulas = [asic.formula] if asic.formula else [chip.formula for chip in ASICS.values()]
    steps = (STEP_CELLS * formula.cell_bytes for formula in formulas if formula)
    return any(found == -(-asked // step) * step for step in steps)
