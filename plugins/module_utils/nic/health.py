# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Physical health of a rail: errors that its port counts, and measurements of its module.

Counters grow from the time the driver is loaded, even while cables are unplugged, so their growth
between two readings is evaluated: at 800 Gb/s and a bit error ratio of 1e-12, one error in 1.25 s.
Names and meaning: Linux, Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
counters.rst (16f448d47a86). For other drivers, nothing is counted here.
Discards per priority: mlx5/core/en_stats.c. A port can be slow although no packet is dropped: pause
of the whole link took 21.7 % of 400 Gb/s (github.com/NVIDIA/daqiri/issues/250).

mlxlink shows FEC, the measurements of the module with its limits, and the ratios since the counters
were cleared. Names and syntax: Mellanox/mstflint b9d9e844a14a, mlxlink/modules/
mlxlink_commander.cpp (prepareDDMSection, prepareBerInfo) and printutil/mlxlink_cmd_print.cpp.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, NOT_APPLICABLE, OK, Check, not_applicable
from ..core.commands import CommandError, Runner, find_program
from ..hardware import tree
from ..qos import RETRIES

HEALTH = "rail_health"
NO_COUNTERS = "not applicable: its driver shows no counters of the physical port"
UNCORRECTED = "rx_pcs_symbol_err_phy"
"""mlxlink calls these effective errors (prepareBerInfoEDR, phy_symbol_errors)."""
ERRORS = ("link_down_events_phy", "rx_symbol_err_phy", UNCORRECTED)
"""According to counters.rst, replace cable or transceiver if they increase."""
CORRECTED = "rx_corrected_bits_phy"
TOOLS = ("mlxlink", "mstlink")
"""The same program in MFT (DOCA) and in mstflint, with JSON output since mstflint 4.13.3."""

