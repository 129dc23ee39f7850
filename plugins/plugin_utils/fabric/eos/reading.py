# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was read of one switch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

from ....module_utils.core.dataclass import dataclass
from ...qos.compiled import PfcWatchdog
from ...qos.contract import DSCPS
from ..system import (
    OWNED,
    EcnReport,
    Neighbour,
    PortIntent,
    PortReport,
    SwitchIntent,
    SwitchReport,
    is_mac,
    port_id,
)
from .render import ACTIONS
from .settings import (
    DEFAULT_MTU,
    DSCP,
    INTERFACE,
    MMU_APPLIED,
    MMU_PROFILE,
    MTU,
    PFC_ALL_OFF,
    PROFILE,
    QUEUE,
    SERVICE_PROFILE,
    WATCHDOG,
    WATCHDOG_ACTION,
    WATCHDOG_POLLING,
    WATCHDOG_RECOVERY,
    WATCHDOG_TIMEOUT,
    Settings,
    default_of,
    ecn_of,
    queue_number,
    read_settings,
)

SESSION_PREFIX = "baremetal-"
"""Configuration sessions of this collection begin so."""


@dataclass(frozen=True)
class Present:
    version: str
    """Model and release."""
    running: str
    startup: str
    interfaces: Mapping[str, Mapping[str, Any]]
    """`interfaceStatuses` of `show interfaces status`."""
    neighbours: Optional[tuple[Mapping[str, Any], ...]]
    """`lldpNeighbors` of `show lldp neighbors`; None where LLDP is off."""
    unconfirmed: bool = False
    """Its own change is in force and waits to be confirmed: it is not saved yet."""


