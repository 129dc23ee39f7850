# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A switch's end of a link: what it shall say, and what its report says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

from ...qos.compiled import FabricIntent
from ...qos.contract import Ecn
from ..asics import Asic, asic_named
from ..headroom import rounded
from ..intent import HOST, STORAGE
from . import said
from .cabling import Switch
from .said import DscpTexts, Said, Unsaid

FIELDS = {
    said.UP: "up",
    said.SPEED: "speed_gbps",
    said.MTU: "mtu_ip",
    said.TRUST: "trust",
    said.ROCE_DSCP: "dscp_to_traffic_class",
    said.CNP_DSCP: "dscp_to_traffic_class",
    said.OTHER_DSCPS: "dscp_to_traffic_class",
    said.PFC: "pfc_priorities",
    said.LOSSLESS: "lossless_priorities",
    said.QUEUES: "strict_queues",
    said.WEIGHTS: "weights",
    said.ECN: "ecn",
    said.CABLE: "cable_metres",
    said.HEADROOM: "headroom_bytes",
    said.WATCHDOG: "watchdog",
}
"""Where each aspect stands in a PortReport."""

ALWAYS = frozenset(
    ["up", "mtu_ip", "dscp_to_traffic_class", "pfc_priorities", "strict_queues", "ecn"]
)
"""What every system can say: where it does not, it could not be read."""

ONE_CABLE_LENGTH = ("nvue",)
"""Systems that have one cable length for the whole switch: the longest, which loses nothing."""

ROUNDS_THRESHOLDS = ("nvue",)
"""Systems that report ECN thresholds as the chip has them; the others, as they were set."""

Headroom = Callable[[str, float, int], Optional[int]]
"""Bytes after XOFF that a chip needs, by ASIC, Gb/s and metres; None where nobody knows."""


class SwitchEnds:
    """Reads all ports of one switch."""

    def __init__(
        self, switch: Switch, intent: FabricIntent, dscps: DscpTexts, headroom: Headroom
    ) -> None:
        self._switch = switch
        self._intent = intent
        self._dscps = dscps
        self._headroom = headroom
        self._asic = asic_named(switch.asic, {}) or Asic(switch.asic)
        reported = switch.report["ports"] if switch.report is not None else ()
        self.ports: Mapping[str, Mapping[str, Any]] = {port["name"]: port for port in reported}
        # A system that says something of no port at all cannot say it; of some only, it should.
        spoken = {
            key
            for key in set(FIELDS.values())
            if any(port.get(key) is not None for port in self.ports.values() if port["present"])
        }
        system = switch.system or "its system"
        self._unsaid = {
            aspect: Unsaid("the switch does not say it", fault=True)
            if key in ALWAYS or key in spoken
            else Unsaid(f"{system} does not say the {_WORDS[aspect]} of a port")
            for aspect, key in FIELDS.items()
        }
        self._wanted: dict[tuple[str, float], dict[str, Union[str, Unsaid]]] = {}
        self._known: dict[tuple[object, ...], Said] = {}

    def wanted(self, kind: str, speed_gbps: float) -> Said:
        """The same for all links of a kind."""
        key = (kind, speed_gbps)
        if key not in self._wanted:
            self._wanted[key] = self._wants(kind, speed_gbps)
        return self._wanted[key]

    def _wants(self, kind: str, speed_gbps: float) -> dict[str, Union[str, Unsaid]]:
        intent = self._intent
        cables = intent.cable_metres
        metres = cables.to_nodes if kind in (HOST, STORAGE) else cables.between_switches
        room = self._headroom(self._switch.asic, speed_gbps, metres)
        return {
            said.PORT: "there",
            said.UP: "up",
            said.SPEED: said.speed_text(speed_gbps),
            said.MTU: said.mtu_text(intent.mtu_ip),
            said.TRUST: intent.trust,
            **self._dscps.of(intent.dscp_to_traffic_class),
            said.PFC: said.pfc_text(intent.pfc_priorities),
            said.LOSSLESS: said.lossless_text(intent.pfc_priorities),
            said.QUEUES: said.queues_text(
                (queue.traffic_class for queue in intent.queues if queue.strict), intent
            ),
            said.WEIGHTS: said.weights_text(_weights(intent)),
            said.ECN: _wanted_ecn(intent),
            said.CABLE: f"{metres} m",
            said.HEADROOM: f"{room} bytes"
            if room is not None
            else Unsaid(f"nobody knows the headroom of {self._switch.asic or 'its ASIC'}"),
            said.WATCHDOG: said.watchdog_text(intent.watchdog),
        }

    def says(self, name: str, wanted: Said) -> Said:
        port = self.ports.get(name)
        if port is None or not port["present"]:
            return {said.PORT: "the switch has no such port"}
        # The ports of a switch are alike, most of them: each kind is looked at once.
        alike = (id(wanted), *(_frozen(port.get(key)) for key in _KEYS))
        if alike not in self._known:
            self._known[alike] = self._found(port, wanted)
        return self._known[alike]

    def _found(self, port: Mapping[str, Any], wanted: Said) -> dict[str, Union[str, Unsaid]]:
        found: dict[str, Union[str, Unsaid]] = {said.PORT: "there"}
        for aspect, key in FIELDS.items():
            if port.get(key) is None:
                found[aspect] = self._unsaid[aspect]
        classes = port.get("dscp_to_traffic_class")
        if classes is not None:
            found.update(self._dscps.of(tuple(classes)))
        for aspect, key, text in _TEXTS:
            value = port.get(key)
            if value is not None:
                found[aspect] = text(value)
        self._tolerant(port, wanted, found)
        if classes is None:
            found.update(dict.fromkeys(_DSCPS, Unsaid("it has no DSCP map", fault=True)))
        if port.get("up") is False:
            # Its speed means nothing now.
            found.pop(said.SPEED, None)
        return found

    def _tolerant(
        self, port: Mapping[str, Any], wanted: Said, found: dict[str, Union[str, Unsaid]]
    ) -> None:
        """Where as good as wanted is as wanted."""
        intent = self._intent
        lossless, ecn = port.get("lossless_priorities"), port.get("ecn")
        if lossless is not None:
            enough = set(intent.pfc_priorities) <= set(lossless)
            found[said.LOSSLESS] = wanted[said.LOSSLESS] if enough else said.lossless_text(lossless)
        if port.get("strict_queues") is not None:
            found[said.QUEUES] = said.queues_text(port["strict_queues"], intent)
        if ecn is not None:
            found[said.ECN] = self._ecn(ecn)
        if port.get("weights") is not None:
            found[said.WEIGHTS] = self._weights(port["weights"], port.get("strict_queues") or ())
        if port.get("watchdog") is not None:
            found[said.WATCHDOG] = self._watchdog(port["watchdog"])
        metres = port.get("cable_metres")
        if metres is not None and self._switch.system in ONE_CABLE_LENGTH:
            length = str(wanted[said.CABLE])
            if metres >= int(length.split()[0]):
                found[said.CABLE] = length
        room, needed = port.get("headroom_bytes"), wanted[said.HEADROOM]
        if room is not None:
            enough = isinstance(needed, Unsaid) or room >= int(needed.split()[0])
            found[said.HEADROOM] = needed if enough else f"{room} bytes"

    def _ecn(self, ecn: Mapping[Any, Mapping[str, int]]) -> str:
        intent = self._intent
        queue = intent.queue("roce")
        # A report that went through JSON has texts for keys.
        mark = ecn.get(queue.traffic_class) or ecn.get(str(queue.traffic_class))
        if mark is None:
            return f"TC {queue.traffic_class} does not mark"
        values = (mark["minimum_bytes"], mark["maximum_bytes"], mark["probability_percent"])
        if queue.ecn is not None and self._as_wanted(values, queue.ecn):
            return _wanted_ecn(intent)
        return said.ecn_text(queue.traffic_class, *values)

    def _as_wanted(self, values: Sequence[int], wanted: Ecn) -> bool:
        *thresholds, percent = values
        chip = self._asic if self._switch.system in ROUNDS_THRESHOLDS else None
        return percent == wanted.probability_percent and all(
            found == asked or (chip is not None and rounded(chip, asked, found))
            for asked, found in zip((wanted.minimum_bytes, wanted.maximum_bytes), thresholds)
        )

    def _weights(self, weights: Mapping[Any, int], strict: Sequence[int]) -> str:
        """Of the classes that share what is left. One that is strict has said so before."""
        found = {
            # A report that went through JSON has texts for keys.
            queue: asked if queue in strict else weights.get(queue, weights.get(str(queue), 0))
            for queue, asked in _weights(self._intent).items()
        }
        return said.weights_text(found)

    def _watchdog(self, watchdog: Mapping[str, Any]) -> str:
        wanted = self._intent.watchdog
        if not watchdog["enabled"]:
            return said.watchdog_text(watchdog)
        # Where its system has no time to restore, the rest is compared.
        restored = watchdog["restoration_ms"] or wanted.restoration_ms
        text = said.watchdog_text({**watchdog, "restoration_ms": restored})
        # It may look more often than wanted: other ports of the switch can need that.
        if wanted.enabled and watchdog["poll_ms"] > wanted.poll_ms:
            text += f", and looks every {watchdog['poll_ms']} ms instead of {wanted.poll_ms} ms"
        return text


