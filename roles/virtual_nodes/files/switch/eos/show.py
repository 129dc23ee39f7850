# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the switch tells: each command as text, as JSON, or both."""

from __future__ import annotations

import time
from typing import Any, Optional

from common.faults import Faults
from common.switch import Hardware

from . import config as configs
from .config import Config
from .grammar import Failed
from .sessions import MOST_OPEN, MOST_SAVED, Session, Sessions

NEWEST = "4.33.1F"
MODEL = "DCS-7060X6-64PE"


class NoJson(Exception):
    """The command has only a text form."""


class Shows:
    def __init__(self, hardware: Hardware, faults: Faults, sessions: Sessions) -> None:
        self._hardware = hardware
        self._faults = faults
        self._sessions = sessions
        self._boot = time.time()

    @property
    def version(self) -> str:
        return self._hardware.release or NEWEST

    def text_of(self, config: Config, name: str, everything: bool = False) -> str:
        host = config.top["hostname"].text.split()[1] if "hostname" in config.top else "localhost"
        lines = configs.written(config, everything)
        if name.startswith("running") and self._faults.take("read") == "wrong":
            lines = _wrong(lines)
        return "".join(
            f"{line}\n"
            for line in (
                f"! Command: show {name}",
                f"! device: {host} ({MODEL}, EOS-{self.version}, simulation)",
                *lines,
                "end",
            )
        )

    def running_config(self, name: str, as_json: bool) -> Any:
        if as_json:
            return {
                "cmds": configs.as_commands(self._sessions.running),
                "comments": [],
                "header": [
                    f"Command: show {name}",
                    f"device: {self._hardware.name} ({MODEL}, EOS-{self.version}, simulation)",
                ],
            }
        return self.text_of(self._sessions.running, name, name.endswith("all"))

    def startup_config(self, as_json: bool) -> Any:
        if as_json:
            return {"cmds": configs.as_commands(self._sessions.startup), "comments": []}
        return self.text_of(self._sessions.startup, "startup-config")

    def version_facts(self, as_json: bool) -> Any:
        facts = {
            "mfgName": "Arista (simulation)",
            "modelName": f"{MODEL} (simulation)",
            "hardwareRevision": "00.00",
            "serialNumber": f"SIMULATION-{self._hardware.name}",
            "systemMacAddress": "02:00:00:00:00:01",
            "version": f"{self.version} (simulation)",
            "architecture": "simulation",
            "internalVersion": f"{self.version}-simulation",
            "imageFormatVersion": "3.0",
            "bootupTimestamp": self._boot,
            "uptime": time.time() - self._boot,
            "isIntlVersion": False,
        }
        if as_json:
            return facts
        return f"{facts['modelName']}\nSoftware image version: {facts['version']}\n"

    def hostname(self, as_json: bool) -> Any:
        line = self._sessions.running.top.get("hostname")
        name = line.text.split()[1] if line is not None else "localhost"
        return (
            {"hostname": name, "fqdn": name} if as_json else f"Hostname: {name}\nFQDN:     {name}\n"
        )

    def _link(self, name: str) -> tuple[str, str]:
        """Status of an interface and of its protocol."""
        head = self._sessions.running.top.get(f"interface {name}")
        if head is not None and "shutdown" in head.below:
            return "disabled", "down"
        up = name in self._hardware.neighbours(self._faults)
        return ("connected", "up") if up else ("notconnect", "down")

    def _setting(self, port: str, key: str) -> Optional[str]:
        head = self._sessions.running.top.get(f"interface {port}")
        line = head.below.get(key) if head is not None else None
        return line.text if line is not None else None

    def interfaces_status(self, as_json: bool) -> Any:
        rows: dict[str, dict[str, Any]] = {}
        for port in self._hardware.ports:
            status, protocol = self._link(port.name)
            routed = self._setting(port.name, "switchport") is not None
            rows[port.name] = {
                "description": (self._setting(port.name, "description") or "").partition(" ")[2],
                "linkStatus": status,
                "lineProtocolStatus": protocol,
                "vlanInformation": {
                    "interfaceMode": "routed" if routed else "bridged",
                    "interfaceForwardingModel": "routed" if routed else "bridged",
                    **({} if routed else {"vlanId": 1}),
                },
                "duplex": "duplexFull",
                "autoNegotiateActive": False,
                "bandwidth": port.speed_gbps * 10**9 if status == "connected" else 0,
                "interfaceType": f"{port.speed_gbps}GBASE-simulation",
            }
        if as_json:
            return {"interfaceStatuses": rows}
        head = f"{'Port':10} {'Name':20} {'Status':12} {'Speed':6} Type\n"
        return head + "".join(
            f"{name:10} {row['description'][:20]:20} {row['linkStatus']:12} "
            f"{row['bandwidth'] // 10**9}G {row['interfaceType']}\n"
            for name, row in rows.items()
        )

    def interfaces(self, as_json: bool) -> Any:
        if not as_json:
            raise Failed("The simulation has only the JSON form of this command")
        rows = {}
        for port in self._hardware.ports:
            status, protocol = self._link(port.name)
            mtu = (self._setting(port.name, "mtu") or "mtu 1500").split()[1]
            routed = self._setting(port.name, "switchport") is not None
            rows[port.name] = {
                "name": port.name,
                "forwardingModel": "routed" if routed else "bridged",
                "lineProtocolStatus": protocol,
                "interfaceStatus": status,
                "hardware": "ethernet",
                "mtu": int(mtu),
                "bandwidth": port.speed_gbps * 10**9 if status == "connected" else 0,
                "description": (self._setting(port.name, "description") or "").partition(" ")[2],
            }
        return {"interfaces": rows}

    def neighbours(self, as_json: bool) -> Any:
        heard = self._hardware.neighbours(self._faults)
        rows = [
            {
                "port": port,
                "neighborDevice": one.system or _dotted(one.port),
                "neighborPort": _dotted(one.port) if one.is_mac else one.port,
                "ttl": 120,
            }
            for port, one in heard.items()
        ]
        if as_json:
            return {
                "tablesLastChangeTime": self._boot,
                "tablesAgeOuts": 0,
                "tablesInserts": len(rows),
                "lldpNeighbors": rows,
                "tablesDeletes": 0,
                "tablesDrops": 0,
            }
        return "Port          Neighbor Device ID       Neighbor Port ID    TTL\n" + "".join(
            f"{row['port']:13} {row['neighborDevice']:24} {row['neighborPort']:19} {row['ttl']}\n"
            for row in rows
        )

    def sessions(self, as_json: bool) -> Any:
        new = _number(self.version) >= (4, 32)
        states = self._sessions.all()
        timed = self._sessions.timed
        facts: dict[str, Any] = {
            "maxSavedSessions": MOST_SAVED,
            "maxOpenSessions": MOST_OPEN,
            "mergeOnCommit": False,
            "saveToStartupConfigOnCommit": False,
            "sessions": {
                name: {
                    "state": "pending" if new and name == timed else state,
                    "commitUser": "",
                    "description": "",
                    "instances": {},
                    **({"commitBy": self._sessions.timer_ends} if name == timed else {}),
                }
                for name, state in states.items()
            },
        }
        if new and timed:
            facts["commitTimerSessionName"] = timed
            facts["commitTimerExpireTime"] = self._sessions.timer_ends
        if as_json:
            return facts
        return (
            f"Maximum number of completed sessions: {MOST_SAVED}\n"
            f"Maximum number of pending sessions: {MOST_OPEN}\n\n"
            "  Name                     State\n"
            "  ------------------------ ------------------\n"
            + "".join(f"  {name:24} {state}\n" for name, state in states.items())
        )

    def session_differences(self, session: Session, as_json: bool) -> Any:
        if as_json:
            raise NoJson
        return self._sessions.difference(session)

    def session_config(self, session: Session, as_json: bool) -> Any:
        if as_json:
            return {"cmds": configs.as_commands(session.config), "comments": []}
        return self.text_of(session.config, "session-config")


def _wrong(lines: list[str]) -> list[str]:
    """Read-back that is not what is there: another MTU, and no lossless priority."""
    return [
        "   mtu 1501" if line.strip().startswith("mtu ") else line
        for line in lines
        if not line.endswith(" no-drop")
    ]


def _dotted(mac: str) -> str:
    """EOS writes 0011.2233.4455."""
    digits = mac.replace(":", "")
    return ".".join(digits[place : place + 4] for place in (0, 4, 8)) if len(digits) == 12 else mac


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".")[:2])
