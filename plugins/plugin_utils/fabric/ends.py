# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends of a link by aspect: the contract's values, and those of a switch's report or a NIC.

Values are compared; `show` makes text of them for a message. Where a value is as good as the wanted
one (a threshold rounded by hardware, a larger headroom), the reading has the wanted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    Check,
    not_applicable,
)
from ...module_utils.core.text import counted
from ...module_utils.qos import SPECTRUM_X
from ..answers import INTERFACE, MOST_TEXT, amount, checks, form_of, sentence, whole
from ..qos.compiled import FabricIntent
from .asics import Asic, WantedError, headroom, rounded
from .system import TO_NODES, Difference, SwitchIntent, SwitchReport

PORT = "port"
UP = "up"
SPEED = "speed"
MTU = "mtu"
TRUST = "trust"
DSCP_MAP = "dscp_map"
PFC = "pfc"
LOSSLESS = "lossless"
QUEUES = "queues"
WEIGHTS = "weights"
ECN = "ecn"
CABLE = "cable"
HEADROOM = "headroom"
WATCHDOG = "watchdog"
SETTINGS = "settings"

THERE, IS_UP, NOT_SET_UP = "there", "up", "not set up"


@dataclass(frozen=True)
class Unread:
    """An end does not report an aspect."""

    reason: str
    fault: bool = False
    """It should: that is a mismatch by itself."""


Reading = Mapping[str, Any]
"""Value or `Unread` by aspect. What an end does not have (the headroom of a NIC) is not in it."""


# Text of values


def show(aspect: str, value: Any) -> str:
    if isinstance(value, Unread):
        return value.reason
    return value if isinstance(value, str) else _TEXTS.get(aspect, _plain)(value)


def _plain(value: Any) -> str:
    return (_numbers(value) or "none") if isinstance(value, tuple) else str(value)


def _numbers(values: Iterable[object]) -> str:
    found = [str(value) for value in values]
    return " and ".join(found) if len(found) < 3 else ", ".join(found)


def _dscp_text(pairs: tuple[tuple[int, int], ...]) -> str:
    """`DSCP 26 to TC 3, DSCP 24-31, 40 to TC 1`"""
    classes: dict[int, list[str]] = {}
    runs: list[list[int]] = []
    for dscp, traffic_class in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        if runs and runs[-1][1:] == [dscp - 1, traffic_class]:
            runs[-1][1] = dscp
        else:
            runs.append([dscp, dscp, traffic_class])
    for first, last, traffic_class in runs:
        run = str(first) if first == last else f"{first}-{last}"
        classes.setdefault(traffic_class, []).append(run)
    return ", ".join(f"DSCP {', '.join(dscps)} to TC {tc}" for tc, dscps in classes.items())


def _queues_text(value: tuple[int, bool, tuple[tuple[int, str], ...]]) -> str:
    cnp, strict, others = value
    text = f"TC {cnp} (CNP) {'strict' if strict else 'not strict'}"
    also = _numbers(f"TC {number} ({name})" for number, name in others)
    return text + (f", {also} strict as well" if also else "")


def _ecn_text(value: tuple[Optional[int], ...]) -> str:
    if len(value) == 1:
        return f"TC {value[0]} does not mark"
    if None in value:
        return f"TC {value[0]} marks, at thresholds that are not in bytes"
    return "TC {} marks from {} to {} bytes, {} %".format(*value)


def _watchdog_text(value: tuple[Any, ...]) -> str:
    if not value:
        return "off"
    action, detection_ms, restoration_ms, *slow = value
    text = f"{action} after {detection_ms} ms, back after {restoration_ms} ms"
    return text + (", and polls every {} ms instead of {} ms".format(*slow) if slow else "")