def _frozen(value: object) -> object:
    """What a dictionary can have for a key."""
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, dict) else value


def _weights(intent: FabricIntent) -> dict[int, int]:
    return {each.traffic_class: each.weight_percent for each in intent.queues if not each.strict}


def _wanted_ecn(intent: FabricIntent) -> str:
    queue = intent.queue("roce")
    if queue.ecn is None:
        return f"TC {queue.traffic_class} does not mark"
    ecn = queue.ecn
    return said.ecn_text(
        queue.traffic_class, ecn.minimum_bytes, ecn.maximum_bytes, ecn.probability_percent
    )


_TEXTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    (said.UP, "up", lambda up: "up" if up else "down"),
    (said.SPEED, "speed_gbps", said.speed_text),
    (said.MTU, "mtu_ip", said.mtu_text),
    (said.TRUST, "trust", str),
    (said.PFC, "pfc_priorities", said.pfc_text),
    (said.CABLE, "cable_metres", lambda metres: f"{metres} m"),
)
_KEYS = tuple(dict.fromkeys(FIELDS.values()))
_DSCPS = (said.ROCE_DSCP, said.CNP_DSCP, said.OTHER_DSCPS)
_WORDS = {
    said.UP: "state",
    said.SPEED: "speed",
    said.MTU: "MTU",
    said.TRUST: "trust",
    said.ROCE_DSCP: "DSCP map",
    said.CNP_DSCP: "DSCP map",
    said.OTHER_DSCPS: "DSCP map",
    said.PFC: "PFC",
    said.LOSSLESS: "lossless buffer",
    said.QUEUES: "queues",
    said.WEIGHTS: "shares of queues",
    said.ECN: "ECN thresholds",
    said.CABLE: "cable length",
    said.HEADROOM: "headroom",
    said.WATCHDOG: "PFC watchdog",
}
