# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is known of switch chips: how fast their ports are, and what headroom these need.

Only what can be checked against something published stands here. The rest a site takes from its
vendor and writes into its inventory (`cluster_asics`): it is never derived from another chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass

ETHERNET_GBPS = (1, 10, 25, 40, 50, 100, 200, 400, 800, 1600)
"""Rates that Ethernet ports have."""

EOS_QUEUES = ("tx-queue", "uc-tx-queue")
"""What EOS calls a unicast queue, which differs from chip to chip."""

MOST_LANES = 8
"""Of one port: so many have QSFP-DD and OSFP."""


@dataclass(frozen=True)
class Formula:
    """Constants of the headroom formula, for one chip. `headroom.py` has the formula.

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
class Value:
    """Headroom for one speed and cable length, as an inventory says it."""

    speed_gbps: int
    cable_metres: int
    size_bytes: int
    xon_bytes: int
    xoff_bytes: int


@dataclass(frozen=True)
class Asic:
    name: str
    """`spectrum4`, `tomahawk5`, ..., or what the inventory calls its own. Empty: unknown."""
    lanes: Optional[int] = None
    """Of the whole chip; None where it is not known here."""
    lane_gbps: Optional[int] = None
    formula: Optional[Formula] = None
    values: tuple[Value, ...] = ()
    """What the inventory says. It comes before the formula."""
    eos_queue: str = ""
    """One of EOS_QUEUES; empty where it is not known. What the inventory says comes first."""

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
        Asic("tomahawk5", lanes=512, lane_gbps=100, eos_queue="tx-queue"),
    )
}
"""Chips by name. Those without a formula are known by their ports alone."""


def asic_named(name: str, asics: Mapping[str, Mapping[str, Any]]) -> Optional[Asic]:
    """The chip, with what `asics` (`cluster_asics`) says of it; None where neither knows it."""
    if name not in ASICS and name not in asics:
        return None if name else Asic("")
    chip, said = ASICS.get(name, Asic(name)), asics.get(name, {})
    return replace(
        chip,
        values=tuple(Value(**row) for row in said.get("headroom", ())),
        eos_queue=said.get("eos_queue") or chip.eos_queue,
    )
