# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An intent as NVUE objects, and their differences from those of a switch.

Every value is set explicitly, because defaults differ between releases. None: the key must be
absent. Keys are spelled as before release 5.15 (`tree.py`).

Configured values are compared, and the chip's state where the switch reports it, because an apply
can be accepted but only half carried out. Other settings are removed only if they contradict the
contract.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from ....module_utils.core.text import counted
from ...qos.compiled import FabricIntent
from ...qos.contract import DSCPS, PRIORITIES
from ...schema.findings import Findings
from .. import system
from ..asics import MAX_LANES, WantedError, rounded
from ..port_order import PortRow, check_order
from ..systems import SYSTEMS
from .reading import ACTION, PROFILE, Present, bonds_of
from .tree import (
    Path,
    Spelling,
    Tree,
    at,
    ends,
    is_on,
    is_switch,
    natural_path,
    number,
    objects_at,
    same,
    uniform,
    words,
)

LOSSLESS_POOL, LOSSY_POOL = "roce-lossless", "default-lossy"

_SHARED_BY_ROCE = {0, 3}
"""Traffic classes that, with RoCE enabled, get half of the bandwidth each, and ECN, by default."""

BINDINGS = ("mapping", "remark", "egress-scheduler", "congestion-control", "pfc", "link-pause")
"""Profiles whose binding to a port would override the contract."""


def wanted(intent: system.SwitchIntent) -> Tree:
    _check(intent)
    return {
        "qos": _qos(intent),
        "interface": {port.name: _port(intent.fabric, bool(port.channel)) for port in intent.ports},
    }


