# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of a port for lost packets, and for pause frames other than those of PFC.

Names and meaning: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
counters.rst (16f448d47a86); discards per priority: mlx5/core/en_stats.c. A port can be slow
although no packet is dropped: pause of the whole link took 21.7 % of 400 Gb/s
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
"""The counter that covers all priorities."""
LOST: Mapping[str, str] = {
    DISCARDS: _BUFFER,
    "tx_discards_phy": (
        "packets were dropped before they were sent: the link was down, or the leaf paused the "
        "port for too long (its PFC watchdog and counters)"
    ),
    "tx_pause_storm_error_events": (
        "the NIC paused the leaf for so long that it stopped pausing, and dropped packets: the "
        "host does not accept the data (dmesg: PCIe, GPU; rail_pcie)"
    ),
    "rx_crc_errors_phy": "packets arrived corrupt: check cable and transceivers of the path",
    "rx_oversize_pkts_phy": _MTU,
    "tx_errors_phy": _MTU,
}
"""Remedies, by counter of packets that a lossless class must not lose."""
READING_APART = 0.01
"""Seen with all packets in priority 0: 58591428329 in total, 58591314012 there."""
_OF_PRIORITY = re.compile(r"rx_prio([0-7])_(?:buf_|cong_)?discards?")
_LINK_PAUSE = re.compile(r"[rt]x_global_pause")
"""The driver shows them while link pause is enabled (counters.rst)."""
_ANY_PAUSE = re.compile(r"([rt]x)_pause_ctrl_phy")
"""In published outputs, these include PFC frames, even of priorities without a counter."""
_PAUSED = (
    "the whole link was paused, RoCE with all other traffic: turn link pause (802.3x) off at the "
    "leaf's port; here rail_link_pause, ethtool --show-pause"
)
_OTHER_PAUSE = (
    "pause frames of no priority that has PFC here: turn link pause (802.3x), and PFC on other "
    "priorities, off at the leaf's port (link_pfc); here rail_link_pause, rail_pfc"
)
_NOTED = (
    "tx_pause_storm_warning_events",
    "rx_out_of_buffer",
    "rx_oversize_pkts_buffer",
    "rx_buffer_passed_thres_phy",
    "rx_global_pause_duration",
    "tx_global_pause_duration",
)
"""Shown if they grow, but never a failure: congestion, or the kernel's queues."""


def counted(name: str) -> bool:
    """Return whether a counter belongs to this module."""
    patterns = (_OF_PRIORITY, _LINK_PAUSE, _ANY_PAUSE)
    return name in LOST or name in _NOTED or any(each.fullmatch(name) for each in patterns)


def findings(growth: Mapping[str, int], lossless: Collection[int]) -> dict[str, tuple[int, str]]:
    """Return growth and remedy by counter; `lossless` are the priorities with PFC.

    Drops in other classes are not reported if the NIC counts them by priority.
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
        # The counters are read in sequence while the NIC drops packets: they differ slightly.
        found[DISCARDS] = (rest if rest > others * READING_APART else 0), _BUFFER
    return {name: each for name, each in found.items() if each[0] > 0}


def told(found: Mapping[str, tuple[int, str]]) -> str:
    """`rx_prio3_discards 7, rx_discards_phy 7: its receive buffer ...`; each remedy once."""
    names: dict[str, list[str]] = {}
    for name, (count, remedy) in found.items():
        names.setdefault(remedy, []).append(f"{name} {count}")
    return "; ".join(f"{', '.join(each)}: {remedy}" for remedy, each in names.items())
