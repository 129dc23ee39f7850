# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of one switch, and its report."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ...answers import amount, mapping
from ...qos.compiled import PfcWatchdog
from ...qos.contract import DSCPS
from ..system import EcnReport, Neighbour, PortReport, SwitchIntent, SwitchReport, is_mac, port_id
from . import settings
from .render import ACTIONS

SESSION_PREFIX = "baremetal-"


@dataclass(frozen=True)
class Present:
    version: str
    running: str
    startup: str
    interfaces: Mapping[str, Mapping[str, Any]]
    neighbours: Optional[tuple[Mapping[str, Any], ...]]
    unconfirmed: bool = False
    """A change of this run waits for confirmation and is not saved yet."""
    queue: str = ""
    """Keyword, one of QUEUES; empty if not shown. `mapped`: that in the map of traffic classes."""
    mapped: str = ""


def sessions(detail: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = mapping(detail.get("sessions"))
    return {name: dict(mapping(state)) for name, state in found.items()}


def session_with_timer(detail: Mapping[str, Any]) -> str:
    """The session with a running commit timer, if any: a state of the session up to EOS 4.31."""
    waiting = (n for n, s in sessions(detail).items() if s.get("state") == "pendingCommitTimer")
    return str(detail.get("commitTimerSessionName") or next(waiting, ""))


def abandoned_sessions(detail: Mapping[str, Any]) -> list[str]:
    """The collection's sessions that are neither committed nor aborted: EOS allows only a few."""
    return [
        name
        for name, state in sessions(detail).items()
        if name.startswith(SESSION_PREFIX) and state.get("state") == "pending"
    ]


_CLASS = re.compile(r"to traffic-class (\d)")
_NO_DROP = re.compile(r"priority-flow-control priority (\d) no-drop$")
_VLAN = re.compile(r"switchport (?:access|trunk native) vlan (\d{1,4})$")
_GATEWAY = ("ip address ", "ip virtual-router address ")
_PFC_ON = ("priority-flow-control on", "priority-flow-control mode on")
_ACTION_WORDS = {**{eos: word for word, eos in ACTIONS.items()}, "errdisable": "errdisable"}


def report(intent: SwitchIntent, present: Present) -> SwitchReport:
    lldp = present.neighbours is not None
    return SwitchReport.of(intent, present.version, _Switch(intent, present).port, lldp)


class _Switch:
    def __init__(self, intent: SwitchIntent, present: Present) -> None:
        self._present = present
        self._settings = settings.read_settings(present.running)
        self._blocks: dict[str, settings.Settings] = {}
        for path, line in self._settings.items():
            self._blocks.setdefault(path[0], {})[path[1:]] = line
        self._heard = {str(entry.get("port")): entry for entry in present.neighbours or ()}
        self._classes = {queue.traffic_class for queue in intent.fabric.queues}
        self._dscps = tuple(map(self._class_of, range(DSCPS)))

    def port(self, name: str) -> PortReport:
        if name not in self._present.interfaces:
            return PortReport(name, present=False)
        status = mapping(self._present.interfaces[name])
        lines, queues = self._in_force(name)
        shared = {queue for queue, own in queues.items() if own.get("priority") == "no priority"}
        thresholds = {
            queue: settings.ecn_of(own.get("random-detect ecn", ""))
            for queue, own in queues.items()
        }
        paused: tuple[int, ...] = ()
        if (settings.PFC_ALL_OFF,) not in self._settings and lines.get(
            "priority-flow-control"
        ) in _PFC_ON:
            found = map(_NO_DROP.match, lines.values())
            paused = tuple(sorted(int(match[1]) for match in found if match))
        bandwidth = amount(status.get("bandwidth"), 1e15)
        mtu, vlan = self._mtu_of(lines), self._vlan(lines)
        routed = self._mtu_of(self._interface(vlan)) if vlan else None
        if mtu is None or routed is None or routed >= mtu:
            vlan = ""
        return PortReport(
            name=name,
            present=True,
            up=status.get("linkStatus") == "connected",
            speed_gbps=int(bandwidth) // 10**9 if bandwidth else None,
            mtu_ip=routed if vlan else mtu,
            mtu_of=vlan,
            trust=_trust(lines),
            dscp_to_traffic_class=self._dscps,
            pfc_priorities=paused,
            # EOS provides the lossless buffer of a no-drop queue.
            lossless_priorities=paused,
            strict_queues=tuple(sorted((self._classes | set(queues)) - shared)),
            weights={
                queue: _last_number(queues[queue].get("bandwidth percent", "")) or 0
                for queue in sorted(shared)
            },
            ecn={
                queue: EcnReport(*threshold[:3])
                for queue, threshold in sorted(thresholds.items())
                if threshold is not None
            },
            headroom_bytes=self._headroom(),
            watchdog=self._watchdog(lines),
            neighbour=_neighbour(self._heard.get(name)),
        )

    def _class_of(self, dscp: int) -> int:
        path = (f"{settings.DSCP}{dscp}",)
        match = _CLASS.search(self._settings.get(path) or settings.default_of(path) or "")
        return int(match[1]) if match else -1

    def _in_force(self, port: str) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
        """Lines of a port and its queues. Lines of the port take precedence over its profile."""
        own = self._blocks.get(f"{settings.INTERFACE}{port}", {})
        profile = own.get((settings.SERVICE_PROFILE,), "").partition(" ")[2]
        lines: dict[str, str] = {}
        queues: dict[int, dict[str, str]] = {}
        for path, line in {**self._blocks.get(f"{settings.PROFILE}{profile}", {}), **own}.items():
            if len(path) == 1:
                lines[path[0]] = line
            elif path and settings.QUEUE.match(path[0]) and not path[0].startswith("mc-"):
                queues.setdefault(settings.queue_number(path[0]), {})[path[1]] = line
        return lines, queues

    def _interface(self, name: str) -> dict[str, str]:
        own = self._blocks.get(f"{settings.INTERFACE}{name}", {})
        return {path[0]: line for path, line in own.items() if len(path) == 1}

    def _mtu_of(self, lines: Mapping[str, str]) -> Optional[int]:
        return (
            _last_number(lines[settings.MTU])
            if settings.MTU in lines
            else settings.default_mtu(self._settings)
        )

    def _vlan(self, lines: Mapping[str, str]) -> str:
        """The routed interface of a switched port's VLAN, if it has an address: EOS checks the MTU
        of routed packets (aristaeos.blogspot.com, "Arista EOS MTU Behavior", 1 and 3, 2020)."""
        if lines.get("switchport") == "no switchport":
            return ""
        trunk = "switchport mode trunk" in lines
        words = "trunk native" if trunk else "access"
        matches = (_VLAN.match(line) for line in lines.values() if f" {words} " in line)
        name = f"Vlan{next((match[1] for match in matches if match), '1')}"
        return name if any(line.startswith(_GATEWAY) for line in self._interface(name)) else ""

    def _headroom(self) -> Optional[int]:
        """Of the applied profile; EOS does not show the value that it computes."""
        profile = self._settings.get(settings.MMU_APPLIED, "").rpartition(" apply")[0]
        return settings.headroom_of(self._blocks.get(profile, {}).get((settings.HEADROOM,), ""))

    def _watchdog(self, lines: Mapping[str, str]) -> PfcWatchdog:
        timeout, recovery, polling = (
            _milliseconds(self._settings.get((word,), ""))
            for word in (
                settings.WATCHDOG_TIMEOUT,
                settings.WATCHDOG_RECOVERY,
                settings.WATCHDOG_POLLING,
            )
        )
        action = self._settings.get((settings.WATCHDOG_ACTION,), "errdisable").split()[-1]
        return PfcWatchdog(
            enabled=bool(timeout) and lines.get(settings.WATCHDOG) != f"no {settings.WATCHDOG}",
            # By default, EOS polls twice within the shorter time.
            poll_ms=polling or min(timeout, recovery) // 2,
            detection_ms=timeout,
            restoration_ms=recovery,
            action=_ACTION_WORDS.get(action, action),
        )


def _last_number(line: str) -> Optional[int]:
    word = line.rpartition(" ")[2]
    return int(word) if word.isdecimal() else None


def _milliseconds(line: str) -> int:
    with contextlib.suppress(ValueError, OverflowError):
        return round(float(line.rpartition(" ")[2]) * 1000)
    return 0


def _trust(lines: Mapping[str, str]) -> str:
    """By default, routed ports trust DSCP, and switched ports the VLAN tag."""
    if "qos trust" not in lines:
        return "dscp" if lines.get("switchport") == "no switchport" else "pcp"
    return {"qos trust dscp": "dscp", "qos trust cos": "pcp"}.get(lines["qos trust"], "none")


def _neighbour(heard: Optional[Mapping[str, Any]]) -> Optional[Neighbour]:
    if heard is None:
        return None
    system = str(heard.get("neighborDevice", ""))
    port = str(heard.get("neighborPort", ""))
    # EOS shows the chassis id of a sender without a name.
    return Neighbour("" if is_mac(system) else system, port_id(port))