MARKED, OBEYED = "np_ecn_marked_roce_packets", "rp_cnp_handled"
CONGESTION = (MARKED, "np_cnp_sent", OBEYED, "rp_cnp_ignored")
"""Packets marked by switches, and notifications (CNPs) sent, obeyed and ignored: Linux e1f24a79f424
(IB/mlx5: Support congestion related counters)."""
OF_DEVICE = (*RETRIES, *CONGESTION)
EVENTS = (
    *(*OF_DEVICE, "out_of_buffer", "duplicate_request", "link_downed", "send_err"),
    *("rnr_nak_retry_err", "send_rnr_err", "rcvd_rnr_err", "retry_rnr_exceeded_err"),
    *("roce_adp_retrans", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err"),
    "retry_exceeded_err",
)
"""Errors and congestion in hw_counters, with the names used by mlx5 and Soft-RoCE."""

_PAUSES = tuple(f"{way}_prio{number}_pause" for way in ("rx", "tx") for number in range(8))
_RATIOS = {"raw_ber": CORRECTED, "effective_ber": UNCORRECTED}
_PHY, _DDM = "Physical Counters and BER Info", "Module Info"
_SHOWN = {
    "fec": ("Operational Info", "FEC"),
    "recommendation": ("Troubleshooting Info", "Recommendation"),
    "minutes_since_clear": (_PHY, "Time Since Last Clear [Min]"),
    "raw_ber_since_clear": (_PHY, "Raw Physical BER"),
    "effective_ber_since_clear": (_PHY, "Effective Physical BER"),
    "celsius": (_DDM, "Temperature [C]"),
    "rx_dbm": (_DDM, "Rx Power Current [dBm]"),
    "tx_dbm": (_DDM, "Tx Power Current [dBm]"),
}
"""Maps the displayed name to section and key in the tool's output."""
_POWERS = {"rx_dbm": "receives", "tx_dbm": "sends"}
_FIGURE = r"-?(?:inf|\d+(?:\.\d+)?(?:e-?\d+)?)"
_WITH_LIMITS = re.compile(rf"({_FIGURE}(?:,{_FIGURE})*) \[({_FIGURE})\.\.({_FIGURE})\]")
_CABLE = "Clean or replace cable and transceivers, here and at the leaf (mlxlink -d PCI -m -c)"
_NO_TOOL = (
    "the counters of its port are within the limits; FEC and its module were not read: "
    "neither mlxlink nor mstlink is installed, the layer rdma installs mft (with DOCA) or mstflint"
)


def of_port(counters: Mapping[str, int]) -> dict[str, int]:
    """Select the counters of `ethtool -S` for the health of the physical port and its losses."""
    names = (*ERRORS, CORRECTED)
    return {
        n: v
        for n, v in counters.items()
        if n in names or n.startswith("rx_err_lane_") or _seldom(n)
    }


def of_device(device: str, port: int, sys: Path, names: Iterable[str]) -> dict[str, int]:
    """Read counters of an RDMA device, in hw_counters. A missing one is omitted."""
    directory = sys / f"class/infiniband/{device}/ports/{port}/hw_counters"
    read = {name: tree.number(directory / name) for name in names}
    return {name: count for name, count in read.items() if count is not None}


def _seldom(name: str) -> bool:
    """Return whether a counter is shown only if it is not 0; there are about seventy of these."""
    return counted(name) or name.startswith(_PAUSES) or name in OF_DEVICE


@dataclass(frozen=True)
class PortCounters:
    """Counters of a port at one time, selected by `of_port`."""

    counted: Mapping[str, int]
    at: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""


@dataclass(frozen=True)
class PortReading:
    """Measurements of the NIC and its tool, taken at one time."""

    shown: Mapping[str, str] = field(default_factory=dict)
    """Values by the names of _SHOWN, as the tool prints them."""
    celsius: Optional[float] = None
    celsius_limit: Optional[float] = None
    unread: str = ""
    """The reason why the tool printed nothing."""

    @classmethod
    def of(
        cls, pci: str, run: Runner, which: Callable[[str], Optional[str]] = find_program
    ) -> PortReading:
        shown, unread = _ask(pci, run, next(filter(which, TOOLS), None))
        measured = with_limits(shown.get("celsius", ""))
        if measured is None:
            return cls(shown, unread=unread)
        return cls(shown, measured[0][0], measured[2], unread)


def _ask(pci: str, run: Runner, tool: Optional[str]) -> tuple[dict[str, str], str]:
    """Return the values that the tool prints, or the reason why it prints none."""
    if tool is None:
        return {}, _NO_TOOL
    argv = (tool, "-d", pci, "-m", "-c", "--json")
    try:
        result = run(argv, check=False)
    except CommandError as error:
        return {}, str(error)
    try:
        sections = json.loads(result.stdout)["result"]["output"]
        found = {name: sections.get(title, {}).get(key) for name, (title, key) in _SHOWN.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        output = (result.stdout + result.stderr).strip()[-400:]
        return {}, f"{' '.join(argv)}: exit status {result.rc}: {output or 'it printed nothing'}"
    # Values of another type are not shown: other versions of the tool may print lists.
    return {name: value for name, value in found.items() if isinstance(value, str)}, ""


def with_limits(text: str) -> Optional[tuple[list[float], float, float]]:
    """Parse `1.886,1.989 [-10.41..6]` into values, lower and upper limit.

    Returns None for `N/A`, and for `0,0 [0..0]` of a copper cable without a sensor (MFT 4.35.0).
    """
    match = _WITH_LIMITS.fullmatch(text)
    if not match or match[2] == match[3]:
        return None
    return [float(value) for value in match[1].split(",")], float(match[2]), float(match[3])


def check(
    rail: str,
    before: PortCounters,
    now: PortCounters,
    speed_gbps: Optional[float],
    link: PortReading,
    limits: Mapping[str, Any],
    *,
    quiet: bool = True,
    lossless: Collection[int] = range(8),
    notified: bool = False,
) -> Check:
    """Return the check `rail_health` from two readings of the counters and one of the module.

    `quiet`: no link was set up between the readings; that takes links down and counts as errors.
    `lossless`: the priorities with PFC; without any, losses are not evaluated here.
    `notified`: the contract has congestion notifications.
    """
    wanted = {**limits, "module_celsius": limits["module_celsius"] or link.celsius_limit}
    if not now.counted:
        if before.counted:
            gone = "its port no longer has counters: check dmesg for its driver and PCIe link"
            return Check(HEALTH, wanted, None, FAILED, rail, gone)
        return not_applicable(HEALTH, wanted, NO_COUNTERS, subject=rail)
    seconds = now.at - before.at
    grown = {name: count - before.counted.get(name, count) for name, count in now.counted.items()}
    found: dict[str, Any] = {
        **{n: count for n, count in now.counted.items() if count or not _seldom(n)},
        **link.shown,
        "seconds": round(seconds, 1),
        "new": {name: count for name, count in grown.items() if count},
        "module_celsius": link.celsius,
    }
    errors: list[tuple[str, float]] = []
    if limits["new_errors"] is not None:
        errors += [(n, grown[n]) for n in ERRORS if grown.get(n, 0) > limits["new_errors"]]
    for name, counter in _RATIOS.items():
        found[name] = None
        if speed_gbps and counter in grown:
            ratio = found[name] = float(f"{grown[counter] / (speed_gbps * 1e9 * seconds):.1e}")
            # A limit below one error in this time would permit none, like new_errors.
            one_error = 1 / (speed_gbps * 1e9 * seconds)
            if limits[name] is not None and ratio > limits[name] >= one_error:
                errors.append((name, ratio))
    faults = []
    if quiet and min(grown.values()) < 0:
        faults.append("its counters were reset meanwhile: check dmesg for its driver and firmware")
    if errors and quiet:
        shown = ", ".join(f"{name} {count}" for name, count in errors)
        faults.append(f"in {seconds:.1f} s: {shown}. {_CABLE}")
    lost = findings(grown, lossless) if lossless else {}
    lost = {name: each for name, each in lost.items() if each[0] > (limits["new_errors"] or 0)}
    if lost and quiet and limits["new_errors"] is not None:
        faults.append(f"in {seconds:.1f} s: {told(lost)}")
    if notified and quiet and (silence := unanswered(grown)):
        faults.append(f"in {seconds:.1f} s: {silence}")
    faults += _of_module(link, wanted)
    if faults:
        return Check(HEALTH, wanted, found, FAILED, rail, "; ".join(faults))
    unknown = link.unread
    if not quiet:
        unknown = "links were set up in this run, so errors are shown but not evaluated: run again"
    elif not before.counted:
        unknown = "its counters could not be read at first, so errors are not evaluated: run again"
    return Check(HEALTH, wanted, found, NOT_APPLICABLE if unknown else OK, rail, unknown)


def _of_module(link: PortReading, wanted: Mapping[str, Any]) -> list[str]:
    faults = []
    margin, limit = wanted["power_margin_db"], wanted["module_celsius"]
    for name, verb in _POWERS.items() if margin is not None else ():
        measured = with_limits(link.shown.get(name, ""))
        if measured:
            values, low, high = measured
            if not all(low - margin <= value <= high + margin for value in values):
                shown = link.shown[name]
                faults.append(f"its module {verb} {shown} dBm, beyond its limits. {_CABLE}")
    if link.celsius and limit and link.celsius >= limit:
        faults.append(f"its module is at {link.celsius:g} degrees Celsius: check airflow and fans")
    return faults


# Lost packets, and pause frames other than those of PFC

_BUFFER = (
    "its receive buffer was full: PFC is off at the leaf's port, or the buffer is too small for "
    "the cable (rail_pfc, rail_cable_length; at the leaf --tags fabric)"
)
_MTU = "packets were longer than one end allows: rail_mtu here, link_mtu at the leaf"
DISCARDS = "rx_discards_phy"
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


def unanswered(growth: Mapping[str, int]) -> str:
    """Why congestion is not answered: at a receiver by CNPs, at a sender by a lower rate."""
    marked, answered, obeyed, ignored = (growth.get(name, 0) for name in CONGESTION)
    if marked > 0 and not answered:
        return f"{marked} packets were marked, and no CNP was sent: rail_ecn_np (--tags rails)"
    if ignored > 0 and not obeyed:
        return f"{ignored} CNPs were ignored: rail_ecn_rp (--tags rails)"
    return ""


def told(found: Mapping[str, tuple[int, str]]) -> str:
    """`rx_prio3_discards 7, rx_discards_phy 7: its receive buffer ...`; each remedy once."""
    names: dict[str, list[str]] = {}
    for name, (count, remedy) in found.items():
        names.setdefault(remedy, []).append(f"{name} {count}")
    return "; ".join(f"{', '.join(each)}: {remedy}" for remedy, each in names.items())
