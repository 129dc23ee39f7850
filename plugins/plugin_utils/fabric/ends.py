# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both ends of a link by aspect: the contract's values, and those of a switch's report or a NIC.

Values are compared; `show` makes text of them for a message. Where a value is as good as the wanted
one (a threshold rounded by hardware, a larger headroom), the reading has the wanted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.qos import HostSettings
from ..qos.compiled import FabricIntent
from ..qos.contract import DSCPS
from .asics import Asic, WantedError, headroom, rounded
from .system import TO_NODES

PORT = "port"
UP = "up"
SPEED = "speed"
MTU = "mtu"
TRUST = "trust"
ROCE_DSCP = "roce_dscp"
CNP_DSCP = "cnp_dscp"
OTHER_DSCPS = "other_dscps"
PRIORITY = "priority"
PFC = "pfc"
LOSSLESS = "lossless"
QUEUES = "queues"
WEIGHTS = "weights"
ECN = "ecn"
CABLE = "cable"
HEADROOM = "headroom"
WATCHDOG = "watchdog"
MARKING = "marking"
CNP_MARKING = "cnp_marking"
ECN_POINTS = "ecn_points"

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
    return value if isinstance(value, str) else _TEXTS[aspect](value)


def _numbers(values: Iterable[object]) -> str:
    found = [str(value) for value in values]
    return " and ".join(found) if len(found) < 3 else ", ".join(found)


def _dscp_list(dscps: Iterable[int]) -> str:
    """`DSCP 24-31, 40`"""
    runs: list[list[int]] = []
    for dscp in dscps:
        if runs and runs[-1][1] == dscp - 1:
            runs[-1][1] = dscp
        else:
            runs.append([dscp, dscp])
    return "DSCP " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _class_text(value: tuple[int, str, tuple[int, ...], int]) -> str:
    dscp, found, instead, wanted = value
    text = f"DSCP {dscp} to TC {found}"
    return f"{text}, {_dscp_list(instead)} to TC {wanted}" if instead else text


def _others_text(wrong: tuple[tuple[int, str], ...]) -> str:
    classes: dict[str, list[int]] = {}
    for dscp, traffic_class in wrong:
        classes.setdefault(traffic_class, []).append(dscp)
    texts = [f"{_dscp_list(dscps)} to TC {tc}" for tc, dscps in classes.items()]
    return ", ".join(texts) or "as the contract"


def _queues_text(value: tuple[int, bool, tuple[tuple[int, str], ...]]) -> str:
    cnp, strict, others = value
    text = f"TC {cnp} (CNP) {'strict' if strict else 'not strict'}"
    also = _numbers(f"TC {number} ({name})" for number, name in others)
    return text + (f", {also} strict as well" if also else "")


def _ecn_text(value: tuple[int, ...]) -> str:
    if len(value) == 1:
        return f"TC {value[0]} does not mark"
    return "TC {} marks from {} to {} bytes, {} %".format(*value)


def _watchdog_text(value: tuple[Any, ...]) -> str:
    if not value:
        return "off"
    action, detection_ms, restoration_ms, *slow = value
    text = f"{action} after {detection_ms} ms, back after {restoration_ms} ms"
    return text + (", and polls every {} ms instead of {} ms".format(*slow) if slow else "")


def _marking_text(value: tuple[int, int]) -> str:
    """The DSCP of RoCE by default, and where every connection is forced."""
    byte, forced = value
    return _sent(byte) + (f" by default, {_sent(forced)} in fact" if forced != byte else "")


def _sent(byte: int) -> str:
    capable = byte & 0b11 in (0b01, 0b10)
    return f"sends DSCP {byte >> 2}" + ("" if capable else " and does not let switches mark")


