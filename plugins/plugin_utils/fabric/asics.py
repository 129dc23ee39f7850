# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switch chips: their ports, their headroom, and how they round ECN thresholds.

Only what can be checked against something published stands here. The rest a site takes from its
vendor and writes into its inventory (`cluster_asics`): it is never derived from another chip.

Headroom is the buffer of a lossless priority group, for what arrives after a pause was sent.

    xoff = fixed + occupancy * (frame + MAC and PHY + 64 * pause quanta + 2 * cable)
    cable = (metres + further metres) * bytes per second / speed of light in it

rounded up to KiB. A pause waits for the frame that is just being sent, takes its time on the cable,
and the peer its own until it stops: so much is still on its way, and then the cable's content. All
of it may come as the smallest packets, each of which takes a whole cell of the buffer. Whole
numbers and fractions alone: the figures are right to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Optional

from ..schema.findings import Finding, Findings, Path
from ..schema.kinds import Boolean, Integer, Key, ListOf, OneOf, Section, Table, Text

ETHERNET_GBPS = (1, 10, 25, 40, 50, 100, 200, 400, 800, 1600)
"""Rates that Ethernet ports have."""

EOS_QUEUES = ("tx-queue", "uc-tx-queue")
"""What EOS calls a unicast queue, which differs from chip to chip."""

MOST_LANES = 8
"""Of one port: so many have QSFP-DD and OSFP."""


@dataclass(frozen=True)
class Formula:
    """Constants of the headroom formula, for one chip.

    For Spectrum-4 they give the room after XOFF that SONiC's tables have for SN5600 (frames of
    9216 bytes) at 800G over 5, 40 and 300 m and at 400G over 5 m, to the byte; of all 24 rows that
    are published they miss one, 40G over 5 m, so that 40G is not computed. `fixed_bytes` and
    `further_metres` are no figures of the vendor's: they are fitted to these rows.
    """

    cell_bytes: int
    """A buffer cell: the smallest packet takes a whole one."""
    mac_phy_bytes: int
    """On the way through MAC and PHY."""
    fixed_bytes: int
    further_metres: int
    xon_bytes: Mapping[int, int] = field(hash=False)
    """By speed. An 800G port of Spectrum-4 has two buffers, and so twice that of the others."""
    further_size_bytes: Mapping[int, int] = field(default_factory=dict, hash=False)
    """By speed: what a buffer has beyond XON and room after XOFF. For 800G on Spectrum-4 it is
    fitted to the published rows, which leave 8281 to 8868; without it their sizes are missed by 8
    or 9 KiB."""


@dataclass(frozen=True)
class Headroom:
    size_bytes: int
    """Of the whole buffer: XON, room after XOFF, and what the chip needs besides."""
    xon_bytes: int
    xoff_bytes: int
    """Room after XOFF, which is what a pause that comes late fills."""


@dataclass(frozen=True)
class Asic:
    name: str
    """`spectrum4`, `tomahawk5`, ..., or what the inventory calls its own. Empty: unknown."""
    lanes: Optional[int] = None
    """Of the whole chip; None where it is not known here."""
    lane_gbps: Optional[int] = None
    formula: Optional[Formula] = None
    values: Mapping[tuple[int, int], Headroom] = field(default_factory=dict, hash=False)
    """By speed and cable length, from the inventory. They come before the formula."""
    eos_queue: str = ""
    """One of EOS_QUEUES, from the inventory: for a switch that does not show it itself."""
    eos_ecn_count: bool = False
    """From the inventory: whether EOS counts marked packets of a queue only where told to."""

    def has_port(self, speed_gbps: int) -> bool:
        """Whether a port can have this speed, as far as that is known."""
        fastest = self.lane_gbps * MOST_LANES if self.lane_gbps else ETHERNET_GBPS[-1]
        return speed_gbps in ETHERNET_GBPS and speed_gbps <= fastest

    def lanes_of_port(self, ports: int) -> Optional[int]:
        """Lanes of each of `ports` like ports that share the chip."""
        if self.lanes is None:
            return None
        lanes = 1
        while lanes < MOST_LANES and lanes * ports < self.lanes:
            lanes *= 2
        return lanes