_TEXTS: dict[str, Callable[[Any], str]] = {
    SPEED: lambda gbps: f"{gbps:g} Gb/s",
    MTU: lambda size: f"IP packets of {size} bytes",
    DSCP_MAP: _dscp_text,
    PFC: lambda found: f"PFC on {_numbers(found)}" if found else "PFC off",
    LOSSLESS: lambda found: (
        f"a lossless buffer for priority {_numbers(found)}" if found else "no lossless buffer"
    ),
    QUEUES: _queues_text,
    WEIGHTS: lambda pairs: ", ".join(f"TC {queue} has {weight} %" for queue, weight in pairs),
    ECN: _ecn_text,
    CABLE: lambda metres: f"{metres} m",
    HEADROOM: lambda room: f"{room} bytes",
    WATCHDOG: _watchdog_text,
}


# A switch's end

FIELDS = {
    UP: "up",
    SPEED: "speed_gbps",
    MTU: "mtu_ip",
    TRUST: "trust",
    DSCP_MAP: "dscp_to_traffic_class",
    PFC: "pfc_priorities",
    LOSSLESS: "lossless_priorities",
    QUEUES: "strict_queues",
    WEIGHTS: "weights",
    ECN: "ecn",
    CABLE: "cable_metres",
    HEADROOM: "headroom_bytes",
    WATCHDOG: "watchdog",
}
"""The field of a PortReport that each aspect is read from."""

ALWAYS = (UP, MTU, DSCP_MAP, PFC, QUEUES, ECN)
"""What every system reports."""
ONE_CABLE_LENGTH = ROUNDS_THRESHOLDS = ("nvue",)
"""It has one cable length per switch, the longest; and reports ECN thresholds as the chip has
them, where the others report what was set."""