def _points_text(value: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    notification, reaction = value
    if notification == reaction:
        return f"on for priority {_numbers(notification)}" if notification else "off"
    return (
        f"notification on for {_numbers(notification) or 'none'}, "
        f"reaction on for {_numbers(reaction) or 'none'}"
    )


_TEXTS: dict[str, Callable[[Any], str]] = {
    SPEED: lambda gbps: f"{gbps:g} Gb/s",
    MTU: lambda size: f"IP packets of {size} bytes",
    ROCE_DSCP: _class_text,
    CNP_DSCP: _class_text,
    OTHER_DSCPS: _others_text,
    PRIORITY: lambda pairs: ", ".join(f"DSCP {dscp} in priority {found}" for dscp, found in pairs),
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
    MARKING: _marking_text,
    CNP_MARKING: lambda pair: f"CNP with DSCP {pair[0]} in priority {pair[1]}",
    ECN_POINTS: _points_text,
}


# Values that both kinds of ends have


def _dscps(classes: Iterable[object], intent: FabricIntent) -> dict[str, Any]:
    """How a table of 64 traffic classes sorts RoCE, CNP, and everything else."""
    table = tuple(map(str, classes))
    roce, cnp = intent.queue("roce"), intent.queue("cnp")
    found: dict[str, Any] = {}
    for aspect, queue in ((ROCE_DSCP, roce), (CNP_DSCP, cnp)):
        (dscp,) = queue.dscps
        wanted = str(queue.traffic_class)
        instead = tuple(other for other, tc in enumerate(table) if tc == wanted)
        right = table[dscp] == wanted
        found[aspect] = (dscp, table[dscp], () if right else instead, queue.traffic_class)
    special = {*roce.dscps, *cnp.dscps}
    found[OTHER_DSCPS] = tuple(
        (dscp, table[dscp])
        for dscp, wanted_class in enumerate(intent.dscp_to_traffic_class)
        if dscp not in special and table[dscp] != str(wanted_class)
    )
    return found


def _queues(strict: Iterable[int], intent: FabricIntent) -> tuple[Any, ...]:
    """Whether CNP come first, and what else does."""
    there = set(strict)
    cnp = intent.queue("cnp").traffic_class
    others = tuple(
        (queue.traffic_class, queue.name)
        for queue in intent.queues
        if not queue.strict and queue.traffic_class in there
    )
    return cnp, cnp in there, others


def _frozen(value: Any) -> Any:
    """As a key of a dictionary."""
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, dict) else value


# A switch's end