def _qos(intent: system.SwitchIntent) -> Tree:
    fabric = intent.fabric
    # One length for the whole switch: the longest is safe for every port.
    metres = max(port.cable_metres for port in intent.ports)
    to_class = {queue.priority: queue.traffic_class for queue in fabric.queues}
    to_priority = {queue.traffic_class: queue.priority for queue in fabric.queues}
    # Priorities without a class use the traffic class of unmarked packets.
    others = fabric.dscp_to_traffic_class[0]
    lossless = {str(priority) for priority in fabric.pfc_priorities}
    watchdog, (shares, marking) = fabric.watchdog, _classes(fabric)
    return {
        "roce": {"enable": "on", "mode": "lossless", "cable-length": metres}
        if lossless
        else {"enable": "on", "mode": "lossy"},
        "mapping": {
            PROFILE: {
                "trust": "l3",
                "dscp": {
                    str(dscp): {"switch-priority": to_priority[fabric.dscp_to_traffic_class[dscp]]}
                    for dscp in range(DSCPS)
                },
            }
        },
        # Packets keep their DSCP, by which the next switch classifies them.
        "remark": {PROFILE: {"rewrite": None}},
        "egress-queue-mapping": {
            PROFILE: {
                "switch-priority": {
                    str(priority): {"traffic-class": to_class.get(priority, others)}
                    for priority in range(PRIORITIES)
                }
            }
        },
        "egress-scheduler": {PROFILE: {"traffic-class": shares}},
        "congestion-control": {PROFILE: {"traffic-class": marking}},
        "pfc": {
            PROFILE: {
                "switch-priority": {priority: {} for priority in sorted(lossless)},
                "cable-length": metres,
                "rx": None,
                "tx": None,
            }
            # With this profile, an SN5600 was seen to refuse the lossy mode.
            if lossless
            else None
        },
        "traffic-pool": _pools(fabric.pool_percent, lossless),
        "pfc-watchdog": {
            "polling-interval": watchdog.poll_ms,
            "robustness": -(-watchdog.detection_ms // watchdog.poll_ms),
        },
    }


def _pools(percent: Optional[int], lossless: set[str]) -> Tree:
    lossy = {str(priority) for priority in range(PRIORITIES)} - lossless
    if not lossless:
        # As `nv show qos roce` shows them in lossy mode (Cumulus Linux, RoCE).
        return {
            LOSSLESS_POOL: None,
            LOSSY_POOL: {
                "switch-priority": {priority: {} for priority in sorted(lossy)},
                "memory-percent": None,
            },
        }
    pools: Tree = {
        name: {"switch-priority": {priority: {} for priority in sorted(held)}}
        for name, held in ((LOSSLESS_POOL, lossless), (LOSSY_POOL, lossy))
    }
    if percent is not None:
        pools[LOSSLESS_POOL]["memory-percent"] = percent
        pools[LOSSY_POOL]["memory-percent"] = 100 - percent
    return pools


def _classes(fabric: FabricIntent) -> tuple[Tree, Tree]:
    """Scheduling and ECN by traffic class.

    bw-percent applies only to DWRR. An unused class, which may have been the contract's before its
    priority changed, is made strict, so that RoCE gives it no share, and does not mark.
    """
    idle = _SHARED_BY_ROCE - {queue.traffic_class for queue in fabric.queues}
    strict = {"mode": "strict", "bw-percent": None}
    shares: Tree = {str(number): strict for number in sorted(idle)}
    marking: Tree = {str(number): {"ecn": "disable"} for number in sorted(idle)}
    for queue in fabric.queues:
        name = str(queue.traffic_class)
        shares[name] = (
            strict if queue.strict else {"mode": "dwrr", "bw-percent": queue.weight_percent}
        )
        marking[name] = {"ecn": "disable"}
        if queue.ecn is not None:
            marking[name] = {
                "ecn": "enable",
                "red": None,
                "min-threshold": queue.ecn.minimum_bytes,
                "max-threshold": queue.ecn.maximum_bytes,
                "probability": queue.ecn.probability_percent,
            }
    return shares, marking


def _port(fabric: FabricIntent, in_bond: bool) -> Tree:
    return {
        # A member has that of its bond (Linux, drivers/net/bonding/bond_main.c, bond_change_mtu).
        **({} if in_bond else {"link": {"mtu": fabric.mtu_ip}}),
        "qos": {
            **{branch: {"profile": None} for branch in BINDINGS},
            "pfc-watchdog": {"state": "enable" if fabric.watchdog.enabled else "disable"},
        },
    }


def _check(intent: system.SwitchIntent) -> None:
    fabric, name = intent.fabric, intent.name
    findings = Findings()
    system.check_mtu(intent, findings)
    if fabric.watchdog.enabled and fabric.watchdog.action != ACTION:
        findings.add(
            "nvue.watchdog_action",
            (name,),
            "roce_qos.pfc.watchdog.action: NVUE's PFC watchdog can only drop the packets of a "
            f"stuck queue, and the contract has {fabric.watchdog.action!r}",
            f"Write {ACTION}, or enabled: false",
            fabric.watchdog.action,
        )
    if findings:
        raise WantedError(findings.found)


_BUFFERS = {
    "roce": "RoCE",
    "pfc": "PFC",
    "traffic-pool": "traffic pools",
    "egress-queue-mapping": "queue mapping",
    "link-pause": "link pause",
}
"""Branches of qos whose change divides the buffers again, as NVIDIA lists them."""
_CHANGING = {
    "mapping": system.DSCP_MAP,
    "remark": system.DSCP_MAP,
    "egress-scheduler": system.SHARES,
    "congestion-control": system.MARKING,
}
"""Branches of qos that affect packets without dividing the buffers."""


def impact(paths: Iterable[Path]) -> system.Impact:
    """NVUE reloads switchd, which takes no port down."""
    paths = tuple(paths)
    losses: list[str] = []
    buffers = {
        _BUFFERS[path[1]]: None for path in paths if path[0] == "qos" and path[1] in _BUFFERS
    }
    if buffers:
        losses.append(
            f"buffers of the whole switch are divided again ({', '.join(buffers)}): packets can be "
            "lost for a moment on all of its ports"
        )
    parts = [path[1] if path[0] == "qos" else path[3] for path in paths if "qos" in path[::2]]
    losses += dict.fromkeys(
        system.UNDER_TRAFFIC[_CHANGING[part]] for part in parts if part in _CHANGING
    )
    bound = _ports(path for path in paths if path[2:4] in (("qos", "pfc"), ("qos", "link-pause")))
    if bound:
        losses.append(
            f"PFC changes on {system.named_ports(bound)}: packets can be lost there for a moment"
        )
    watched = _ports(path for path in paths if path[2:4] == ("qos", "pfc-watchdog"))
    if watched:
        losses.append(system.UNDER_TRAFFIC[system.WATCHING].format(counted(len(watched), "port")))
    elif "pfc-watchdog" in parts:
        losses.append(system.UNDER_TRAFFIC[system.WATCHING].format("every port"))
    sized = _ports(path for path in paths if path[2:4] == ("link", "mtu"))
    if sized:
        losses.append(
            f"the MTU changes on {system.named_ports(sized)}: until both ends of a link have the "
            "same, packets of a size between the two are lost"
        )
    return system.Impact(losses=tuple(losses))


def _ports(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple({path[1]: None for path in paths if path[0] == "interface"})


_WHOLE = (
    ("pfc", PROFILE, "switch-priority"),
    ("egress-scheduler", PROFILE, "traffic-class"),
    ("congestion-control", PROFILE, "traffic-class"),
    ("traffic-pool", LOSSLESS_POOL, "switch-priority"),
    ("traffic-pool", LOSSY_POOL, "switch-priority"),
)
"""Collections in qos that may contain only the desired entries."""

_WATCHED: Path = ("qos", "pfc-watchdog", "state")
_PAUSED: Path = ("qos", "pfc", PROFILE, "switch-priority")
"""Other priorities that the chip pauses count as a difference, even if not configured."""

_NOTHING_ELSE_THAN = {
    "rx": "enable",
    "tx": "enable",
    "red": "disable",
    "profile": PROFILE,
    "rewrite": "l2",
}
"""Values that are equivalent to an absent key."""

_WORDS = {
    "trust": ("l2", "l3", "both", "port"),
    "mode": ("dwrr", "strict", "lossless", "lossless-single-ipool", "lossy", "lossy-multi-tc"),
    "rewrite": ("l2", "l3", "both"),
}


def _table(intent: system.SwitchIntent, ports: Iterable[str]) -> list[PortRow]:
    """Ports of the front. Those of one that is broken out have equal parts of its lanes."""
    naming = SYSTEMS[intent.system].naming
    places = {name: place for name in ports if (place := naming.lanes(name, 1)) is not None}
    parts = Counter(front for front, lanes in places.values() if len(lanes) == 1)
    return [
        PortRow(name, front, MAX_LANES // (parts[front] if len(lanes) == 1 else 1))
        for name, (front, lanes) in places.items()
    ]


def difference(intent: system.SwitchIntent, wanted: Tree, present: Present) -> system.Difference:
    system.check_ports(intent, present.ports, bonds_of(present.explicit))
    check_order(intent, _table(intent, present.ports))
    running: Tree = {"qos": present.running_qos, "interface": present.ports}
    roce = objects_at(uniform(present.filled_qos), "roce")
    if is_on(roce.get("enable")) and "cable-length" not in roce:
        # With RoCE enabled, a switch shows the key; some releases only have that of the PFC
        # profile.
        wanted = {**wanted, "qos": {**wanted["qos"], "roce": dict(wanted["qos"]["roce"])}}
        wanted["qos"]["roce"].pop("cable-length", None)
    values, found = _differing(intent, wanted, present.explicit, running)
    shown = [*present.explicit.get("interface", {}).values(), *present.ports.values()]
    spelling = Spelling(present.filled_qos, shown, present.release)
    unsaved = not values and present.startup is not None
    if unsaved:
        values, found = _differing(intent, wanted, present.startup or {}, {})
    changes, before, after = _compared(values, found, spelling)
    if unsaved and values:
        # In force but not saved, because a run was killed: a restart would lose it.
        changes = [system.Change("startup", "not saved", "as applied")]
    return system.Difference(
        changes=tuple(changes),
        impact=system.Impact() if unsaved else impact(sorted(values, key=natural_path)),
        before="".join(f"{line}\n" for line in before),
        after="".join(f"{line}\n" for line in after),
        steps={} if unsaved else spelling.tree(values),
    )


def _differing(
    intent: system.SwitchIntent, wanted: Tree, explicit: Tree, running: Tree
) -> tuple[dict[Path, Any], dict[Path, Any]]:
    values: dict[Path, Any] = {}
    found: dict[Path, Any] = {}
    for path, value in ends(wanted):
        written = at(explicit, *path)
        if not _kept(intent, path, value, written):
            values[path], found[path] = value, written
        elif _contradicts(intent, path, value, running):
            values[path], found[path] = value, at(running, *path)
    for path in _left(wanted, explicit, running):
        values[path], found[path] = None, at(explicit, *path)
    for collection in _WHOLE:
        branch: Path = ("qos", *collection)
        if branch[:-1] in values:
            continue  # removed as a whole
        needed = objects_at(wanted, *branch)
        written = objects_at(explicit, *branch)
        done = objects_at(running, *branch) if branch == _PAUSED else {}
        for key, held in {**done, **written}.items():
            if key not in needed:
                path = (*branch, key)
                values[path], found[path] = None, held
    return values, found


def _left(wanted: Tree, explicit: Tree, running: Tree) -> Iterator[Path]:
    """MTU and watchdog of ports that left the model.

    As nothing marks a port as the collection's, one counts that has the contract's values and no
    link, and is in no bond.
    """
    ours, bonds = wanted["interface"], bonds_of(explicit)
    kept: Tree = next((port for port in ours.values() if "link" in port), {})
    for name in objects_at(explicit, "interface"):
        status = at(running, "interface", name, "link", "oper-status")
        if not kept or name in ours or name in bonds or str(status).lower() != "down":
            continue
        paths = [("interface", name, *rest) for rest in (("link", "mtu"), _WATCHED)]
        if all(same(path[-1], at(explicit, *path), at(kept, *path[2:])) for path in paths):
            yield from paths


def _compared(
    values: dict[Path, Any], found: dict[Path, Any], spelling: Spelling
) -> tuple[list[system.Change], list[str], list[str]]:
    changes, before, after = [], [], []
    for path in sorted(values, key=natural_path):
        sent_path, sent = spelling.of(path, values[path])
        changes.append(system.Change(words(sent_path), _shown(found[path]), _shown(sent)))
        before += [] if found[path] is None else _lines(sent_path, found[path])
        after += [] if sent is None else _lines(sent_path, sent)
    return changes, before, after


def _kept(intent: system.SwitchIntent, path: Path, value: Any, found: Any) -> bool:
    if value is None:
        other = _NOTHING_ELSE_THAN.get(path[-1])
        return found is None or same(path[-1], found, other)
    return found is not None and _alike(intent, path[-1], value, found)


def _alike(intent: system.SwitchIntent, leaf: str, value: Any, found: Any) -> bool:
    """Whether two values are equal, apart from rounding of ECN thresholds by the chip."""
    if leaf in ("min-threshold", "max-threshold"):
        asked, got = number(value), number(found)
        if asked is not None and got is not None and rounded(intent.asic, asked, got):
            return True
    return same(leaf, value, found)


def _contradicts(intent: system.SwitchIntent, path: Path, value: Any, running: Tree) -> bool:
    """Whether the switch reports another state. Unreported values contradict nothing."""
    leaf, found = path[-1], at(running, *path)
    if value == {}:
        among = objects_at(running, *path[:-1])
        return bool(among) and leaf not in among
    if value is None:
        value = _NOTHING_ELSE_THAN.get(leaf)
    if value is None or found is None or not _understood(leaf, value, found):
        return False
    return not _alike(intent, leaf, value, found)


def _understood(leaf: str, value: Any, found: Any) -> bool:
    """Whether a value has the form used in configurations, unlike `1.43 MB` or `pcp,dscp`."""
    if isinstance(value, int):
        return number(found) is not None
    if is_switch(leaf, value):
        return is_switch(leaf, found)
    return leaf not in _WORDS or str(found) in _WORDS[leaf]


def _shown(value: Any) -> Any:
    return "set" if value == {} else value


def _lines(path: Path, value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [f"nv set {words((*path, *rest), end)}" for rest, end in ends(value)]
    return [f"nv set {words(path, value)}"]
