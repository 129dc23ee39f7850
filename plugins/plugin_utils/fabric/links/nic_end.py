# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A NIC's end of a link: what it shall say, and what the module roce_rails read of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Optional, Union

from ....module_utils.qos import HostSettings
from ...qos.compiled import FabricIntent
from ...qos.contract import DSCPS
from . import said
from .cabling import Node
from .said import DscpTexts, Said, Unsaid

NO_NIC = "rail_settings"
"""The check of roce_rails on a rail that has no settings of a NIC."""
DEFAULT_REASON = "the NIC does not say it"

NEEDS = {
    said.TRUST: ("trust",),
    said.ROCE_DSCP: ("dscp_to_priority", "priority_to_tc"),
    said.CNP_DSCP: ("dscp_to_priority", "priority_to_tc"),
    said.OTHER_DSCPS: ("dscp_to_priority", "priority_to_tc"),
    said.PRIORITY: ("dscp_to_priority",),
    said.PFC: ("pfc",),
    said.QUEUES: ("ets",),
    said.MARKING: ("cma_roce_tos",),
    said.CNP_MARKING: ("cnp_dscp", "cnp_priority"),
    said.ECN_POINTS: ("ecn_np", "ecn_rp"),
}
"""The settings that each aspect is read from."""
SETTINGS = tuple(
    dict.fromkeys((*(name for names in NEEDS.values() for name in names), "traffic_class"))
)


class NicEnds:
    """Reads all rails of one node."""

    def __init__(
        self,
        node: Node,
        intent: FabricIntent,
        dscps: DscpTexts,
        contract: Said,
        known: dict[object, Said],
    ) -> None:
        """`known`: what all nodes of a check share, since their rails are alike."""
        self._known = known
        self._intent = intent
        self._dscps = dscps
        self._contract = contract
        state = node.state or {}
        self.rails: Mapping[str, Mapping[str, Any]] = state.get("rails") or {}
        self._settings: Mapping[str, Mapping[str, Any]] = state.get("settings") or {}
        self._instead = {
            check["subject"]: Unsaid(check["reason"], fault=check["status"] == "failed")
            for check in state.get("checks") or []
            if check["name"] == NO_NIC and check["status"] != "ok" and check.get("reason")
        }

    def wanted(self, speed_gbps: float, mtu: int) -> Said:
        return {
            **self._contract,
            said.SPEED: said.speed_text(speed_gbps),
            said.MTU: said.mtu_text(mtu),
        }

    def says(self, name: str) -> Said:
        rail = self.rails.get(name)
        if rail is None:
            return {said.PORT: "the node has no such rail"}
        found: dict[str, Union[str, Unsaid]] = {
            said.PORT: "there",
            said.UP: said.NOT_SET_UP
            if not rail["up"]
            else "up"
            if rail["carrier"]
            else "no carrier",
            said.MTU: said.mtu_text(rail["mtu"]),
        }
        if rail["carrier"]:
            speed = rail.get("speed_gbps")
            found[said.SPEED] = (
                said.speed_text(speed)
                if speed is not None
                else Unsaid("its driver says no speed of the link")
            )
        settings = self._settings.get(name) or {}
        alike = (self._instead.get(name), *(_frozen(settings.get(each)) for each in SETTINGS))
        if alike not in self._known:
            self._known[alike] = self._qos(name, settings)
        found.update(self._known[alike])
        return found

    def _qos(self, name: str, settings: Mapping[str, Mapping[str, Any]]) -> Said:
        found: dict[str, Union[str, Unsaid]] = {}
        values: dict[str, Any] = {}
        for aspect, names in NEEDS.items():
            missing = self._missing(name, names, settings)
            if missing is not None:
                found[aspect] = missing
                continue
            values.update({each: settings[each]["found"] for each in names})
        if "dscp_to_priority" in values:
            table = values["dscp_to_priority"]
            found[said.PRIORITY] = _priorities(table, self._intent)
            if "priority_to_tc" in values:
                found.update(self._dscps.of(_classes(table, values["priority_to_tc"])))
        if "trust" in values:
            found[said.TRUST] = str(values["trust"])
        if "pfc" in values:
            found[said.PFC] = said.pfc_text(values["pfc"])
        if "ets" in values:
            found[said.QUEUES] = _queues(values["ets"], self._intent)
        if "cma_roce_tos" in values:
            forced = settings.get("traffic_class") or {}
            forced_byte = forced.get("found") if forced.get("status") != "not_supported" else None
            found[said.MARKING] = _marking(values["cma_roce_tos"], forced_byte)
        if "cnp_dscp" in values and "cnp_priority" in values:
            found[said.CNP_MARKING] = _cnp(values["cnp_dscp"], values["cnp_priority"])
        if "ecn_np" in values and "ecn_rp" in values:
            found[said.ECN_POINTS] = _points(values["ecn_np"], values["ecn_rp"])
        return found

    def _missing(
        self, rail: str, names: tuple[str, ...], settings: Mapping[str, Mapping[str, Any]]
    ) -> Optional[Unsaid]:
        for name in names:
            setting = settings.get(name)
            if setting is None:
                return self._instead.get(rail, Unsaid(DEFAULT_REASON, fault=True))
            if setting["status"] == "not_supported":
                return Unsaid(setting["reason"])
            if setting["found"] is None:
                why = setting.get("reason") or DEFAULT_REASON
                return Unsaid(why, fault=True)
        return None