def sessions(detail: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of `show configuration sessions detail`, by name."""
    return detail.get("sessions") or {}


def session_with_timer(detail: Mapping[str, Any]) -> str:
    """The session whose commit timer runs; empty: none.

    Up to EOS 4.31 the session itself says so, from 4.32 on it stands beside the sessions.
    """
    name = detail.get("commitTimerSessionName")
    if name:
        return str(name)
    for session, state in sessions(detail).items():
        if state.get("state") == "pendingCommitTimer":
            return str(session)
    return ""


def abandoned_sessions(detail: Mapping[str, Any]) -> list[str]:
    """Own ones that were opened and neither committed nor aborted: EOS has room for a few."""
    return [
        name
        for name, state in sessions(detail).items()
        if name.startswith(SESSION_PREFIX) and state.get("state") == "pending"
    ]


_CLASS = re.compile(r"to traffic-class (\d)")
_NO_DROP = re.compile(r"priority-flow-control priority (\d) no-drop$")
_HEADROOM = re.compile(r"ingress headroom(?: bytes)? (\d+)$")
_SECONDS = re.compile(r"\d{1,9}(\.\d+)?")
_ACTION_WORDS = {**{eos: word for word, eos in ACTIONS.items()}, "errdisable": "errdisable"}

Blocks = dict[str, Settings]
"""Settings by the block that they stand in, without its name."""


def report(intent: SwitchIntent, present: Present) -> SwitchReport:
    settings = read_settings(present.running)
    blocks = _blocks(settings)
    heard = {str(entry.get("port")): entry for entry in present.neighbours or ()}
    dscps = _dscps(settings)
    ports = []
    for port in intent.ports:
        status = present.interfaces.get(port.name)
        if status is None:
            ports.append(PortReport(port.name, present=False))
        else:
            ports.append(_port(intent, port, status, settings, blocks, heard.get(port.name), dscps))
    return SwitchReport(
        intent.name, intent.system, present.version, tuple(ports), present.neighbours is not None
    )


def _port(
    intent: SwitchIntent,
    port: PortIntent,
    status: Mapping[str, Any],
    settings: Settings,
    blocks: Blocks,
    heard: Optional[Mapping[str, Any]],
    dscps: tuple[int, ...],
) -> PortReport:
    lines, queues = _in_force(port.name, blocks)
    paused = () if (PFC_ALL_OFF,) in settings else _pfc(lines)
    shared = {number for number, said in queues.items() if said.get("priority") == "no priority"}
    served = {queue.traffic_class for queue in intent.fabric.queues} | set(queues)
    thresholds = {
        number: ecn_of(said.get("random-detect ecn", "")) for number, said in queues.items()
    }
    bandwidth = status.get("bandwidth")
    return PortReport(
        name=port.name,
        present=True,
        up=status.get("linkStatus") == "connected",
        speed_gbps=int(bandwidth) // 10**9 if bandwidth else None,
        mtu_ip=_mtu(lines.get(MTU)),
        trust=_trust(lines),
        dscp_to_traffic_class=dscps,
        pfc_priorities=paused,
        # What is no-drop has its lossless buffer from EOS itself.
        lossless_priorities=paused,
        strict_queues=tuple(sorted(served - shared)),
        weights={number: _share(queues[number]) for number in sorted(shared)},
        ecn={
            number: EcnReport(
                threshold.minimum_bytes, threshold.maximum_bytes, threshold.probability_percent
            )
            for number, threshold in sorted(thresholds.items())
            if threshold is not None
        },
        headroom_bytes=_headroom(settings),
        watchdog=_watchdog(settings, lines),
        neighbour=_neighbour(heard),
    )


def _blocks(settings: Settings) -> Blocks:
    blocks: Blocks = {}
    for path, line in settings.items():
        blocks.setdefault(path[0], {})[path[1:]] = line
    return blocks


def _in_force(port: str, blocks: Blocks) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Lines of a port and of each of its queues: its own come before those of its profile."""
    own = blocks.get(f"{INTERFACE}{port}", {})
    profile = own.get((SERVICE_PROFILE,), "").partition(" ")[2]
    given = blocks.get(f"{PROFILE}{profile}", {})
    lines: dict[str, str] = {}
    queues: dict[int, dict[str, str]] = {}
    for path, line in {**given, **own}.items():
        if len(path) == 1:
            lines[path[0]] = line
        elif path and QUEUE.match(path[0]) and not path[0].startswith("mc-"):
            queues.setdefault(queue_number(path[0]), {})[path[1]] = line
    return lines, queues


def _dscps(settings: Settings) -> tuple[int, ...]:
    classes = []
    for dscp in range(DSCPS):
        path = (f"{DSCP}{dscp}",)
        match = _CLASS.search(settings.get(path) or default_of(path) or "")
        classes.append(int(match[1]) if match else -1)
    return tuple(classes)


def _mtu(line: Optional[str]) -> Optional[int]:
    """None where the line says no number: then it is not what was wanted either."""
    if line is None:
        return DEFAULT_MTU
    said = line.split()[-1]
    return int(said) if said.isdecimal() else None


def _trust(lines: Mapping[str, str]) -> str:
    """Routed ports trust DSCP, switched ones the VLAN tag, unless configured otherwise."""
    said = lines.get("qos trust")
    if said is None:
        return "dscp" if lines.get("switchport") == "no switchport" else "pcp"
    return {"qos trust dscp": "dscp", "qos trust cos": "pcp"}.get(said, "none")


def _pfc(lines: Mapping[str, str]) -> tuple[int, ...]:
    if lines.get("priority-flow-control") not in (
        "priority-flow-control on",
        "priority-flow-control mode on",
    ):
        return ()
    found = (_NO_DROP.match(line) for line in lines.values())
    return tuple(sorted(int(match[1]) for match in found if match))


def _share(queue: Mapping[str, str]) -> int:
    said = queue.get("bandwidth percent", "0").split()[-1]
    return int(said) if said.isdecimal() else 0


def _headroom(settings: Settings) -> Optional[int]:
    """What is set under our name; EOS does not say what it computes by itself."""
    if not settings.get(MMU_APPLIED, "").startswith(f"{MMU_PROFILE}{OWNED}"):
        return None
    for path, line in settings.items():
        match = _HEADROOM.match(line)
        if match and path[0] == f"{MMU_PROFILE}{OWNED}":
            return int(match[1])
    return None


def _watchdog(settings: Settings, lines: Mapping[str, str]) -> PfcWatchdog:
    timeout, recovery, polling = (
        _milliseconds(settings.get((word,)))
        for word in (WATCHDOG_TIMEOUT, WATCHDOG_RECOVERY, WATCHDOG_POLLING)
    )
    said = settings.get((WATCHDOG_ACTION,), "errdisable").split()[-1]
    return PfcWatchdog(
        enabled=bool(timeout) and lines.get(WATCHDOG) != f"no {WATCHDOG}",
        # Where EOS chooses how often to poll, it is twice within the shorter time.
        poll_ms=polling or min(timeout, recovery) // 2,
        detection_ms=timeout,
        restoration_ms=recovery,
        action=_ACTION_WORDS.get(said, said),
    )


def _milliseconds(line: Optional[str]) -> int:
    said = line.split()[-1] if line else ""
    return round(float(said) * 1000) if _SECONDS.fullmatch(said) else 0


def _neighbour(heard: Optional[Mapping[str, Any]]) -> Optional[Neighbour]:
    if heard is None:
        return None
    system = str(heard.get("neighborDevice", ""))
    port = str(heard.get("neighborPort", ""))
    # A sender without a name shows by its chassis id.
    return Neighbour("" if is_mac(system) else system, port_id(port))
