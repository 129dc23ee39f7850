# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch does, in the terms of the contract: from CONFIG_DB, ports' state and neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from ...qos.compiled import PfcWatchdog
from ...qos.contract import DSCPS, PRIORITIES
from ..intent import SwitchIntent
from ..report import EcnReport, Neighbour, PortReport, SwitchReport
from . import buffers, tables
from .reading import Present
from .tables import Row, Table

_MAC = re.compile(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE)


def report(intent: SwitchIntent, present: Present) -> SwitchReport:
    switch = _Switch(present)
    lldp = present.config.get(tables.FEATURE, {}).get("lldp", {}).get("state", "enabled")
    return SwitchReport(
        switch=intent.name,
        system=intent.system,
        version=present.version,
        ports=tuple(switch.port(port.name) for port in intent.ports),
        lldp=present.neighbours is not None and lldp != "disabled",
    )


class _Switch:
    def __init__(self, present: Present) -> None:
        self.present = present
        self.config = present.config
        self.queues = tables.by_port(self.table(tables.QUEUE))
        self.groups = tables.by_port(self.table(tables.BUFFER_PG))

    def table(self, name: str) -> Table:
        return self.config.get(name, {})

    def port(self, name: str) -> PortReport:
        row = self.table(tables.PORT).get(name)
        if row is None:
            return PortReport(name, present=False)
        state = self.present.ports.get(name, {})
        qos = {**self.table(tables.PORT_QOS_MAP).get(name, {})}
        qos.setdefault("dscp_to_tc_map", self._everywhere("dscp_to_tc_map"))
        groups = self._lossless(name, qos)
        queues = dict(self._queues(name))
        schedulers = {n: self._object(tables.SCHEDULER, q, "scheduler") for n, q in queues.items()}
        return PortReport(
            name=name,
            present=True,
            alias=row.get("alias", ""),
            up=state["oper_status"] == "up" if "oper_status" in state else None,
            speed_gbps=_gbps(state.get("speed") or row.get("speed")),
            mtu_ip=_number(row.get("mtu")),
            trust=_trust(qos),
            dscp_to_traffic_class=self._dscps(qos),
            pfc_priorities=_priorities(qos.get("pfc_enable", "")),
            lossless_priorities=tuple(groups),
            strict_queues=tuple(n for n, s in schedulers.items() if s.get("type") == "STRICT"),
            weights={
                n: tables.number(s.get("weight"), 1)
                for n, s in schedulers.items()
                if s and s.get("type") != "STRICT"
            },
            ecn=self._ecn(queues),
            cable_metres=self._cable(name),
            headroom_bytes=self._headroom(name, groups, qos),
            watchdog=self._watchdog(name, qos),
            neighbour=self._neighbour(name),
        )

    def _everywhere(self, field: str) -> str:
        return self.table(tables.PORT_QOS_MAP).get("global", {}).get(field, "")

    def _object(self, table: str, row: Row, field: str) -> Row:
        return self.table(table).get(row.get(field, ""), {})

    def _queues(self, port: str) -> Iterable[tuple[int, Row]]:
        rows = self.table(tables.QUEUE)
        found = {n: rows[key] for key in self.queues.get(port, []) for n in tables.numbers_of(key)}
        return sorted(found.items())

    def _dscps(self, qos: Row) -> Optional[tuple[int, ...]]:
        entries = self._object(tables.DSCP_TO_TC_MAP, qos, "dscp_to_tc_map")
        if not entries:
            return None
        return tuple(tables.number(entries.get(str(dscp))) for dscp in range(DSCPS))

    def _lossless(self, port: str, qos: Row) -> dict[int, str]:
        """Priorities whose packets have headroom, with the profile."""
        rows, profiles = self.table(tables.BUFFER_PG), self.table(tables.BUFFER_PROFILE)
        bound = {
            number: rows[key].get("profile", "")
            for key in self.groups.get(port, [])
            for number in tables.numbers_of(key)
        }
        to_group = self._object(tables.PFC_PRIORITY_TO_PRIORITY_GROUP_MAP, qos, "pfc_to_pg_map")
        found = {}
        for priority in range(PRIORITIES):
            profile = bound.get(tables.number(to_group.get(str(priority)), priority), "")
            if profile and buffers.is_lossless(profile, profiles):
                found[priority] = profile
        return found

    def _headroom(self, port: str, groups: dict[int, str], qos: Row) -> Optional[int]:
        """The least of the paused priorities. None: the switch computes it and does not say."""
        paused = _priorities(qos.get("pfc_enable", ""))
        profiles = self.table(tables.BUFFER_PROFILE)
        sizes = [profiles.get(groups[p], {}).get("xoff") for p in paused if p in groups]
        numbers = [tables.number(size) for size in sizes if size is not None]
        return min(numbers) if numbers and len(numbers) == len(sizes) else None

    def _ecn(self, queues: dict[int, Row]) -> dict[int, EcnReport]:
        found = {}
        for number, queue in queues.items():
            profile = self._object(tables.WRED_PROFILE, queue, "wred_profile")
            if profile.get("ecn", "ecn_none") not in ("ecn_all", "ecn_green"):
                continue
            found[number] = EcnReport(
                minimum_bytes=tables.number(profile.get("green_min_threshold")),
                maximum_bytes=tables.number(profile.get("green_max_threshold")),
                probability_percent=tables.number(profile.get("green_drop_probability"), 100),
            )
        return found

    def _cable(self, port: str) -> Optional[int]:
        lengths = {row[port] for row in self.table(tables.CABLE_LENGTH).values() if port in row}
        return _number(lengths.pop().rstrip("m")) if len(lengths) == 1 else None

    def _watchdog(self, port: str, qos: Row) -> PfcWatchdog:
        rows = self.table(tables.PFC_WD)
        row, poll = rows.get(port, {}), rows.get(tables.GLOBAL, {}).get("POLL_INTERVAL")
        return PfcWatchdog(
            enabled=bool(row) and bool(qos.get("pfcwd_sw_enable")),
            poll_ms=tables.number(poll),
            detection_ms=tables.number(row.get("detection_time")),
            restoration_ms=tables.number(row.get("restoration_time")),
            action=row.get("action", ""),
        )

    def _neighbour(self, port: str) -> Optional[Neighbour]:
        heard = (self.present.neighbours or {}).get(port)
        if heard is None:
            return None
        identity = heard.get("lldp_rem_port_id", "")
        if _MAC.fullmatch(identity):
            identity = identity.lower().replace("-", ":")
        return Neighbour(heard.get("lldp_rem_sys_name", ""), identity)


def _trust(qos: Row) -> str:
    if qos.get("dscp_to_tc_map"):
        return "dscp"
    return "pcp" if qos.get("dot1p_to_tc_map") else "none"


def _number(text: Optional[str]) -> Optional[int]:
    return tables.number(text) if tables.is_number(text) else None


def _gbps(megabits: Optional[str]) -> Optional[int]:
    number = _number(megabits)
    return None if number is None else number // 1000


def _priorities(text: str) -> tuple[int, ...]:
    words = (word.strip() for word in text.split(","))
    return tuple(sorted(tables.number(word) for word in words if tables.is_number(word)))
