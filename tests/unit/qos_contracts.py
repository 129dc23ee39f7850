# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Contracts for tests: any valid one, and one that a site wrote."""

from __future__ import annotations

from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from hypothesis import strategies as st


def compiled(value: Optional[dict[str, Any]] = None) -> dict[str, Any]:
    """The variable `cluster_qos` of a model with this contract."""
    return host_settings(read_contract(value)).as_variable()


STORAGE: dict[str, Any] = {
    "roce": {
        "dscp": 24,
        "also_dscps": [27],
        "priority": 4,
        "traffic_class": 5,
        "bandwidth_percent": 60,
    },
    "cnp": {"dscp": 46, "priority": 7},
    "classes": [
        {"name": "storage", "dscps": [10, 12], "priority": 2, "bandwidth_percent": 15},
        {"name": "backup", "dscps": [8], "priority": 1, "bandwidth_percent": 5},
    ],
    "ecn": {"minimum_bytes": 166912, "maximum_bytes": 239616, "probability_percent": 5},
    "pfc": {
        "xoff_bytes": 300000,
        "pool_percent": 80,
        "watchdog": {
            "enabled": False,
            "detection_ms": 400,
            "restoration_ms": 500,
            "action": "alert",
        },
    },
    "mtu": {"fabric": 9214, "fabric_layer": "ip", "roce_path": 2048},
    "cable_metres": {"to_nodes": 5, "between_switches": 300},
    "congestion_control": {"notification_point": False, "reaction_point": False},
}
"""Every value differs from the default, except the mode: in the other mode, ECN has no effect."""


@st.composite
def contracts(draw: st.DrawFn) -> dict[str, Any]:
    """A valid value of `roce_qos`, from which optional keys may be missing."""
    further = draw(st.integers(0, 5))
    priorities = draw(st.permutations(range(1, 8)))
    traffic_classes = draw(st.permutations(range(8)))
    mode = draw(st.sampled_from(("roce", "spectrum_x")))
    dscps = draw(st.permutations(range(1, 64)))
    if mode == "spectrum_x":
        dscps = [24, *(each for each in dscps if each != 24)]
    shares = draw(st.lists(st.integers(1, 100 // (further + 2)), min_size=further + 1))
    low = draw(st.integers(1024, 1 << 29))
    high = draw(st.integers(low, 1 << 29))
    detection = draw(st.integers(200, 5000))
    layer = draw(st.sampled_from(("frame", "ip")))
    roce_path = draw(st.sampled_from((256, 512, 1024, 2048, 4096)))
    controlled = draw(st.booleans())
    value: dict[str, Any] = {
        "roce": {
            "dscp": dscps[0],
            "priority": priorities[0],
            "traffic_class": traffic_classes[0],
            "bandwidth_percent": shares[0],
        },
        "cnp": {
            "dscp": dscps[1],
            "priority": priorities[1],
            "traffic_class": traffic_classes[1],
        },
        "best_effort": {"priority": 0, "traffic_class": traffic_classes[2]},
        "classes": [
            {
                "name": f"class{number}",
                "dscps": list(dscps[2 + 4 * number : 6 + 4 * number]),
                "priority": priorities[2 + number],
                "traffic_class": traffic_classes[3 + number],
                "bandwidth_percent": shares[1 + number],
            }
            for number in range(further)
        ],
        "ecn": {
            "minimum_bytes": low,
            "maximum_bytes": high,
            "probability_percent": draw(st.integers(1, 100)),
        },
        "pfc": {
            "xoff_bytes": draw(st.none() | st.integers(high + 1, 1 << 30)),
            "watchdog": {
                "enabled": draw(st.booleans()),
                "detection_ms": detection,
                "restoration_ms": draw(st.integers(detection, 60_000)),
                "action": draw(st.sampled_from(("drop", "forward", "alert"))),
            },
        },
        "mtu": {
            "fabric": draw(st.integers(max(1298, roce_path + 96 + 18), 10_240)),
            "fabric_layer": layer,
            "roce_path": roce_path,
        },
        "cable_metres": {
            "to_nodes": draw(st.integers(1, 2000)),
            "between_switches": draw(st.integers(1, 2000)),
        },
        "congestion_control": {"notification_point": controlled, "reaction_point": controlled},
    }
    own_classes = draw(st.booleans())
    for entry in (value["roce"], value["cnp"], value["best_effort"], *value["classes"]):
        if not own_classes:
            del entry["traffic_class"]
    value["fabric_mode"] = mode
    if mode == "spectrum_x":
        del value["ecn"], value["congestion_control"]
        if draw(st.booleans()):
            del value["roce"]["dscp"]
    else:
        classes = (value["roce"], *value["classes"])
        for entry in classes:
            entry["lossless"] = draw(st.booleans())
        if not any(entry["lossless"] for entry in classes):
            del value["pfc"]
    for section in ("mtu", "cable_metres", "congestion_control"):
        if draw(st.booleans()):
            value.pop(section, None)
    return value
