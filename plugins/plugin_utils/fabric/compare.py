# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends of a link by aspect: the contract's values, and those that a switch or a NIC reports.

For a value as good as the desired one (a threshold rounded by the chip, a larger headroom), the
reading contains the desired value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check, not_applicable
from ...module_utils.core.text import counted
from ...module_utils.qos import SPECTRUM_X
from ..answers import INTERFACE, MOST_TEXT, amount, checks, form_of, sentence, whole
from ..qos.compiled import FabricIntent
from . import aspects
from .asics import Asic, WantedError, headroom, rounded
from .aspects import Reading, Unread, ports_text, show
from .system import TO_NODES, Difference, SwitchIntent, SwitchReport
from .systems import SYSTEMS

_OF_CHANNELS = ("in_channel", "mtu_of")


class SwitchEnds:
    """Desired and actual values of all ports of one switch."""

    def __init__(
        self, system: str, asic: Asic, report: Optional[Mapping[str, Any]], intent: FabricIntent
    ) -> None:
        self._system = SYSTEMS.get(system)
        self._asic = asic
        self._intent = intent
        self._ports = {port["name"]: port for port in (report or {}).get("ports", ())}
        present = [port for port in self._ports.values() if port["present"]]
        # The system cannot report a field that no port has; one that other ports have is missing.
        self._unread = {
            aspect: Unread("the switch does not report it", fault=True)
            if aspect in aspects.ALWAYS or any(port.get(key) is not None for port in present)
            else Unread(f"{system or 'the switch'} does not report {key} of a port")
            for aspect, key in aspects.FIELDS.items()
        }
        self._wanted: dict[tuple[str, float], Reading] = {}
        self._known: dict[tuple[Any, ...], Reading] = {}

    def wanted(self, kind: str, speed_gbps: float) -> Reading:
        """Of a port, the same for all links of one kind."""
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
        watchdog = intent.watchdog
        return {
            aspects.PORT: aspects.THERE,
            aspects.UP: aspects.IS_UP,
            aspects.SPEED: speed_gbps,
            aspects.MTU: intent.mtu_ip,
            aspects.TRUST: intent.trust,
            aspects.DSCP_MAP: self._dscp_map(intent.dscp_to_traffic_class),
            aspects.PFC: tuple(sorted(intent.pfc_priorities)),
            aspects.LOSSLESS: tuple(sorted(intent.pfc_priorities)),
            aspects.QUEUES: self._queues(tuple(q.traffic_class for q in intent.queues if q.strict)),
            aspects.WEIGHTS: tuple(
                (q.traffic_class, q.weight_percent) for q in intent.queues if not q.strict
            ),
            aspects.ECN: tuple(
                (queue.traffic_class, *(vars(queue.ecn).values() if queue.ecn else ()))
                for queue in intent.queues
                if queue.lossless or queue.name == "roce"
            ),
            aspects.CABLE: metres,
            aspects.HEADROOM: room,
            aspects.WATCHDOG: (watchdog.action, watchdog.detection_ms, watchdog.restoration_ms)
            if watchdog.enabled
            else (),
        }

    def routed(self, name: str) -> str:
        """The routed interface or port channel that limits the MTU of a port, if any."""
        return str((self._ports.get(name) or {}).get("mtu_of") or "")

    def found(self, name: str, wanted: Reading) -> Reading:
        port = self._ports.get(name)
        if port is None or not port["present"]:
            return {aspects.PORT: "the switch has no such port"}
        # Most ports of a switch have the same values: each combination is read once.
        keys = (*aspects.FIELDS.values(), *_OF_CHANNELS)
        alike = (id(wanted), *(_frozen(port.get(key)) for key in keys))
        if alike not in self._known:
            self._known[alike] = self._found(port, wanted)
        return self._known[alike]

    def _found(self, port: Mapping[str, Any], wanted: Reading) -> Reading:
        found: dict[str, Any] = {aspects.PORT: aspects.THERE}
        for aspect, key in aspects.FIELDS.items():
            value = port.get(key)
            if value is None:
                found[aspect] = self._unread[aspect]
            else:
                found[aspect] = self._value(aspect, value, wanted[aspect], port)
        if port.get("up") is False:
            del found[aspects.SPEED]  # meaningless while the port is down
        return found

    def _value(self, aspect: str, value: Any, wanted: Any, port: Mapping[str, Any]) -> Any:
        if aspect == aspects.UP:
            if value and port.get("in_channel") is False:
                return f"up, but not used by LACP in {port.get('mtu_of')}"
            return aspects.IS_UP if value else "down"
        if aspect == aspects.DSCP_MAP:
            return self._dscp_map(value)
        if aspect == aspects.PFC:
            return tuple(sorted(value))
        if aspect == aspects.LOSSLESS:
            return wanted if set(wanted) <= set(value) else tuple(sorted(value))
        if aspect == aspects.QUEUES:
            return self._queues(value)
        if aspect == aspects.WEIGHTS:
            strict = port.get("strict_queues") or ()
            return tuple(
                (queue, share if queue in strict else _at(value, queue) or 0)
                for queue, share in wanted
            )
        if aspect == aspects.ECN:
            return tuple(self._ecn(value, each) for each in wanted)
        if aspect == aspects.CABLE and self._system and self._system.one_cable_length:
            return min(value, wanted)
        if aspect == aspects.HEADROOM:
            if isinstance(wanted, Unread):
                return wanted
            # The vendor's value may be smaller than the one computed here, which covers any
            # traffic.
            enough = min(port.get("platform_headroom_bytes") or wanted, wanted)
            return wanted if value >= enough else value
        if aspect == aspects.WATCHDOG:
            return self._watchdog(value)
        return value

    def _dscp_map(self, classes: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Traffic classes of RoCE and CNP, and of other DSCPs that differ from the contract."""
        marked = {
            dscp
            for queue in self._intent.queues
            if queue.lossless or queue.name in ("roce", "cnp")
            for dscp in queue.dscps
        }
        wanted = self._intent.dscp_to_traffic_class
        return tuple(
            (dscp, traffic_class)
            for dscp, traffic_class in enumerate(classes)
            if dscp in marked or traffic_class != wanted[dscp]
        )

    def _queues(self, strict: Iterable[int]) -> tuple[Any, ...]:
        """The CNP queue, whether it is strict, and other queues that are."""
        strict_queues, cnp = set(strict), self._intent.queue("cnp").traffic_class
        others = tuple(
            (queue.traffic_class, queue.name)
            for queue in self._intent.queues
            if not queue.strict and queue.traffic_class in strict_queues
        )
        return cnp, cnp in strict_queues, others

    def _ecn(self, value: Mapping[Any, Mapping[str, int]], wanted: tuple[int, ...]) -> Any:
        mark = _at(value, wanted[0])
        if mark is None:
            return wanted[:1]
        found = [mark["minimum_bytes"], mark["maximum_bytes"], mark["probability_percent"]]
        if self._system and self._system.reports_rounded_thresholds and len(wanted) > 1:
            for index, asked in enumerate(wanted[1:3]):
                if rounded(self._asic, asked, found[index]):
                    found[index] = asked
        return (wanted[0], *found)

    def _watchdog(self, value: Mapping[str, Any]) -> tuple[Any, ...]:
        wanted = self._intent.watchdog
        if not value["enabled"]:
            return ()
        # 0: the system has no restoration time.
        restored = value["restoration_ms"] or wanted.restoration_ms
        found = (value["action"], value["detection_ms"], restored)
        # Polling more often is fine: other ports of the switch may require it.
        slow = wanted.enabled and value["poll_ms"] > wanted.poll_ms
        return (*found, value["poll_ms"], wanted.poll_ms) if slow else found


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, dict) else value


def _at(values: Mapping[Any, Any], queue: int) -> Any:
    """Look up a queue; a report that has passed through JSON has strings as keys."""
    return values.get(queue, values.get(str(queue)))


def nic_end(
    state: Mapping[str, Any], name: str, speed_gbps: float, mtu: int
) -> tuple[Reading, Reading]:
    """Desired and actual values of a rail, from the result of roce_rails."""
    wanted: dict[str, Any] = {
        aspects.PORT: aspects.THERE,
        aspects.UP: aspects.IS_UP,
        aspects.SPEED: speed_gbps,
        aspects.MTU: mtu,
    }
    rail = (state.get("rails") or {}).get(name)
    if rail is None:
        return wanted, {aspects.PORT: "the node has no such rail"}
    up = (aspects.IS_UP if rail["carrier"] else "no carrier") if rail["up"] else aspects.NOT_SET_UP
    found: dict[str, Any] = {aspects.PORT: aspects.THERE, aspects.UP: up, aspects.MTU: rail["mtu"]}
    if rail["carrier"]:
        missing = Unread("the driver reports no speed of the link")
        found[aspects.SPEED] = missing if rail.get("speed_gbps") is None else rail["speed_gbps"]
    settings = (state.get("settings") or {}).get(name) or {}
    if not settings:
        wanted[aspects.SETTINGS] = "as the contract"
        found[aspects.SETTINGS] = Unread("the NIC does not report them", fault=True)
        for check in state.get("checks") or ():
            if (check["name"], check["subject"]) == ("rail_settings", name) and check.get("reason"):
                fault = check["status"] == FAILED
                found[aspects.SETTINGS] = Unread(check["reason"], fault)
    for aspect, setting in settings.items():
        if aspect in aspects.NIC_SETTINGS and not (
            aspect == aspects.FORCED and setting["found"] is None
        ):
            wanted[aspect] = _frozen(setting["wanted"])
            found[aspect] = _found(setting)
    return wanted, found


def node_state(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the result of roce_rails, which other hosts depend on. Raises AnswerError."""
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
        for name in rails:  # each value must have the form of its aspect
            for reading in nic_end(found, name, 1, 1):
                for aspect, value in reading.items():
                    if len(show(aspect, value)) > MOST_TEXT:
                        raise ValueError(f"{aspect} without end")
    return found


def _found(setting: Mapping[str, Any]) -> Any:
    if setting["status"] == NOT_APPLICABLE:
        return Unread(setting["reason"])
    if setting["found"] is None:
        return Unread(setting.get("reason") or "the NIC does not report it", fault=True)
    return _frozen(setting["found"])


def port_checks(
    intent: SwitchIntent, report: SwitchReport, remaining: Optional[Difference], check_mode: bool
) -> list[Check]:
    """One check per aspect and group of ports with the same values. `remaining`: the differences;
    None if unknown."""
    differs = remaining is None or bool(remaining)
    found = [_configuration(remaining, check_mode)]
    if intent.fabric.fabric_mode == SPECTRUM_X:
        enable = SYSTEMS[intent.system].adaptive_routing
        reason = f"not configured by this collection, and not read: {enable}"
        found.append(not_applicable("adaptive_routing", "on", reason))
    names = [port.name for port in intent.ports]
    for (aspect, wanted, value), ports in _groups(intent, report).items():
        status, reason = FAILED, ""
        if wanted == value:
            status = OK
        elif aspect in (aspects.PORT, aspects.SPEED):
            reason = "verified, never set: correct the port, or the model"
        elif aspect in SYSTEMS[intent.system].fixed:
            reason = SYSTEMS[intent.system].fixed[aspect]
        elif check_mode and differs:
            status = PENDING
        elif not differs:
            reason = "its configuration is as desired, the port is not"
        name = "port" if aspect == aspects.PORT else f"port_{aspect}"
        found.append(Check(name, wanted, value, status, ports_text(ports, names), reason))
    return found


def _configuration(remaining: Optional[Difference], check_mode: bool) -> Check:
    """Differences in the switch's own syntax, including those without a name in the contract."""
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
    switch = SwitchEnds(intent.system, intent.asic, report.as_dict(), intent.fabric)
    groups: dict[tuple[str, str, str], list[str]] = {}
    for port in intent.ports:
        wanted = switch.wanted(port.kind, port.speed_gbps)
        for aspect, value in switch.found(port.name, wanted).items():
            goal = wanted[aspect]
            if aspect == aspects.UP or isinstance(goal, Unread):
                continue  # the layer links compares both ends
            if aspect == aspects.MTU and switch.routed(port.name):
                continue  # it belongs to the interface: link_mtu compares it with the rails
            if isinstance(value, Unread):
                if not value.fault:
                    continue  # covered by the check `configuration`
                value = f"not known: {value.reason}"
            key = (aspect, show(aspect, goal), show(aspect, value))
            groups.setdefault(key, []).append(port.name)
    return groups
