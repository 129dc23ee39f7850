# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read a switch: explicit configuration, configuration with defaults, and state of the ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ...qos.compiled import PfcWatchdog
from ...qos.contract import DSCPS, PRIORITIES
from ..https import Https, Refused
from ..system import (
    EcnReport,
    Neighbour,
    PortReport,
    SwitchError,
    SwitchIntent,
    SwitchReport,
    is_mac,
    port_id,
)
from .tree import Tree, at, expanded, is_on, number, objects_at, uniform

ROOT = "/nvue_v1/"
PROFILE = "default-global"
"""Profile that applies to every port not bound to another one."""
ACTION = "drop"
_WRITTEN = {"filled": "false"}
_OF_PORTS = (
    "type",
    "link/state",
    "link/oper-status",
    "link/mtu",
    "link/speed",
    "lldp/neighbor",
    "qos/congestion-control",
    "qos/pfc-watchdog/state",
)
"""Parts of an interface to request; the whole answer includes counters."""


@dataclass(frozen=True)
class Present:
    version: str
    explicit: Tree
    """`qos` and `interface` as configured, with ranges of ports expanded."""
    filled_qos: Tree
    """`qos` with all defaults, in the spelling of the switch."""
    running_qos: Tree = field(default_factory=dict)
    """`qos` in the chip. Missing parts are unknown."""
    ports: Tree = field(default_factory=dict)
    """Operational state by interface."""
    startup: Optional[Tree] = None
    """Like `explicit`. None if unknown, or while a change of this run cannot be saved yet."""

    @property
    def release(self) -> tuple[int, ...]:
        """(5, 12, 1) of `Cumulus Linux 5.12.1`; empty if unknown."""
        match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", self.version)
        return tuple(int(part) for part in match.groups() if part) if match else ()


def read(https: Https, unconfirmed: bool = False) -> Present:
    """`unconfirmed`: a change of this run is in force and cannot be saved yet."""
    ports = {"include": ",".join(f"/*/{part}" for part in _OF_PORTS)}
    here = get(https, "interface", ports, 400)
    if here is None:  # an older release, without `include`
        here = get(https, "interface")
    startup = None if unconfirmed else get(https, "", {"rev": "startup", **_WRITTEN}, 400, 404)
    return Present(
        version=_version(get(https, "system")),
        explicit=_written(get(https, "", {"rev": "applied", **_WRITTEN}) or {}),
        filled_qos=get(https, "qos", {"rev": "applied", "filled": "true"}) or {},
        running_qos=uniform(get(https, "qos", None, 404)),
        ports=expanded(here),
        startup=None if startup is None else _written(startup),
    )


def get(
    https: Https, path: str, query: Optional[dict[str, str]] = None, *unknown: int
) -> Optional[Tree]:
    """An object; None if refused with a status in `unknown`, as the release does not have it."""
    try:
        answer = https.get(f"{ROOT}{path}", query)
    except Refused as error:
        if error.status not in unknown:
            raise
        return None
    if answer is not None and not isinstance(answer, Mapping):
        # The value is left out: an answer may repeat what was sent, including credentials.
        raise SwitchError(
            f"{https.where}: GET {ROOT}{path}: the answer is not an object. Is this NVUE?"
        )
    return dict(answer or {})


def _written(config: Tree) -> Tree:
    return {"qos": uniform(config.get("qos")), "interface": expanded(config.get("interface"))}


def _version(system: Any) -> str:
    release = str(at(system, "product-release") or at(system, "version", "product-release") or "")
    build = str(at(system, "build") or at(system, "version", "image") or "")
    return build if release in build else f"{build} {release}".strip()


_TRUST = {"l3": "dscp", "both": "dscp", "l2": "pcp", "port": "none"}
"""With `both`, IP packets are classified by DSCP, and only others by PCP."""
_POLLING_MS, _ROBUSTNESS = 100, 3  # the watchdog of a switch without settings
_GIGABITS = {"T": 1000.0, "G": 1.0, "M": 0.001}


def report(intent: SwitchIntent, present: Present) -> SwitchReport:
    lldp = any("lldp" in objects_at(port) for port in present.ports.values())
    return SwitchReport.of(intent, present.version, _Switch(present).port, lldp)


