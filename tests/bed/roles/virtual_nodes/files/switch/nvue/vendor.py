# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Defaults of Cumulus Linux: from the factory, and with `qos roce`. The vendor's numbers.

They describe the simulated switch and must not follow the contract. Where a contract has the same
number, it was taken from here.
"""

from __future__ import annotations

from typing import Any

from common.switch import Hardware

Tree = dict[str, Any]

NEWEST = "5.16"
LARGEST_MTU = 9216
"""Default of a port without configuration."""
SMALLEST_MTU = 552
PROFILE = "default-global"

MARK = {"least": 150000, "most": 1500000, "share": 100}
"""Default congestion control of a queue, in bytes and per cent."""
DATA, NOTIFICATIONS = 3, 6
"""Switch priority and queue of RoCE and of its CNPs, with `qos roce`."""
HALF = 50
REACH = {"profile": 10, "roce": 100}
"""Assumed cable length in metres."""

CELLS = {"spectrum1": 96, "spectrum2": 144, "spectrum3": 144, "spectrum4": 192}
CELLS_PER_STEP = 64
"""Thresholds are rounded up to multiples of this number of cells: 150000 bytes become 159744 on
Spectrum-4 and 156672 on Spectrum-3, as in the vendor's examples."""


def factory(hardware: Hardware) -> Tree:
    """Initial configuration of a switch in service: its name and its management."""
    return {
        "interface": {"eth0": {"ip": {"address": {"dhcp": {}}, "vrf": "mgmt"}, "type": "eth"}},
        "system": {"hostname": hardware.name},
    }


def version(hardware: Hardware) -> tuple[int, ...]:
    release = hardware.release or NEWEST
    return tuple(int(word) for word in release.split(".")[:2])


def says_state(release: tuple[int, ...]) -> bool:
    """From 5.15 on `state: enabled` replaces `enable: on`."""
    return release >= (5, 15)


def saves_by_itself(release: tuple[int, ...]) -> bool:
    return release >= (5, 9)


def in_steps(count: int, asic: str) -> int:
    """Round a threshold as the ASIC does."""
    step = CELLS.get(asic.replace("-", "").lower(), CELLS["spectrum4"]) * CELLS_PER_STEP
    return -(-count // step) * step


def marking() -> Tree:
    return {
        "ecn": "enable",
        "red": "disable",
        "min-threshold": MARK["least"],
        "max-threshold": MARK["most"],
        "probability": MARK["share"],
    }


def factory_qos() -> Tree:
    """Layer 2 trust, eight queues of about an eighth each, no flow control."""
    return {
        "congestion-control": {PROFILE: {"traffic-class": {"0": marking()}}},
        "egress-queue-mapping": {
            PROFILE: {
                "switch-priority": {str(number): {"traffic-class": number} for number in range(8)}
            }
        },
        "egress-scheduler": {
            PROFILE: {
                "traffic-class": {
                    str(number): {"mode": "dwrr", "bw-percent": 12 + number % 2}
                    for number in range(8)
                }
            }
        },
        "mapping": {
            PROFILE: {"trust": "l2", "port-default-sp": 0, "pcp": _pcps(), "dscp": _dscps()}
        },
        "traffic-pool": {
            "default-lossy": {
                "memory-percent": 100,
                "switch-priority": {str(number): {} for number in range(8)},
            }
        },
    }


def roce_qos(mode: str, metres: int) -> Tree:
    """Return the settings that `qos roce` adds. Lossy mode is lossless mode without flow control
    and its pool."""
    queues = {str(number): {"traffic-class": 0} for number in range(8)}
    queues[str(DATA)] = {"traffic-class": DATA}
    queues[str(NOTIFICATIONS)] = {"traffic-class": NOTIFICATIONS}
    tree: Tree = {
        "congestion-control": {PROFILE: {"traffic-class": {"0": marking(), str(DATA): marking()}}},
        "egress-queue-mapping": {PROFILE: {"switch-priority": queues}},
        "egress-scheduler": {
            PROFILE: {
                "traffic-class": {
                    "0": {"mode": "dwrr", "bw-percent": HALF},
                    str(DATA): {"mode": "dwrr", "bw-percent": HALF},
                    str(NOTIFICATIONS): {"mode": "strict"},
                }
            }
        },
        "mapping": {PROFILE: {"trust": "both"}},
    }
    if mode.startswith("lossless"):
        tree["pfc"] = {
            PROFILE: {
                "switch-priority": {str(DATA): {}},
                "tx": "enable",
                "rx": "enable",
                "cable-length": metres,
            }
        }
        tree["traffic-pool"] = {
            "default-lossy": {
                "memory-percent": HALF,
                "switch-priority": {str(number): {} for number in range(8) if number != DATA},
            },
            "roce-lossless": {"memory-percent": HALF, "switch-priority": {str(DATA): {}}},
        }
    return tree


def _pcps() -> Tree:
    return {str(number): {"switch-priority": number} for number in range(8)}


def _dscps() -> Tree:
    return {str(number): {"switch-priority": number // 8} for number in range(64)}
