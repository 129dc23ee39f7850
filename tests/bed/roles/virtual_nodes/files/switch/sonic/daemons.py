# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Effects of a changed configuration: links, neighbours, and buffers set by the daemons."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Optional

from common.state import Log
from common.switch import Hardware, Heard

from . import database
from .database import APPL, OWN, STATE, Config, Row, Store
from .platforms import platform_of

LINK_S = 1.0
"""Delay from admin up until the link is up."""
SINCE = "LINK_DOWN_UNTIL"


class Daemons:
    """Orchagent, buffermgrd and lldpd. They run after each write and before each read."""

    def __init__(self, store: Store, hardware: Hardware, log: Log) -> None:
        self._store = store
        self._hardware = hardware
        self._log = log

    def react(self, old: Config, new: Config) -> None:
        """React to a change of CONFIG_DB."""
        until = self._store.read(OWN, SINCE)
        for port, row in new.get("PORT", {}).items():
            before = old.get("PORT", {}).get(port)
            if before is not None and _bounces(before, row):
                self._log("bounce", port=port)
                until[port] = str(time.time() + LINK_S)
        self._store.write(OWN, {SINCE: until})
        self._buffers(old, new)
        self.links(new)

    def links(self, config: Config) -> None:
        """Return the current state of every port."""
        until = self._store.read(OWN, SINCE)
        cabled = {port.name for port in self._hardware.ports if port.peer}
        now = time.time()
        appl, state = {}, {}
        for port, row in config.get("PORT", {}).items():
            admin = row.get("admin_status", "down")
            up = admin == "up" and port in cabled and now >= float(until.get(port, "0"))
            oper = "up" if up else "down"
            appl[f"PORT_TABLE:{port}"] = {
                **{name: str(value) for name, value in row.items()},
                "admin_status": admin,
                "oper_status": oper,
            }
            state[f"PORT_TABLE|{port}"] = {
                "state": "ok",
                "admin_status": admin,
                "netdev_oper_status": oper,
                "mtu": str(row.get("mtu", "")),
                "speed": str(row.get("speed", "")),
                "supported_fecs": "none,rs,auto",
            }
        self._store.write(APPL, appl)
        self._store.write(STATE, state)

    def neighbours(self, heard: dict[str, Heard]) -> None:
        """Return the rows of lldp_syncd: none for a port that is down."""
        ports = self._store.rows(APPL, "PORT_TABLE:*")
        rows: dict[str, Optional[Row]] = dict.fromkeys(self._store.rows(APPL, "LLDP_ENTRY_TABLE:*"))
        for port, neighbour in heard.items():
            if ports.get(f"PORT_TABLE:{port}", {}).get("oper_status") == "up":
                rows[f"LLDP_ENTRY_TABLE:{port}"] = {
                    "lldp_rem_index": "1",
                    "lldp_rem_chassis_id_subtype": "4",
                    "lldp_rem_chassis_id": neighbour.port
                    if neighbour.is_mac
                    else chassis(neighbour.system),
                    "lldp_rem_port_id_subtype": "3" if neighbour.is_mac else "7",
                    "lldp_rem_port_id": neighbour.port,
                    "lldp_rem_port_desc": neighbour.port,
                    "lldp_rem_sys_name": neighbour.system,
                    "lldp_rem_sys_desc": "simulation",
                }
        self._store.write(APPL, rows)

    def _buffers(self, old: Config, new: Config) -> None:
        """buffermgrd of the traditional model (sonic-swss e6b0c5b5, cfgmgr/buffermgr.cpp). It
        binds its profile to each lossless priority group of a changed port, and replaces any
        other. On a Mellanox it removes its profile from a port that goes down."""
        if new.get("DEVICE_METADATA", {}).get("localhost", {}).get("buffer_model") == "dynamic":
            return
        after = {table: dict(rows) for table, rows in new.items()}
        platform = platform_of(self._hardware.asic)
        for port in _touched(old, new):
            row = new["PORT"][port]
            cable = _cable(new, port)
            enabled = new.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable")
            if not cable or cable == "0m" or enabled is None:
                continue
            speed = str(row.get("speed", ""))
            name = f"pg_lossless_{speed}_{cable}_profile"
            if platform.asic_type == "mellanox" and row.get("admin_status", "down") == "down":
                for key in [f"{port}|{group}" for group in groups(enabled)]:
                    if after.get("BUFFER_PG", {}).get(key) == {"profile": name}:
                        del after["BUFFER_PG"][key]
                        self._log("buffermgrd", taken_from=key)
                continue
            profile = platform.profile(speed, cable)
            if not profile:
                self._log("buffermgrd", port=port, no_profile_for=f"{speed},{cable}")
                continue
            after.setdefault("BUFFER_PROFILE", {}).setdefault(name, profile)
            for group in groups(enabled):
                key = f"{port}|{group}"
                if after.setdefault("BUFFER_PG", {}).get(key) != {"profile": name}:
                    after["BUFFER_PG"][key] = {"profile": name}
                    self._log("buffermgrd", bound=key, profile=name)
        database.save(self._store, new, after)


def _bounces(before: Row, after: Row) -> bool:
    if before.get("admin_status", "down") != after.get("admin_status", "down"):
        return after.get("admin_status") == "up"
    return any(before.get(name) != after.get(name) for name in ("speed", "fec", "autoneg", "lanes"))


def _touched(old: Config, new: Config) -> Iterator[str]:
    for port, row in new.get("PORT", {}).items():
        before = old.get("PORT", {}).get(port, {})
        if (
            any(before.get(name) != row.get(name) for name in ("speed", "admin_status"))
            or _cable(old, port) != _cable(new, port)
            or _pfc(old, port) != _pfc(new, port)
        ):
            yield port


def _cable(config: Config, port: str) -> str:
    lists = config.get("CABLE_LENGTH", {}).values()
    return next((str(lengths[port]) for lengths in lists if port in lengths), "")


def _pfc(config: Config, port: str) -> str:
    return str(config.get("PORT_QOS_MAP", {}).get(port, {}).get("pfc_enable", ""))


def groups(enabled: str) -> list[str]:
    """Parse `3,4` as the range 3-4, `3` as 3, and `1,3,4` as 1 and 3-4."""
    found: list[list[int]] = []
    for number in sorted(int(word) for word in enabled.split(",") if word):
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]


def chassis(name: str) -> str:
    """Return the MAC address of a system of this name."""
    digits = (
        f"{sum(ord(letter) * 31**position for position, letter in enumerate(name)) % 2**40:010x}"
    )
    return ":".join(["02", *(digits[position : position + 2] for position in range(0, 10, 2))])
