# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What may be configured, as NVUE's schema says it for qos, system, lldp and links of interfaces.

Other branches are taken as they come: they are the operator's, and nothing here looks into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import vendor
from .tree import Place, Tree


class Refused(Exception):
    """The text that a 400 has as its detail."""


@dataclass(frozen=True)
class Free:
    """Anything."""


@dataclass(frozen=True)
class Words:
    """One of these."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Number:
    least: int
    most: int


@dataclass(frozen=True)
class Text:
    pass


@dataclass(frozen=True)
class Many:
    """An object whose keys are names: of profiles, of interfaces, of priorities."""

    allowed: Callable[[str], bool]
    item: Node


Keys = dict[str, Any]
"""An object with these keys, each with its node."""
Node = Union[Free, Words, Number, Text, Many, Keys]

BYTES = Number(0, 4294967295)
EIGHT = Number(0, 7)
PER_CENT = Number(1, 100)
ON_OFF = Words(("on", "off"))
ENABLED = Words(("enabled", "disabled"))


def _below(count: int) -> Callable[[str], bool]:
    return lambda key: key.isdigit() and str(int(key)) == key and int(key) < count


def _name(key: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key) is not None


def _interface(key: str) -> bool:
    """A name, or several: `swp1-4,swp7`."""
    return all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,14}", one) for one in key.split(","))


def _profiles(item: Node) -> Many:
    return Many(_name, item)


def _free(words: str) -> Keys:
    return dict.fromkeys(words.split(), Free())


PRESENT: Keys = {}
POOLS = ("default-lossy", "default-lossless", "mc-lossy", "roce-lossy", "roce-lossless")
SPEEDS = ("auto", "1G", "10G", "25G", "40G", "50G", "100G", "200G", "400G", "800G", "1.6T")
FECS = ("auto", "baser", "off", "rs")


def root(release: tuple[int, ...]) -> Keys:
    """The schema of a release."""
    new = vendor.says_state(release)
    able = ENABLED if new else Words(("enable", "disable"))
    switch: Keys = {"state": ENABLED} if new else {"enable": ON_OFF}
    qos = {
        "advance-buffer-config": Free(),
        "buffer": Free(),
        "congestion-control": _profiles(
            {
                "traffic-class": Many(
                    _below(8),
                    {
                        "ecn": able,
                        "red": able,
                        "min-threshold": BYTES,
                        "max-threshold": BYTES,
                        "probability": PER_CENT,
                    },
                )
            }
        ),
        "egress-queue-mapping": Many(
            lambda key: key == vendor.PROFILE,
            {"switch-priority": Many(_below(8), {"traffic-class": EIGHT})},
        ),
        "egress-scheduler": _profiles(
            {
                "traffic-class": Many(
                    _below(8),
                    {"mode": Words(("strict", "dwrr")), "bw-percent": Number(0, 100)},
                )
            }
        ),
        "egress-shaper": Free(),
        "link-pause": Free(),
        "mapping": _profiles(
            {
                "trust": Words(("l2", "l3", "port", "both")),
                "port-default-sp": EIGHT,
                "pcp": Many(_below(8), {"switch-priority": EIGHT}),
                "dscp": Many(_below(64), {"switch-priority": EIGHT}),
            }
        ),
        "pfc": _profiles(
            {
                "switch-priority": Many(_below(8), PRESENT),
                "tx": able,
                "rx": able,
                "cable-length": Number(1, 100000),
                "port-buffer": BYTES,
                "xoff-threshold": BYTES,
                "xon-threshold": BYTES,
            }
        ),
        "pfc-watchdog": {"polling-interval": Number(100, 5000), "robustness": Number(1, 1000)},
        "remark": Free(),
        "roce": {
            **switch,
            "mode": Words(("lossless", "lossy", "lossless-single-ipool", "lossy-multi-tc")),
            "cable-length": Number(1, 100000),
        },
        "traffic-pool": Many(
            lambda key: key in POOLS,
            {
                "memory-percent": PER_CENT,
                "switch-priority": Many(_below(8), PRESENT),
            },
        ),
    }
    profile = {"profile": Text()}
    interface = {
        "link": {
            "mtu": Number(vendor.SMALLEST_MTU, vendor.LARGEST_MTU),
            "speed": Words(SPEEDS),
            "duplex": Words(("half", "full")),
            "auto-negotiate": ON_OFF,
            "fec": Words(FECS),
            "lanes": Number(1, 8),
            "breakout": Free(),
            "dot1x": Free(),
            "flag": Free(),
            "flap-protection": Free(),
            "mac-address": Text(),
            "state": {"up": PRESENT, "down": PRESENT},
            "storm-control": Free(),
        },
        "lldp": {"state": ENABLED, "dot1": Free()},
        "qos": {
            "congestion-control": profile,
            "egress-queue-mapping": profile,
            "egress-scheduler": profile,
            "egress-shaper": profile,
            "link-pause": profile,
            "mapping": profile,
            "pfc": profile,
            "pfc-watchdog": {"state": able},
            "remark": profile,
        },
        "type": Words(("swp", "eth", "bond", "loopback", "svi", "vlan", "sub", "peerlink", "ib")),
        "description": Text(),
        **_free(
            "acl base-interface bond bridge evpn ip parent port-security ptp router "
            "sflow synce telemetry tunnel vlan vrf"
        ),
    }
    return {
        "interface": Many(_interface, interface),
        "qos": qos,
        "service": {
            "lldp": {
                "tx-interval": Number(10, 300),
                "tx-hold-multiplier": Number(1, 10),
                "mode": Words(("default", "force-send-lldp", "force-send-cdp")),
                "dot1-tlv": ON_OFF,
                "lldp-med-inventory-tlv": ON_OFF,
            },
            **_free(
                "control-plane dhcp-relay dhcp-relay6 dhcp-server dns ntp ptp "
                "snmp-server syslog synce telemetry"
            ),
        },
        "system": {
            "hostname": Text(),
            "timezone": Text(),
            "message": {"pre-login": Text(), "post-login": Text()},
            "config": {
                "auto-save": switch,
                "apply": Free(),
                "snippet": Free(),
            },
            **_free(
                "aaa acl api control-plane date-time dns docker forwarding global lldp "
                "nat ntp packet-trim port reboot security snmp-server ssh-server syslog "
                "telemetry wjh ztp"
            ),
        },
        **_free("acl bridge evpn header maintenance mlag nve router vrf"),
    }


def check(node: Node, value: Any, place: Place = (), unsets: bool = True) -> None:
    """Refused where a PATCH says what the schema has not. Null unsets, wherever a value may be."""
    if value is None and unsets and place:
        return
    if isinstance(node, dict):
        _object(value, place)
        for key, below in value.items():
            if key not in node:
                raise Refused(_unexpected(key, place))
            check(node[key], below, (*place, key), unsets)
    elif isinstance(node, Many):
        _object(value, place)
        for key, below in value.items():
            if not node.allowed(key):
                raise Refused(_unexpected(key, place))
            check(node.item, below, (*place, key), unsets)
    elif isinstance(node, Words):
        if value not in node.words:
            raise Refused(f"{value!r} is not one of {list(node.words)!r}{_where(place)}")
    elif isinstance(node, Number):
        if not isinstance(value, int) or isinstance(value, bool):
            raise Refused(f"{value!r} is not of type 'integer'{_where(place)}")
        if value < node.least:
            raise Refused(f"{value} is less than the minimum of {node.least}{_where(place)}")
        if value > node.most:
            raise Refused(f"{value} is greater than the maximum of {node.most}{_where(place)}")
    elif isinstance(node, Text) and not isinstance(value, str):
        raise Refused(f"{value!r} is not of type 'string'{_where(place)}")


def node_at(node: Node, place: Place) -> Optional[Node]:
    """What may stand there; None where nothing may."""
    for word in place:
        if isinstance(node, Free):
            return node
        if isinstance(node, dict) and word in node:
            node = node[word]
        elif isinstance(node, Many) and node.allowed(word):
            node = node.item
        else:
            return None
    return node


def pruned(node: Node, tree: Tree) -> Tree:
    """Without objects that say nothing: what was unset leaves no empty shells behind."""
    result: Tree = {}
    for key, value in tree.items():
        if isinstance(node, Many):
            result[key] = pruned(node.item, value)
            continue
        below = node.get(key, Free()) if isinstance(node, dict) else Free()
        if isinstance(value, dict) and not isinstance(below, Free):
            value = pruned(below, value)
            if not value and below is not PRESENT:
                continue
        result[key] = value
    return result


def _object(value: Any, place: Place) -> None:
    if not isinstance(value, dict):
        raise Refused(f"{value!r} is not of type 'object'{_where(place)}")


def _unexpected(key: str, place: Place) -> str:
    return f"Additional properties are not allowed ({key!r} was unexpected){_where(place)}"


def _where(place: Place) -> str:
    return f" - '{'.'.join(place)}'" if place else ""