_PROFILES = ("mapping", "egress-scheduler", "congestion-control", "pfc")
"""Branches of `qos` with profiles to which ports can be bound."""


def bonds_of(explicit: Tree) -> dict[str, str]:
    """Bonds by member."""
    return {
        member: bond
        for bond, settings in explicit.get("interface", {}).items()
        for member in expanded(objects_at(settings, "bond", "member"))
    }


class _Switch:
    def __init__(self, present: Present) -> None:
        self._present = present
        self._bonds = bonds_of(present.explicit)
        self._qos = _in_force(present)
        self._known: dict[tuple[str, ...], dict[str, Any]] = {}
        """Classes by profiles, as most ports have the same ones."""

    def port(self, name: str) -> PortReport:
        now = self._present.ports.get(name)
        if now is None:
            return PortReport(name, present=False)
        bound = objects_at(self._present.explicit, "interface", name, "qos")
        profiles = tuple(str(at(bound, branch, "profile") or PROFILE) for branch in _PROFILES)
        if profiles not in self._known:
            self._known[profiles] = self._classes(*profiles)
        classes = self._known[profiles]
        return PortReport(
            name,
            present=True,
            up=_up(objects_at(now, "link")),
            speed_gbps=_gbps(at(now, "link", "speed")),
            mtu_ip=number(at(now, "link", "mtu")),
            mtu_of=self._bonds.get(name, ""),
            **{**classes, "ecn": _in_hardware(classes["ecn"], now)},
            watchdog=self._watchdog(bound),
            neighbour=_neighbour(objects_at(now, "lldp", "neighbor")),
        )

    def _classes(self, mapping: str, scheduler: str, marking: str, pfc: str) -> dict[str, Any]:
        paused = self._paused(pfc)
        # The headroom after XOFF in bytes overrides cable lengths, as in NVIDIA's template for a
        # SuperPOD (nv-config-manager 50d4d776, qos.j2: 363000, 40 m at 800G).
        fixed = number(at(self._present.explicit, "qos", "pfc", pfc, "port-buffer"))
        shares = self._in_use("egress-scheduler", scheduler)
        strict = {tc for tc, share in shares.items() if str(at(share, "mode")) == "strict"}
        trust = str(at(self._qos, "mapping", mapping, "trust") or "")
        return {
            "trust": _TRUST.get(trust),
            "dscp_to_traffic_class": self._by_dscp(mapping, trust),
            "pfc_priorities": paused,
            "lossless_priorities": self._lossless(paused),
            "strict_queues": tuple(sorted(int(tc) for tc in strict)),
            "weights": {
                int(tc): share
                for tc in shares
                if tc not in strict and (share := number(at(shares, tc, "bw-percent")))
            },
            "ecn": self._ecn(marking),
            "cable_metres": number(
                at(self._qos, "pfc", pfc, "cable-length") or at(self._qos, "roce", "cable-length")
            )
            if fixed is None
            else None,
            "headroom_bytes": fixed,
        }

    def _by_dscp(self, profile: str, trust: str) -> tuple[int, ...]:
        mapping = objects_at(self._qos, "mapping", profile)
        if _TRUST.get(trust) != "dscp":
            unmarked = number(mapping.get("port-default-sp")) or 0
            return (self._class_of(unmarked),) * DSCPS
        priorities = (
            number(at(mapping, "dscp", str(dscp), "switch-priority")) for dscp in range(DSCPS)
        )
        # By default, DSCPs 0 to 7 map to priority 0, and so on.
        return tuple(
            self._class_of(dscp // 8 if priority is None else priority)
            for dscp, priority in enumerate(priorities)
        )

    def _class_of(self, priority: int) -> int:
        queues = objects_at(self._qos, "egress-queue-mapping", PROFILE, "switch-priority")
        found = number(at(queues, str(priority), "traffic-class"))
        return priority if found is None else found

    def _in_use(self, branch: str, profile: str) -> Tree:
        """Of traffic classes in use; the others have no effect."""
        classes = objects_at(self._qos, branch, profile, "traffic-class")
        used = {str(self._class_of(priority)) for priority in range(PRIORITIES)}
        return {tc: classes[tc] for tc in sorted(used) if tc in classes}

    def _paused(self, profile: str) -> tuple[int, ...]:
        pfc = objects_at(self._qos, "pfc", profile)
        if not all(is_on(pfc.get(way, "on")) for way in ("rx", "tx")):
            return ()
        priorities = map(number, objects_at(pfc, "switch-priority"))
        return tuple(sorted(priority for priority in priorities if priority is not None))

    def _lossless(self, paused: tuple[int, ...]) -> tuple[int, ...]:
        """Paused priorities with a buffer: a lossless mode of RoCE, or the lossless pool."""
        roce = objects_at(self._qos, "roce")
        roce_on = is_on(roce.get("enable", "off"))
        pools = objects_at(self._qos, "traffic-pool")
        if not (roce_on and str(roce.get("mode", "lossless")).startswith("lossless")):
            return paused if "default-lossless" in pools else ()
        lossy = objects_at(pools, "default-lossy", "switch-priority")
        held = objects_at(pools, "roce-lossless", "switch-priority")
        return tuple(sp for sp in paused if str(sp) in held or (not held and str(sp) not in lossy))

    def _ecn(self, profile: str) -> dict[int, EcnReport]:
        marked = self._in_use("congestion-control", profile)
        return {
            int(tc): EcnReport(
                number(at(marked, tc, "min-threshold")) or 0,
                number(at(marked, tc, "max-threshold")) or 0,
                number(at(marked, tc, "probability")) or 0,
            )
            for tc in marked
            if is_on(at(marked, tc, "ecn"))
        }

    def _watchdog(self, bound: Tree) -> PfcWatchdog:
        settings = objects_at(self._qos, "pfc-watchdog")
        poll = number(settings.get("polling-interval")) or _POLLING_MS
        intervals = number(settings.get("robustness")) or _ROBUSTNESS
        return PfcWatchdog(
            enabled="pfc-watchdog" in bound and is_on(at(bound, "pfc-watchdog", "state") or "on"),
            poll_ms=poll,
            detection_ms=poll * intervals,
            restoration_ms=0,  # not configurable: one interval without pauses
            action=ACTION,
        )


def _in_force(present: Present) -> Tree:
    """Settings in the chip; where unreported, the applied configuration."""
    applied, running = uniform(present.filled_qos), present.running_qos
    result = {**applied, **{branch: value for branch, value in running.items() if value}}
    result["roce"] = {**objects_at(applied, "roce"), **objects_at(running, "roce")}
    return result


def _in_hardware(ecn: Mapping[int, EcnReport], now: Tree) -> dict[int, EcnReport]:
    """The settings with thresholds as rounded by the chip, if it reports them."""
    result = dict(ecn)
    marked = expanded(at(now, "qos", "congestion-control", "traffic-class"))
    for tc, wanted in ecn.items():
        real = objects_at(marked, str(tc))
        result[tc] = EcnReport(
            number(real.get("min-threshold")) or wanted.minimum_bytes,
            number(real.get("max-threshold")) or wanted.maximum_bytes,
            wanted.probability_percent,
        )
    return result


def _up(link: Tree) -> Optional[bool]:
    """Operational state: `oper-status` from release 5.11 on, `state` before."""
    status = link.get("oper-status")
    if status is not None:
        return str(status).lower() == "up"
    state = link.get("state")
    if isinstance(state, Mapping):
        return "up" in state
    return None if state is None else str(state).lower() == "up"


def _gbps(speed: Any) -> Optional[int]:
    """800 of `800G`; None for auto, and for a port that is down."""
    match = re.match(r"^\s*(\d{1,6}(?:\.\d+)?)\s*([TGM])", str(speed), re.IGNORECASE)
    return round(float(match[1]) * _GIGABITS[match[2].upper()]) if match else None


def _neighbour(heard: Tree) -> Optional[Neighbour]:
    """The newest neighbour: a port may still list a previous one."""
    if not heard:
        return None
    name, sent = min(heard.items(), key=lambda entry: number(at(entry[1], "age")) or 0)
    system = str(at(sent, "chassis", "system-name") or ("" if is_mac(name) else name))
    port = str(at(sent, "port", "name") or at(sent, "port", "description") or "")
    return Neighbour(system, port_id(port))