def _frozen(setting: Optional[Mapping[str, Any]]) -> object:
    """What a dictionary can have for a key."""
    if setting is None:
        return None
    return (setting["status"], str(setting["found"]), setting.get("reason"))


def contract_of(settings: HostSettings, intent: FabricIntent, dscps: DscpTexts) -> Said:
    """What every NIC shall say, apart from the speed and MTU of its rail."""
    to_tc = settings.priority_to_tc
    classes = tuple(to_tc[settings.dscp_to_priority[dscp]] for dscp in range(DSCPS))
    strict = [place for place, each in enumerate(settings.ets) if each.tsa == "strict"]
    points = list(settings.ecn_priorities)
    return {
        said.PORT: "there",
        said.UP: "up",
        said.TRUST: settings.trust,
        **dscps.of(classes),
        said.PRIORITY: _priority_text(settings.dscp_to_priority, intent),
        said.PFC: said.pfc_text(settings.pfc_priorities),
        said.QUEUES: said.queues_text(strict, intent),
        said.MARKING: _marking(settings.traffic_class, None),
        said.CNP_MARKING: _cnp(settings.cnp_dscp, settings.cnp_priority),
        said.ECN_POINTS: _points(points, points),
    }


def _marking(byte: int, forced: Optional[int]) -> str:
    """With which DSCP RoCE leaves: by default, and where every connection is forced."""
    text = _sent(byte)
    if forced is not None and forced != byte:
        return f"{text} by default, {_sent(forced)} in fact"
    return text


def _sent(byte: int) -> str:
    capable = byte & 0b11 in (0b01, 0b10)
    return f"sends DSCP {byte >> 2}" + ("" if capable else " and does not let switches mark")


def _cnp(dscp: int, priority: int) -> str:
    return f"CNP with DSCP {dscp} in priority {priority}"


def _points(notification: list[int], reaction: list[int]) -> str:
    if not notification and not reaction:
        return "off"
    if notification == reaction:
        return f"on for priority {said.numbers(notification)}"
    return (
        f"notification on for {said.numbers(notification) or 'none'}, "
        f"reaction on for {said.numbers(reaction) or 'none'}"
    )


@lru_cache(maxsize=1024)
def _table(text: str) -> tuple[str, ...]:
    """`0-25:0 26:3 27-63:0` as 64 values; several of one DSCP stay as they are, `0+3`."""
    places = [""] * DSCPS
    for run in text.split():
        dscps, _colon, value = run.partition(":")
        first, _dash, last = dscps.partition("-")
        for dscp in range(int(first), int(last or first) + 1):
            places[dscp] = value
    # A DSCP that nobody mapped has the priority of packets without one.
    return tuple(value or "0" for value in places)


@lru_cache(maxsize=1024)
def _classes(table: str, priority_to_tc: str) -> tuple[str, ...]:
    to_tc = dict(pair.split(":") for pair in priority_to_tc.split())
    return tuple(to_tc.get(value, value) for value in _table(table))


def _priorities(table: str, intent: FabricIntent) -> str:
    return _priority_text(dict(enumerate(_table(table))), intent)


def _priority_text(priorities: Mapping[int, object], intent: FabricIntent) -> str:
    return ", ".join(
        f"DSCP {dscp} in priority {priorities[dscp]}"
        for name in ("roce", "cnp")
        for dscp in intent.queue(name).dscps
    )


def _queues(ets: str, intent: FabricIntent) -> str:
    """`0:ets 50% 3:ets 50% 6:strict`"""
    strict = []
    for part in ets.split():
        traffic_class, colon, how = part.partition(":")
        if colon and how == "strict":
            strict.append(int(traffic_class))
    return said.queues_text(strict, intent)
