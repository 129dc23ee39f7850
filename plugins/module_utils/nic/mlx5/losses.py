# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of a port for packets that were lost, and for pauses that are none of PFC's.

Names and meaning: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
counters.rst (16f448d47a86); those of a priority's discards: mlx5/core/en_stats.c. A port can be
slow with all counters of drops at 0: pause of the whole link took 21.7 % of 400 Gb/s
(github.com/NVIDIA/daqiri/issues/250).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_BUFFER = (
    "its receive buffer was full: PFC is off at the leaf's port, or the buffer is too small for "
    "the cable (rail_pfc, rail_cable_length; at the leaf --tags fabric)"
)
_MTU = "packets were longer than one end allows: rail_mtu here, link_mtu at the leaf"
DISCARDS = "rx_discards_phy"
"""Of all priorities."""
LOST: Mapping[str, str] = {
    DISCARDS: _BUFFER,
    "tx_discards_phy": (
        "packets were dropped before they were sent: the link was down, or the leaf paused the "
        "port for too long (its PFC watchdog and counters)"
    ),
    "tx_pause_storm_error_events": (
        "the NIC paused the leaf for so long that it stopped pausing, and dropped: the host does "
        "not take the data (dmesg: PCIe, GPU; rail_pcie)"
    ),
    "rx_crc_errors_phy": "packets arrived spoilt: see cable and transceivers, here and on the way",
    "rx_oversize_pkts_phy": _MTU,
    "tx_errors_phy": _MTU,
}
"""What to do, by counter; each counts packets that a lossless class must not lose."""
READING_APART = 0.01
"""Seen on a ConnectX: 58591428329 of all, and 58591314012 of priority 0, which had all packets."""
_OF_PRIORITY = re.compile(r"rx_prio([0-7])_(?:buf_|cong_)?discards?")
_LINK_PAUSE = re.compile(r"[rt]x_global_pause")
"""Shown by the driver while pause of the whole link is on (counters.rst)."""
_ANY_PAUSE = re.compile(r"([rt]x)_pause_ctrl_phy")
"""In published outputs frames of PFC count here too. A priority without PFC on the NIC has no
counter besides."""
_PAUSED = (
    "the whole link was paused, RoCE with all other traffic: turn link pause (802.3x) off at the "
    "leaf's port; here rail_link_pause, ethtool --show-pause"
)
_OTHER_PAUSE = (
    "pause frames of no priority that has PFC here: turn link pause (802.3x), and PFC on other "
    "priorities, off at the leaf's port (link_pfc); here rail_link_pause, rail_pfc"
)
_NOTED = (
    *("tx_pause_storm_warning_events", "rx_out_of_buffer", "rx_oversize_pkts_buffer"),
    *("rx_buffer_passed_thres_phy", "rx_global_pause_duration", "tx_global_pause_duration"),
)
"""Shown where they grow, and no finding: pressure, or packets of the kernel's own queues."""


def counted(name: str) -> bool:
    """Whether a counter is one of these."""
    patterns = (_OF_PRIORITY, _LINK_PAUSE, _ANY_PAUSE)
    return name in LOST or name in _NOTED or any(each.fullmatch(name) for each in patterns)


def findings(growth: Mapping[str, int], lossless: Collection[int]) -> dict[str, tuple[int, str]]:
    """By counter, how much it grew and what to do; `lossless` are the priorities with PFC.

    Drops in another class are no finding, where the NIC counts them by priority.
    """
    found: dict[str, tuple[int, str]] = {}
    elsewhere: dict[str, int] = {}
    for name, count in growth.items():
        match = _OF_PRIORITY.fullmatch(name)
        if match and int(match[1]) in lossless:
            found[name] = count, _BUFFER
        elif match:
            elsewhere[match[1]] = max(count, elsewhere.get(match[1], 0))
        elif _LINK_PAUSE.fullmatch(name):
            found[name] = count, _PAUSED
        elif pause := _ANY_PAUSE.fullmatch(name):
            if not any(growth.get(f"{pause[1]}_prio{number}_pause") for number in range(8)):
                found[name] = count, _OTHER_PAUSE
        elif name in LOST:
            found[name] = count, LOST[name]
    if DISCARDS in found:
        others = sum(elsewhere.values())
        rest = growth[DISCARDS] - others
        # Read one after the other, while the NIC goes on dropping: they differ by a few.
        found[DISCARDS] = (rest if rest > others * READING_APART else 0), _BUFFER
    return {name: each for name, each in found.items() if each[0] > 0}


def told(found: Mapping[str, tuple[int, str]]) -> str:
    """`rx_prio3_discards 7, rx_discards_phy 7: its receive buffer ...`, one remedy once."""
    names: dict[str, list[str]] = {}
    for name, (count, remedy) in found.items():
        names.setdefault(remedy, []).append(f"{name} {count}")
    return "; ".join(f"{', '.join(each)}: {remedy}" for remedy, each in names.items())
