# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE's schema for qos, lldp and links of interfaces.

Other branches are accepted without a check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import vendor
from .tree import KeyPath, Tree


class Refused(Exception):
    """Text of a 400 response."""


@dataclass(frozen=True)
class Many:
    """An object whose keys are names of profiles, interfaces or priorities."""

    allowed: Callable[[str], bool]
    item: Node


Check = Callable[[Any], str]
"""Check of a value: returns the problem, or an empty text."""
Keys = dict[str, Any]
"""An object with these keys, each with its node. REST is the node of all others."""
Node = Union[Many, Keys, Check]
REST = "*"


def free(_value: Any) -> str:
    return ""


def text(value: Any) -> str:
    return "" if isinstance(value, str) else f"{value!r} is not of type 'string'"


def words(*allowed: str) -> Check:
    def check(value: Any) -> str:
        return "" if value in allowed else f"{value!r} is not one of {list(allowed)!r}"

    return check


def number(least: int, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{value!r} is not of type 'integer'"
        if value < least:
            return f"{value} is less than the minimum of {least}"
        return f"{value} is greater than the maximum of {most}" if value > most else ""

    return check


def _below(count: int) -> Callable[[str], bool]:
    return lambda key: key.isdigit() and str(int(key)) == key and int(key) < count


def _profiles(item: Node) -> Many:
    return Many(lambda key: re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key) is not None, item)


BYTES = number(0, 4294967295)
EIGHT = number(0, 7)
PER_CENT = number(1, 100)
METRES = number(1, 100000)
ON_OFF = words("on", "off")
ENABLED = words("enabled", "disabled")
PRESENT: Keys = {}
POOLS = ("default-lossy", "default-lossless", "mc-lossy", "roce-lossy", "roce-lossless")


def root(release: tuple[int, ...]) -> Keys:
    """Return the schema of a release."""
    new = vendor.says_state(release)
    able = ENABLED if new else words("enable", "disable")
    switch: Keys = {"state": ENABLED} if new else {"enable": ON_OFF}
    marking = {
        "ecn": able,
        "red": able,
        "min-threshold": BYTES,
        "max-threshold": BYTES,
        "probability": PER_CENT,
    }
    share = {"mode": words("strict", "dwrr"), "bw-percent": number(0, 100)}
    priorities = Many(_below(8), PRESENT)
    qos = {
        **dict.fromkeys(("advance-buffer-config", "buffer", "egress-shaper", "link-pause"), free),
        "remark": free,
        "congestion-control": _profiles({"traffic-class": Many(_below(8), marking)}),
        "egress-queue-mapping": Many(
            lambda key: key == vendor.PROFILE,
            {"switch-priority": Many(_below(8), {"traffic-class": EIGHT})},
        ),
        "egress-scheduler": _profiles({"traffic-class": Many(_below(8), share)}),
        "mapping": _profiles(
            {
                "trust": words("l2", "l3", "port", "both"),
                "port-default-sp": EIGHT,
                "pcp": Many(_below(8), {"switch-priority": EIGHT}),
                "dscp": Many(_below(64), {"switch-priority": EIGHT}),
            }
        ),
        "pfc": _profiles(
            {
                **{"switch-priority": priorities, "tx": able, "rx": able, "cable-length": METRES},
                **dict.fromkeys(("port-buffer", "xoff-threshold", "xon-threshold"), BYTES),
            }
        ),
        "pfc-watchdog": {"polling-interval": number(100, 5000), "robustness": number(1, 1000)},
        "roce": {**switch, "mode": words("lossless", "lossy"), "cable-length": METRES},
        "traffic-pool": Many(
            lambda key: key in POOLS,
            {"memory-percent": PER_CENT, "switch-priority": priorities},
        ),
    }
    bindings = ("congestion-control", "egress-queue-mapping", "egress-scheduler", "egress-shaper",
                "link-pause", "mapping", "pfc", "remark")  # fmt: skip
    interface = {
        "link": {
            "mtu": number(vendor.SMALLEST_MTU, vendor.LARGEST_MTU),
            "state": {"up": PRESENT, "down": PRESENT},
            REST: free,
        },
        "lldp": {"state": ENABLED, "dot1": free},
        "qos": {
            **{feature: {"profile": text} for feature in bindings},
            "pfc-watchdog": {"state": words("enable", "disable")},
        },
        REST: free,
    }
    return {
        "interface": Many(
            lambda key: re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,14}", key) is not None, interface
        ),
        "qos": qos,
        "service": {
            "lldp": {"tx-interval": number(10, 300), "tx-hold-multiplier": number(1, 10)},
            REST: free,
        },
        "system": {"hostname": text, "config": {"auto-save": switch, REST: free}, REST: free},
        **dict.fromkeys(("acl", "bridge", "evpn", "mlag", "nve", "router", "vrf"), free),
    }


def _next(node: Node, key: str) -> Optional[Node]:
    """Return the permitted child; None if there is none."""
    if isinstance(node, Many):
        return node.item if node.allowed(key) else None
    return node.get(key, node.get(REST)) if isinstance(node, dict) else node


def check(node: Node, value: Any, path: KeyPath = ()) -> None:
    """Reject keys of a PATCH that are not in the schema. Null unsets and is allowed for any
    value."""
    where = f" - '{'.'.join(path)}'" if path else ""
    if value is None and path:
        return
    if not isinstance(node, (dict, Many)):
        problem = node(value)
        if problem:
            raise Refused(f"{problem}{where}")
        return
    if not isinstance(value, dict):
        raise Refused(f"{value!r} is not of type 'object'{where}")
    for key, below in value.items():
        item = _next(node, key)
        if item is None:
            raise Refused(f"Additional properties are not allowed ({key!r} was unexpected){where}")
        check(item, below, (*path, key))


def node_at(node: Node, path: KeyPath) -> Optional[Node]:
    """Return the permitted node at this path; None if there is none."""
    found: Optional[Node] = node
    for word in path:
        found = _next(found, word) if found is not None else None
    return found


def pruned(node: Node, tree: Tree) -> Tree:
    """Remove empty objects, which remain after values were unset."""
    result: Tree = {}
    for key, value in tree.items():
        below = _next(node, key) or free
        if isinstance(value, dict) and isinstance(below, (dict, Many)):
            value = pruned(below, value)
            if not value and below is not PRESENT and not isinstance(node, Many):
                continue
        result[key] = value
    return result