class SwitchEnds:
    """All ports of one switch."""

    def __init__(
        self,
        system: str,
        asic: Asic,
        report: Optional[Mapping[str, Any]],
        intent: FabricIntent,
    ) -> None:
        self._system = system
        self._asic = asic
        self._intent = intent
        self._ports = {port["name"]: port for port in (report or {}).get("ports", ())}
        present = [port for port in self._ports.values() if port["present"]]
        # A field that no port has the system cannot report; one that others have is missing.
        self._unread = {
            aspect: Unread("the switch does not report it", fault=True)
            if aspect in ALWAYS or any(port.get(key) is not None for port in present)
            else Unread(f"{system or 'the switch'} does not report {key} of a port")
            for aspect, key in FIELDS.items()
        }
        self._wanted: dict[tuple[str, float], Reading] = {}
        self._known: dict[tuple[Any, ...], Reading] = {}

    def wanted(self, kind: str, speed_gbps: float) -> Reading:
        """The same for all links of a kind."""
        key = (kind, speed_gbps)
        if key not in self._wanted:
            self._wanted[key] = self._wants(*key)
        return self._wanted[key]

    def _wants(self, kind: str, speed_gbps: float) -> Reading:
        intent, cables = self._intent, self._intent.cable_metres
        metres = cables.to_nodes if kind in TO_NODES else cables.between_switches
        room: Any
        try:
            room = headroom(self._asic, int(speed_gbps), metres, intent.mtu_frame).xoff_bytes
        except WantedError:
            room = Unread(f"the headroom of {self._asic.name or 'its chip'} is not known")
        watchdog, roce = intent.watchdog, intent.queue("roce")
        return {
            PORT: THERE,
            UP: IS_UP,
            SPEED: speed_gbps,
            MTU: intent.mtu_ip,
            TRUST: intent.trust,
            DSCP_MAP: self._dscp_map(intent.dscp_to_traffic_class),
            PFC: tuple(sorted(intent.pfc_priorities)),
            LOSSLESS: tuple(sorted(intent.pfc_priorities)),
            QUEUES: self._queues(tuple(q.traffic_class for q in intent.queues if q.strict)),
            WEIGHTS: tuple(
                (q.traffic_class, q.weight_percent) for q in intent.queues if not q.strict
            ),
            ECN: (roce.traffic_class, *(vars(roce.ecn).values() if roce.ecn else ())),
            CABLE: metres,
            HEADROOM: room,
            WATCHDOG: (watchdog.action, watchdog.detection_ms, watchdog.restoration_ms)
            if watchdog.enabled
            else (),
        }

    def routed(self, name: str) -> str:
        """The routed interface behind a port whose MTU is smaller; empty: it is the port's own."""
        return str((self._ports.get(name) or {}).get("mtu_of") or "")

    def found(self, name: str, wanted: Reading) -> Reading:
        port = self._ports.get(name)
        if port is None or not port["present"]:
            return {PORT: "the switch has no such port"}
        # Most ports of a switch are alike: each kind is read once.
        alike = (id(wanted), *(_frozen(port.get(key)) for key in FIELDS.values()))
        if alike not in self._known:
            self._known[alike] = self._found(port, wanted)
        return self._known[alike]

    def _found(self, port: Mapping[str, Any], wanted: Reading) -> Reading:
        found: dict[str, Any] = {PORT: THERE}
        for aspect, key in FIELDS.items():
            value = port.get(key)
            if value is None:
                found[aspect] = self._unread[aspect]
            else:
                found[aspect] = self._value(aspect, value, wanted[aspect], port)
        if port.get("up") is False:
            del found[SPEED]  # that of a port that is down means nothing
        return found

    def _value(self, aspect: str, value: Any, wanted: Any, port: Mapping[str, Any]) -> Any:
        if aspect == UP:
            return IS_UP if value else "down"
        if aspect == DSCP_MAP:
            return self._dscp_map(value)
        if aspect == PFC:
            return tuple(sorted(value))
        if aspect == LOSSLESS:
            return wanted if set(wanted) <= set(value) else tuple(sorted(value))
        if aspect == QUEUES:
            return self._queues(value)
        if aspect == WEIGHTS:
            strict = port.get("strict_queues") or ()
            return tuple(
                (queue, share if queue in strict else _at(value, queue) or 0)
                for queue, share in wanted
            )
        if aspect == ECN:
            return self._ecn(value, wanted)
        if aspect == CABLE and self._system in ONE_CABLE_LENGTH:
            return min(value, wanted)
        if aspect == HEADROOM:
            if isinstance(wanted, Unread):
                return wanted
            # The platform's vendor may need less than is computed here for any traffic.
            enough = min(port.get("platform_headroom_bytes") or wanted, wanted)
            return wanted if value >= enough else value
        if aspect == WATCHDOG:
            return self._watchdog(value)
        return value

    def _dscp_map(self, classes: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Traffic classes of RoCE and CNP, and of what differs from the contract besides."""
        marked = {*self._intent.queue("roce").dscps, *self._intent.queue("cnp").dscps}
        wanted = self._intent.dscp_to_traffic_class
        return tuple(
            (dscp, traffic_class)
            for dscp, traffic_class in enumerate(classes)
            if dscp in marked or traffic_class != wanted[dscp]
        )

    def _queues(self, strict: Iterable[int]) -> tuple[Any, ...]:
        """Whether CNP come first, and what else does."""
        there, cnp = set(strict), self._intent.queue("cnp").traffic_class
        others = tuple(
            (queue.traffic_class, queue.name)
            for queue in self._intent.queues
            if not queue.strict and queue.traffic_class in there
        )
        return cnp, cnp in there, others

    def _ecn(self, value: Mapping[Any, Mapping[str, int]], wanted: tuple[int, ...]) -> Any:
        mark = _at(value, wanted[0])
        if mark is None:
            return wanted[:1]
        found = [mark["minimum_bytes"], mark["maximum_bytes"], mark["probability_percent"]]
        if self._system in ROUNDS_THRESHOLDS and len(wanted) > 1:
            for place, asked in enumerate(wanted[1:3]):
                if rounded(self._asic, asked, found[place]):
                    found[place] = asked
        return (wanted[0], *found)

    def _watchdog(self, value: Mapping[str, Any]) -> tuple[Any, ...]:
        wanted = self._intent.watchdog
        if not value["enabled"]:
            return ()
        # 0: the system has no restoration time.
        restored = value["restoration_ms"] or wanted.restoration_ms
        found = (value["action"], value["detection_ms"], restored)
        # It may poll more often than wanted: other ports of the switch can need that.
        slow = wanted.enabled and value["poll_ms"] > wanted.poll_ms
        return (*found, value["poll_ms"], wanted.poll_ms) if slow else found


def _frozen(value: Any) -> Any:
    """As a key of a dictionary."""
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, dict) else value


def _at(values: Mapping[Any, Any], queue: int) -> Any:
    """A report that went through JSON has text for keys."""
    return values.get(queue, values.get(str(queue)))


# A NIC's end, as the module roce_rails returns it. Its settings have the contract's values.

NO_NIC = "rail_settings"
"""The check of roce_rails on a rail without settings of a NIC."""
FORCED = "traffic_class"
"""Where nothing is forced, the default (cma_roce_tos) holds."""
NIC_SETTINGS = (
    *(TRUST, PFC, "dscp_to_priority", "priority_to_tc", "ets", "cma_roce_tos", FORCED),
    *("cnp_dscp", "cnp_priority", "ecn_np", "ecn_rp"),
)
"""Aspects, by the names that roce_rails has for them."""


def nic_end(
    state: Mapping[str, Any], name: str, speed_gbps: float, mtu: int
) -> tuple[Reading, Reading]:
    """What a rail of a node is wanted to be, and is."""
    wanted: dict[str, Any] = {PORT: THERE, UP: IS_UP, SPEED: speed_gbps, MTU: mtu}
    rail = (state.get("rails") or {}).get(name)
    if rail is None:
        return wanted, {PORT: "the node has no such rail"}
    up = (IS_UP if rail["carrier"] else "no carrier") if rail["up"] else NOT_SET_UP
    found: dict[str, Any] = {PORT: THERE, UP: up, MTU: rail["mtu"]}
    if rail["carrier"]:
        missing = Unread("the driver reports no speed of the link")
        found[SPEED] = missing if rail.get("speed_gbps") is None else rail["speed_gbps"]
    settings = (state.get("settings") or {}).get(name) or {}
    if not settings:
        wanted[SETTINGS] = "as the contract"
        found[SETTINGS] = _without_settings(state, name)
    for aspect, setting in settings.items():
        if aspect in NIC_SETTINGS and not (aspect == FORCED and setting["found"] is None):
            wanted[aspect] = _frozen(setting["wanted"])
            found[aspect] = _found(setting)
    return wanted, found


def node_state(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What the module roce_rails answered, as links to other hosts are compared with it.

    Raises AnswerError.
    """
    with form_of("the state of its rails"):
        rails = {
            INTERFACE.of(name, "the name of a rail"): {
                "mac": sentence(rail.get("mac")),
                **{key: bool(rail[key]) for key in ("up", "carrier")},
                "mtu": None if rail["mtu"] is None else whole(rail["mtu"], "an MTU", 1 << 20),
                "speed_gbps": amount(rail.get("speed_gbps"), 1 << 20),
            }
            for name, rail in answer["rails"].items()
        }
        settings: dict[str, dict[str, Any]] = {
            name: {
                str(aspect): {**setting, "reason": sentence(setting.get("reason"), 300)}
                for aspect, setting in of_rail.items()
            }
            for name, of_rail in (answer.get("settings") or {}).items()
            if name in rails
        }
        found = {"rails": rails, "settings": settings, "checks": checks(answer.get("checks", []))}
        for name in rails:  # in the form of the aspect, each
            for reading in nic_end(found, name, 1, 1):
                for aspect, value in reading.items():
                    if len(show(aspect, value)) > MOST_TEXT:
                        raise ValueError(f"{aspect} without end")
    return found


def _without_settings(state: Mapping[str, Any], rail: str) -> Unread:
    for check in state.get("checks") or ():
        if check["name"] == NO_NIC and check["subject"] == rail and check.get("reason"):
            return Unread(check["reason"], fault=check["status"] == "failed")
    return Unread("the NIC does not report them", fault=True)


def _found(setting: Mapping[str, Any]) -> Any:
    if setting["status"] == NOT_APPLICABLE:
        return Unread(setting["reason"])
    if setting["found"] is None:
        return Unread(setting.get("reason") or "the NIC does not report it", fault=True)
    return _frozen(setting["found"])


# The checks of one switch: each aspect once for all ports that are alike

NOT_OURS = (UP,)
"""Whether a link is up depends on its other end too: the layer `links`."""
VERIFIED = (PORT, SPEED)
"""Read and never set: optics and breakout are the operator's."""
ADAPTIVE_ROUTING = "adaptive_routing"
BY_OTHERS = (
    "not configured by this collection, and not read: nv set router adaptive-routing state enabled "
    "(before 5.15: enable on), and the same of each uplink"
)
"""docs.nvidia.com/networking-ethernet-software/nvue-reference/Set-and-Unset-Commands/Adaptive-Routing
"""
RUNS_SHOWN = 6


FIXED = {
    ("nvue", HEADROOM): "qos pfc port-buffer fixes it, whatever the cable length: unset it, or "
    "write less in roce_qos.cable_metres",
}
"""Set by hand, and left: by system and aspect."""


def port_checks(
    intent: SwitchIntent, report: SwitchReport, remaining: Optional[Difference], check_mode: bool
) -> list[Check]:
    """`remaining`: what differs now, None if unknown."""
    differs = remaining is None or bool(remaining)
    found = [_configuration(remaining, check_mode)]
    if intent.fabric.fabric_mode == SPECTRUM_X:
        found.append(not_applicable(ADAPTIVE_ROUTING, "on", BY_OTHERS))
    names = [port.name for port in intent.ports]
    for (aspect, wanted, value), ports in _groups(intent, report).items():
        status, reason = FAILED, ""
        if wanted == value:
            status = OK
        elif aspect in VERIFIED:
            reason = "verified, never set: correct the port, or the model"
        elif (intent.system, aspect) in FIXED:
            reason = FIXED[intent.system, aspect]
        elif check_mode and differs:
            status = PENDING
        elif not differs:
            reason = "its configuration is as wanted, the port is not"
        name = "port" if aspect == PORT else f"port_{aspect}"
        found.append(Check(name, wanted, value, status, ports_text(ports, names), reason))
    return found


def _configuration(remaining: Optional[Difference], check_mode: bool) -> Check:
    """In the switch's own syntax: covers also what has no name in the contract."""
    name, wanted = "configuration", "0 values differ"
    if remaining is None:
        return Check(name, wanted, None, FAILED, "", "it could not be read")
    count = len(remaining.changes)
    if not count:
        return Check(name, wanted, wanted, OK)
    found = f"{counted(count, 'value')} {'differs' if count == 1 else 'differ'}"
    first = remaining.changes[0]
    more = f", and {count - 1} more" if count > 1 else ""
    reason = f"{first.path}: wanted {first.wanted}, found {first.found}{more}"
    return Check(name, wanted, found, PENDING if check_mode else FAILED, "", reason)


def _groups(intent: SwitchIntent, report: SwitchReport) -> dict[tuple[str, str, str], list[str]]:
    """By aspect, wanted and found: the ports."""
    switch = SwitchEnds(intent.system, intent.asic, report.as_dict(), intent.fabric)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for port in intent.ports:
        wanted = switch.wanted(port.kind, port.speed_gbps)
        for aspect, value in switch.found(port.name, wanted).items():
            goal = wanted[aspect]
            if aspect in NOT_OURS or isinstance(goal, Unread):
                continue
            if aspect == MTU and switch.routed(port.name):
                continue  # no port's: link_mtu compares it with the rails
            if isinstance(value, Unread):
                if not value.fault:
                    continue  # the comparison of its configuration covers it
                value = f"not known: {value.reason}"
            key = (aspect, show(aspect, goal), show(aspect, value))
            groups.setdefault(key, []).append(port.name)
    return groups


def ports_text(ports: Sequence[str], every: Sequence[str]) -> str:
    """`Ethernet0-Ethernet504 (64 ports)`: a dash spans neighbours among all ports in use."""
    place = {name: number for number, name in enumerate(every)}
    runs: list[list[str]] = []
    for name in sorted(ports, key=lambda port: place[port]):
        if runs and place[runs[-1][-1]] == place[name] - 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    texts = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    if len(texts) > RUNS_SHOWN:
        texts = [*texts[:RUNS_SHOWN], "..."]
    text = ", ".join(texts)
    return text if len(ports) == 1 else f"{text} ({len(ports)} ports)"