FIELDS = {
    UP: "up",
    SPEED: "speed_gbps",
    MTU: "mtu_ip",
    TRUST: "trust",
    ROCE_DSCP: "dscp_to_traffic_class",
    CNP_DSCP: "dscp_to_traffic_class",
    OTHER_DSCPS: "dscp_to_traffic_class",
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
_KEYS = tuple(dict.fromkeys(FIELDS.values()))
_MAP, _NO_MAP = "dscp_to_traffic_class", "it has no DSCP map"

ALWAYS = frozenset(
    ["up", "mtu_ip", "dscp_to_traffic_class", "pfc_priorities", "strict_queues", "ecn"]
)
"""Fields that every system reports."""
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
        # A field that no port has the system cannot report; one that others have is missing.
        reported = {
            key
            for key in _KEYS
            if any(port.get(key) is not None for port in self._ports.values() if port["present"])
        }
        self._unread = {
            aspect: Unread(_NO_MAP if key == _MAP else "the switch does not report it", fault=True)
            if key in ALWAYS or key in reported
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
        watchdog, ecn = intent.watchdog, intent.queue("roce").ecn
        roce = intent.queue("roce").traffic_class
        return {
            PORT: THERE,
            UP: IS_UP,
            SPEED: speed_gbps,
            MTU: intent.mtu_ip,
            TRUST: intent.trust,
            **_dscps(intent.dscp_to_traffic_class, intent),
            PFC: tuple(sorted(intent.pfc_priorities)),
            LOSSLESS: tuple(sorted(intent.pfc_priorities)),
            QUEUES: _queues((q.traffic_class for q in intent.queues if q.strict), intent),
            WEIGHTS: tuple(
                (q.traffic_class, q.weight_percent) for q in intent.queues if not q.strict
            ),
            ECN: (roce, *vars(ecn).values()) if ecn else (roce,),
            CABLE: metres,
            HEADROOM: room,
            WATCHDOG: (watchdog.action, watchdog.detection_ms, watchdog.restoration_ms)
            if watchdog.enabled
            else (),
        }

    def found(self, name: str, wanted: Reading) -> Reading:
        port = self._ports.get(name)
        if port is None or not port["present"]:
            return {PORT: "the switch has no such port"}
        # Most ports of a switch are alike: each kind is read once.
        alike = (id(wanted), *(_frozen(port.get(key)) for key in _KEYS))
        if alike not in self._known:
            self._known[alike] = self._found(port, wanted)
        return self._known[alike]

    def _found(self, port: Mapping[str, Any], wanted: Reading) -> Reading:
        found: dict[str, Any] = {PORT: THERE}
        for aspect, key in FIELDS.items():
            value = port.get(key)
            if value is None:
                found[aspect] = self._unread[aspect]
            elif key != _MAP:
                found[aspect] = self._value(aspect, value, wanted[aspect], port)
        if port.get(_MAP) is not None:
            found.update(_dscps(port[_MAP], self._intent))
        if port.get("up") is False:
            del found[SPEED]  # that of a port that is down means nothing
        return found

    def _value(self, aspect: str, value: Any, wanted: Any, port: Mapping[str, Any]) -> Any:
        intent = self._intent
        if aspect == UP:
            return IS_UP if value else "down"
        if aspect == PFC:
            return tuple(sorted(value))
        if aspect == LOSSLESS:
            return wanted if set(wanted) <= set(value) else tuple(sorted(value))
        if aspect == QUEUES:
            return _queues(value, intent)
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
            return wanted if isinstance(wanted, Unread) else min(value, wanted)
        if aspect == WATCHDOG:
            return self._watchdog(value)
        return value

    def _ecn(self, value: Mapping[Any, Mapping[str, int]], wanted: tuple[int, ...]) -> Any:
        mark = _at(value, wanted[0])
        if mark is None:
            return wanted[:1]
        thresholds = (mark["minimum_bytes"], mark["maximum_bytes"])
        percent = mark["probability_percent"]
        if self._system in ROUNDS_THRESHOLDS and len(wanted) > 1:
            thresholds = tuple(  # type: ignore[assignment]
                asked if rounded(self._asic, asked, found) else found
                for asked, found in zip(wanted[1:3], thresholds)
            )
        return (wanted[0], *thresholds, percent)

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


def _at(values: Mapping[Any, Any], queue: int) -> Any:
    """A report that went through JSON has text for keys."""
    return values.get(queue, values.get(str(queue)))


# A NIC's end, as the module roce_rails returns it

NO_NIC = "rail_settings"
"""The check of roce_rails on a rail without settings of a NIC."""
DEFAULT_REASON = "the NIC does not report it"

NEEDS = {
    TRUST: ("trust",),
    ROCE_DSCP: ("dscp_to_priority", "priority_to_tc"),
    CNP_DSCP: ("dscp_to_priority", "priority_to_tc"),
    OTHER_DSCPS: ("dscp_to_priority", "priority_to_tc"),
    PRIORITY: ("dscp_to_priority",),
    PFC: ("pfc",),
    QUEUES: ("ets",),
    MARKING: ("cma_roce_tos",),
    CNP_MARKING: ("cnp_dscp", "cnp_priority"),
    ECN_POINTS: ("ecn_np", "ecn_rp"),
}
"""The settings that each aspect is read from."""
SETTINGS = tuple(
    dict.fromkeys((*(name for names in NEEDS.values() for name in names), "traffic_class"))
)

Settings = Mapping[str, Mapping[str, Any]]


class NicEnds:
    """All rails of one node."""

    def __init__(
        self,
        state: Mapping[str, Any],
        intent: FabricIntent,
        contract: Reading,
        known: dict[Any, Reading],
    ) -> None:
        """`known`: shared by all nodes, whose rails are alike."""
        self._known = known
        self._intent = intent
        self._contract = contract
        self._rails: Mapping[str, Mapping[str, Any]] = state.get("rails") or {}
        self._settings: Mapping[str, Settings] = state.get("settings") or {}
        self._instead = {
            check["subject"]: Unread(check["reason"], fault=check["status"] == "failed")
            for check in state.get("checks") or []
            if check["name"] == NO_NIC and check["status"] != "ok" and check.get("reason")
        }

    def wanted(self, speed_gbps: float, mtu: int) -> Reading:
        return {**self._contract, SPEED: speed_gbps, MTU: mtu}

    def found(self, name: str) -> Reading:
        rail = self._rails.get(name)
        if rail is None:
            return {PORT: "the node has no such rail"}
        up = (IS_UP if rail["carrier"] else "no carrier") if rail["up"] else NOT_SET_UP
        found: dict[str, Any] = {PORT: THERE, UP: up, MTU: rail["mtu"]}
        if rail["carrier"]:
            speed = rail.get("speed_gbps")
            missing = Unread("the driver reports no speed of the link")
            found[SPEED] = missing if speed is None else speed
        settings = self._settings.get(name) or {}
        alike = (self._instead.get(name), *(_of_setting(settings.get(each)) for each in SETTINGS))
        if alike not in self._known:
            self._known[alike] = self._qos(name, settings)
        return {**found, **self._known[alike]}

    def _qos(self, rail: str, settings: Settings) -> Reading:
        found: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for aspect, names in NEEDS.items():
            missing = self._missing(rail, names, settings)
            if missing is not None:
                found[aspect] = missing
            else:
                values.update({each: settings[each]["found"] for each in names})
        intent = self._intent
        if "dscp_to_priority" in values:
            table = _table(values["dscp_to_priority"])
            found[PRIORITY] = _priorities(dict(enumerate(table)), intent)
            if "priority_to_tc" in values:
                to_tc = dict(pair.split(":") for pair in values["priority_to_tc"].split())
                found.update(_dscps((to_tc.get(each, each) for each in table), intent))
        if "trust" in values:
            found[TRUST] = str(values["trust"])
        if "pfc" in values:
            found[PFC] = tuple(sorted(values["pfc"]))
        if "ets" in values:
            shares = (part.split(":", 1) for part in values["ets"].split() if ":" in part)
            found[QUEUES] = _queues((int(tc) for tc, how in shares if how == "strict"), intent)
        if "cma_roce_tos" in values:
            forced = settings.get("traffic_class") or {}
            byte = forced.get("found") if forced.get("status") != "not_supported" else None
            default = values["cma_roce_tos"]
            found[MARKING] = (default, default if byte is None else byte)
        if "cnp_dscp" in values and "cnp_priority" in values:
            found[CNP_MARKING] = (values["cnp_dscp"], values["cnp_priority"])
        if "ecn_np" in values and "ecn_rp" in values:
            found[ECN_POINTS] = (tuple(values["ecn_np"]), tuple(values["ecn_rp"]))
        return found

    def _missing(self, rail: str, names: Sequence[str], settings: Settings) -> Optional[Unread]:
        for name in names:
            setting = settings.get(name)
            if setting is None:
                return self._instead.get(rail, Unread(DEFAULT_REASON, fault=True))
            if setting["status"] == "not_supported":
                return Unread(setting["reason"])
            if setting["found"] is None:
                return Unread(setting.get("reason") or DEFAULT_REASON, fault=True)
        return None


def _of_setting(setting: Optional[Mapping[str, Any]]) -> object:
    if setting is None:
        return None
    return (setting["status"], str(setting["found"]), setting.get("reason"))


def contract_of(settings: HostSettings, intent: FabricIntent) -> Reading:
    """What every NIC has by the contract, apart from the speed and MTU of its rail."""
    to_priority, to_tc = settings.dscp_to_priority, settings.priority_to_tc
    strict = [place for place, each in enumerate(settings.ets) if each.tsa == "strict"]
    points = tuple(settings.ecn_priorities)
    return {
        PORT: THERE,
        UP: IS_UP,
        TRUST: settings.trust,
        **_dscps((to_tc[to_priority[dscp]] for dscp in range(DSCPS)), intent),
        PRIORITY: _priorities(to_priority, intent),
        PFC: tuple(sorted(settings.pfc_priorities)),
        QUEUES: _queues(strict, intent),
        MARKING: (settings.traffic_class, settings.traffic_class),
        CNP_MARKING: (settings.cnp_dscp, settings.cnp_priority),
        ECN_POINTS: (points, points),
    }


def _priorities(table: Any, intent: FabricIntent) -> tuple[tuple[int, str], ...]:
    return tuple(
        (dscp, str(table[dscp])) for name in ("roce", "cnp") for dscp in intent.queue(name).dscps
    )


@lru_cache(maxsize=1024)
def _table(text: str) -> tuple[str, ...]:
    """`0-25:0 26:3 27-63:0` as 64 values; several of one DSCP stay as they are, `0+3`."""
    places = ["0"] * DSCPS  # the priority of a DSCP without an entry
    for run in text.split():
        dscps, _colon, value = run.partition(":")
        first, _dash, last = dscps.partition("-")
        for dscp in range(int(first), int(last or first) + 1):
            places[dscp] = value or "0"
    return tuple(places)