_XON_BYTES = 19456

SPECTRUM4 = Asic(
    "spectrum4",
    lanes=512,
    lane_gbps=100,
    formula=Formula(
        cell_bytes=192,
        mac_phy_bytes=800,
        fixed_bytes=1024,
        further_metres=12,
        xon_bytes={
            **dict.fromkeys((10, 25, 50, 100, 200, 400), _XON_BYTES),
            800: 2 * _XON_BYTES,
        },
        further_size_bytes={800: 8704},
    ),
)

ASICS = {
    asic.name: asic
    for asic in (
        SPECTRUM4,
        Asic("spectrum2", lanes=128, lane_gbps=50),
        Asic("spectrum3", lanes=256, lane_gbps=50),
        Asic("tomahawk3", lanes=256, lane_gbps=50),
        Asic("tomahawk4", lanes=512, lane_gbps=50),
        Asic("tomahawk5", lanes=512, lane_gbps=100),
    )
}
"""Chips by name. Those without a formula are known by their ports alone."""


def asic_named(name: str, asics: Mapping[str, Mapping[str, Any]]) -> Optional[Asic]:
    """The chip with its entry in `asics` (`cluster_asics`); None where neither knows it."""
    if name not in ASICS and name not in asics:
        return None if name else Asic("")
    chip, entry = ASICS.get(name, Asic(name)), asics.get(name, {})
    return replace(
        chip,
        values={
            (row["speed_gbps"], row["cable_metres"]): Headroom(
                row["size_bytes"], row["xon_bytes"], row["xoff_bytes"]
            )
            for row in entry.get("headroom", ())
        },
        eos_queue=entry.get("eos_queue") or "",
        eos_ecn_count=bool(entry.get("eos_ecn_count")),
    )


class WantedError(Exception):
    """The intent cannot be kept on this system or chip. `findings` has every reason."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.text() for finding in self.findings))


PAUSE_QUANTA = {10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905, 800: 905}
"""By speed: how long a peer may take to stop, of 512 bits each (IEEE 802.3, 31B.3.7)."""
QUANTUM_BYTES = 64
SMALLEST_PACKET_BYTES = 64
METRES_PER_SECOND = 198_000_000
"""Of light in a fibre."""
MOST_METRES = 300
"""The longest cable that the formula was checked for."""
UNIT_BYTES = 1024


def headroom(asic: Asic, speed_gbps: int, cable_metres: int, mtu_frame: int) -> Headroom:
    """What a port needs to lose nothing. WantedError where it is not known.

    `mtu_frame`: the largest Ethernet frame.
    """
    given = asic.values.get((speed_gbps, cable_metres))
    if given is not None:
        return given
    formula = asic.formula
    if formula is None or speed_gbps not in formula.xon_bytes or cable_metres > MOST_METRES:
        raise WantedError([_missing(asic, speed_gbps, cable_metres)])
    occupancy = Fraction(formula.cell_bytes, SMALLEST_PACKET_BYTES)
    bytes_per_second = Fraction(speed_gbps * 10**9, 8)
    cable = 2 * (cable_metres + formula.further_metres) * bytes_per_second / METRES_PER_SECOND
    peer = QUANTUM_BYTES * PAUSE_QUANTA[speed_gbps]
    room = formula.fixed_bytes + occupancy * (mtu_frame + formula.mac_phy_bytes + peer + cable)
    xon = formula.xon_bytes[speed_gbps]
    further = formula.further_size_bytes.get(speed_gbps, 0)
    return Headroom(xon + _whole_units(room + further), xon, _whole_units(room))


def _whole_units(size: Fraction) -> int:
    return UNIT_BYTES * ceil(size / UNIT_BYTES)


def _missing(asic: Asic, speed_gbps: int, cable_metres: int) -> Finding:
    link = (speed_gbps, cable_metres)
    if not asic.name:
        return Finding(
            "fabric.headroom_of_no_chip",
            (),
            f"the headroom of a port at {speed_gbps}G over {cable_metres} m is not known, because "
            "the model does not name the switch's chip",
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


# A Spectrum counts ECN thresholds in steps of 64 buffer cells and rounds up. 150000 bytes become
# 159744 on Spectrum-4 (13 steps of 64 cells of 192 bytes) and 156672 on Spectrum-2 and -3 (17 steps
# of 64 cells of 144 bytes), as NVIDIA documents for both. Only the next step is tolerated.

STEP_CELLS = 64
_CELL_BYTES = {"spectrum": 96, "spectrum2": 144, "spectrum3": 144}
"""Of chips without a headroom formula."""


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


# Switch chips in the model (`asics`)

CHIP_NAME = Text(
    r"[a-z][a-z0-9_-]*", "a chip's name (a to z, 0 to 9, - and _)", "spectrum4", most=40
)
_BUFFER = Integer(1, 1_000_000_000, "bytes")

HEADROOM = Section(
    "asics.headroom",
    "What a port needs to lose nothing after a pause, as the vendor of the switch has it, for one "
    "speed and cable length. It comes before what would be computed.",
    (
        Key("speed_gbps", Integer(1, 3200, "Gb/s"), "Line rate of the port.", required=True),
        Key(
            "cable_metres",
            Integer(1, 2000, "metres"),
            "The length in `roce_qos.cable_metres`.",
            required=True,
        ),
        Key(
            "size_bytes",
            _BUFFER,
            "Of the whole buffer; the same as `xon_bytes` where ports share headroom.",
            required=True,
        ),
        Key("xon_bytes", _BUFFER, "Where the pause ends.", required=True),
        Key("xoff_bytes", _BUFFER, "Room for what comes after the pause.", required=True),
    ),
)

CHIP = Section(
    "asics",
    "One chip of switches, under the name that `leaves.asic` or `spines.asic` has for it: what "
    "only its vendor knows.",
    (
        Key("headroom", ListOf(HEADROOM), "Headroom of its ports.", default=[]),
        Key(
            "eos_queue",
            OneOf(EOS_QUEUES),
            "How EOS calls its queues, for a switch that does not show it.",
            default_text="what the switch shows",
        ),
        Key(
            "eos_ecn_count",
            Boolean(),
            "Whether EOS is told to count marked packets (`random-detect ecn count`): on some "
            "platforms `show qos interfaces ecn counters queue` has no figures without it, and "
            "others do not know it.",
            default=False,
        ),
    ),
)

CHIPS = Table(CHIP, "chip")


def check_asics(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Findings for what one chip cannot have. `value` went through `check`."""
    for name, chip in value.items():
        seen: dict[tuple[int, int], int] = {}
        for index, row in enumerate(chip["headroom"]):
            place = (*path, name, "headroom", index)
            key = (row["speed_gbps"], row["cable_metres"])
            if seen.setdefault(key, index) != index:
                findings.add(
                    "fabric.headroom_twice",
                    place,
                    f"{key[0]}G over {key[1]} m is there twice, first at "
                    + findings.place((*path, name, "headroom", seen[key])),
                    "Keep one of them",
                    value=key,
                )
            together = row["xon_bytes"] + row["xoff_bytes"]
            # Of switches whose ports share headroom the vendors' tables have size = XON.
            if row["size_bytes"] < together and row["size_bytes"] != row["xon_bytes"]:
                findings.add(
                    "fabric.headroom_sum",
                    (*place, "size_bytes"),
                    f"{row['size_bytes']} is less than xon_bytes and xoff_bytes together "
                    f"({together})",
                    "Compare with the vendor's table",
                    value=(row["size_bytes"], together),
                )
